"""Programs in frameworks, several processes each, on a real server: no two inside at a time, no more than a limit, nothing left behind.

They run in the session ``frameworks`` of nox, which installs the frameworks.
"""

from __future__ import annotations

import contextlib
import http.client
import importlib
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests._support.helpers import eventually

ROOT = Path(__file__).parents[3]

TASKS = "tests.deep.frameworks.celery_app"


@contextlib.contextmanager
def running(server, *command, log, **options):
    """Start a program in a process group of its own, and end it as its supervisor would.

    All of it must be gone then.
    """
    env = os.environ | {"HANDFAST_URL": server.url, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    with open(log, "wb") as output:
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=ROOT,
            env=env,
            stdout=output,
            stderr=output,
            start_new_session=True,
            **options,
        )
    try:
        yield process
        if process.stdin is None:
            process.terminate()
        else:
            process.stdin.close()
        process.wait(20)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(20)
        print(Path(log).read_text()[-4000:])


def disconnect(app):
    """Close what Celery keeps open for the whole process."""
    from kombu import pools

    app.close()
    pools.reset()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def get(port, path):
    return request(port, "GET", path)


def charge(port, key, body="10 euros", query=""):
    return request(port, "POST", f"/charges{query}", body, {"Idempotency-Key": key})


def request(port, *words):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(*words)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def answers(port, path):
    with contextlib.suppress(OSError):
        return get(port, path)


def all_of(port, path, count):
    """Send that many requests, ten at a time, and return the fences that the program answered with."""
    with ThreadPoolExecutor(10) as pool:
        found = list(pool.map(lambda _: get(port, path), range(count)))
    assert {status for status, _ in found} == {200}, found
    return [int(text) for _, text in found]


def check(raw, what, count):
    assert raw.get(f"{what}:overlaps") is None
    assert (raw.get(f"{what}:total"), raw.get(f"{what}:inside")) == (str(count), "0")


def assert_idle(hf, *but):
    assert {one.name for one in hf.names() if getattr(one.status, "holding", 0) or one.status.waiting} == set(but)


def test_fastapi_with_two_workers(server, raw, hf, tmp_path):
    pytest.importorskip("fastapi")
    pytest.importorskip("uvicorn")
    port = free_port()
    command = ["-m", "uvicorn", "tests.deep.frameworks.fastapi_app:app", "--workers", "2", "--port", str(port)]
    with running(server, *command, log=tmp_path / "log"):
        eventually(lambda: answers(port, "/busy"), within=30)
        for path in ("sync", "asyncio"):
            fences = all_of(port, f"/{path}", 40)
            assert len(set(fences)) == 40
            check(raw, path, 40)
        for path in ("/slots", "/reads"):
            assert len(set(all_of(port, path, 40))) == 40
        assert get(port, "/fails")[0] == 500
        with hf.lock("taken"):
            assert get(port, "/busy") == (423, '{"detail":"taken"}')
        assert get(port, "/busy")[0] == 200
        with ThreadPoolExecutor(10) as pool:
            asked = Counter(pool.map(lambda n: get(port, f"/search?user={'ab'[n % 2]}")[0], range(24)))
        assert asked == {200: 2 * 5, 429: 24 - 2 * 5}
        assert_charged_once(port, raw)
        impatient = http.client.HTTPConnection("127.0.0.1", port)
        impatient.request("GET", "/stream")
        eventually(lambda: raw.get("stream:entered"))
        assert_idle(hf, "stream")
        impatient.close()
        eventually(lambda: not hf.lock("stream").locked())
        assert_idle(hf)


def assert_charged_once(port, raw):
    """Post a key many times at once, with and without waiting for the first request, and then with another body."""
    with ThreadPoolExecutor(20) as pool:
        answers = set(pool.map(lambda _: charge(port, "k1"), range(20)))
        impatient = Counter(pool.map(lambda _: charge(port, "k2", query="?waits=false")[0], range(20)))
    assert answers == {(200, '{"number":1,"charged":"10 euros"}')}
    assert impatient.keys() <= {200, 409}
    assert charge(port, "k2") == (200, '{"number":1,"charged":"10 euros"}')
    assert charge(port, "k1", "20 euros")[0] == 422
    assert [raw.get(f"charges:{key}") for key in ("k1", "k2")] == ["1", "1"]


@pytest.fixture
def tasks(server, raw, monkeypatch):
    """The program with Celery's tasks, which this process sends. Afterwards all its connections are closed."""
    pytest.importorskip("celery")
    monkeypatch.setenv("HANDFAST_URL", server.url)
    tasks = importlib.import_module(TASKS)
    yield tasks
    disconnect(tasks.app)
    tasks.hf.close()
    del sys.modules[TASKS]


def test_celery_with_a_prefork_pool(server, raw, hf, tmp_path, tasks):
    command = ["-m", "celery", "-A", TASKS, "worker", "--concurrency", "2", "--loglevel", "INFO"]
    with running(server, *command, log=tmp_path / "log"):
        for _ in range(10):
            tasks.waits.delay(account=1)
            tasks.waits.delay(account=2)
        for account in (1, 2):
            eventually(lambda account=account: raw.get(f"account {account}:total") == "10", within=30)
            eventually(lambda account=account: raw.get(f"account {account}:inside") == "0")
            check(raw, f"account {account}", 10)
        running_task = tasks.hangs.delay()
        eventually(lambda: raw.get("celery:hangs"), within=30)
        assert_idle(hf, "terminated")
        tasks.app.control.revoke(running_task.id, terminate=True)
        eventually(lambda: not hf.lock("terminated").locked())
        for _ in range(3):
            tasks.skips.delay()
        tasks.waits.delay(account=3)
        eventually(lambda: raw.get("account 3:total"), within=30)
        assert raw.get("celery:ran") == "1"
        raw.set("celery:go on", 1)
    assert_idle(hf)


def test_django_under_gunicorn_with_two_preloaded_workers(server, raw, hf, tmp_path):
    pytest.importorskip("django")
    pytest.importorskip("gunicorn")
    port = free_port()
    command = ["-m", "gunicorn", "tests.deep.frameworks.django_app", "--preload", "-w", "2", "--threads", "4"]
    with running(server, *command, "-b", f"127.0.0.1:{port}", log=tmp_path / "log"):
        eventually(lambda: answers(port, "/busy"), within=30)
        with ThreadPoolExecutor(2) as pool:
            views = pool.submit(all_of, port, "/view", 30)
            asynchronous = pool.submit(all_of, port, "/asynchronous", 30)
        assert len({*views.result(), *asynchronous.result()}) == 60
        check(raw, "django", 60)
        with hf.lock("taken"):
            assert get(port, "/busy") == (423, "taken")
        assert get(port, "/busy") == (200, "in")
        assert {get(port, "/inherited") for _ in range(8)} == {(200, "True False")}
        assert_idle(hf, "kept by the parent")


def test_apscheduler_in_two_processes(server, raw, hf, tmp_path):
    pytest.importorskip("apscheduler")
    begin = datetime.now(UTC) + timedelta(seconds=2)
    command = "-m", "tests.deep.frameworks.apscheduler_app"
    late = begin + timedelta(seconds=0.1)  # by its clock the other process is behind
    with (
        running(server, *command, begin.isoformat(), log=tmp_path / "one", stdin=subprocess.PIPE),
        running(server, *command, late.isoformat(), log=tmp_path / "two", stdin=subprocess.PIPE),
    ):
        eventually(lambda: raw.get("apscheduler:tried") == "10", within=30)
    assert [raw.get(f"fire:{number}") for number in range(5)] == ["1"] * 5
    check(raw, "apscheduler", 5)


def test_gevent(server, raw, tmp_path):
    pytest.importorskip("gevent")
    with running(server, "-m", "tests.deep.frameworks.gevent_app", log=tmp_path / "log") as process:
        assert process.wait(50) == 0
    assert (tmp_path / "log").read_text().split()[-1] == "closing", "the last part of the program"
    check(raw, "gevent", 20)


def test_celery_with_a_gevent_pool(server, raw, hf, tmp_path, tasks):
    pytest.importorskip("gevent")
    command = ["-m", "celery", "-A", TASKS, "worker", "--pool", "gevent", "--concurrency", "20"]
    with running(server, *command, log=tmp_path / "log"):
        for _ in range(10):
            tasks.waits.delay(account=1)
            tasks.waits.delay(account=2)
        for account in (1, 2):
            eventually(lambda account=account: raw.get(f"account {account}:total") == "10", within=30)
            eventually(lambda account=account: raw.get(f"account {account}:inside") == "0")
            check(raw, f"account {account}", 10)
    assert_idle(hf)
