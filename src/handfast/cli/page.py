"""``handfast page``: what is wrong right now, in a browser."""

from __future__ import annotations

import base64
import binascii
import contextlib
import hmac
import signal
import socket
import sys
from collections.abc import Iterator
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import click

from handfast.cli.connect import UNAVAILABLE, namespace_option, server_options
from handfast.cli.operate.looking import connected, label_option, operator
from handfast.cli.program import say

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp

    from handfast.page import Authorize, Visitor

__all__ = ["command", "with_token"]

PORT = 8631

ACTS = ("release", "hold", "pause", "forget")

LEAST_TOKEN = 16
"""Characters of a token, at least: anyone who reaches the port may guess."""

GRACE_S = 1
"""How long requests that are answered when the command ends have left."""

EPILOG = """
\b
Exit codes:
   0  it was ended by SIGINT or SIGTERM
  64  wrong usage, such as an address of other machines without --token
  69  the port cannot be used, or the extra is not installed
"""


def _allowed(_ctx: click.Context, _param: click.Parameter, value: str) -> tuple[str, ...]:
    words = tuple(word for word in value.split(",") if word)
    if strange := [word for word in words if word not in ACTS]:
        raise click.BadParameter(f"{strange[0]!r} is none of {', '.join(ACTS)}")
    return words


def _token(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    token = sys.stdin.readline().strip() if value == "-" else value
    if token is not None and len(token) < LEAST_TOKEN:
        raise click.BadParameter(f"a token has {LEAST_TOKEN} characters at least: openssl rand -hex 16 makes one")
    return token


@click.command("page", epilog=EPILOG)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", default=PORT, show_default=True, type=click.IntRange(0, 65535), help="Port to listen on; 0 for any."
)
@click.option(
    "--allow",
    metavar="ACTS",
    default="",
    callback=_allowed,
    help="What visitors may do: some of release,hold,pause,forget.  [default: look]",
)
@click.option(
    "--token",
    metavar="TEXT",
    envvar="HANDFAST_PAGE_TOKEN",
    callback=_token,
    help="The password that visitors need, beside a name of theirs; - reads it from standard input.  "
    "[default: $HANDFAST_PAGE_TOKEN]",
)
@label_option
@server_options
@namespace_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    host: str,
    port: int,
    allow: tuple[Any, ...],
    token: str | None,
    label: str | None,
    url: str,
    namespace: str,
) -> None:
    """Serve a web page of who holds, who waits and what is wrong.

    It listens on this machine only. Other machines need --host and --token: their browsers ask for a name, which the audit has
    with what was done, and for the token as the password. The page looks at the server while it is open somewhere.
    """
    if token is None and not _is_local(host):
        raise click.UsageError(f"Whoever reaches {host} would see all names: use --token.", ctx)  # words: allow whoever
    with connected(url, namespace=namespace, retry_for=0, label=label or operator()) as client:
        try:
            from handfast.page import app

            asgi = app(client, allow=allow, authorize=None if token is None else with_token(token))
            listener = socket.create_server((host, port), family=_family(host))
        except ImportError as error:
            say(str(error))
            ctx.exit(UNAVAILABLE)
        except OSError as error:
            say(f"cannot listen on {host}:{port}: {error.strerror}")
            ctx.exit(UNAVAILABLE)
        with listener, _ended_by_signals():
            say(f"http://{_shown(listener.getsockname())}/")
            _serve(ctx, asgi, listener)


def _serve(ctx: click.Context, asgi: ASGIApp, listener: socket.socket) -> None:
    try:
        import uvicorn
    except ImportError:
        say("it needs uvicorn; install it with: pip install 'handfast[page]'")
        ctx.exit(UNAVAILABLE)
    config = uvicorn.Config(
        asgi,
        log_level="warning",
        access_log=False,
        lifespan="off",
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=GRACE_S,
        proxy_headers=False,
    )
    uvicorn.Server(config).run(sockets=[listener])


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let SIGINT and SIGTERM end the page and no more: uvicorn sends them to the process again when it has ended."""
    before = {number: signal.signal(number, _ignore) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ignore(_number: int, _frame: object) -> None:
    pass


def with_token(token: str) -> Authorize:
    """Return what admits visitors with this password, under the name that they give."""
    from starlette.responses import JSONResponse

    from handfast.page import Visitor

    async def authorize(request: Request) -> Visitor | Response:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        name, password = _credentials(given) if scheme.lower() == "basic" else ("", "")
        if hmac.compare_digest(password.encode(), token.encode()) and name:
            return Visitor(f"{name}@page".encode()[:200].decode(errors="ignore"))
        text = "A name of yours and the token of the page are needed, as the user and the password."
        return JSONResponse({"error": text}, 401, {"WWW-Authenticate": 'Basic realm="handfast page", charset="UTF-8"'})

    return authorize


def _credentials(given: str) -> tuple[str, str]:
    try:
        name, _, password = base64.b64decode(given, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return "", ""
    return name.strip(), password


def _is_local(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _shown(address: Any) -> str:
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"
