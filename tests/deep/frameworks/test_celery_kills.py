"""Celery under kills: two workers, of which a worker is killed every few seconds while the broker delivers messages again.

Kombu takes a message off the queue before it notes the message as not acknowledged: a kill in between loses the message. `Broker`
tells such losses from ours. Beside it are tests with a broker in memory.

The round of the test is short. For 300 tasks of 3 s at most, and a kill every 10 s, ``python -m
tests.deep.frameworks.test_celery_kills exclusive 300 10 3`` prints the figures. ``plain`` in place of ``exclusive`` shows Celery
without Handfast.
"""

from __future__ import annotations

import importlib
import os
import random
import re
import signal
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import redis

from handfast import AcquireTimeout
from handfast.embedded import PrivateServer
from tests._support.helpers import eventually
from tests.deep.frameworks.test_frameworks import disconnect, running

pytest.importorskip("celery")

from celery import Celery
from celery.contrib.testing.worker import start_worker

from handfast.contrib.celery import Exclusive, Once, configure

PROGRAM = "tests.deep.frameworks.celery_kills_app"

TASKS = 60
KILL_EVERY_S = 4
SHORTEST_S = 0.2
LONGEST_S = 2.2
ACCOUNTS = 12

PER_S = 4
"""Tasks a second: fewer than the accounts can do, which leaves time for repeated runs."""

PROCESSES = 8
"""Of each of the two workers."""

STALLED_S = 12
"""Seconds without the end of a task after which the remaining tasks are lost."""

VISIBILITY_S = 2
"""After how many seconds the broker of the program delivers a message again."""

RECORD_S = 0.1
"""The most seconds from the end of a run until the record of the result."""


class Broker(threading.Thread):
    """Watches the broker's messages: which of them were pushed, noted as taken, and acknowledged."""

    OVER = "the round is over"
    TASK = re.compile(r"argsrepr\W+(\d+),.*delivery_tag\W+([\w-]{36})")

    def __init__(self, url):
        super().__init__()
        self.tasks, self.states = defaultdict(set), {}
        self.client = redis.Redis.from_url(url, decode_responses=True)
        self.watching = threading.Event()

    def __enter__(self):
        self.start()
        self.watching.wait(5)
        return self

    def __exit__(self, *_):
        self.client.echo(self.OVER)
        self.join(5)
        self.client.close()

    def run(self):
        with self.client.monitor() as monitor:
            self.watching.set()
            for command in (one["command"] for one in monitor.listen()):
                if command == f"ECHO {self.OVER}":
                    return
                self.note(*command.split(" ", 2))

    def note(self, verb, key="", rest=""):
        if (verb, key) in {("LPUSH", "celery"), ("RPUSH", "celery"), ("HSET", "unacked")}:
            number, tag = self.TASK.search(rest).groups()
            self.tasks[int(number)].add(tag)
            self.states[tag] = "taken" if verb == "HSET" else "pushed"
        elif (verb, key) == ("HDEL", "unacked"):
            self.states[rest] = "acknowledged"

    def has_lost(self, number):
        """Whether a message of a task was pushed, and never noted as taken."""
        return any(self.states[tag] == "pushed" for tag in self.tasks[number])


class Run(NamedTuple):
    """One run of a task: its steps, the process group of its worker, and when that was killed."""

    number: int
    account: str
    fence: int
    steps: dict[str, float]
    group: int
    killed: float | None

    @property
    def left(self):
        """Return when it was inside for the last time. None says that it has not ended, though its process lived."""
        return self.steps.get("end", self.killed)

    @property
    def was_cut(self):
        """Whether it was killed before the end, or too soon after the end for a record."""
        return self.killed is not None and self.killed - self.steps.get("end", self.killed) < RECORD_S


@pytest.mark.timeout(180)
@pytest.mark.parametrize("kind", ["exclusive", "once"])
def test_no_task_is_lost_and_none_overlaps_or_is_repeated_but_by_a_kill(server, raw, tmp_path, monkeypatch, kind):
    monkeypatch.setenv("HANDFAST_URL", server.url)
    monkeypatch.setenv("STEPS", str(tmp_path / "steps"))
    found = played(server, tmp_path, kind)
    assert found.kills >= 3, found
    assert (found.overlaps, found.unordered, found.failed, found.lost) == (0, 0, 0, 0), found
    assert kind == "exclusive" or found.repeated == found.cut, found


@pytest.mark.timeout(120)
def test_a_task_that_is_delivered_again_while_it_runs_runs_once(server, raw, tmp_path, monkeypatch):
    monkeypatch.setenv("HANDFAST_URL", server.url)
    monkeypatch.setenv("STEPS", str(tmp_path / "steps"))
    program, kinds = importlib.import_module(PROGRAM), ("retry", "wait", "skip", "preempt", "once", "fails")
    command = "-m", "celery", "-A", PROGRAM, "worker", "--concurrency", str(PROCESSES), "--loglevel", "INFO"
    with ExitStack() as stack:
        stack.callback(disconnect, program.app)
        for number in range(2):
            stack.enter_context(running(server, *command, "-n", f"{number}@here", log=tmp_path / f"log {number}"))
        broker = stack.enter_context(program.app.connection_for_write())
        for number, kind in enumerate(kinds):
            program.app.tasks[kind].apply_async((number, kind, 3), connection=broker)
        eventually((tmp_path / "steps").exists)
        restored = broker.default_channel.qos.restore_visible
        for _ in range(12):  # long enough for four runs, one after the other
            restored(num=None, interval=1)
            time.sleep(1)
        assert raw.llen("celery") == raw.hlen("unacked") == 0, "no message comes again"
    runs = Counter(kinds[run.number] for run in read(tmp_path / "steps", {}))
    assert runs == dict.fromkeys(kinds, 1)


@pytest.mark.timeout(120)
def test_a_task_that_skips_is_not_lost_with_the_worker_that_runs_it(server, raw, tmp_path, monkeypatch):
    """The second delivery must not end itself because the first one runs, which is killed then."""
    monkeypatch.setenv("HANDFAST_URL", server.url)
    monkeypatch.setenv("STEPS", str(tmp_path / "steps"))
    program = importlib.import_module(PROGRAM)
    command = "-m", "celery", "-A", PROGRAM, "worker", "--concurrency", "1", "--loglevel", "INFO"
    with ExitStack() as stack:
        stack.callback(disconnect, program.app)
        workers = [
            stack.enter_context(running(server, *command, "-n", f"{number}@here", log=tmp_path / f"log {number}"))
            for number in range(2)
        ]
        broker = stack.enter_context(program.app.connection_for_write())
        program.app.tasks["skip"].apply_async((0, "skip", 8), connection=broker)
        (first,) = eventually(lambda: read(tmp_path / "steps", {}))
        (its,) = [worker for worker in workers if worker.pid == first.group]
        (other,) = [tmp_path / f"log {number}" for number, worker in enumerate(workers) if worker is not its]
        time.sleep(VISIBILITY_S)
        broker.default_channel.qos.restore_visible(num=None, interval=1)
        eventually(lambda: "is taken" in other.read_text())
        killed(its)
        eventually(lambda: any("end" in run.steps for run in read(tmp_path / "steps", {})), within=40)


@pytest.fixture
def in_memory(hf):
    """An application with a broker and results in this process, and a function that makes tasks. Each task notes its runs."""
    app = Celery("memory", broker="memory://", backend="cache+memory://", set_as_current=False)
    app.conf.broker_transport_options = {"polling_interval": 0.01}
    configure(app, hf)
    runs, inside = [], threading.Lock()

    def make(base, what, **options):
        def task(account):
            assert inside.acquire(blocking=False), "another is inside"
            time.sleep(0.02)
            runs.append(what)
            inside.release()
            return len(runs)

        option = {base.__name__.lower(): {"countdown": 0.1, **options}}
        return app.task(task, name=f"memory.{what}", base=base, lazy=False, shared=False, **option)

    yield SimpleNamespace(app=app, make=make, runs=runs)
    disconnect(app)


@pytest.mark.parametrize("pool", ["solo", "threads"])
def test_with_a_broker_in_memory_a_task_comes_again_waits_or_ends(hf, in_memory, pool):
    retries = in_memory.make(Exclusive, "retries", name="{account}")
    waits = in_memory.make(Exclusive, "waits", name="{account}", busy="wait", timeout=20)
    skips = in_memory.make(Exclusive, "skips", name="{account}", busy="skip")
    once = in_memory.make(Once, "once", by="account")
    with start_worker(in_memory.app, pool=pool, concurrency=4, perform_ping_check=False):
        with hf.lock("ann"):
            skipped = skips.delay("ann")
            sent = [retries.delay("ann") for _ in range(3)]
            eventually(lambda: {one.state for one in sent} == {"RETRY"})
            sent += [waits.delay("ann") for _ in range(3)]
        eventually(lambda: {one.state for one in sent} == {"SUCCESS"})
        assert (skipped.state, sorted(in_memory.runs)) == ("PENDING", ["retries"] * 3 + ["waits"] * 3)
        sent = [once.delay("bob") for _ in range(4)]
        eventually(lambda: {one.state for one in sent} == {"SUCCESS"})
        assert {one.result for one in sent} == {7}


def test_an_eager_task_has_no_message_that_could_come_again(hf, in_memory):
    in_memory.app.conf.task_always_eager = True
    retries = in_memory.make(Exclusive, "retries", name="{account}")
    waits = in_memory.make(Exclusive, "waits", name="{account}", busy="wait", timeout=0.1)
    skips = in_memory.make(Exclusive, "skips", name="{account}", busy="skip")
    once = in_memory.make(Once, "once", by="account")
    with hf.lock("ann"):
        assert [task.delay("ann").state for task in (retries, waits, skips)] == ["FAILURE", "FAILURE", "IGNORED"]
        assert isinstance(retries.delay("ann").result, AcquireTimeout)
    assert [task.delay("ann").get() for task in (retries, waits, skips, once, once)] == [1, 2, 3, 4, 4]


def played(server, folder, kind, *, count=TASKS, kill_every=KILL_EVERY_S, longest=LONGEST_S):
    """Send tasks to two workers, and kill one in turn. Return the figures of all runs."""
    program, chosen, kills, began = importlib.import_module(PROGRAM), random.Random(count), {}, time.monotonic()
    seconds = [chosen.uniform(SHORTEST_S, longest) for _ in range(count)]

    def start(number):
        options = "--concurrency", str(PROCESSES), "-n", f"{number}@here", "--loglevel", "INFO"
        command = "-m", "celery", "-A", PROGRAM, "worker", *options
        return running(server, *command, log=folder / f"log {number} {time.monotonic()}")

    with ExitStack() as stack:
        stack.callback(disconnect, program.app)
        watcher = stack.enter_context(Broker(server.url))
        workers = [stack.enter_context(start(number)) for number in range(2)]
        broker = stack.enter_context(program.app.connection_for_write())
        until, turn, sent, ended, zero = time.monotonic() + STALLED_S, 0, 0, 0, time.monotonic()
        next_kill, next_look = zero + kill_every + 0.5 / PER_S, zero  # between two sendings
        while ended < count and time.monotonic() < until:
            now = time.monotonic()
            if sent < count and now > zero + sent / PER_S:
                arguments = sent, f"account-{sent % ACCOUNTS}", seconds[sent]
                program.app.tasks[kind].apply_async(arguments, connection=broker)
                sent += 1
            if now > next_kill and sent < count:
                kills |= killed(workers[turn])
                workers[turn] = stack.enter_context(start(turn))
                turn, next_kill = 1 - turn, now + kill_every
            if now > next_look:
                # A worker does so by itself, by default every hundred seconds.
                broker.default_channel.qos.restore_visible(num=None, interval=1)
                before, ended = ended, len({run.number for run in read(folder / "steps", kills) if "end" in run.steps})
                if ended > before or sent < count:
                    until = now + STALLED_S
                next_look = now + 1
            time.sleep(0.01)
        queued = {int(Broker.TASK.search(str(one))[1]) for one in broker.default_channel.client.lrange("celery", 0, -1)}
    runs = read(folder / "steps", kills)
    missing = set(range(count)) - {run.number for run in runs if "end" in run.steps}
    by_broker = {number for number in missing - queued if watcher.has_lost(number)}
    return SimpleNamespace(
        **figures(runs, kind),
        tasks=count,
        kills=len(kills),
        lost=len(missing - by_broker),
        lost_by_broker=len(by_broker),
        seconds=round(time.monotonic() - began),
    )


def killed(worker):
    """Kill a worker with all processes of its pool; return when none of them can go on."""
    os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()
    return {worker.pid: time.monotonic()}


def read(steps, kills):
    """Return all runs, in the order in which they began."""
    runs = {}
    for line in steps.read_text().splitlines() if steps.exists() else ():
        step, number, account, run, fence, group, at = line.split()
        new = Run(int(number), account, int(fence), {}, int(group), kills.get(int(group)))
        runs.setdefault(run, new).steps[step] = float(at)
    return list(runs.values())


def figures(runs, kind):
    """Count overlaps, runs out of order, and repeated runs."""
    apart, of_task = defaultdict(list), defaultdict(list)
    for run in runs:
        apart[run.number if kind == "once" else run.account].append(run)
        of_task[run.number].append(run)
    overlaps = unordered = 0
    for found in apart.values():
        for index, run in enumerate(found[1:], 1):
            overlaps += run.steps["begin"] < max(before.left or float("inf") for before in found[:index])
            unordered += run.fence <= found[index - 1].fence
    again = [run for found in of_task.values() for run in [one for one in found if "effect" in one.steps][:-1]]
    return {
        "runs": len(runs),
        "killed_inside": sum("end" not in run.steps and run.killed is not None for run in runs),
        "failed": sum(run.left is None for run in runs),
        "overlaps": overlaps,
        "unordered": unordered,
        "repeated": len(again),
        "cut": sum(run.was_cut for run in again),
        "tasks_run_twice": sum(len(found) > 1 for found in of_task.values()),
    }


if __name__ == "__main__":
    with PrivateServer() as server, tempfile.TemporaryDirectory() as folder:
        os.environ |= {"HANDFAST_URL": server.url, "STEPS": f"{folder}/steps"}
        kind, count, *seconds = sys.argv[1:]
        kill_every, longest = map(float, seconds)
        print(played(server, Path(folder), kind, count=int(count), kill_every=kill_every, longest=longest))
