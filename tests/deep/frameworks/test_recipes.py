"""The programs of the documentation, as they stand there, in the frameworks that they are for."""

from __future__ import annotations

import contextlib
import importlib
import io
import itertools
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from handfast.compat import RedisLock
from handfast.fencing import StaleFence, update_if_newer
from tests._support.helpers import eventually
from tests.deep.frameworks.test_django import end
from tests.deep.frameworks.test_frameworks import answers, assert_idle, disconnect, free_port, request, running

PAGES = Path(__file__).parents[3] / "docs/how-to"


def write_programs(page, folder, url):
    """Write the programs of a page into a folder, with the URL of a server; return their names."""
    text = (PAGES / page).read_text()
    text = text.replace("redis://localhost:6379/0", url)
    text = text.replace("redis://localhost:6379/1", url.replace("unix://", "redis+socket://"))
    programs = re.findall(r'^```\w+ title="([\w.]+)"\n(.*?)^```$', text, re.MULTILINE | re.DOTALL)
    for title, program in programs:
        (folder / title).write_text(program)
    return [title.removesuffix(".py") for title, _ in programs]


@pytest.fixture
def written(server, tmp_path, monkeypatch):
    """Return a function that writes the programs of a page into a folder, from which they can be imported."""
    monkeypatch.syspath_prepend(tmp_path)
    made = []

    def write(page):
        made.extend(write_programs(page, tmp_path, server.url))
        return tmp_path

    yield write
    for title in made:
        sys.modules.pop(title, None)


@pytest.fixture
def serve(server, written, tmp_path):
    """Return a function that serves the FastAPI program of a page and returns its port."""
    pytest.importorskip("fastapi")
    pytest.importorskip("uvicorn")
    with contextlib.ExitStack() as programs:

        def start(page):
            port = free_port()
            command = "-m", "uvicorn", "app:app", "--app-dir", str(written(page)), "--port", str(port)
            programs.enter_context(running(server, *command, log=tmp_path / "log"))
            eventually(lambda: answers(port, "/docs"), within=30)
            return port

        yield start


def test_the_page_is_mounted_in_fastapi(serve, hf, raw):
    port = serve("page.md")
    for path, user, status in (
        ("/", None, 403),
        ("/api/looks", "eve", 403),
        ("/", "ann", 200),
        ("/main.js", "bob", 200),
    ):
        headers = {"x-auth-user": user} if user else {}
        assert request(port, "GET", f"/handfast{path}", None, headers)[0] == status
    status, body = request(port, "GET", "/handfast/api/me", None, {"x-auth-user": "ann"})
    assert (json.loads(body)["label"], json.loads(body)["may"]) == ("ann", ["hold", "release"])


async def test_the_page_is_mounted_beside_django(django, written, raw):
    written("page.md")
    httpx = pytest.importorskip("httpx")
    application = importlib.import_module("asgi").application
    async with httpx.AsyncClient(transport=httpx.ASGITransport(application), base_url="http://localhost") as http:
        assert (await http.get("/handfast/")).status_code == 403
        assert "<title>Handfast</title>" in (await http.get("/handfast/", headers={"x-auth-user": "ann"})).text


def test_fastapi_as_its_page_has_it(serve, hf, raw):
    port, ann = serve("fastapi.md"), {"X-User": "ann"}
    status, body = request(port, "POST", "/orders/7/pay")
    assert (status, [*json.loads(body)]) == (200, ["fence"])
    with hf.lock("order:7"):
        assert request(port, "POST", "/orders/007/pay")[0] == 423
    statuses = [request(port, "GET", "/search?q=x", None, ann)[0] for _ in range(8)]
    assert statuses[:5] == [200] * 5
    assert 429 in statuses
    assert request(port, "GET", "/search?q=x", None, {"X-User": "bob"})[0] == 200
    key = ann | {"Idempotency-Key": "k1"}
    charges = [request(port, "POST", "/charges?cents=10", "", key) for _ in range(2)]
    assert charges == [(201, '{"charged":10}')] * 2
    assert request(port, "POST", "/charges?cents=11", "", key)[0] == 422
    assert request(port, "POST", "/charges?cents=10", "", ann)[0] == 400
    eventually(lambda: hf.election("scheduler").leader())


def test_the_test_of_the_page_of_fastapi(written):
    """And what the page says of further names."""
    pytest.importorskip("fastapi")
    folder = written("fastapi.md")
    with (folder / "test_app.py").open("a") as file:
        file.write(
            "\n\ndef test_others():\n"
            "    ann = {'X-User': 'ann', 'Idempotency-Key': 'k1'}\n"
            "    with TestClient(app) as http:\n"
            "        with busy('idempotency|ann|k1'), busy('search|ann'):\n"
            "            assert http.post('/charges?cents=1', headers=ann).status_code == 409\n"
            "            assert http.get('/search?q=x', headers=ann).status_code == 429\n"
            "        assert http.get('/search?q=x', headers=ann).status_code == 200\n"
        )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_app.py"]
    env = {name: value for name, value in os.environ.items() if name != "HANDFAST_URL"}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout


def test_celery_as_its_page_has_it(server, written, hf, raw, tmp_path):
    pytest.importorskip("celery")
    folder = written("celery.md")
    program = folder / "tasks.py"
    program.write_text(program.read_text().replace('{customer}"}', '{customer}", "countdown": 0.2}'))
    tasks = importlib.import_module("tasks")
    command = ["-m", "celery", "--workdir", str(folder), "-A", "tasks", "worker", "-c", "2", "-l", "INFO"]
    with running(server, *command, log=tmp_path / "log"):
        tasks.rebuild.delay(7)
        eventually(lambda: hf.lock("rebuild:7").status().grants == 1, within=30)
        with hf.lock("rebuild:8"):
            tasks.rebuild.delay(8)
            eventually(lambda: (tmp_path / "log").read_text().count("is taken") > 1, within=30)
        eventually(lambda: hf.lock("rebuild:8").status().grants == 2, within=30)
        tasks.report.delay("monday")
        eventually(lambda: hf.once("tasks.report").keyed("monday").status().state == "done", within=30)
    tasks.app.backend.result_consumer.stop()
    tasks.app.backend.client.connection_pool.disconnect()
    disconnect(tasks.app)
    tasks.app.handfast.close()


def test_django_as_its_page_has_it(django, written, hf, raw):
    from django.core.management import call_command
    from django.test import RequestFactory

    from handfast.contrib.django import client

    written("django.md")
    said = io.StringIO()
    command = importlib.import_module("close_month").Command()
    with client().lock("close_month"):
        call_command(command, stdout=said)
    call_command(command, stdout=said)
    assert [line.partition(":")[0] for line in said.getvalue().splitlines()] == [
        "It is skipped",
        "closing",
    ]
    views = importlib.import_module("views")
    request = RequestFactory().get("/")
    with client().lock("order:7"):
        assert views.pay.__wrapped__(request, 7).content == b"paid"
    assert views.pay(request, 7).content == b"paid"
    assert int(views.report(request).content) > 0
    importlib.import_module("order").pay(7)
    end(client())


def test_cursors_and_querysets_of_django_refuse_old_fences(django, raw):
    from django.db import connection, models
    from django.db.models import Q

    class Report(models.Model):  # noqa: DJ008 -- it is not shown
        body = models.TextField()
        fence = models.BigIntegerField(null=True)

        class Meta:
            app_label = "recipes"
            db_table = "reports"

    with connection.schema_editor() as editor:
        editor.create_model(Report)
    Report.objects.create(pk=7, body="none")
    for target in (connection, connection.cursor()):
        update_if_newer(target, "reports", {"body": "ours"}, 40, where={"id": 7}, paramstyle="format")
        with pytest.raises(StaleFence):
            update_if_newer(target, "reports", {"body": "late"}, 39, where={"id": 7}, paramstyle="format")

    def write(fence, body):
        return Report.objects.filter(Q(fence=None) | Q(fence__lte=fence), pk=7).update(body=body, fence=fence)

    assert (write(41, "newer"), write(40, "late")) == (1, 0)
    assert Report.objects.get(pk=7).body == "newer"


def test_a_statement_of_sqlalchemy_refuses_old_fences():
    pytest.importorskip("sqlalchemy")
    from sqlalchemy import BigInteger, Column, Integer, MetaData, String, Table, create_engine, insert, or_, update

    engine, metadata = create_engine("sqlite://"), MetaData()
    report = Table("reports", metadata, Column("id", Integer), Column("body", String), Column("fence", BigInteger))
    metadata.create_all(engine)

    def write(connection, fence, body):
        newer = or_(report.c.fence.is_(None), report.c.fence <= fence)
        return connection.execute(update(report).where(report.c.id == 7, newer).values(body=body, fence=fence)).rowcount

    with engine.begin() as connection:
        connection.execute(insert(report).values(id=7, body="none"))
        assert [write(connection, fence, "x") for fence in (40, 39, 41)] == [1, 0, 1]


def test_a_session_of_sqlalchemy_its_connection_and_its_pools_are_fenced():
    sqlalchemy = pytest.importorskip("sqlalchemy")
    from sqlalchemy.orm import Session, scoped_session, sessionmaker

    engine = sqlalchemy.create_engine("sqlite://", poolclass=sqlalchemy.pool.StaticPool)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE reports (id INTEGER PRIMARY KEY, body TEXT, fence BIGINT)")
        connection.exec_driver_sql("INSERT INTO reports (id) VALUES (7)")
    scoped = scoped_session(sessionmaker(engine))
    with Session(engine) as session, engine.connect() as connection:
        for fence, target in enumerate((session, connection, connection.connection, scoped), 40):
            update_if_newer(target, "reports", {"body": "newer"}, fence, where={"id": 7})
            with pytest.raises(StaleFence):
                update_if_newer(target, "reports", {"body": "late"}, fence - 1, where={"id": 7})
        session.rollback()
    assert scoped.execute(sqlalchemy.text("SELECT body FROM reports")).scalar() is None, "it was their transaction"
    scoped.remove()
    for wrong in (engine, sessionmaker(engine)):
        with pytest.raises(TypeError, match="has no transaction of yours; pass a Session or a Connection"):
            update_if_newer(wrong, "reports", {}, 40, where={"id": 7})


def test_django_redis_takes_our_lock_by_its_client(django, raw):
    pytest.importorskip("django_redis")
    from django.core.cache import cache, caches
    from django_redis import get_redis_connection

    with pytest.raises(TypeError):
        cache.lock("a", lock_class=RedisLock)
    with caches["ours"].lock("a", timeout=30) as lock:
        assert isinstance(lock, RedisLock)
        assert not cache.lock("a", timeout=30, blocking_timeout=0).acquire(), "it is the same key"
        assert caches["ours"].lock("a", 2, 30, 0.1, False).acquire(), "another version is another key"
    caches["ours"].close()
    connection = get_redis_connection("default")
    with connection.lock("a", lock_class=RedisLock, timeout=30) as lock:
        assert isinstance(lock, RedisLock)
        assert raw.exists("a")
    assert not raw.exists("a")
    connection.connection_pool.disconnect()


@pytest.fixture
def replicas(server, written, tmp_path):
    """Return a function that starts replicas with the entry point of the page, and a migration that takes its time."""
    pytest.importorskip("alembic")
    folder = written("migrate-once.md")
    entry = folder / "entrypoint.sh"
    entry.write_text(entry.read_text().replace("--keep", "--ttl 2 --keep"))
    env = os.environ | {
        "HANDFAST_URL": server.url,
        "REVISION": "abc123",
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    }
    subprocess.run(["alembic", "init", "migrations"], cwd=folder, env=env, check=True, capture_output=True)
    config = folder / "alembic.ini"
    config.write_text(
        re.sub("^sqlalchemy.url = .*$", "sqlalchemy.url = sqlite:///db", config.read_text(), flags=re.MULTILINE)
    )
    (folder / "migrations/versions/first.py").write_text(
        "import os, pathlib, time\n"
        "revision, down_revision = 'first', None\n"
        "def upgrade():\n"
        "    with open('ran', 'a') as file:\n"
        "        print(os.getpid(), file=file)\n"
        "    while not pathlib.Path('go on').exists():\n"
        "        time.sleep(0.01)\n"
    )
    with contextlib.ExitStack() as ends:

        def start(count):
            options = {"cwd": folder, "env": env, "stdout": subprocess.PIPE, "text": True, "start_new_session": True}
            command = ["sh", "entrypoint.sh", "echo", "serves"]
            return [ends.enter_context(subprocess.Popen(command, **options)) for _ in range(count)]

        yield start
        (folder / "go on").touch()


def test_replicas_migrate_once(replicas, hf, raw, tmp_path):
    started = replicas(3)
    eventually(lambda: hf.once("migrate:abc123").status().waiting == 2)
    (tmp_path / "go on").touch()
    assert [one.communicate(timeout=30)[0] for one in started] == ["serves\n"] * 3
    (late,) = replicas(1)
    assert late.communicate(timeout=30)[0] == "serves\n"
    assert len((tmp_path / "ran").read_text().split()) == 1


def test_a_replica_that_dies_while_it_migrates_is_followed_by_the_next(replicas, hf, raw, tmp_path):
    (first,) = replicas(1)
    eventually((tmp_path / "ran").exists, within=30)
    (second,) = replicas(1)
    eventually(lambda: hf.once("migrate:abc123").status().waiting == 1)
    os.killpg(first.pid, signal.SIGKILL)
    eventually(lambda: len((tmp_path / "ran").read_text().split()) == 2, within=30)
    (tmp_path / "go on").touch()
    assert second.communicate(timeout=30)[0] == "serves\n"


def test_apscheduler_runs_in_one_worker_and_the_next_after_it(server, written, hf, raw, tmp_path):
    pytest.importorskip("apscheduler")
    folder = written("frameworks.md")
    program = folder / "jobs.py"
    text = (
        program.read_text().replace('"jobs", schedule', '"jobs", schedule, ttl=2').replace("seconds=1", "seconds=0.1")
    )
    notes = 'import os, redis\nnotes = redis.Redis.from_url(os.environ["HANDFAST_URL"])\n'
    program.write_text(notes + text.replace('ran.append("report")', 'notes.rpush("ran", os.getpid())'))
    command = ["-m", "uvicorn", "jobs:app", "--app-dir", str(folder), "--workers", "3", "--port", str(free_port())]
    with running(server, *command, log=tmp_path / "log"):
        first = eventually(lambda: len(found := raw.lrange("ran", 0, -1)) > 3 and set(found), within=30)
        assert len(first) == 1
        os.kill(int(*first), signal.SIGKILL)
        eventually(lambda: len(set(raw.lrange("ran", 0, -1))) == 2, within=30)
        changes = [one for one, other in itertools.pairwise(raw.lrange("ran", 0, -1)) if one != other]
        assert changes == [*first], "the one that follows is the only one"


def test_a_function_that_is_frozen_between_calls(server, written, hf, raw):
    folder = written("frameworks.md")
    program = folder / "handler.py"
    program.write_text(
        program.read_text().replace("    return {", '    print(order, end="", file=open("ran", "a"))\n    return {')
    )
    calls = "import json, handler\nwhile True: print(json.dumps(handler.handler({'order': int(input())}, None)), flush=True)"
    env = os.environ | {"PYTHONPATH": str(folder)}
    options = {"cwd": folder, "env": env, "stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", calls], **options) as function:

        def call(order):
            print(order, file=function.stdin, flush=True)
            return json.loads(function.stdout.readline())

        try:
            assert call(1) == {"charged": 1}
            os.kill(function.pid, signal.SIGSTOP)
            assert_idle(hf)
            for kind in ("normal", "pubsub"):
                raw.client_kill_filter(_type=kind, skipme=True)
            os.kill(function.pid, signal.SIGCONT)
            assert [call(1), call(2)] == [{"charged": 1}, {"charged": 2}]
            assert (folder / "ran").read_text() == "12"
        finally:
            function.kill()


def test_fixtures_of_a_test_suite(written):
    folder = written("testing.md")
    (folder / "test_mine.py").write_text(
        "import redis\n\n\ndef test_mine(proxy):\n    conn = redis.Redis.from_url(proxy.url)\n    assert conn.ping()\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:valkey", "-p", "no:cacheprovider", str(folder)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout
