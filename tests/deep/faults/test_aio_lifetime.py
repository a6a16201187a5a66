"""Clients come and go, and so do loops: whatever ends first, it ends without a word and leaves nothing open.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys

import pytest

from handfast import AsyncHandfast, HandfastError
from handfast.embedded import PrivateServer
from tests._support.cancelling import connections_since, newest, session_of
from tests._support.engine import Engine
from tests._support.helpers import eventually, eventually_async
from tests.gate.faults import test_aio_lifetime as gate
from tests.gate.faults.test_aio_lifetime import CYCLES, nothing_left, open_files

mine = gate.mine
other = gate.other

IMPORTS = """
import asyncio, gc, importlib, os, signal, sys, threading
from handfast import AsyncHandfast, HandfastError

url, kind = sys.argv[1:3]
"""

PREAMBLE = (
    IMPORTS
    + """
make_loop = importlib.import_module(kind).new_event_loop

def run(coroutine):
    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.get_loop().slow_callback_duration = 60  # a busy machine is not a failure
        return runner.run(coroutine)

async def use(hf, name="a"):
    lock = hf.lock(name)
    async with lock as lease:
        await lease.extend(40)
        assert await lock.try_acquire() is None
    assert not await lock.locked()

async def crowd(hf):
    \"\"\"Tasks that hold and tasks that wait, and are left alone with it.\"\"\"
    async def hold(name):
        async with hf.lock(name):
            await asyncio.sleep(60)
    async def wait(name):
        await hf.lock(name).acquire()
    tasks = [asyncio.create_task(how(name)) for how, name in zip((hold, hold, wait, wait, hold), "ababa")]
    while [(await hf.lock(name).status()).waiting for name in "ab"] != [2, 1]:
        await asyncio.sleep(0.001)
    return tasks
"""
)

SILENT = {
    "nothing is closed": """
async def main():
    await use(AsyncHandfast(url))
run(main())
""",
    "a client for the whole program": """
hf = AsyncHandfast(url)
for _ in range(3):
    run(use(hf))
""",
    "a client that is never used": """
hf = AsyncHandfast(url)
async def main():
    await AsyncHandfast(url).close()
run(main())
""",
    "tasks that hold and wait are left over": """
hf = AsyncHandfast(url)
async def main():
    tasks.extend(await crowd(hf))
tasks = []
run(main())
assert all(task.cancelled() for task in tasks)
""",
    "tasks are left over without a reference": """
async def main():
    await crowd(AsyncHandfast(url))
run(main())
""",
    "tasks are left over while it connects for the first time": """
hf = AsyncHandfast(url)
async def main():
    tasks = [asyncio.create_task(hf.lock("a").acquire()) for _ in range(3)]
    for _ in range(turns):
        await asyncio.sleep(0)
for turns in (1, 2, 4, 7):
    run(main())
""",
    "a client is dropped": """
async def main():
    other, hf = AsyncHandfast(url), AsyncHandfast(url)
    await use(hf)
    await use(other)
    transport = next(iter(hf._driver._contexts.values())).session._connection.transport._transport
    del hf
    gc.collect()
    for _ in range(5):
        await asyncio.sleep(0)
    assert transport.is_closing()
    await use(other)
run(main())
""",
    "a client is dropped by another thread": """
async def main():
    box = [AsyncHandfast(url)]
    await use(box[0])
    thread = threading.Thread(target=lambda: (box.clear(), gc.collect()))
    thread.start()
    thread.join()
    await asyncio.sleep(0.01)
run(main())
""",
    "a client is closed twice": """
async def main():
    hf = AsyncHandfast(url)
    await use(hf)
    await asyncio.gather(hf.close(), hf.close())
    await hf.close()
    async with AsyncHandfast(url) as hf:
        await use(hf)
        await hf.close()
run(main())
""",
    "a client is closed while others wait": """
async def main():
    hf, other = AsyncHandfast(url), AsyncHandfast(url)
    lease = await other.lock("a").acquire()
    tasks = [asyncio.create_task(hf.lock("a").acquire()) for _ in range(5)]
    while (await hf.lock("a").status()).waiting < 5:
        await asyncio.sleep(0.001)
    await hf.close()
    closed = await asyncio.gather(*tasks, return_exceptions=True)
    assert {(type(one).__name__, one.name, str(one)) for one in closed} == {("ClientClosed", "a", "this client was closed; 'with' opens it again")}
    assert not (await other.lock("a").status()).waiting
    await lease.release()
    await other.close()
run(main())
""",
    "a client outlives its loops and is closed on another": """
hf = AsyncHandfast(url)
run(use(hf))
run(hf.close())
run(hf.close())
""",
    "the program exits within a block": """
hf = AsyncHandfast(url)
async def main():
    async with hf.lock("a"):
        sys.exit(0)
run(main())
""",
    "two loops in two threads end": """
hf = AsyncHandfast(url)
threads = [threading.Thread(target=run, args=(use(hf, name),)) for name in "abc"]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
""",
    "a generator that holds a lease is left over": """
hf = AsyncHandfast(url)
async def generate():
    async with hf.lock("a"):
        yield 1
async def main():
    global generator
    generator = generate()
    await anext(generator)
run(main())
run(use(hf))
""",
}


CLOSED = """
hf = AsyncHandfast(url)
for _ in range(2):
    loop = make_loop()
    loop.slow_callback_duration = 60
    loop.run_until_complete(use(hf))
    loop.close()
del hf, loop
gc.collect()
"""


def play(server, kind, scenario, within=20):
    """Run it as a program; what it said."""
    if kind == "uvloop":
        pytest.importorskip("uvloop")
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", PREAMBLE + scenario, server.url, kind]
    done = subprocess.run(command, capture_output=True, text=True, timeout=within, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("kind", ["asyncio", "uvloop"])
@pytest.mark.parametrize("scenario", SILENT)
def test_a_client_ends_silently_when(server, raw, scenario, kind):
    known = newest(raw)
    play(server, kind, SILENT[scenario])
    assert nothing_left(raw)
    eventually(lambda: not connections_since(known, raw))


def test_a_client_ends_silently_when_a_loop_is_closed_without_its_shutdown(server, raw):
    known = newest(raw)
    play(server, "asyncio", CLOSED)  # uvloop itself warns of whatever is open then
    assert nothing_left(raw)
    eventually(lambda: not connections_since(known, raw))


@pytest.mark.parametrize("kind", ["asyncio", "uvloop"])
def test_a_client_ends_silently_when_the_server_is_gone(kind):
    scenario = """
hf = AsyncHandfast(url)
async def main():
    await crowd(hf)
    os.kill(int(sys.stdin.readline()), signal.SIGKILL)
    await asyncio.sleep(0.1)
run(main())
"""
    with PrivateServer() as server:
        command = [sys.executable, "-X", "dev", "-W", "error", "-c", PREAMBLE + scenario, server.url, kind]
        if kind == "uvloop":
            pytest.importorskip("uvloop")
        done = subprocess.run(command, input=f"{server.pid}\n", capture_output=True, text=True, timeout=30, check=False)
    expected = ("lost the lease", "the cleanup of", "cannot renew")
    said = [line for line in done.stderr.splitlines() if not line.startswith(expected)]
    assert (done.returncode, said) == (0, [])


LEFT = """
hf = AsyncHandfast(url) if kind == "asyncio" else None
plain = asyncio.Lock()

def lock(name):
    return hf.lock(name) if hf else plain

async def hold(name):
    async with lock(name):
        await asyncio.sleep(60)

async def wait(name):
    await lock(name).acquire()

async def one_holds_and_one_waits():
    while hf and not (await hf.lock("a").status()).waiting:
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.01)

loop = asyncio.new_event_loop()
loop.slow_callback_duration = 60
tasks = [loop.create_task(hold("a")), loop.create_task(wait("a"))]
loop.run_until_complete(one_holds_and_one_waits())
loop.close()
del tasks
gc.collect()
"""


def test_a_loop_that_is_closed_over_its_tasks_says_no_more_than_with_asyncios_locks(server, raw):
    said = []
    for kind in ("asyncio", "asyncio.locks"):
        command = [sys.executable, "-X", "dev", "-W", "error", "-c", IMPORTS + LEFT, server.url, kind]
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
        assert done.returncode == 0
        said.append([line for line in done.stderr.splitlines() if line[:1] != " "])
    ours, plain = said
    assert sum("Task was destroyed" in line for line in ours) == 2
    assert sum("Exception ignored" in line for line in ours) <= sum("Exception ignored" in line for line in plain)
    assert len(ours) <= len(plain)


# --- closing


async def test_a_close_that_is_cancelled_closes_the_connection(mine, other, raw):
    lease = await other.lock("a").acquire()
    client = AsyncHandfast(mine._driver._connector)
    waiter = asyncio.create_task(client.lock("a").acquire())
    await eventually_async(Engine(raw).queue)
    known = session_of(client)._connection.transport._transport
    session_of(client)._connection.transport.pause_writing()  # so that the request cannot be taken back
    closing = asyncio.create_task(client.close())
    await asyncio.sleep(0.01)
    closing.cancel()
    await asyncio.wait((closing, waiter))
    assert closing.cancelled()
    assert known.is_closing()
    with pytest.raises(HandfastError):
        waiter.result()
    await client.close()
    assert await lease.release() is True
    async with other.lock("a").acquire(timeout=10):
        pass


async def test_a_lease_of_a_closed_client_is_not_renewed(mine, other, raw):
    lease = await mine.lock("a", ttl=0.3).acquire()
    await mine.close()
    async with other.lock("a").acquire(timeout=10):
        assert lease.lost


# --- growth


@pytest.mark.parametrize("end", ["closed", "dropped"])
async def test_clients_that_come_and_go_leave_no_files_tasks_or_connections(server, raw, end):
    known = newest(raw)

    async def cycle():
        hf = AsyncHandfast(server.url)
        async with hf.lock("a"):
            pass
        if end == "closed":
            await hf.close()

    await cycle()
    await asyncio.sleep(0.01)
    files = open_files()
    for _ in range(CYCLES):
        await cycle()
    gc.collect()
    await eventually_async(lambda: open_files() <= files)
    await eventually_async(lambda: not connections_since(known, raw))
    assert asyncio.all_tasks() == {asyncio.current_task()}
