"""The programs of the documentation that start a service, on their second day.

Each runs on a private server, as the page has it, and has to go on working: after an outage, a restart of the server without data, a
deploy beside the old version, a hold and a freeze, when it starts a second time in the same process, and with twice as many callers as
threads.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import ClassVar

import pytest
import redis

from handfast import Handfast, HandfastError
from handfast.testing import ServerController
from tests._support.helpers import eventually
from tests.deep.frameworks.test_frameworks import answers, free_port, request, running
from tests.deep.frameworks.test_recipes import write_programs

OUTAGE_S = 8.0

THREADS = 40
"""That Starlette runs ``def`` endpoints and dependencies in."""

ANN = {"X-Auth-User": "ann", "X-User": "ann"}


@dataclass
class Service:
    """A program of a page, and a check of its work.

    Attributes:
        server: Its server.
        hf: A client of this process.
        port: Where an instance of it listens.
        folder: Where the programs of its page are.
    """

    page: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = ()
    away: ClassVar[int | None] = None
    """The status of a request in an outage; None where it has none."""
    election: ClassVar[str | None] = None

    server: ServerController
    hf: Handfast
    folder: str
    port: int = 0

    def command(self):
        """Return the arguments of Python that start an instance at `port`."""
        raise NotImplementedError

    def is_up(self):
        """Return whether an instance has started. Without a port it is given some seconds."""
        if "uvicorn" in self.needs or "gunicorn" in self.needs:
            return answers(self.port, "/")
        time.sleep(5)
        return True

    def works(self):
        """Return whether the program does its work: the instance at `port` if it has a port, else any instance."""
        raise NotImplementedError

    def asks(self):
        """Send the request that needs the server; return the status."""
        raise NotImplementedError

    def labels(self):
        """Return who leads."""
        leader = self.hf.election(self.election).leader()
        return {leader.label} if leader else set()

    def write(self, title, program):
        """Write a program beside those of the page."""
        with open(f"{self.folder}/{title}.py", "w") as file:
            file.write(program)

    def uvicorn(self, app="app:app"):
        return ["-m", "uvicorn", app, "--app-dir", self.folder, "--port", str(self.port), "--log-level", "warning"]


class FastAPI(Service):
    page, needs, away, election = "fastapi.md", ("fastapi", "uvicorn"), 503, "scheduler"

    def command(self):
        return self.uvicorn()

    def asks(self):
        found = answers(self.port, "/docs") and request(self.port, "POST", "/orders/7/pay")
        return found and found[0]

    def works(self):
        return self.asks() == 200 and self.hf.election("scheduler").leader()


class Scheduler(Service):
    """A route tells whether the loop of this process goes on."""

    page, needs, election = "elect-a-leader.md", ("starlette", "uvicorn"), "scheduler"

    def command(self):
        self.write(
            "web",
            "from starlette.applications import Starlette\n"
            "from starlette.responses import JSONResponse\n"
            "from starlette.routing import Route\n"
            "import app as page\n"
            "async def ran(request): return JSONResponse([len(page.ran), max(page.ran, default=0)])\n"
            "app = Starlette(lifespan=page.lifespan, routes=[Route('/ran', ran)])\n",
        )
        return self.uvicorn("web:app")

    def works(self):
        if not (first := answers(self.port, "/ran")):
            return False
        time.sleep(0.2)
        leader = self.hf.election("scheduler").leader()
        before, (count, fence) = json.loads(first[1])[0], json.loads(request(self.port, "GET", "/ran")[1])
        return leader and leader.fence == fence and count > before


class Jobs(Service):
    """As there, with APScheduler."""

    page, needs, election = "frameworks.md", ("apscheduler", "fastapi", "uvicorn"), "jobs"

    def command(self):
        self.write("web", "import jobs\napp = jobs.app\n@app.get('/ran')\nasync def ran(): return len(jobs.ran)\n")
        return self.uvicorn("web:app")

    def works(self):
        if not (first := answers(self.port, "/ran")):
            return False
        time.sleep(1.2)
        return int(request(self.port, "GET", "/ran")[1]) > int(first[1])


class Control(Service):
    page, election = "elect-a-leader.md", "control"

    def command(self):
        return [f"{self.folder}/control.py"]

    def works(self):
        wanted = time.monotonic_ns()
        self.server.admin.set("wanted", wanted)
        time.sleep(0.2)
        return self.server.admin.get("actual") == str(wanted)


class Bots(Service):
    page = "partition-items.md"

    def command(self):
        return [f"{self.folder}/bots.py"]

    def works(self):
        return all(self.owners())

    def owners(self):
        return self.hf.partition("bots", ["alice", "bob", "carol", "dave"]).owners().values()

    def labels(self):
        return {one.label if one else None for one in self.owners()}


class Page(Service):
    page, needs = "page.md", ("fastapi", "uvicorn")

    def command(self):
        return self.uvicorn()

    def works(self):
        with self.hf.lock(f"seen {time.monotonic_ns()}") as lease:
            time.sleep(1.2)  # it looks once a second
            found = answers(self.port, "/docs") and request(self.port, "GET", "/handfast/api/looks", None, ANN)
        return found and found[0] == 200 and lease.name in found[1]


class Django(Service):
    page, needs, away = "django.md", ("django", "gunicorn"), 500

    def command(self):
        self.write(
            "site_settings",
            "from settings import *\nDEBUG = False\nSECRET_KEY = 'x'\nALLOWED_HOSTS = ['*']\nROOT_URLCONF = 'site_urls'\n",
        )
        self.write(
            "site_urls",
            "from django.urls import path\nimport views\n"
            "urlpatterns = [path('report', views.report), path('orders/<int:order_id>', views.pay)]\n",
        )
        self.write(
            "site_wsgi",
            "import os\nos.environ['DJANGO_SETTINGS_MODULE'] = 'site_settings'\n"
            "from django.core.wsgi import get_wsgi_application\napplication = get_wsgi_application()\n",
        )
        options = ["--chdir", self.folder, "--workers", "2", "--threads", "4", "--bind", f"127.0.0.1:{self.port}"]
        return ["-m", "gunicorn", *options, "site_wsgi:application"]

    def asks(self):
        found = answers(self.port, "/orders/7")
        return found and found[0]

    def works(self):
        return self.asks() == 200 and int(request(self.port, "GET", "/report")[1]) > 0


class Celery(Service):
    page, needs = "celery.md", ("celery",)

    def command(self):
        return ["-m", "celery", "--workdir", self.folder, "-A", "tasks", "worker", "-c", "2", "-l", "INFO"]

    def works(self):
        from celery import Celery

        customer = time.monotonic_ns()
        with Celery(broker=self.server.url.replace("unix://", "redis+socket://")) as app:
            app.send_task("tasks.rebuild", (customer,))
            eventually(lambda: self.hf.lock(f"rebuild:{customer}").status().grants == 1, within=60)
        return True


class Beat(Service):
    page, needs, election = "celery.md", ("celery",), "celery-beat"

    def command(self):
        self.write(
            "beat",
            "from tasks import app\n"
            "app.conf.handfast_beat = {'ttl': 5}\n"
            "app.conf.beat_schedule = {'report': {'task': 'tasks.report', 'schedule': 0.5, 'args': ('monday',)}}\n",
        )
        options = ["--scheduler", "handfast.contrib.celery:LeaderScheduler", "-s", f"{self.folder}/{self.port}"]
        return ["-m", "celery", "--workdir", self.folder, "-A", "beat", "beat", *options, "--pidfile="]

    def works(self):
        sent = self.server.admin.llen("celery")
        time.sleep(1.5)
        return self.server.admin.llen("celery") > sent and self.hf.election("celery-beat").leader()


SERVICES = [FastAPI, Scheduler, Jobs, Control, Bots, Page, Django, Celery, Beat]


@pytest.fixture
def start(tmp_path):
    """Return a function that starts the server of a service and returns the service."""
    with contextlib.ExitStack() as ends:

        def begin(kind):
            for module in kind.needs:
                pytest.importorskip(module)
            server = ends.enter_context(ServerController())
            hf = ends.enter_context(Handfast(server.url))
            write_programs(kind.page, tmp_path, server.url)
            return kind(server, hf, str(tmp_path))

        yield begin


@contextlib.contextmanager
def instance(service, log):
    """Run an instance of a service, and yield its process."""
    service.port = free_port()
    with running(service.server, *service.command(), log=log) as process:
        eventually(service.is_up)
        yield process


@pytest.mark.parametrize("kind", SERVICES)
def test_it_goes_on_after_an_outage_a_restart_and_a_deploy(start, tmp_path, kind):
    service = start(kind)
    with contextlib.ExitStack() as old:
        process = old.enter_context(instance(service, tmp_path / "old"))
        works_again(service)
        with service.server.paused():
            until = time.monotonic() + OUTAGE_S
            if kind.away:
                assert service.asks() == kind.away
            time.sleep(max(0.0, until - time.monotonic()))
        works_again(service)
        service.server.kill()
        if kind.away:
            assert service.asks() == kind.away
        service.server.restart()
        works_again(service)
        assert process.poll() is None, "it has ended"
        with instance(service, tmp_path / "new"):
            old.close()
            assert process.returncode in ((0, -signal.SIGTERM) if service.needs else (143,)), (
                "it was not ended in order"
            )
            works_again(service)
            if service.election:
                ends = [term.why for term in service.hf.election(service.election).history()]
                assert "resigned" in ends, "the old instance has not resigned"


def works_again(service):
    """Wait until a service works, which it has to without a new start. The test's own calls may still fail, as those of any client."""

    def works():
        with contextlib.suppress(OSError, http.client.HTTPException, redis.RedisError, HandfastError):
            return service.works()

    eventually(works)


LEADING = [kind for kind in SERVICES if kind.election]


@pytest.mark.parametrize("kind", LEADING)
def test_it_stands_by_while_an_operator_holds_the_election(start, tmp_path, kind):
    service = start(kind)
    with instance(service, tmp_path / "log"):
        works_again(service)
        service.hf.hold(kind.election, 600, kind="election", now=True, grace=20, reason="INC-1")
        fence = service.hf.election(kind.election).history()[0].fence
        eventually(lambda: not service.hf.election(kind.election).leader())
        service.hf.unhold(kind.election, kind="election")
        works_again(service)
        assert service.hf.election(kind.election).leader().fence > fence


@pytest.mark.parametrize("kind", [*LEADING, Bots])
def test_one_that_was_frozen_is_followed_and_follows(start, tmp_path, kind):
    """The lease ends meanwhile. The thawed process stands by, and leads again after the other."""
    service = start(kind)
    with instance(service, tmp_path / "old") as old:
        works_again(service)
        port = service.port
        os.killpg(old.pid, signal.SIGSTOP)
        with instance(service, tmp_path / "new") as new:
            eventually(lambda: service.labels() == {f"{socket.gethostname()}:{new.pid}"})
            works_again(service)
            os.killpg(old.pid, signal.SIGCONT)
        service.port = port
        works_again(service)
        assert old.poll() is None


CALLS = """
from starlette.testclient import TestClient
from app import app
for _ in range(2):
    with TestClient(app) as http:
        assert http.{call}.status_code == 200
"""

CAMPAIGNS = """
import asyncio, app
async def start():
    before = len(app.ran)
    async with app.lifespan(None):
        while len(app.ran) == before:
            await asyncio.sleep(0.01)
for _ in range(2):
    asyncio.run(start())
"""

RUNS = """
import asyncio, {module}
from handfast import Handfast
async def start():
    task = asyncio.create_task({module}.main())
    while not {begun}:
        await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait([task])
with Handfast() as hf:
    for _ in range(2):
        asyncio.run(start())
"""

TWICE = {
    FastAPI: CALLS.format(call="post('/orders/7/pay')"),
    Page: CALLS.format(call=f"get('/handfast/api/looks', headers={ANN})"),
    Scheduler: CAMPAIGNS,
    Control: RUNS.format(module="control", begun="hf.election('control').leader()"),
    Bots: RUNS.format(module="bots", begun="len(bots.running) == 4"),
}


@pytest.mark.parametrize("kind", TWICE)
def test_it_starts_a_second_time_in_one_process(start, kind):
    service = start(kind)
    warnings = ["-W", "always::ResourceWarning", "-W", "ignore:Using `httpx` with"]  # the latter is of newer Starlettes
    program = [sys.executable, *warnings, "-c", TWICE[kind]]
    env = os.environ | {"HANDFAST_URL": service.server.url, "PYTHONPATH": service.folder}
    done = subprocess.run(program, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    eventually(lambda: not any(one.status.waiting or one.status.holding for one in service.hf.names()))


@pytest.mark.parametrize("kind", [FastAPI, Django])
def test_twice_as_many_callers_as_threads_are_all_answered(start, tmp_path, kind):
    service = start(kind)
    with instance(service, tmp_path / "log"), ThreadPoolExecutor(2 * THREADS) as pool:
        works_again(service)
        found = Counter(pool.map(lambda _: service.asks(), range(2 * THREADS)))
    assert found == {200: 2 * THREADS}
