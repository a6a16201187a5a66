"""The adapter of Celery, with real workers and a broker on the server."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from handfast import AcquireTimeout, Handfast
from handfast.testing import FaultProxy
from tests._support.helpers import eventually
from tests.deep.frameworks.test_frameworks import assert_idle, check, disconnect, running

pytest.importorskip("celery")

from celery.exceptions import Retry

from handfast.contrib.celery import Exclusive, Once, configure
from handfast.contrib.celery.beat import FOLLOW_S, LOOK_S
from handfast.contrib.celery.tasks import AGAIN

PROGRAM = "tests.deep.frameworks.celery_adapted"


@pytest.fixture
def tasks(server, raw, monkeypatch):
    """The program with the tasks, which this process sends, with a client of its own. Afterwards all its connections are closed.

    It is imported once: Celery shares tasks among all applications of a process.
    """
    monkeypatch.setenv("HANDFAST_URL", server.url)
    tasks = importlib.import_module(PROGRAM)
    tasks.app._after_fork()  # it begins anew: the test before has closed its connections
    with Handfast(server.url) as client:
        configure(tasks.app, client)
        yield tasks
    disconnect(tasks.app)
    tasks.conn.connection_pool.disconnect()


@pytest.fixture
def worker(server, tmp_path):
    """Return a context manager that runs a worker."""

    @contextlib.contextmanager
    def run(*options):
        command = ["-m", "celery", "-A", PROGRAM, "worker", "--concurrency", "3", "--loglevel", "INFO", *options]
        with running(server, *command, log=tmp_path / "log"):
            yield

    return run


@pytest.mark.parametrize("pool", ["prefork", "threads", "gevent"])
def test_a_task_that_finds_its_name_taken_comes_again_and_keeps_its_retries(raw, hf, tasks, worker, pool):
    pytest.importorskip("gevent")
    with worker("--pool", pool):
        for _ in range(6):
            tasks.retries.delay(account=1)
            tasks.retries.delay(2)
        for account in (1, 2):
            eventually(lambda account=account: raw.get(f"account {account}:total") == "6", within=50)
            eventually(lambda account=account: raw.get(f"account {account}:inside") == "0")
            check(raw, f"account {account}", 6)
        eventually(lambda: raw.smembers("retries") == {"0"})
    assert_idle(hf)


def test_tasks_skip_wait_and_take_the_place_of_others(raw, hf, tasks, worker):
    with worker(), hf.lock("taken"):
        for _ in range(3):
            tasks.skips.delay()
        eventually(lambda: raw.get("skips") == "1", within=30)
        tasks.waits.delay()
        eventually(lambda: raw.lrange("failed:waits", 0, -1) == ["AcquireTimeout"], within=30)
        tasks.preempts.delay(1)
        eventually(lambda: raw.lrange("preempts", 0, -1) == ["1 began"], within=30)
        tasks.preempts.delay(2)
        eventually(lambda: raw.lrange("preempts", 0, -1) == ["1 began", "1 ended", "2 began"], within=30)
        eventually(lambda: raw.lrange("failed:preempts", 0, -1) == ["Preempted"])
        raw.set("go on", 1)
        eventually(lambda: not hf.lock("skips").locked())
    assert (raw.get("skips"), raw.get("waits")) == ("1", None)
    assert_idle(hf)


def test_what_a_worker_leaves_that_is_killed_or_takes_too_long(raw, hf, tasks, worker):
    with worker():
        tasks.soft.delay()
        eventually(lambda: hf.lock("soft").locked(), within=30)
        eventually(lambda: not hf.lock("soft").locked())  # long before its ttl
        eventually(lambda: raw.lrange("failed:soft", 0, -1) == ["SoftTimeLimitExceeded"])
        tasks.hard.delay()
        eventually(lambda: raw.get("hard"), within=30)
        eventually(lambda: not hf.lock("hard").locked(), within=30)  # after its ttl
        tasks.dies.delay()  # is delivered again, and waits for the end of the lease
        eventually(lambda: raw.llen("dies") == 2, within=30)
        first, second = map(int, raw.lrange("dies", 0, -1))
        assert first < second
        eventually(lambda: not hf.lock("dies").locked())
    assert_idle(hf)


def test_a_task_that_is_sent_again_has_the_result_of_its_first_run(raw, hf, tasks, worker):
    with worker():
        for by in ("cron", "deploy", "cron"):
            tasks.report.delay("monday", by=by)
        tasks.report.delay("tuesday")
        eventually(lambda: hf.once("report").keyed("monday").status().state == "done", within=30)
        eventually(lambda: hf.once("report").keyed("tuesday").status().state == "done", within=30)
        assert tasks.report("monday") == {"day": "monday"}
        assert (raw.llen("report:monday"), raw.llen("report:tuesday")) == (1, 1)
        tasks.pay.delay("asks")
        eventually(lambda: hf.once("pay").keyed("asks").status().state == "done", within=30)
        tasks.pay.delay("dies")
        eventually(lambda: raw.lrange("failed:pay", 0, -1) == ["NotCompleted"], within=30)
        assert (raw.get("pay:asks"), raw.get("pay:dies")) == ("2", "1")


def test_a_task_that_is_called_here_does_not_come_again(raw, hf, tasks):
    assert tasks.report.apply(("monday",)).get() == {"day": "monday"}
    with hf.lock("account:1"):
        for call in (tasks.retries, lambda **arguments: tasks.retries.apply(kwargs=arguments, throw=True)):
            with pytest.raises(AcquireTimeout):
                call(account=1)
    with pytest.raises(RuntimeError, match="does not run here"):
        _ = tasks.retries.lease


@pytest.mark.parametrize(
    ("base", "options", "error"),
    [
        ("Exclusive", {"name": "bill:{acount}"}, ValueError),
        ("Exclusive", {"busy": "later"}, ValueError),
        ("Exclusive", {"busy": "preempt", "limit": 2}, ValueError),
        ("Exclusive", {"ttl": 0}, ValueError),
        ("Exclusive", {"countdown": -1}, ValueError),
        ("Exclusive", {"on": ["account"]}, TypeError),
        ("Once", {}, ValueError),
        ("Once", {"by": "acount"}, ValueError),
        ("Once", {"by": "account", "busy": "preempt"}, ValueError),
    ],
)
def test_a_task_with_bad_options_is_refused_where_it_is_defined(base, options, error):
    import celery

    from handfast.contrib import celery as adapter

    def bill(account):
        pass

    app = celery.Celery("bad", set_as_current=False)
    with pytest.raises(error):
        app.task(bill, name="bill", lazy=False, shared=False, base=getattr(adapter, base), **{base.lower(): options})


@pytest.fixture
def beat(tasks):
    """Return a function that makes a scheduler without a file. The hour between two sendings is over."""
    from datetime import UTC, datetime, timedelta

    from celery.beat import Scheduler

    from handfast.contrib.celery import LeaderMixin

    class Plain(LeaderMixin, Scheduler):
        """As those of other packages, it keeps the old entry in its schedule when it sends."""

        def reserve(self, entry):
            new = super().reserve(entry)
            self.schedule[entry.name] = entry
            return new

    def make():
        entry = {"task": "tick", "schedule": 3600.0, "last_run_at": datetime.now(UTC) - timedelta(hours=2)}
        made = Plain(tasks.app)
        made.update_from_dict({"tick": entry})
        return made

    return make


def test_a_beat_that_takes_over_in_one_process_sends_nothing_twice(raw, hf, beat):
    first, second = beat(), beat()
    assert (first.tick(), second.tick(), raw.llen("celery")) == (0, FOLLOW_S, 1)
    first.close()
    assert 0 < second.tick() <= LOOK_S
    assert raw.llen("celery") == 1
    second.close()
    assert not hf.election("beat").locked()


def test_a_beat_ends_where_an_operator_says_so_and_goes_on_when_it_is_over(raw, hf, beat, caplog):
    scheduler = beat()
    assert scheduler.tick() == 0
    with ThreadPoolExecutor() as pool:
        held = pool.submit(hf.hold, "beat", 60, kind="election", now=True, grace=20, reason="INC-1")
        eventually(lambda: scheduler.tick() == FOLLOW_S)
        held.result()
    assert "lease was lost" not in caplog.text
    assert not hf.election("beat").status().holders
    hf.unhold("beat", kind="election")
    eventually(lambda: scheduler.tick() != FOLLOW_S)
    scheduler.close()


def test_a_beat_lives_through_an_outage(tasks, raw, beat, caplog, monkeypatch):
    scheduler = beat()
    with Handfast("unix:///nowhere/s", retry_for=0) as away:
        monkeypatch.setattr(tasks.app, "handfast", away)
        assert [scheduler.tick() for _ in range(3)] == [FOLLOW_S] * 3
    assert [record.name for record in caplog.records].count("handfast.celery") == 1
    monkeypatch.undo()
    assert scheduler.tick() == 0
    scheduler.close()


def test_of_two_beats_one_sends_and_its_successor_sends_nothing_twice(raw, hf, server, tasks, tmp_path):
    sent = []

    def newest():
        """Note each time at which an entry was sent."""
        for one in hf.scores("beat").newest():
            if one.score not in sent:
                sent.append(one.score)
        return len(sent)

    def command(number):
        return (
            "-m",
            "celery",
            "-A",
            PROGRAM,
            "beat",
            "-S",
            "handfast.contrib.celery:LeaderScheduler",
            "-s",
            str(tmp_path / number),
        )

    def led_by():
        return [one.label for one in hf.election("beat").status().holders]

    with running(server, *command("1"), log=tmp_path / "log 1") as first:
        (label,) = eventually(led_by, within=30)
        with running(server, *command("2"), log=tmp_path / "log 2"):
            eventually(lambda: newest() == 2, within=30)
            os.kill(first.pid, signal.SIGKILL)
            eventually(lambda: newest() == 4, within=30)
            assert led_by() != [label]
        first.wait()
    gaps = [after - before for before, after in itertools.pairwise(sent)]
    assert min(gaps) > 2.9, gaps
    assert len(sent) == raw.llen("celery")
    eventually(lambda: not led_by())


def test_a_result_that_is_not_recorded_in_an_outage_is_the_result_of_the_task(raw, tasks, caplog, server, monkeypatch):
    """The work is done: a failed task would be sent again."""
    with FaultProxy(server.url) as proxy, Handfast(proxy.url, retry_for=0) as client:

        def make(day):
            proxy.retarget("unix:///nowhere/s")
            return f"made on {day}"

        task = tasks.app.task(make, name="cut", base=Once, once={"by": "day"}, shared=False, lazy=False)
        monkeypatch.setattr(tasks.app, "handfast", client)
        assert task("friday") == "made on friday"
        proxy.retarget(server.url)
    assert "the result of 'cut|friday' was not recorded" in caplog.text


@pytest.mark.parametrize(
    "options", [{"base": Exclusive}, {"base": Once, "once": {"by": ()}}], ids=["exclusive", "once"]
)
def test_a_task_whose_record_cannot_be_read_in_an_outage_comes_again(raw, tasks, server, monkeypatch, options):
    """It has the lease, and does not know whether an earlier delivery has run."""

    def work():
        pytest.fail("it has run")

    with FaultProxy(server.url) as proxy, Handfast(proxy.url, retry_for=0) as client:
        task = tasks.app.task(work, name=f"unsure:{options['base'].__name__}", shared=False, lazy=False, **options)
        monkeypatch.setattr(tasks.app, "handfast", client)
        ended = task._ended
        monkeypatch.setattr(task, "_ended", lambda: proxy.retarget("unix:///nowhere/s") or ended())
        task.push_request(id="1", args=(), kwargs={}, called_directly=False, headers={AGAIN: True}, delivery_info={})
        with pytest.raises(Retry):
            task()
        task.pop_request()
        proxy.retarget(server.url)
    assert raw.llen("celery") == 1
