"""The program of ``partition-items.md`` that spreads bots over workers, which waits for real time."""

from __future__ import annotations

import asyncio

from tests._support.helpers import eventually_async
from tests.gate.docs.test_page_programs import program


async def test_a_fleet_of_bots_runs_each_bot_once(server):
    workers = [program("partition-items.md", "bots.py", server) for _ in range(2)]
    tasks = [asyncio.create_task(workers[0].main())]
    await eventually_async(lambda: len(workers[0].running) == 4)
    tasks[0].cancel()
    await asyncio.wait(tasks)
    assert not workers[0].running
    tasks = [asyncio.create_task(worker.main()) for worker in workers]
    await eventually_async(lambda: set(workers[0].running) | set(workers[1].running) == set(workers[0].BOTS))
    assert not set(workers[0].running) & set(workers[1].running)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
