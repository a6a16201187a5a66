"""The adapter of Starlette, in applications of Starlette: those of FastAPI are in the deep suite."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Annotated

import httpx
import pytest
import redis.exceptions
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.endpoints import HTTPEndpoint
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Host, Mount, Route, Router

from handfast import AsyncHandfast, Handfast, NoServer
from handfast.contrib.starlette import (
    client,
    handfast_lifespan,
    idempotent,
    install_errors,
    leading,
    limited,
    locked,
)
from handfast.contrib.starlette.answers import ANSWERS, answer_to
from handfast.errors import (
    AcquireTimeout,
    AlreadyRunning,
    ClientClosed,
    KeyReused,
    LeaseLost,
    NotCompleted,
    NotReplicated,
    RateLimited,
)
from handfast.testing import FaultProxy
from tests._support.helpers import eventually_async

AWAY = "unix:///nowhere/s"


@pytest.fixture
async def ahf(server, raw):
    """A client, as an application has it."""
    client = AsyncHandfast(server.url)
    yield client
    await client.aclose()


@pytest.fixture
async def serve(ahf):
    """Return a function that runs an application and returns an HTTP client of it."""
    async with AsyncExitStack() as stack:

        async def start(*routes, inner=None, errors=True, raises=True, client=ahf):
            app = Starlette(routes=list(routes), lifespan=handfast_lifespan(client, inner=inner))
            if errors:
                install_errors(app)
            await stack.enter_async_context(app.router.lifespan_context(app))
            transport = httpx.ASGITransport(app, raise_app_exceptions=raises)
            return await stack.enter_async_context(httpx.AsyncClient(transport=transport, base_url="http://shop"))

        yield start


def locking(dependency):
    """Return an endpoint that holds a lock as FastAPI has it hold one."""

    async def endpoint(request):
        async with asynccontextmanager(dependency)(request) as lease:
            return PlainTextResponse(str(lease.fence))

    return endpoint


def counting(dependency):
    """Return an endpoint that counts as FastAPI has it count."""

    async def endpoint(request):
        response = PlainTextResponse("admitted")
        assert await dependency(request, response)
        return response

    return endpoint


# --- the client


def test_an_application_starts_a_second_time(server, raw):
    app = Starlette(routes=[Route("/", locking(locked("a")))], lifespan=handfast_lifespan(server.url))

    async def started():
        transport = httpx.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://a") as http,
        ):
            return (await http.get("/")).status_code

    assert [asyncio.run(started()) for _ in range(2)] == [200, 200]


async def test_endpoints_of_two_applications_use_the_client_of_each(server, serve):
    made = []

    @idempotent(scope="global")
    async def charge(request):
        made.append(request.app)
        return PlainTextResponse(str(len(made)))

    routes = Route("/charges", charge, methods=["POST"]), Route("/a", counting(limited("a", "1/h")))
    async with AsyncHandfast(server.url, namespace="one") as one, AsyncHandfast(server.url, namespace="two") as two:
        shops = [await serve(*routes, client=client) for client in (one, two)]
        answers = [(await shop.post("/charges", headers={"Idempotency-Key": "k1"})).text for shop in shops * 2]
        statuses = [(await shop.get("/a")).status_code for shop in shops * 2]
    assert (answers, statuses) == (["1", "2"] * 2, [200, 200, 429, 429])


def test_a_lifespan_needs_a_server_or_a_client(monkeypatch):
    monkeypatch.delenv("HANDFAST_URL", raising=False)
    monkeypatch.delenv("REDIS_URL", raising=False)
    with pytest.raises(NoServer):
        handfast_lifespan()
    with pytest.raises(TypeError, match="has its options already; leave out namespace"):
        handfast_lifespan(AsyncHandfast("null:"), namespace="x")
    with pytest.raises(TypeError, match="a client of the class AsyncHandfast, not Handfast"):
        handfast_lifespan(Handfast("null:"))
    with pytest.raises(TypeError, match="unexpected keyword argument 'port'"):
        handfast_lifespan("null:", port=1)


async def test_the_lifespan_of_the_application_has_the_client_and_its_state(ahf):
    seen = []

    @asynccontextmanager
    async def inner(app):
        seen.append(app.state.handfast)
        yield {"answer": 42}
        seen.append(await ahf.lock("a").locked())  # the client is open until the end

    app = Starlette(lifespan=handfast_lifespan(ahf, inner=inner))
    async with app.router.lifespan_context(app) as state:
        assert state == {"answer": 42}
    assert seen == [ahf, False]
    with pytest.raises(ClientClosed):
        await ahf.lock("a").locked()


async def test_a_mounted_application_says_that_it_has_no_client(serve):
    async def endpoint(request):
        return PlainTextResponse(str(client(request)))

    inside = Starlette(routes=[Route("/", endpoint)])
    http = await serve(Mount("/inside", inside), Route("/", endpoint))
    assert (await http.get("/")).status_code == 200
    with pytest.raises(RuntimeError, match=r"set its state\.handfast"):
        await http.get("/inside/")


# --- a lock, and a limiter


async def test_a_request_holds_a_lock_by_a_name_of_its_values(serve, ahf):
    held = locked("order:{order_id}:{tenant}:{headers.x-user}:{client.host}", timeout=0)
    http = await serve(Route("/{order_id:int}", locking(held)))
    busy = "order:7:a:ann:127.0.0.1"
    async with ahf.lock(busy):
        answer = await http.get("/007?tenant=a", headers={"x-user": "ann"})
        assert (answer.status_code, answer.headers["retry-after"]) == (423, "1")
        assert "vm" not in answer.text
        assert busy not in answer.text
        assert (await http.get("/8?tenant=a&order_id=7", headers={"x-user": "ann"})).status_code == 200
    assert (await http.get("/007?tenant=a", headers={"x-user": "ann"})).status_code == 200
    assert not await ahf.lock(busy).locked()


async def test_a_request_that_leaves_by_an_error_releases_its_lock(serve, ahf):
    dependency = locked("a")

    async def endpoint(request):
        async with asynccontextmanager(dependency)(request):
            raise HTTPException(402, "no money")

    http = await serve(Route("/", endpoint))
    assert (await http.get("/")).status_code == 402
    assert not await ahf.lock("a").locked()


async def test_a_lock_of_another_name_that_is_busy_is_not_taken_for_its_own(serve, ahf):
    dependency = locked("a")

    async def endpoint(request):
        async with asynccontextmanager(dependency)(request), ahf.lock("b").acquire(timeout=0):
            return Response()

    http = await serve(Route("/", endpoint), errors=False)
    async with ahf.lock("b"):
        with pytest.raises(AcquireTimeout, match="'b'"):
            await http.get("/")


@pytest.mark.parametrize(
    "name", ["a:{headers.}", "a:{user..x}", "order:{", "order:{0}", "order:{}", "order:{order.id}", "order:{a b}"]
)
def test_a_name_that_no_request_fills_is_refused_at_once(name):
    with pytest.raises(ValueError, match=r"is not a valid template|is no field of a request"):
        locked(name)


def dependency(token: Annotated[str, "a header"]):
    return token


@pytest.mark.parametrize(
    "make",
    [
        lambda: locked("a", timeout="x"),
        lambda: locked("a", ttl="x"),
        lambda: locked("a", on_busy=3),
        lambda: limited("a", 5),
        lambda: limited("a", "5/min", by=3),
        lambda: limited("a", "5/min", cost="x"),
        lambda: idempotent(scope="all"),
        lambda: idempotent(scope=lambda _, token: token),
        lambda: idempotent(scope=lambda: "ann"),
        lambda: idempotent(scope=dependency),
        lambda: idempotent(scope="global", keep="x"),
        lambda: idempotent(scope="global", most_bytes="x"),
    ],
)
def test_what_has_the_wrong_type_is_refused_at_once(make):
    with pytest.raises(TypeError):
        make()


def test_what_is_out_of_range_is_refused_at_once():
    for make in (
        lambda: locked("a", max_hold=0),
        lambda: limited("a", "5/min; 3/h", cost=4),
        lambda: limited("a", "5/min", by="a b"),
        lambda: idempotent(scope="global", keep=0),
        lambda: idempotent(scope="global", most_bytes=-1),
    ):
        with pytest.raises(ValueError, match=r"."):
            make()


async def test_a_value_that_is_missing_is_the_clients_fault(serve):
    http = await serve(
        Route("/query", locking(locked("a:{tenant}"))),
        Route("/header", locking(locked("a:{headers.x-user}"))),
        Route("/state", locking(locked("a:{state.tenant}"))),
    )
    for path, why in (("query", "query tenant"), ("header", "headers x-user")):
        answer = await http.get(f"/{path}")
        assert (answer.status_code, answer.text.startswith(f"{why}: ")) == (422, True)
    with pytest.raises(
        RuntimeError, match=r"has no state\.tenant: a middleware or an earlier dependency has to set it"
    ):
        await http.get("/state")


async def test_a_value_that_makes_no_name_is_the_clients_fault(serve):
    http = await serve(
        Route("/lock", locking(locked("{tenant}"))),
        Route("/limit", counting(limited("a", "5/min", by="headers.x-user"))),
    )
    for path, headers in (("lock?tenant=", {}), ("limit", {"x-user": ""}), ("limit", {"x-user": "x" * 17_000})):
        assert (await http.get(f"/{path}", headers=headers)).status_code == 422


async def test_requests_beyond_a_rate_are_refused_with_the_headers_of_the_draft(serve):
    http = await serve(
        Route("/", counting(limited("login", "2/min", by="client.host"))),
        Route("/costly", counting(limited("costly", "3/min", cost=2))),
        Route("/two", counting(limited("two", "1/100ms; 2/min; 9/h"))),
    )
    first, second, third = [await http.get("/") for _ in range(3)]
    assert first.headers["ratelimit-policy"] == '"login";q=2;w=60'
    assert [first.headers["ratelimit"], second.headers["ratelimit"]] == ['"login";r=1', '"login";r=0']
    assert (third.status_code, third.headers["ratelimit"]) == (429, f'"login";r=0;t={third.headers["retry-after"]}')
    assert 0 < int(third.headers["retry-after"]) <= 60
    assert [(await http.get("/costly")).status_code for _ in range(2)] == [200, 429]
    two = await http.get("/two")
    assert two.headers["ratelimit-policy"] == '"two-60s";q=2;w=60, "two-3600s";q=9;w=3600'
    assert "ratelimit" not in two.headers


# --- errors


@pytest.mark.parametrize(
    ("error", "status", "after"),
    [
        (AcquireTimeout("a", 1), 423, "1"),
        (RateLimited("a", 0, 2.1), 429, "3"),
        (RateLimited("a", 0, 0.0), 429, "1"),
        (AlreadyRunning("a", None), 409, "1"),
        (KeyReused("a"), 422, None),
        (NotCompleted("a", "begun", ""), 500, None),
        (LeaseLost("a", 1, "x"), 503, "1"),
        (NotReplicated("a", 0, 1, 1), 503, "5"),
        (redis.exceptions.BusyLoadingError("x"), 503, "5"),
        (redis.exceptions.TimeoutError("x"), 503, "5"),
    ],
)
async def test_each_error_has_its_answer(serve, caplog, error, status, after):
    async def endpoint(request):
        raise error

    http = await serve(Route("/", endpoint))
    answer = await http.get("/")
    assert (answer.status_code, answer.headers.get("retry-after")) == (status, after)
    assert answer.json() == {"detail": answer_to(error).detail}
    assert bool(caplog.record_tuples) == (status >= 500)


@pytest.fixture
async def cut_off(server, raw, monkeypatch):
    """A client, and a function that takes its server away."""
    monkeypatch.setattr("handfast._drivers.aio.cleanup.UNDO_WAIT", 0.05)
    with FaultProxy(server.url) as proxy:
        async with AsyncHandfast(proxy.url, retry_for=0) as client:
            yield client, lambda: proxy.retarget(AWAY)
            proxy.retarget(server.url)


async def test_an_endpoint_that_has_run_is_answered_though_its_lock_is_not_released(ahf, serve, caplog, cut_off):
    """Else its caller would be told to come again, though the work is done."""
    client, cut = cut_off
    hold = asynccontextmanager(locked("a", ttl=60))

    async def endpoint(request):
        async with hold(request):
            cut()
        return PlainTextResponse("done")

    shop = await serve(Route("/", endpoint), client=client)
    assert (await shop.get("/")).text == "done"
    assert "'a' was not released, and is free when its lease ends: cannot use" in caplog.text
    assert await ahf.lock("a").locked()


async def test_an_endpoint_that_has_failed_in_an_outage_raises_its_error(serve, cut_off):
    client, cut = cut_off
    hold = asynccontextmanager(locked("a"))

    async def endpoint(request):
        async with hold(request):
            cut()
            raise ZeroDivisionError

    shop = await serve(Route("/", endpoint), client=client)
    with pytest.raises(ZeroDivisionError):
        await shop.get("/")


async def test_an_answer_that_is_not_stored_is_sent(serve, caplog, cut_off):
    """Without it a client would send the request again, and charge twice."""
    client, cut = cut_off

    @idempotent(scope="global")
    async def charge(request):
        cut()
        return PlainTextResponse("charged", 201)

    shop = await serve(Route("/", charge, methods=["POST"]), client=client)
    answer = await shop.post("/", headers={"Idempotency-Key": "k1"})
    assert (answer.status_code, answer.text) == (201, "charged")
    assert "an answer under 'idempotency' was not stored, and may not be repeated: cannot use" in caplog.text


async def test_an_outage_is_503(serve, caplog):
    http = await serve(Route("/", locking(locked("a"))), client=AsyncHandfast(AWAY, retry_for=0))
    answer = await http.get("/")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert caplog.records[-1].message.startswith("answered 503 to GET /: ")


def test_all_answers_end_with_a_point():
    assert all(answer.detail.endswith(".") for answer in ANSWERS.values())


# --- a leader


async def test_one_of_two_leads_and_the_other_follows(ahf, server):
    terms = []

    async def lead(term, who):
        terms.append(who)
        await asyncio.Event().wait()

    async def follows():
        return (await ahf.election("cron").status()).waiting == 1

    async with AsyncHandfast(server.url) as other, AsyncExitStack() as stack:
        async with leading(other, "cron", lambda term: lead(term, "first")):
            await eventually_async(lambda: terms == ["first"])
            await stack.enter_async_context(leading(ahf, "cron", lambda term: lead(term, "second")))
            await eventually_async(follows)
        await eventually_async(lambda: terms == ["first", "second"])
    assert (await ahf.election("cron").status()).holders == ()


async def test_a_leader_that_fails_is_logged_and_the_application_goes_on(ahf, caplog):
    async def lead(term):
        raise ZeroDivisionError

    async with leading(ahf, "cron", lead):
        await eventually_async(lambda: bool(caplog.records))
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("handfast.starlette", logging.ERROR)
    assert "'cron'" in record.message


async def test_a_leader_that_returns_is_logged_too(ahf, caplog):
    async def lead(term):
        pass

    async with leading(ahf, "cron", lead):
        await eventually_async(lambda: bool(caplog.records))
    assert caplog.records[0].message.endswith("its function has returned")


async def test_the_end_of_a_leader_swallows_no_cancellation(ahf):
    goes_on = asyncio.Event()

    async def lead(term):
        try:
            await asyncio.Event().wait()
        finally:
            await goes_on.wait()

    async def inside():
        async with leading(ahf, "cron", lead):
            await eventually_async(ahf.election("cron").leader)

    block = asyncio.ensure_future(inside())
    await eventually_async(ahf.election("cron").leader)
    for _ in range(20):
        await asyncio.sleep(0)
    block.cancel()
    goes_on.set()
    with pytest.raises(asyncio.CancelledError):
        await block


async def test_a_leader_of_the_other_api_is_refused_at_once(ahf):
    with pytest.raises(TypeError, match="is not a coroutine function"):
        async with leading(ahf, "cron", print):
            pytest.fail("it began")


# --- answers that are sent once

KEY = {"idempotency-key": "k1", "user": "ann"}


def user_of(request):
    return request.headers["user"]


@pytest.fixture
def charges():
    return []


@pytest.fixture
async def shop(serve, charges):
    """Return a function that makes an HTTP client of an application with one idempotent endpoint, ``/charges``."""

    async def make(answer=None, **options):
        async def charge(request):
            charges.append((await request.body()).decode())
            return await answer(request) if answer else JSONResponse({"number": len(charges)}, 201)

        options = {"scope": user_of, **options}
        route = Route("/charges", idempotent(**options)(charge), methods=["POST", "PUT"])
        return await serve(route, raises=False)

    return make


async def test_a_request_that_is_sent_again_gets_the_answer_of_the_first(shop, charges):
    async def answer(request):
        response = Response(b"\x00\xff", 201, {"Location": "/charges/1", "X-Odd": "\xe9"}, "image/x")
        response.set_cookie("session", "secret")
        response.headers["Connection"] = "close"
        return response

    http = await shop(answer)
    first, second = [await http.post("/charges", content=b"10 euros", headers=KEY) for _ in range(2)]
    assert charges == ["10 euros"]
    assert (first.status_code, first.content) == (second.status_code, second.content) == (201, b"\x00\xff")
    assert "set-cookie" in first.headers
    kept = [pair for pair in first.headers.raw if pair[0] not in (b"set-cookie", b"connection")]
    assert second.headers.raw == kept


async def test_a_key_belongs_to_its_caller_and_to_its_request(shop, charges):
    http = await shop()
    for what, headers, status in (
        ("10 euros", KEY, 201),
        ("11 euros", KEY, 422),
        ("11 euros", KEY | {"user": "bob"}, 201),
        ("11 euros", KEY | {"idempotency-key": "k2"}, 201),
    ):
        assert (await http.post("/charges", content=what, headers=headers)).status_code == status
    for path, kind in (("/charges?x=1", ""), ("/charges", "text/plain")):
        headers = KEY | {"content-type": kind} if kind else KEY
        assert (await http.post(path, content="10 euros", headers=headers)).status_code == 422
    assert charges == ["10 euros", "11 euros", "11 euros"]


async def test_a_path_is_that_of_the_request_and_no_url_that_is_made_of_it(serve, charges):
    @idempotent(scope="global")
    async def charge(request):
        charges.append(request.path_params)
        return Response(str(len(charges)))

    http = await serve(
        Route("/{item:path}", charge, methods=["POST"]),
    )
    for number, path in enumerate(("/a", "/a%23b", "/a%3Fb", "/a%253Fb", "/a%09")):
        assert (await http.post(path, headers=KEY | {"idempotency-key": str(number)})).text == str(number + 1)
        for other in ("/a?b", "/a%5C", "/a%2509", "/"):
            assert (await http.post(other, headers=KEY | {"idempotency-key": str(number)})).status_code == 422


async def test_a_key_is_bound_to_what_its_host_is_routed_by(serve, charges):
    @idempotent(scope="global")
    async def charge(request):
        charges.append(request.path_params["tenant"])
        return Response("done")

    http = await serve(Host("{tenant}.shop", Router([Route("/", charge, methods=["POST"])])))
    statuses = [(await http.post(f"http://{tenant}.shop/", headers=KEY)).status_code for tenant in ("a", "a", "b")]
    assert (statuses, charges) == ([200, 200, 422], ["a"])


async def test_a_form_that_is_sent_again_has_another_boundary(shop, charges):
    http = await shop()
    files = {"file": ("a.txt", b"10 euros")}
    answers = [await http.post("/charges", files=files, headers=KEY) for _ in range(2)]
    assert [one.json() for one in answers] == [{"number": 1}] * 2


async def test_the_body_can_be_read_by_its_scope_and_again_by_its_endpoint(shop, charges):
    async def scope(request):
        return (await request.json())["user"]

    http = await shop(scope=scope)
    assert (await http.post("/charges", json={"user": "ann"}, headers=KEY)).status_code == 201
    assert charges == ['{"user":"ann"}']


async def test_a_global_key_belongs_to_all(shop, charges):
    http = await shop(scope="global")
    answers = [await http.post("/charges", headers=KEY | {"user": user}) for user in ("ann", "bob")]
    assert [one.json() for one in answers] == [{"number": 1}] * 2


@pytest.mark.parametrize("key", ["", "k" * 256])
async def test_a_request_without_a_key_is_refused(shop, charges, key):
    http = await shop()
    answer = await http.post("/charges", headers=KEY | {"idempotency-key": key})
    assert (answer.status_code, charges) == (400, [])


async def test_a_body_that_is_too_large_is_refused(shop, charges):
    http = await shop(most_bytes=10)
    assert (await http.post("/charges", content=b"x" * 11, headers=KEY)).status_code == 413
    assert (await http.post("/charges", content=b"x" * 10, headers=KEY)).status_code == 201
    assert charges == ["x" * 10]


async def test_requests_of_other_methods_are_passed_on(shop, charges):
    http = await shop()
    for _ in range(2):
        assert (await http.put("/charges", content=b"x")).status_code == 201
    assert charges == ["x", "x"]


async def test_a_second_request_is_refused_while_the_first_one_is_processed(shop, charges):
    goes_on = asyncio.Event()

    async def answer(request):
        await goes_on.wait()
        return Response("done")

    http = await shop(answer)
    first = asyncio.ensure_future(http.post("/charges", headers=KEY))
    await eventually_async(lambda: len(charges) == 1)
    second = await http.post("/charges", headers=KEY)
    assert (second.status_code, second.headers["retry-after"]) == (409, "1")
    goes_on.set()
    assert (await first).text == (await http.post("/charges", headers=KEY)).text == "done"
    assert len(charges) == 1


@pytest.mark.parametrize("fails", [500, 503, HTTPException(402), ZeroDivisionError()])
@pytest.mark.parametrize("rerun", [True, False])
async def test_an_endpoint_that_fails_runs_again_unless_it_must_not(shop, charges, fails, rerun):
    async def answer(request):
        if len(charges) > 1:
            return Response("done")
        if isinstance(fails, Exception):
            raise fails
        return Response("it fails", fails)

    http = await shop(answer, rerun=rerun)
    first, second = [await http.post("/charges", headers=KEY) for _ in range(2)]
    assert first.status_code == (fails if isinstance(fails, int) else getattr(fails, "status_code", 500))
    is_refused = isinstance(fails, HTTPException)  # so nothing has begun
    assert (second.status_code, len(charges)) == ((200, 2) if rerun or is_refused else (500, 1))


async def test_a_run_that_did_not_end_is_not_repeated_where_it_must_not(shop, charges, ahf):
    http = await shop(rerun=False)
    run = await ahf.once("idempotency", rerun=False).keyed("ann", "k1").acquire()
    await run.release()
    answer = await http.post("/charges", headers=KEY)
    assert (answer.status_code, charges) == (500, [])
    assert "is not repeated" in answer.text


async def test_an_answer_that_streams_is_refused(shop, charges, ahf):
    async def answer(request):
        return StreamingResponse(iter([b"x"]))

    http = await shop(answer)
    assert (await http.post("/charges", headers=KEY)).status_code == 500
    assert (await ahf.once("idempotency").keyed("ann", "k1").status()).state == "idle"


async def test_an_answer_that_is_too_large_is_sent_and_not_repeated(shop, charges, caplog):
    async def answer(request):
        return Response(b"x" * (1024 * 1024 + 1))

    http = await shop(answer)
    first, second = [await http.post("/charges", headers=KEY) for _ in range(2)]
    assert (first.status_code, len(first.content)) == (200, 1024 * 1024 + 1)
    assert (second.status_code, len(charges)) == (500, 1)
    assert "was not stored, and may not be repeated: a result must be at most 1,048,576 bytes" in caplog.text


async def test_the_tasks_after_an_answer_run_once(shop, charges):
    ran = []

    async def answer(request):
        return Response("done", background=BackgroundTask(ran.append, 1))

    http = await shop(answer)
    for _ in range(2):
        assert (await http.post("/charges", headers=KEY)).text == "done"
    assert ran == [1]


@pytest.mark.parametrize("scope", [lambda _: "", lambda _: None])
async def test_a_scope_without_a_caller_is_a_fault_of_the_program(shop, charges, scope):
    http = await shop(scope=scope)
    assert (await http.post("/charges", headers=KEY)).status_code == 500
    assert charges == []


async def test_a_scope_may_ask_and_refuse(shop, charges):
    async def scope(request):
        await asyncio.sleep(0)
        if request.headers["user"] == "eve":
            raise HTTPException(401)
        return "all"

    http = await shop(scope=scope)
    statuses = [
        (await http.post("/charges", headers=KEY | {"user": user})).status_code for user in ("eve", "ann", "bob")
    ]
    assert (statuses, len(charges)) == ([401, 201, 201], 1)


async def test_plain_functions_and_methods_are_endpoints_too(serve):
    @idempotent(scope=user_of)
    def plain(request):
        return Response("plain")

    class Charges(HTTPEndpoint):
        @idempotent(scope=user_of, name="methods")
        async def post(self, request):
            return Response(await request.body())

    http = await serve(Route("/plain", plain, methods=["POST"]), Route("/method", Charges))
    for path, text in (("/plain", "plain"), ("/method", "body")):
        assert [(await http.post(path, content="body", headers=KEY)).text for _ in range(2)] == [text] * 2


async def test_an_endpoint_without_a_request_is_refused():
    @idempotent(scope="global")
    async def endpoint(amount): ...

    with pytest.raises(TypeError, match="in FastAPI use"):
        await endpoint(amount=3)
    with pytest.raises(TypeError, match="and not the class Charges"):

        @idempotent(scope="global")
        class Charges(HTTPEndpoint): ...
