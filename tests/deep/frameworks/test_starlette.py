"""The adapter of Starlette in FastAPI: in this process, and in workers of uvicorn that are killed."""

from __future__ import annotations

import asyncio
import http.client
import importlib
import json
import os
import signal
import sys
import uuid
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import pytest

from tests._support.helpers import eventually
from tests.deep.frameworks.test_frameworks import answers, free_port, request, running

pytest.importorskip("fastapi")

KEY = {"idempotency-key": "k1", "user": "ann"}


@pytest.fixture(scope="module")
def program(server):
    """The module of the application. It is made once: its endpoints are."""
    os.environ["HANDFAST_URL"] = server.url
    yield importlib.import_module("tests.deep.frameworks.adapted_app")
    del os.environ["HANDFAST_URL"]


@pytest.fixture(autouse=True)
def alone(raw):
    """The connections of the application in this process end with the test."""
    yield
    if protected := sys.modules.get("tests.deep.frameworks.protected"):
        protected.conn.connection_pool.disconnect()


@pytest.fixture
async def shop(program, raw):
    """An HTTP client of the application in this process."""
    transport = httpx.ASGITransport(program.app, raise_app_exceptions=False)
    async with (
        program.app.router.lifespan_context(program.app),
        httpx.AsyncClient(transport=transport, base_url="http://shop") as found,
    ):
        yield found


@pytest.fixture
def serve(server, raw, tmp_path):
    """Return a context manager that serves the application with some workers, and yields its port."""

    @contextmanager
    def start(workers):
        pytest.importorskip("uvicorn")
        port = free_port()
        command = (
            "-m",
            "uvicorn",
            "tests.deep.frameworks.adapted_app:app",
            "--workers",
            str(workers),
            "--port",
            str(port),
        )
        with running(server, *command, log=tmp_path / "log"):
            eventually(lambda: answers(port, "/docs"), within=30)
            yield port

    return start


def test_an_application_starts_a_second_time(program, raw):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the client of httpx is to be replaced
        from fastapi.testclient import TestClient

        for _ in range(2):
            with TestClient(program.app) as shop:
                assert shop.get("/orders/7").status_code == 200


async def test_a_name_is_filled_as_the_endpoint_reads_the_request(shop, program):
    hf, part = program.app.state.handfast, uuid.uuid4()
    async with hf.lock("order:7"), hf.lock(f"part:{part}:x:3"), hf.lock("code:abc"):
        for path, status in (
            ("orders/7", 423),
            ("orders/007", 423),
            ("orders/8", 200),
            ("orders/x", 422),
            ("through/007", 423),
            ("through/8", 200),
            ("codes/aBC", 423),
            ("codes/abd", 200),
            ("wrong", 500),
            (f"parts/{part}?in=x&shop=y", 423),
            (f"parts/{part}?in=x", 423),
            (f"parts/{part.hex.upper()}?in=x&of=03", 423),
            (f"parts/{part}?in=y", 200),
            (f"parts/{part}", 422),
        ):
            answer = await shop.get(f"/{path}", headers={"user": "ann"})
            assert (path, answer.status_code) == (path, status)
            if status == 422:
                (error,) = answer.json()["detail"][:1]
                assert error["loc"] in (["path", "order_id"], ["query", "in"])


async def test_a_lost_lock_ends_the_endpoint_with_503(shop, raw):
    answer = await asyncio.wait_for(shop.get("/loses/x"), 20)
    assert (answer.status_code, answer.headers["retry-after"], raw.get("lost")) == (503, "1", "inside")


async def test_requests_beyond_a_rate(shop):
    answers = [await shop.get("/login", params={"user": user}) for user in ("ann", "ann", "ann", "bob")]
    assert [one.status_code for one in answers] == [200, 200, 429, 200]
    assert [one.headers["ratelimit"].partition(";t")[0] for one in answers] == [
        f'"login";r={left}' for left in (1, 0, 0, 1)
    ]
    assert (await shop.get("/login")).status_code == 422


@pytest.mark.parametrize("path", ["/charges", "/threads/charges", "/strict/charges"])
async def test_a_charge_that_is_sent_again_is_made_once(shop, raw, path):
    first, second = [await shop.post(path, json={"cents": 10}, headers=KEY) for _ in range(2)]
    assert (first.status_code, first.json()["number"]) == (second.status_code, second.json()["number"])
    assert first.content == second.content
    assert [pair for pair in first.headers.raw if pair[0] != b"set-cookie"] == second.headers.raw
    for body, headers, status in (
        ({"cents": 11}, KEY, 422),
        ({"cents": "x"}, KEY | {"idempotency-key": "k2"}, 422),
        ({"cents": 10}, {"user": "ann"}, 400),
        ({"cents": 10}, {"idempotency-key": "k1"}, 401),
    ):
        assert (await shop.post(path, json=body, headers=headers)).status_code == status
    assert raw.get("charges") == "1"


async def test_a_request_that_is_refused_before_it_begins_keeps_its_key(shop, program):
    async with program.app.state.handfast.lock("taken"):
        assert (await shop.post("/strict/busy", headers=KEY)).status_code == 423
    answers = [(await shop.post("/strict/busy", headers=KEY)).json() for _ in range(2)]
    assert answers == [1, 1]


async def test_an_answer_that_streams_is_refused(shop):
    assert (await shop.post("/streams", headers=KEY)).status_code == 500


def test_requests_that_wait_for_a_lock_starve_no_thread(serve, raw):
    with serve(1) as port, ThreadPoolExecutor(120) as pool:
        found = Counter(status for status, _ in pool.map(lambda _: request(port, "GET", "/threads"), range(120)))
    assert found == {200: 120}
    assert (raw.get("threads:overlaps"), raw.get("threads:total")) == (None, "120")


@pytest.mark.parametrize(("path", "again"), [("/charges", (201, 2)), ("/strict/charges", (500, 1))])
def test_a_worker_that_dies_after_the_effect(serve, raw, path, again):
    """The one is charged twice and answered, the other is charged once and not answered: no service can do both."""
    body, headers = json.dumps({"cents": 10}), KEY | {"content-type": "application/json"}
    with serve(2) as port:
        with pytest.raises((http.client.HTTPException, OSError)):
            request(port, "POST", f"{path}?dies=1", body, headers)
        assert raw.get("charges") == "1"
        status = eventually(lambda: ended(port, path, body, headers), within=30)
    assert (status, int(raw.get("charges"))) == again


def ended(port, path, body, headers):
    """Send the request again until it is not refused any more because it is processed; return its status."""
    try:
        status, _ = request(port, "POST", f"{path}?dies=1", body, headers)
    except (http.client.HTTPException, OSError):
        return None
    return None if status == 409 else status


def test_a_client_that_goes_away_finds_its_answer(serve, raw):
    body, headers = json.dumps({"cents": 10}), KEY | {"content-type": "application/json"}
    with serve(1) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("POST", "/charges?takes=0.5", body, headers)
        eventually(lambda: raw.get("charges") == "1")
        connection.close()
        eventually(lambda: request(port, "POST", "/charges?takes=0.5", body, headers)[0] == 201, within=30)
    assert raw.get("charges") == "1"


def test_one_worker_leads_and_the_next_one_follows_it(serve, raw):
    with serve(2):
        (first,) = eventually(lambda: raw.lrange("leaders", 0, -1), within=30)
        os.kill(int(first), signal.SIGKILL)
        eventually(lambda: raw.llen("leaders") == 2, within=30)
        assert raw.lrange("leaders", 1, 1) != [first]
