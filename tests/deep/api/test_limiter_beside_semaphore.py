"""A semaphore and a limiter around the same calls: so many at a time, and so many in a period."""

from __future__ import annotations

import asyncio

AT_A_TIME, CALLS = 3, 40

DAY_MS = 86_400_000

RATE, PERIOD_US = 8, 100_000


async def test_calls_are_few_at_a_time_and_few_in_a_period(here, there, raw):
    inside, most_inside = 0, 0

    async def call(client):
        nonlocal inside, most_inside
        async with (
            client.semaphore("api", AT_A_TIME),
            client.limiter("api", f"{RATE}/{PERIOD_US // 1000}ms; {CALLS}/{DAY_MS}ms"),
        ):
            inside += 1
            most_inside = max(most_inside, inside)
            await asyncio.sleep(0.001)
            inside -= 1

    await asyncio.gather(*(call((here, there)[number % 2]) for number in range(CALLS)))
    assert 0 < most_inside <= AT_A_TIME
    assert inside == 0
    # The window of a day has all admissions, each with its time in microseconds of the server.
    admitted = sorted(int(at) for _, at in raw.zrange(f"{{hf:limiter:api}}:window:{DAY_MS}", 1, -1, withscores=True))
    assert len(admitted) == CALLS
    assert all(later - at >= PERIOD_US for at, later in zip(admitted, admitted[RATE:], strict=False))
    status = await here.semaphore("api", AT_A_TIME).status()
    assert (status.holding, status.waiting) == (0, 0)
