"""An answer is made once for each key: a repeated request gets the answer of the first request.

The order of the steps: the body is read, since it is a part of the fingerprint; the key is looked up, and its lease begins; the
endpoint runs; the answer is stored; the answer is sent. So a client that gets an answer below 500 can ask for it again, unless the
Redis server was away. If the process dies before the answer is stored, no one knows whether the effect has happened: by default the
next request with the key runs the endpoint again, with ``rerun=False`` it is answered 500.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import logging
import re
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeAlias

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from handfast import AsyncHandfast, AsyncOnce
from handfast._engine.validate import check_int
from handfast._signatures import signature_of
from handfast.arguments import Duration
from handfast.contrib._common import CHECKS, OUTAGES, MadeFor
from handfast.contrib.starlette.answers import answer_to
from handfast.contrib.starlette.lifespan import client
from handfast.errors import AlreadyRunning, KeyReused, NotCompleted

__all__ = ["Idempotent", "Scope", "idempotent"]

Scope: TypeAlias = Callable[[Request], str | Awaitable[str]] | Literal["global"]

Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]

HEADER = "Idempotency-Key"

MAX_KEY_CHARACTERS = 255
"""Upper bound of a key, as at Stripe and in most descriptions of the header."""

METHODS = frozenset({"POST", "PATCH"})
"""The methods that are not idempotent by themselves. Requests with others are passed on."""

NOT_STORED = frozenset(
    b"set-cookie connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding"
    b" upgrade".split()
)
"""Headers of one connection (RFC 9110, 7.6.1), and the cookies of one session."""

BOUNDARY = re.compile(r'boundary="?([^";]+)"?')

DAY_S = 86_400.0

MAX_BODY_BYTES = 1024 * 1024

LOG = logging.getLogger("handfast.starlette")


class _NotStoredError(Exception):
    """Carries an answer about a failure of the endpoint."""

    def __init__(self, response: Response) -> None:
        super().__init__(f"the answer was {response.status_code}")
        self.response = response


def idempotent(
    *,
    scope: Scope,
    keep: Duration = DAY_S,
    name: str = "idempotency",
    rerun: bool = True,
    most_bytes: int = MAX_BODY_BYTES,
    **options: Any,
) -> Idempotent:
    """Answer each ``Idempotency-Key`` once: a repeated request gets the recorded status, headers and body.

    It decorates an endpoint of Starlette. In FastAPI, where the answer is made outside of the endpoint, it is the class of the
    routes of a router: ``APIRouter(route_class=idempotent(scope=user_of).route_class)``. It is for POST and PATCH; requests with
    other methods are passed on.

    | request | answer |
    |---|---|
    | without the header, or with a key of more than 255 characters | 400 |
    | with a body of more than ``most_bytes`` | 413 |
    | while a request with this key is processed | 409 with ``Retry-After`` |
    | with a key already used with another method, path, query, content type or body | 422 |
    | after a request answered below 500 | the same status, headers and body, without Set-Cookie and the headers of a connection |
    | after a request refused by an HTTPException below 500 | the endpoint runs again |
    | after a request answered 500 or more, or ended by another exception | the endpoint runs again; with ``rerun=False`` 500 |
    | after a request whose process has died | as above, when its lease has ended |

    Example:
        @idempotent(scope=lambda request: request.user.display_name)
        async def charge(request: Request) -> Response: ...

    Args:
        scope: Called with the request; returns to whom the key belongs, such as the id of the user: no caller gets the answer of
            another. It has to authenticate the caller by itself, or by the findings of a middleware: it is called before the
            dependencies of the route, and a repeated answer calls none of them. It may be a coroutine function, and raise
            HTTPException. With ``"global"`` all callers share their keys.
        keep: Seconds for which an answer counts, from the end of the answer on: a number or a timedelta, from 0.001 s to 366 days.
        name: The name of the keys on the server.
        rerun: Whether a request is processed again whose processing began and did not end. With False it is processed once
            at most, and may remain undone.
        most_bytes: Upper bound of the body of a request, in bytes: it is read into memory, for the fingerprint.
        options: As `AsyncHandfast.once` takes them, such as ``ttl`` and ``max_hold``.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument is out of range.
    """
    if scope != "global":
        _check_scope(scope)
    options = {**options, "keep": keep, "rerun": rerun, "on_running": "raise", "dumps": bytes}
    CHECKS.once(name, **options)
    return Idempotent(name, scope, check_int(most_bytes, "most_bytes", 1 << 30, least=0), options)


class Idempotent:
    """Answers each key once. Made by `idempotent`."""

    def __init__(self, name: str, scope: Scope, most_bytes: int, options: dict[str, Any]) -> None:
        self._name = name
        self._scope = scope
        self._most_bytes = most_bytes
        self._options = options
        self._once = MadeFor[AsyncHandfast, AsyncOnce](lambda hf: hf.once(name, **options))

    def __call__(self, endpoint: Callable[..., Any], /, **_route: Any) -> Callable[..., Awaitable[Response]]:
        """Decorate an endpoint of Starlette: a function of the request, or a method of an HTTPEndpoint.

        Raises TypeError when it is called without a request at the end, as by FastAPI: use `route_class` there.
        """
        if _route:  # FastAPI makes its routes so
            raise TypeError("this is no class of routes; use APIRouter(route_class=idempotent(…).route_class)")
        if inspect.isclass(endpoint):
            raise TypeError(
                f"idempotent() decorates the methods of an HTTPEndpoint, and not the class {endpoint.__name__}"
            )
        function = endpoint.func if isinstance(endpoint, functools.partial) else endpoint
        is_awaited = any(map(inspect.iscoroutinefunction, (function, getattr(function, "__call__", None))))  # noqa: B004

        @functools.wraps(endpoint)
        async def answered(*args: Any, **kwargs: Any) -> Response:
            if kwargs or not args or not isinstance(args[-1], Request):
                raise TypeError(
                    "idempotent() decorates endpoints of Starlette, which get the request alone; in FastAPI use "
                    "APIRouter(route_class=idempotent(…).route_class)"
                )

            async def call(request: Request) -> Response:
                if is_awaited:
                    found: Response = await endpoint(*args[:-1], request)
                    return found
                return await run_in_threadpool(endpoint, *args[:-1], request)

            return await self.answer(args[-1], call)

        return answered

    @property
    def route_class(self) -> type[Any]:
        """A class of routes for FastAPI: ``APIRouter(route_class=…)``."""
        answer = self.answer

        class IdempotentRoute(importlib.import_module("fastapi.routing").APIRoute):  # type: ignore[misc]
            def get_route_handler(self) -> Endpoint:
                handler = super().get_route_handler()

                async def answered(request: Request) -> Response:
                    return await answer(request, handler)

                return answered

        return IdempotentRoute

    async def answer(self, request: Request, endpoint: Endpoint) -> Response:
        """Return the recorded answer to a request, or run the endpoint and record the answer.

        Raises HTTPException for refused requests, and the errors of the endpoint.
        """
        if request.method not in METHODS:
            return await endpoint(request)
        key = _key(request)
        body = await self._body(request)
        owner = () if self._scope == "global" else (await _owner(self._scope, request),)
        made: list[Response] = []

        async def process() -> bytes:
            response = await endpoint(request)
            if response.status_code >= 500:
                raise _NotStoredError(response)
            data = _stored(response)
            made.append(response)
            return data

        once = self._once(client(request)).keyed(*owner, key)
        try:
            data = await once.run(process, fingerprint=_fingerprint(request, body))
        except _NotStoredError as failed:
            return failed.response
        except (AlreadyRunning, KeyReused, NotCompleted) as error:
            raise answer_to(error) from error
        except Exception as error:
            if made and isinstance(error, (*OUTAGES, ValueError)):  # an outage, or it is too large
                # The effect has happened. A client without the answer would send the request again.
                LOG.warning("an answer under %r was not stored, and may not be repeated: %s", self._name, error)
                return made[0]
            if not self._options["rerun"] and _is_refusal(error):
                await once.forget()  # the request was refused, so nothing has begun
            raise
        # The answer that was made here may set cookies, and has tasks that run after it.
        return made[0] if made else _restored(data)

    async def _body(self, request: Request) -> bytes:
        parts, size = list[bytes](), 0
        async for part in request.stream():
            parts.append(part)
            if (size := size + len(part)) > self._most_bytes:
                raise HTTPException(413, f"The body must have at most {self._most_bytes:,} bytes.")
        body = b"".join(parts)
        request._body = body  # noqa: SLF001 -- where Request.body() keeps it: the endpoint reads it again
        return body


def _check_scope(scope: object) -> None:
    """Raise TypeError for anything but a function of a request, such as a dependency of FastAPI."""
    if not callable(scope):
        raise TypeError(f"scope must be a function of the request, or 'global', not {scope!r}")
    try:
        signature = signature_of(scope)
    except ValueError:  # a function in C may have none
        return
    try:
        signature.bind("the request")
        first = next(iter(signature.parameters.values()))
        is_dependency = "Annotated[" in str(first.annotation) or type(first.default).__module__.startswith("fastapi.")
    except TypeError:
        is_dependency = True
    if is_dependency:
        raise TypeError(
            f"scope is called with the request alone, and {getattr(scope, '__name__', scope)!r} takes other arguments, as a "
            "dependency of FastAPI does; let it read them from the request"
        )


async def _owner(scope: Callable[[Request], str | Awaitable[str]], request: Request) -> str:
    found = scope(request)
    owner = await found if inspect.isawaitable(found) else found
    if not isinstance(owner, str) or not owner:
        raise TypeError(f"scope must return a text that is not empty, not {owner!r}; raise HTTPException(401) there")
    return owner


def _key(request: Request) -> str:
    key = request.headers.get(HEADER, "")
    if not key:
        raise HTTPException(400, f"The header {HEADER} is missing.")
    if len(key) > MAX_KEY_CHARACTERS:
        raise HTTPException(400, f"The header {HEADER} must have at most {MAX_KEY_CHARACTERS} characters.")
    return key


def _fingerprint(request: Request, body: bytes) -> bytes:
    """Return the fingerprint of a request. The server stores a digest of it.

    The path is taken from the scope, as it was routed: a URL made of the scope anew would join different paths.
    """
    kind, _, options = request.headers.get("content-type", "").partition(";")
    if kind.startswith("multipart/") and (found := BOUNDARY.search(options)):
        body = body.replace(found[1].encode(), b"boundary")  # each sending has another one
    routed = sorted((name, str(value)) for name, value in request.path_params.items())
    head = [request.method, request.scope["path"], request.scope["query_string"].decode("latin-1"), kind, routed]
    return json.dumps(head).encode() + b"\n" + body


def _is_refusal(error: Exception) -> bool:
    """Whether a request was refused, such as by a dependency, and not processed."""
    if isinstance(error, HTTPException):
        return error.status_code < 500
    return type(error).__name__ == "RequestValidationError"  # of FastAPI, which may not be there


def _stored(response: Response) -> bytes:
    """Return an answer as it is stored: a line of JSON with the status and the headers, and the body."""
    body = getattr(response, "body", None)
    if not isinstance(body, bytes | memoryview):
        raise TypeError(
            f"an idempotent endpoint must return its answer whole, and not as {type(response).__name__}, which is streamed "
            "and can't be repeated"
        )
    headers = [
        [b64encode(part).decode() for part in pair] for pair in response.raw_headers if pair[0] not in NOT_STORED
    ]
    return json.dumps([response.status_code, headers]).encode() + b"\n" + bytes(body)


def _restored(data: bytes) -> Response:
    head, _, body = data.partition(b"\n")
    status, headers = json.loads(head)
    response = Response(body, status)
    response.raw_headers = [(b64decode(name), b64decode(value)) for name, value in headers]
    return response
