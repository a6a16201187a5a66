"""Who may read the page, and who may act.

A reader has to be on this machine, and to use a name of it in the ``Host`` of the request, or needs the consent of `Authorize`.
So a page elsewhere whose name leads to this machine (DNS rebinding) reads nothing. A proxy on this machine that does not
identify itself cannot be told from a browser.

An act needs five more things: a permission, also for this visitor; the ``Origin`` of the page itself; ``same-origin`` in
``Sec-Fetch-Site``, where the browser sends it; a token that only the page can have read; and a reason. The token is the HMAC of a
cookie that scripts cannot read and other sites do not send, so processes of the same page need no common secret.
"""

from __future__ import annotations

import hmac
import inspect
import secrets
from collections.abc import Awaitable, Callable, Container, Iterable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TypeAlias

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from handfast._engine.validate import MAX_LABEL_BYTES, utf8
from handfast._watch.acts import ACTS, Act

__all__ = [
    "Authorize",
    "Guard",
    "Visitor",
    "check_allowed",
    "give_cookie",
    "is_local",
    "new_cookie",
    "refusal",
    "token_of",
]

COOKIE = "handfast_page"

NOT_ADMITTED = "You may not read this page."

FORWARDED = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip")
"""Headers of proxies, by which many of them are noticed."""

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@dataclass(frozen=True, slots=True)
class Visitor:
    """A person with the page open.

    Attributes:
        label: Who it is, for the audit and for those who lose a lease: 1 to 200 bytes of UTF-8.
        allow: The acts open to this visitor, among those allowed on the page; None for all of them.
    """

    label: str
    allow: Container[str] | None = None


Authorize: TypeAlias = Callable[[Request], "Visitor | Response | Awaitable[Visitor | Response | None] | None"]
"""Returns the visitor of a request, a response to send instead, or None to refuse."""


def check_allowed(allow: Iterable[str]) -> frozenset[str]:
    """Return the allowed acts. Raises ValueError."""
    allowed = frozenset((allow,) if isinstance(allow, str) else allow)
    if strange := sorted(allowed - set(ACTS)):
        raise ValueError(f"allow must be some of {', '.join(ACTS)}, not {strange[0]!r}")
    return allowed


class Guard:
    """Lets permitted requests through to an application, and adds headers to all responses.

    The visitor is ``request.state.visitor`` then; None without `Authorize`.
    """

    def __init__(self, app: ASGIApp, authorize: Authorize | None) -> None:
        self._app, self._authorize = app, authorize

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        request = Request(scope, receive)
        found = await self._admit(request)
        if isinstance(found, Response):
            await found(scope, receive, guarded)
            return
        request.state.visitor = found
        await self._app(scope, receive, guarded)

    async def _admit(self, request: Request) -> Visitor | Response | None:
        if self._authorize is None:
            return _elsewhere(request)
        try:
            found: object = self._authorize(request)
            if inspect.isawaitable(found):
                found = await found
        except HTTPException as error:
            return JSONResponse({"error": error.detail}, error.status_code, error.headers)
        if isinstance(found, Visitor):
            utf8(found.label, "the label of a visitor", MAX_LABEL_BYTES)
        return found if isinstance(found, Visitor | Response) else JSONResponse({"error": NOT_ADMITTED}, 403)


def is_local(host: str) -> bool:
    """Whether a host, in brackets or not, is this machine."""
    try:
        return ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return host == "localhost"


def _elsewhere(request: Request) -> Response | None:
    """Return the refusal of a request from outside this machine."""
    headers, peer = request.headers, request.client
    is_here = peer is not None and is_local(peer.host) and is_local(_without_port(headers.get("host", "")))
    if is_here and not any(name in headers for name in FORWARDED):
        return None
    return JSONResponse(
        {"error": "The page is for browsers on this machine, unless it has authorize= or a token."}, 421
    )


def _without_port(host: str) -> str:
    name, _, port = host.rpartition(":")
    return name if port.isdecimal() else host


def refusal(request: Request, act: Act, allowed: Container[str]) -> str:
    """Return why a request may not act; empty if it may."""
    visitor: Visitor | None = request.state.visitor
    if act not in allowed:
        return f"This page may not {act}: it was started without that in --allow or allow=."
    if visitor is not None and visitor.allow is not None and act not in visitor.allow:
        return f"{visitor.label} may not {act}."
    host, origin = request.headers.get("host", ""), request.headers.get("origin", "")
    # Browsers send an Origin with each act, and another page cannot change it. Behind a proxy with TLS the
    # scheme may differ from the request's.
    if origin not in {f"{scheme}://{host}" for scheme in ("http", "https")}:
        return (
            f"The request came from another page: its Origin is {origin or 'missing'}, and its Host is {host or 'missing'}. "
            "A proxy has to pass Host on as the browser sent it, with the port."
        )
    # An old browser does not send this header: the Origin decides alone then.
    if request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
        return "The request came from another page."
    token = request.headers.get("x-handfast-token", "")
    # The token of an empty cookie is known to anyone. Both texts are
    # encoded, since `compare_digest` raises an error for text beyond ASCII.
    if COOKIE not in request.cookies or not hmac.compare_digest(token.encode(), token_of(request).encode()):
        return "The page is out of date: load it again."
    return ""


def give_cookie(request: Request, response: Response, value: str) -> None:
    """Give a browser the cookie."""
    path = request.scope.get("root_path", "") + "/"
    is_secure = request.url.scheme == "https"
    response.set_cookie(COOKIE, value, path=path, secure=is_secure, httponly=True, samesite="strict")


def token_of(request: Request, new: str | None = None) -> str:
    """Return the token of a browser with this cookie, or with the cookie in the request."""
    cookie = request.cookies.get(COOKIE, "") if new is None else new
    return hmac.new(cookie.encode(), b"handfast page", "sha256").hexdigest()


def new_cookie(request: Request) -> str | None:
    """Return a cookie for a browser without a cookie; None for others."""
    return None if len(request.cookies.get(COOKIE, "")) >= 32 else secrets.token_hex(16)
