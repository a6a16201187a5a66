"""Count the instructions that a client executes for a request or a task: protected, and bare. Run with ``-m``.

    python -m tests.deep.frameworks.price
    python -m tests.deep.frameworks.price celery django

All calls of a framework are made in turn, 100 of each, in three rounds, by one process under ``valgrind --tool=callgrind``: so
the load of the machine does not count. Callgrind writes its counters to a file at each call of ``os.getpriority``, which
nothing else calls: so start-up does not count. The figures include the framework, the interpreter and the event loop. A
request is a call of the ASGI application or of the view, one at a time, without a web server.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import re
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median

from celery import Celery
from django.conf import settings
from django.http import HttpResponse
from django.test import RequestFactory
from fastapi import APIRouter, Depends, FastAPI, Request

from handfast import AsyncHandfast, Handfast
from handfast.contrib import celery as tasks
from handfast.contrib import django as views
from handfast.contrib.django import clients
from handfast.contrib.starlette import handfast_lifespan, idempotent, limited, locked
from handfast.embedded import PrivateServer

CALLS, WARM_UP, ROUNDS = 100, 20, 3

RATE = "1000000/h"


async def nothing():
    yield


def application(hf):
    """Return an application whose endpoints differ in how they are protected: by the adapter, or by themselves."""
    app = FastAPI(lifespan=handfast_lifespan(hf))
    charges = APIRouter(route_class=idempotent(scope=lambda _: "ann").route_class)

    @app.post("/bare/{order}")
    @app.post("/dependency/{order}", dependencies=[Depends(nothing)])
    @app.post("/locked/{order}", dependencies=[Depends(locked("order:{order}"))])
    @app.post("/limited/{order}", dependencies=[Depends(limited("orders", RATE, by="order"))])
    @charges.post("/idempotent/{order}")
    async def bare(order: int):
        return {"order": order}

    @app.post("/lock/{order}")
    async def lock(order: int):
        async with hf.lock(f"order:{order}", timeout=10):
            return {"order": order}

    @app.post("/limiter/{order}")
    async def limiter(order: int):
        assert await hf.limiter("orders", RATE).keyed(order).try_acquire()
        return {"order": order}

    @app.post("/once/{order}")
    async def once(order: int, request: Request):
        once = hf.once("charge", keep=86_400, on_running="raise").keyed("ann", request.headers["idempotency-key"])
        return await once.run(partial(bare, order), fingerprint=await request.body())

    app.include_router(charges)
    return app


async def post(app, path, keys, number):
    for key in itertools.islice(keys, number):
        sent, parts = [], [{"type": "http.request", "body": b'{"cents": 10}', "more_body": False}]

        async def receive(parts=parts):
            return parts.pop()

        async def send(message, sent=sent):
            sent.append(message)

        headers = [(b"content-type", b"application/json"), (b"idempotency-key", str(key).encode())]
        scope = {"type": "http", "http_version": "1.1", "method": "POST", "scheme": "http", "path": path}
        rest = {"root_path": "", "query_string": b"", "headers": headers, "client": ("ip", 1)}
        await app(scope | rest, receive, send)
        assert sent[0]["status"] == 200, sent


@contextmanager
def fastapi(url):
    """Yield functions that make a number of requests."""
    app, new = application(AsyncHandfast(url)), itertools.count()
    ways = {way: (way, new) for way in ("bare", "dependency", "locked", "lock", "limited", "limiter")}
    for way in ("idempotent", "once"):
        ways |= {f"{way}, new": (way, new), f"{way}, again": (way, itertools.repeat("key"))}
    with asyncio.Runner() as runner:
        lifespan = app.router.lifespan_context(app)
        runner.run(lifespan.__aenter__())
        try:
            yield {
                name: lambda number, way=way, keys=keys: runner.run(post(app, f"/{way}/7", keys, number))
                for name, (way, keys) in ways.items()
            }
        finally:
            runner.run(lifespan.__aexit__(None, None, None))


def repeating(function, arguments):
    """Return a function that makes a number of calls, each with the next argument."""

    def repeat(number):
        for argument in itertools.islice(arguments, number):
            function(argument)

    return repeat


@contextmanager
def celery(url):
    """Yield functions that call a task a number of times."""
    app, new, same = Celery("price", set_as_current=False), itertools.count(), itertools.repeat(7)

    def task(name, function, base=None, **options):
        return app.task(function, name=f"price.{name}", base=base, shared=False, **options)

    with Handfast(url) as hf:
        tasks.configure(app, hf)

        def bare(order):
            return order

        def lock(order):
            with hf.lock(f"order:{order}"):
                return order

        def once(order):
            return hf.once("charge", keep=3600).keyed(order).run(partial(bare, order))

        adapted = task("once", bare, tasks.Once, once={"by": "order"})
        yield {
            "bare": repeating(task("bare", bare), same),
            "Exclusive": repeating(task("Exclusive", bare, tasks.Exclusive, exclusive={"name": "order:{order}"}), same),
            "lock": repeating(task("lock", lock), same),
            "Once, new": repeating(adapted, new),
            "Once, again": repeating(adapted, itertools.repeat("key")),
            "once, new": repeating(task("verb", once), new),
            "once, again": repeating(task("verb", once), itertools.repeat("key")),
        }


@contextmanager
def django(url):
    """Yield functions that call a view a number of times."""
    if not settings.configured:
        settings.configure(HANDFAST={"default": {"URL": url}}, SECRET_KEY="x")
    request, same = RequestFactory().post("/7"), itertools.repeat(7)

    def bare(request, order):
        return HttpResponse(b"7")

    def lock(request, order):
        with views.client().lock(f"order:{order}", timeout=10):
            return HttpResponse(b"7")

    ways = {"bare": bare, "locked": views.locked("order:{order}")(bare), "lock": lock}
    try:
        yield {name: repeating(partial(view, request), same) for name, view in ways.items()}
    finally:
        views.client().close()
        clients._MADE.clear()


FRAMEWORKS = {"fastapi": fastapi, "celery": celery, "django": django}


def run(url, names):
    """Make the calls, and have the counters written before and after each hundred."""
    gc.disable()
    for name in names:
        with FRAMEWORKS[name](url) as ways:
            for repeat in ways.values():
                repeat(WARM_UP)
            for way, repeat in list(ways.items()) * ROUNDS:
                print(name, way, sep="\t")
                os.getpriority(os.PRIO_PROCESS, 0)
                repeat(CALLS)
                os.getpriority(os.PRIO_PROCESS, 0)


def main(names):
    """Print a table: the median of the rounds, the least and the most, and the median beside that of the bare call."""
    with PrivateServer() as server, tempfile.TemporaryDirectory(prefix="hf") as folder:
        tool = ["valgrind", "--tool=callgrind", "--dump-before=getpriority", f"--callgrind-out-file={folder}/out"]
        program = [sys.executable, "-m", "tests.deep.frameworks.price", "--run", f"unix://{server.socket}", *names]
        environment = os.environ | {"PYTHONHASHSEED": "0"}
        told = subprocess.run([*tool, *program], env=environment, stdout=subprocess.PIPE, check=True, text=True).stdout
        found = {}
        for number, way in enumerate(told.splitlines()):
            totals = re.search(r"^totals: (\d+)", Path(folder, f"out.{2 * number + 2}").read_text(), re.MULTILINE)
            found.setdefault(way, []).append(round(int(totals[1]) / CALLS))
    for way, counts in found.items():
        name, _, call = way.partition("\t")
        bare = median(found[f"{name}\tbare"])
        spread = f"{min(counts):,} to {max(counts):,}"
        print(f"{name:<8} {call:<18} {median(counts):>10,} {spread:>24} {median(counts) / bare:>7.2f}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        run(sys.argv[2], sys.argv[3:])
    else:
        main(sys.argv[1:] or list(FRAMEWORKS))
