"""The programs of the page on task queues, as they stand there, with two workers each.

The test writes ``shop``, the module with the work: it notes who is inside. A queue that delivers the message of a dead worker again
does so after minutes; the test has the queue look earlier.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import sys

import pytest
import redis

from tests._support.helpers import eventually, eventually_async
from tests.deep.frameworks.test_frameworks import assert_idle, running
from tests.deep.frameworks.test_recipes import written  # noqa: F401 -- a fixture

WORK = "tests.deep.frameworks.queue_shop"
TTL_S = 5
"""The ttl of the locks on the page, in seconds."""

AIRFLOW = ("airflow", "airflow.sdk", "airflow.providers.standard.operators.python")
"""The modules that the program of Airflow imports."""


@pytest.fixture
def program(server, raw, written, monkeypatch):  # noqa: F811 -- the fixture
    """Return a function that writes the programs of the page, and imports the named program to send tasks; None imports none."""
    monkeypatch.setenv("HANDFAST_URL", server.url)

    def load(name, suffix=""):
        folder = written("task-queues.md")
        (folder / "shop.py").write_text(f"from {WORK} import pull{suffix} as pull, render{suffix} as render\n")
        return name and importlib.import_module(name)

    yield load
    sys.modules.pop("shop", None)


@pytest.fixture
def log(tmp_path):
    """Return a function that returns what the workers have logged."""
    return lambda: "".join(path.read_text() for path in tmp_path.glob("log *"))


@pytest.fixture
def workers(server, tmp_path):
    """Return a context manager that runs a command several times at once."""

    @contextlib.contextmanager
    def run(*command, count=1, flag="-m"):
        with contextlib.ExitStack() as stack:
            yield [
                stack.enter_context(running(server, flag, *command, log=tmp_path / f"log {number}"))
                for number in range(count)
            ]

    return run


@contextlib.contextmanager
def disconnecting(pool):
    """Close the connections by which this process sends tasks, also when the test fails."""
    try:
        yield
    finally:
        pool.disconnect()


def fences(raw, shop):
    return [int(fence) for fence in raw.lrange(f"{shop}:fences", 0, -1)]


def assert_apart(raw, shop, count):
    """Wait until all tasks have run; check that no two overlapped, and that fences grew."""
    eventually(lambda: len(fences(raw, shop)) == count and raw.get(f"{shop}:inside") == "0")
    assert raw.get(f"{shop}:overlaps") is None
    assert fences(raw, shop) == sorted(set(fences(raw, shop)))


def holder(hf, shop):
    """Return the process that holds the lock of a shop."""
    eventually(lambda: hf.lock(f"sync:{shop}").locked(), within=20)
    (one,) = hf.lock(f"sync:{shop}").status().holders
    return int(one.label.rpartition(":")[2])


def take_away(raw, hf, shop, log):
    """Take the lock from the task that is inside, which fails."""
    holder(hf, shop)
    eventually(lambda: fences(raw, shop))
    hf.lock(f"sync:{shop}").force_release()
    raw.delete(f"{shop}:stays")
    eventually(lambda: "LeaseLost" in log())


def released_in_time(raw, hf, shop):
    """Check that a time limit ends the block of a task, and releases the lease before the ttl."""
    eventually(lambda: raw.get(f"{shop}:total") == "1", within=10)
    eventually(lambda: not hf.lock(f"sync:{shop}").locked(), within=TTL_S / 2)
    assert raw.exists(f"{shop}:stays")


def kill_holder(raw, hf, shop):
    """Kill the holder. The lease does not end with the process."""
    pid = holder(hf, shop)
    eventually(lambda: len(fences(raw, shop)) == 1)
    os.kill(pid, signal.SIGKILL)
    raw.delete(f"{shop}:stays", f"{shop}:inside")
    assert hf.lock(f"sync:{shop}").locked()


def end_of_lease(hf, shop):
    eventually(lambda: not hf.lock(f"sync:{shop}").locked(), within=2 * TTL_S)


def test_dramatiq(raw, hf, program, workers, log):
    pytest.importorskip("dramatiq")
    tasks = program("dramatiq_tasks")
    broker = tasks.dramatiq.get_broker()
    command = ["dramatiq", "dramatiq_tasks", "--processes", "2", "--threads", "2"]
    with disconnecting(broker.client.connection_pool), workers(*command):
        raw.set("north:stays", 1)
        for _ in range(3):
            tasks.sync.send("north")
        holder(hf, "north")
        eventually(lambda: raw.hlen("dramatiq:default.DQ.msgs") == 2)
        raw.delete("north:stays")
        for _ in range(2):
            for _ in range(3):
                tasks.invoice.send(7)
            broker.join("default", timeout=20_000)
        assert_apart(raw, "north", 3)
        assert raw.get("invoice:7") == "1"
        for shop in ("east", "west"):
            raw.set(f"{shop}:stays", 1)
        tasks.sync.send_with_options(args=["east"], time_limit=1000)
        tasks.sync.send("west")
        take_away(raw, hf, "west", log)
        released_in_time(raw, hf, "east")
        raw.set("south:stays", 1)
        tasks.sync.send("south")
        kill_holder(raw, hf, "south")
    for worker in raw.zrange("dramatiq:__heartbeats__", 0, -1):
        raw.zadd("dramatiq:__heartbeats__", {worker: 0})
    with disconnecting(broker.client.connection_pool), workers(*command):
        broker.maintenance_chance = 1_000_000
        tasks.sync.send("other")
        eventually(lambda: len(fences(raw, "south")) == 2)
        eventually(lambda: raw.get("south:total") == "1" and raw.get("other:total") == "1")
    assert_apart(raw, "south", 2)
    assert_idle(hf)
    broker.close()


async def test_taskiq(raw, hf, program, workers, log):
    pytest.importorskip("taskiq")
    pytest.importorskip("taskiq_redis", exc_type=ImportError)  # one for redis-py 5 does not fit the newest taskiq
    tasks = program("taskiq_tasks", "_async")
    await tasks.broker.startup()
    try:
        await run_taskiq(raw, hf, tasks, workers, log)
    finally:
        await tasks.broker.shutdown()


async def run_taskiq(raw, hf, tasks, workers, log):
    def left(count=0):
        """Whether that many messages are left, which run or have run in a process that is dead."""
        (group,) = raw.xinfo_groups("taskiq")
        return (group["pending"], group["lag"]) == (count, 0)

    def requeued():
        return sum("requeue" in fields["data"] for _, fields in raw.xrange("taskiq"))

    with workers("taskiq", "worker", "taskiq_tasks:broker", "--workers", "2"):
        raw.set("north:stays", 1)
        for _ in range(3):
            await tasks.sync.kiq("north")
        holder(hf, "north")
        eventually(requeued)
        raw.delete("north:stays")
        assert_apart(raw, "north", 3)
        raw.set("south:stays", 1)
        await tasks.sync.kiq("south")
        kill_holder(raw, hf, "south")
        eventually(lambda: "is dead" in log())  # a message that was sent before may be in that process, too
        for _ in range(2):
            for _ in range(3):
                await tasks.invoice.kiq(7)
            await eventually_async(lambda: left(1))
        assert raw.get("invoice:7") == "1"
        for shop in ("east", "west"):
            raw.set(f"{shop}:stays", 1)
        await tasks.sync.kicker().with_labels(timeout=1).kiq("east")
        await tasks.sync.kiq("west")
        take_away(raw, hf, "west", log)
        released_in_time(raw, hf, "east")
        end_of_lease(hf, "south")
        (dead,) = raw.xpending_range("taskiq", "taskiq", "-", "+", 10)
        raw.delete(
            "autoclaim:taskiq:taskiq"
        )  # a lock without a ttl of taskiq-redis 1.0, left by the dead process if it held it
        raw.xclaim("taskiq", "taskiq", dead["consumer"], 0, [dead["message_id"]], idle=600_001)
        await tasks.sync.kiq("other")
        eventually(lambda: len(fences(raw, "south")) == 2)
        eventually(left)
    assert_apart(raw, "south", 2)
    assert_idle(hf)


async def test_arq(raw, hf, program, workers, log):
    arq = pytest.importorskip("arq")
    tasks = program("arq_tasks", "_async")
    async with await arq.create_pool(tasks.WorkerSettings.redis_settings) as pool:
        await run_arq(raw, hf, pool, workers, log)


async def run_arq(raw, hf, pool, workers, log):
    with workers("arq", "arq_tasks.WorkerSettings", count=2):
        raw.set("north:stays", 1)
        jobs = [await pool.enqueue_job("sync", "north") for _ in range(3)]
        holder(hf, "north")
        eventually(lambda: sum(int(raw.get(f"arq:retry:{job.job_id}") or 0) > 1 for job in jobs) == 2)
        raw.delete("north:stays")
        assert_apart(raw, "north", 3)
        raw.set("south:stays", 1)
        killed = await pool.enqueue_job("sync", "south")
        kill_holder(raw, hf, "south")
        for _ in range(2):
            jobs += [await pool.enqueue_job("invoice", 7) for _ in range(3)]
            for job in jobs:
                await job.result(20, poll_delay=0.05)
        assert raw.get("invoice:7") == "1"
        raw.set("west:stays", 1)
        await pool.enqueue_job("sync", "west")
        take_away(raw, hf, "west", log)
        end_of_lease(hf, "south")
        raw.delete(f"arq:in-progress:{killed.job_id}")
        await killed.result(20, poll_delay=0.05)
    assert_apart(raw, "south", 2)
    assert_idle(hf)


def test_huey(raw, hf, program, workers, log):
    pytest.importorskip("huey")
    tasks = program("huey_tasks")
    command = ["huey.bin.huey_consumer", "huey_tasks.huey", "-k", "process", "-w", "3", "-m", "0.2"]
    with disconnecting(tasks.huey.storage.pool), workers(*command):
        raw.set("north:stays", 1)
        for _ in range(3):
            tasks.sync("north")
        holder(hf, "north")
        eventually(lambda: raw.zcard("huey.schedule.shop"))
        raw.delete("north:stays")
        assert_apart(raw, "north", 3)
        raw.set("south:stays", 1)
        tasks.sync("south")
        kill_holder(raw, hf, "south")
        for _ in range(6):
            tasks.invoice(7)
        assert_apart(raw, "north", 3)
        eventually(lambda: not tasks.huey.storage.queue_size())
        assert raw.get("invoice:7") == "1"
        for shop in ("east", "west"):
            raw.set(f"{shop}:stays", 1)
        tasks.sync("east", timeout=1)
        tasks.sync("west")
        take_away(raw, hf, "west", log)
        released_in_time(raw, hf, "east")
        end_of_lease(hf, "south")
        assert not tasks.huey.storage.queue_size() + tasks.huey.storage.schedule_size(), "it is lost"
    assert len(fences(raw, "south")) == 1
    assert_idle(hf)


def test_rq(raw, hf, program, workers, log):
    rq = pytest.importorskip("rq")
    tasks = program("rq_tasks")
    conn = redis.Redis.from_url(os.environ["HANDFAST_URL"])
    queue = rq.Queue(connection=conn)
    with conn, workers("rq.cli", "worker", "--with-scheduler", "-u", os.environ["HANDFAST_URL"], count=2):
        raw.set("north:stays", 1)
        for _ in range(3):
            queue.enqueue(tasks.sync, "north")
        holder(hf, "north")
        eventually(lambda: queue.scheduled_job_registry.count == 2)
        raw.delete("north:stays")
        assert_apart(raw, "north", 3)
        raw.set("south:stays", 1)
        killed = queue.enqueue(tasks.sync, "south", retry=rq.Retry(max=3))
        kill_holder(raw, hf, "south")
        for _ in range(2):
            jobs = [queue.enqueue(tasks.invoice, 7) for _ in range(3)]
            eventually(lambda jobs=jobs: all(job.get_status() == "finished" for job in jobs))
        assert raw.get("invoice:7") == "1"
        for shop in ("east", "west"):
            raw.set(f"{shop}:stays", 1)
        queue.enqueue(tasks.sync, "east", job_timeout=1)
        queue.enqueue(tasks.sync, "west")
        take_away(raw, hf, "west", log)
        released_in_time(raw, hf, "east")
        end_of_lease(hf, "south")
        eventually(lambda: killed.get_status() == "finished")
    assert_apart(raw, "south", 2)
    assert_idle(hf)


def test_airflow(raw, hf, program, workers):
    """The function that its operator calls, in four processes. Airflow is imported if it is installed."""
    stand_in = "import sys, unittest.mock as mock; "
    if importlib.util.find_spec("airflow") is None:
        stand_in += f"sys.modules.update((name, mock.MagicMock()) for name in {AIRFLOW}); "
    program(None)
    code = stand_in + "import warehouse_dag; warehouse_dag.load('orders')"
    warehouse = hf.semaphore("warehouse", limit=2)
    raw.mset({"orders:stays": 1, "orders:limit": 2})
    with workers(code, count=4, flag="-c"):
        eventually(lambda: warehouse.status().waiting == 2)
        eventually(lambda: raw.get("orders:inside") == "2")
        raw.delete("orders:stays")
        eventually(lambda: raw.get("orders:total") == "4" and not warehouse.status().holding)
    assert (raw.get("orders:overlaps"), len(set(fences(raw, "orders")))) == (None, 4)
    assert_idle(hf)
