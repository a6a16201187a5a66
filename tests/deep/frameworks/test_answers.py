"""The programs of the answers that need a framework, as they stand there, in several processes.

Each gets notes of its runs and shorter times; the rest is the page's.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import os
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from handfast.testing import FaultProxy
from tests._support.helpers import eventually
from tests.deep.frameworks.test_frameworks import answers, disconnect, free_port, request, running

ANSWERS = Path(__file__).parents[3] / "docs" / "answers"
NOTES = "import os, time\nfrom tests.deep.frameworks.protected import conn, counted\n"

VISIBILITY_S = 2
"""After how many seconds the broker of the tasks delivers a message again."""


@pytest.fixture
def written(server, raw, tmp_path):
    """Return a function that writes the program of a page into a folder, with a server and changes; it returns the folder.

    Every text that is to be changed must be there.
    """

    def write(page, changes=(), url=server.url):
        ((title, program),) = re.findall(
            r'^```python title="([\w.]+)"\n(.*?)^```$', (ANSWERS / page).read_text(), re.MULTILINE | re.DOTALL
        )
        program = program.replace("redis://localhost:6379/0", url)
        program = program.replace("redis://localhost:6379/1", server.url.replace("unix://", "redis+socket://"))
        for old, new in changes:
            assert old in program, f"{page} has no {old!r}"
            program = program.replace(old, new)
        (tmp_path / title).write_text(NOTES + program)
        return tmp_path

    return write


@pytest.mark.parametrize("by", ["uvicorn", "gunicorn"])
def test_the_scheduler_runs_in_one_worker_and_the_next_one_takes_over(server, raw, written, tmp_path, by):
    pytest.importorskip("apscheduler")
    pytest.importorskip(by)
    reports = [
        (
            'print, "interval", ["report", os.getpid()], seconds=1',
            'conn.rpush, "interval", ["reports", os.getpid()], seconds=0.1',
        ),
        ('"jobs", schedule', '"jobs", schedule, ttl=2'),
    ]
    folder = written("scheduler-in-every-worker.md", reports)
    (line,) = re.findall(r"`gunicorn\s(-w 4 [^`]*)`", (ANSWERS / "scheduler-in-every-worker.md").read_text())
    command = {
        "uvicorn": ["app:app", "--workers", "4", "--app-dir", str(folder), "--port", str(free_port())],
        "gunicorn": [*line.split(), "--chdir", str(folder), "-b", f"127.0.0.1:{free_port()}"],
    }[by]
    with running(server, "-m", by, *command, log=tmp_path / "log"):
        first = eventually(lambda: len(found := raw.lrange("reports", 0, -1)) > 3 and set(found), within=30)
        assert len(first) == 1
        os.kill(int(*first), signal.SIGKILL)
        eventually(lambda: len(set(raw.lrange("reports", 0, -1))) == 2, within=30)
        time.sleep(0.5)
        changes = [one for one, other in itertools.pairwise(raw.lrange("reports", 0, -1)) if one != other]
        assert changes == [*first], "one scheduler follows the other"


@pytest.fixture
def charges(server, written, tmp_path):
    """Return a context manager that serves the charges with two workers and yields a function that posts one.

    The endpoint counts charges; one of 13 cents kills its process, and one of 14 waits until it may go on.
    """
    pytest.importorskip("fastapi")
    pytest.importorskip("uvicorn")
    body = """\
    if conn.incr(f"charges:{cents}") == 1 and cents == 13:
        os.kill(os.getpid(), 9)
    while cents == 14 and not conn.exists("go on"):
        await asyncio.sleep(0.01)
    return {"charged": cents}"""

    @contextlib.contextmanager
    def serve(options="", url=server.url):
        changes = [
            ("from fastapi import", "import asyncio\nfrom fastapi import"),
            ('    return {"charged": cents}', body),
            ("scope=user_of", f"scope=user_of, ttl=2{options}"),
        ]
        folder, port = written("idempotency-key-fastapi.md", changes, url), free_port()
        command = "-m", "uvicorn", "app:app", "--app-dir", str(folder), "--workers", "2", "--port", str(port)

        def post(cents, key="k1", user="ann"):
            headers = {"X-User": user} | ({"Idempotency-Key": key} if key else {})
            try:
                return request(port, "POST", f"/charges?cents={cents}", "", headers)
            except (OSError, http.client.HTTPException):
                return None, "the worker is dead"

        with running(server, *command, log=tmp_path / "log"):
            eventually(lambda: answers(port, "/docs"), within=30)
            yield post

    return serve


def test_a_charge_is_answered_as_the_table_of_the_page_says(raw, charges):
    with charges() as post:
        assert [post(10) for _ in range(2)] == [(201, '{"charged":10}')] * 2
        assert [post(11)[0], post(10, key=None)[0], post(10, user="bob")[0]] == [422, 400, 201]
        assert [raw.get(f"charges:{cents}") for cents in (10, 11)] == ["2", None]


def test_a_charge_that_is_sent_again_while_it_runs_is_refused(raw, charges):
    with charges() as post, ThreadPoolExecutor(1) as pool:
        first = pool.submit(post, 14)
        eventually(lambda: raw.get("charges:14"))
        assert post(14)[0] == 409
        raw.set("go on", 1)
        assert first.result() == post(14) == (201, '{"charged":14}')
    assert raw.get("charges:14") == "1"


@pytest.mark.parametrize(("options", "again"), [("", (201, "2")), (", rerun=False", (500, "1"))])
def test_a_worker_is_killed_between_the_charge_and_the_record(raw, charges, options, again):
    with charges(options) as post:
        assert post(13)[0] is None
        status = eventually(lambda: (found := post(13)[0]) not in (None, 409) and found, within=30)
        assert (status, raw.get("charges:13")) == again
        assert post(13)[0] == again[0]


def test_no_charge_is_made_in_an_outage(server, raw, charges):
    with FaultProxy(server.url) as proxy, charges(url=proxy.url) as post:
        proxy.retarget("unix:///nowhere/s")
        assert post(10)[0] == 503
        proxy.retarget(server.url)
        assert raw.get("charges:10") is None
        eventually(lambda: post(10)[0] == 201)


@pytest.fixture
def locks(server):
    """The way to the locks, which a test can cut. The broker has a way of its own."""
    with FaultProxy(server.url) as proxy:
        cut, mend = partial(proxy.retarget, "unix:///nowhere/s"), partial(proxy.retarget, server.url)
        yield SimpleNamespace(url=proxy.url, cut=cut, mend=mend)


@pytest.fixture
def tasks(server, raw, locks, written, tmp_path):
    """Run two workers with the tasks of the page. Return a function that sends a task, and one that delivers messages again."""
    pytest.importorskip("celery")
    from celery import Celery

    # A worker that is killed while it delivers again keeps this mutex, by default for five minutes.
    transport = {"visibility_timeout": VISIBILITY_S, "unacked_mutex_expire": 2}
    work = "    with counted(f'{kind}:{{{key}}}'):\n        work({key})\n"
    changes = [
        ("from celery import Celery", f"{WORK}\nfrom celery import Celery"),
        (
            "configure(app",
            f"app.conf.broker_transport_options = {transport}\napp.conf.worker_prefetch_multiplier = 1\nconfigure(app",
        ),
        ('"keep": 7 * 86400', '"keep": 7 * 86400, "ttl": 2, "countdown": 0.2'),
        ('"rebuild:{shop}"', '"rebuild:{shop}", "ttl": 2, "countdown": 0.2'),
        ("    return {", work.format(kind="report", key="day") + "    return {"),
        ("    return self", work.format(kind="rebuild", key="shop") + "    return self"),
    ]
    folder, url = written("celery-task-twice.md", changes, locks.url), server.url.replace("unix://", "redis+socket://")
    command = "-m", "celery", "--workdir", str(folder), "-A", "tasks", "worker", "-c", "4", "-l", "INFO"
    with contextlib.ExitStack() as stack:
        for number in range(2):
            stack.enter_context(running(server, *command, "-n", f"{number}@here", log=tmp_path / f"log {number}"))
        sender = Celery("sender", broker=url, set_as_current=False)
        stack.callback(disconnect, sender)
        sender.conf.broker_transport_options = transport
        broker = stack.enter_context(sender.connection_for_write())

        def send(name, argument, **options):
            sender.send_task(f"tasks.{name}", [argument], connection=broker, **options)

        def deliver_again(seconds):
            """A worker does so by itself, by default every hundred seconds."""
            for _ in range(seconds):
                broker.default_channel.qos.restore_visible(num=None, interval=1)
                time.sleep(1)
            assert raw.llen("celery") == raw.hlen("unacked") == 0, "no message comes again"

        yield send, deliver_again


WORK = """\
def work(key):
    first = conn.incr(f"begun:{key}") == 1
    if key == "dies" and first:
        os.kill(os.getpid(), 9)
    time.sleep(5 if key == "long" else 0.1)
"""


def runs(raw, what):
    assert raw.get(f"{what}:overlaps") is None
    assert raw.get(f"{what}:inside") == "0"
    return int(raw.get(f"{what}:total"))


@pytest.mark.timeout(120)
def test_a_task_that_is_delivered_again_runs_as_the_table_of_the_page_says(raw, tasks):
    send, deliver_again = tasks
    for name in ("report", "rebuild"):
        send(name, "long")
        send(name, "late", countdown=3 * VISIBILITY_S)
        for _ in range(2):
            send(name, "twice")
    eventually(lambda: raw.get("begun:long"), within=30)
    deliver_again(16)
    assert [runs(raw, f"report:{key}") for key in ("long", "late", "twice")] == [1, 1, 1]
    assert [runs(raw, f"rebuild:{key}") for key in ("long", "late", "twice")] == [1, 1, 2]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", ["report", "rebuild"])
def test_a_task_whose_worker_is_killed_runs_again(raw, tasks, name):
    send, deliver_again = tasks
    send(name, "dies")
    eventually(lambda: raw.get("begun:dies") == "2", within=30)
    deliver_again(6)
    assert raw.get("begun:dies") == "2"


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", ["report", "rebuild"])
def test_a_task_that_begins_in_an_outage_runs_when_it_is_over(raw, locks, tasks, tmp_path, name):
    send, deliver_again = tasks
    send(name, "before")
    eventually(lambda: raw.get(f"{name}:before:total"), within=30)
    locks.cut()
    send(name, "meanwhile")
    logs = [tmp_path / f"log {number}" for number in range(2)]
    eventually(lambda: any("comes again" in log.read_text() for log in logs), within=30)
    assert raw.get("begun:meanwhile") is None
    locks.mend()
    eventually(lambda: raw.get(f"{name}:meanwhile:total"), within=30)
    deliver_again(2)
    assert runs(raw, f"{name}:meanwhile") == 1
