"""The leak checker reports what is left behind, and not what ends in time."""

from __future__ import annotations

import asyncio
import os
import threading
import tracemalloc

import pytest

from handfast import Handfast
from handfast_lab.checker import LeakWatch, MemoryWatch
from handfast_lab.checker.leaks import compare, resident_memory, snapshot, traced_memory


def texts(findings):
    return [str(finding) for finding in findings]


async def test_a_client_leaks_nothing(api, here, server, raw):
    await (await here.lock("a").acquire()).release()  # the thread or loop that runs this API exists by now
    async with LeakWatch(raw, "hf") as watch, api.client(server.url) as client:
        for name in ("a", "b"):
            async with client.lock(name, ttl=1.0, renew=True).acquire(timeout=5):
                pass
        async with client.semaphore("s", limit=2).acquire(permits=2, timeout=5):
            pass
    assert texts(watch.findings) == []


def test_leaks_of_a_client_are_detected(server, raw):
    with LeakWatch(raw, "hf", within=0.0) as watch:
        client = Handfast(server.url)
        lease = client.lock("a", renew=True).acquire()
    found = {finding.name: finding.text for finding in watch.findings}
    assert found["keys"] == "1 left behind: {hf:lock:a}:state"
    assert set(found) >= {"keys", "connections", "channels", "threads", "descriptors"}
    assert "socket" in found["descriptors"]
    with LeakWatch(raw, "other", within=0.0) as watch:
        other = client.lock("b").acquire()
    assert "keys" not in {finding.name for finding in watch.findings}
    lease.release()
    other.release()
    client.close()


def test_resources_that_last_by_design_are_reported_only_on_request(hf, raw):
    with LeakWatch(raw, "hf") as watch, LeakWatch(raw, "hf", within=0.0, lasting=()) as strict:
        with hf.lock("a").acquire():
            pass
        hf.close()
    assert [finding.name for finding in watch.findings if finding.name == "keys"] == []
    (found,) = [finding for finding in strict.findings if finding.name == "keys"]
    assert found.text == "1 left behind: {hf:lock:a}:state"


def test_leaked_threads_and_files_are_detected():
    stop = threading.Event()
    with LeakWatch(within=0.0) as watch:
        thread = threading.Thread(target=stop.wait, name="forgotten")
        thread.start()
        reading, writing = os.pipe()
    assert texts(watch.findings) == [
        "leaks: threads: 1 left behind: forgotten",
        "leaks: descriptors: 2 left behind: pipe (2)",
    ]
    with LeakWatch() as watch:
        again = threading.Thread(target=lambda: stop.wait(0.1))
        again.start()
    assert watch.findings == [], "the checker waits for it to end"
    stop.set()
    thread.join()
    os.close(reading)
    os.close(writing)


async def test_leaked_tasks_are_detected():
    stop = asyncio.Event()
    async with LeakWatch(within=0.0) as watch:
        task = asyncio.create_task(stop.wait())
        await asyncio.sleep(0)
    assert texts(watch.findings) == ["leaks: tasks: 1 left behind: Event.wait"]
    async with LeakWatch() as watch:
        brief = asyncio.create_task(asyncio.sleep(0.05))
    assert watch.findings == [], "the checker waits for it to end"
    stop.set()
    await task
    await brief


def test_a_decrease_is_not_a_leak():
    assert snapshot()["threads"][threading.current_thread().name] == 1
    assert compare(snapshot(), {kind: things - things for kind, things in snapshot().items()}) == []


def test_many_leaks_are_reported_briefly():
    more = {"keys": snapshot()["threads"] + snapshot()["threads"].__class__([f"key {number}" for number in range(9)])}
    (finding,) = compare({"keys": snapshot()["threads"]}, more)
    assert finding.text == "9 left behind: key 0, key 1, key 2, key 3, key 4, ..."


BATCH = 40_000_000
"""Bytes; large enough that the allocator requests new memory from the system each time."""


@pytest.fixture
def untraced():
    """Stop tracing after the test, since it would slow down all others."""
    yield
    tracemalloc.stop()


@pytest.mark.parametrize("measure", [traced_memory, resident_memory])
def test_memory_that_grows_with_every_operation_is_detected(measure, untraced):
    kept = []
    watch = MemoryWatch(measure)
    for _ in range(5):
        kept.append(b"x" * BATCH)
        watch.sample(1_000)
    assert watch.slope == pytest.approx(BATCH / 1_000, rel=0.1)
    (finding,) = watch.findings()
    assert str(finding).endswith("bytes an operation over 5000 operations")
    assert watch.findings(most=BATCH / 500) == []


def test_memory_that_is_allocated_once_is_not_a_leak(untraced):
    watch, kept = MemoryWatch(), []
    for _ in range(5):
        kept[:] = [bytearray(BATCH)]
        watch.sample(10_000_000)  # so many that what threads of earlier tests allocate does not count
    assert watch.findings() == []
