"""``handfast page``: the present problems, in a browser."""

from __future__ import annotations

import base64
import contextlib
import hmac
import signal
import socket
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from handfast._watch.acts import ACTS
from handfast.cli.connect import namespace_option, server_options
from handfast.cli.exits import DONE, UNAVAILABLE, USAGE, exit_codes
from handfast.cli.listening import listen_options, shown
from handfast.cli.operate.looking import connected, label_option, operator
from handfast.cli.program import say

if TYPE_CHECKING:
    import uvicorn
    from starlette.requests import Request
    from starlette.responses import Response

    from handfast import Handfast
    from handfast.page import Authorize, Visitor

__all__ = ["address_of", "command", "server_of", "with_token"]

PORT = 8631

LEAST_TOKEN = 16
"""Characters of a token, at least: anyone who reaches the port may guess."""

MOST_NAME = 195
"""Bytes of the name of a visitor, which has ``@page`` behind it in the audit."""

GRACE_S = 1
"""How long requests that are answered when the command ends have left."""

EPILOG = exit_codes(
    {
        DONE: "it was ended by SIGINT or SIGTERM",
        USAGE: "wrong usage, such as an address of other machines without --token",
        UNAVAILABLE: "the port cannot be used, or the extra is not installed",
    }
)


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
@listen_options(PORT)
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
    with (
        connected(url, namespace=namespace, retry_for=0, label=label or operator()) as client,
        _ended_by_signals() as ending,
    ):
        try:
            server = ending.server = server_of(client, allow, token)
            if token is None and not _is_local(host):
                raise click.UsageError(f"All who reach {host} would see all names: use --token.", ctx)
            listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        except ImportError as error:
            say(str(error))
            ctx.exit(UNAVAILABLE)
        except OSError as error:
            say(f"cannot listen on {host}:{port}: {error.strerror}")
            ctx.exit(UNAVAILABLE)
        with listener:
            say(address_of(listener))
            if not ending.is_wanted:
                server.run(sockets=[listener])


def server_of(client: Handfast, allow: Iterable[Any], token: str | None = None) -> uvicorn.Server:
    """Return a server of the page. Raises ImportError, with the packages to install."""
    from handfast.page import app

    try:
        import uvicorn
    except ImportError:
        raise ImportError("it needs uvicorn; install it with: pip install 'handfast[page]'") from None
    config = uvicorn.Config(
        app(client, allow=allow, authorize=None if token is None else with_token(token)),
        log_level="warning",
        access_log=False,
        lifespan="off",
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=GRACE_S,
    )
    return uvicorn.Server(config)


def address_of(listener: socket.socket) -> str:
    """Return the URL of the page on a socket."""
    return f"http://{shown(listener.getsockname())}/"


class Ending:
    """Whether a signal has come, and which server it ends."""

    def __init__(self) -> None:
        self.is_wanted: bool = False
        self.server: uvicorn.Server | None = None

    def want(self, _number: int, _frame: object) -> None:
        """Handle a signal."""
        self.is_wanted = True
        if self.server is not None:
            self.server.should_exit = True


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[Ending]:
    """Let SIGINT and SIGTERM end the page and no more.

    While it is served, uvicorn has handlers of its own, and sends the signals again when it has ended.
    """
    ending = Ending()
    before = {number: signal.signal(number, ending.want) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield ending
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_local(host: str) -> bool:
    from handfast.page.guard import is_local

    return is_local(host)


def with_token(token: str) -> Authorize:
    """Return a function that admits visitors with this password, under the name given by the visitor."""
    from starlette.responses import JSONResponse

    from handfast.page import Visitor

    async def authorize(request: Request) -> Visitor | Response:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        name, password = _credentials(given) if scheme.lower() == "basic" else ("", "")
        if hmac.compare_digest(password.encode(), token.encode()) and name:
            return Visitor(f"{name.encode()[:MOST_NAME].decode(errors='ignore')}@page")
        text = "A name of yours and the token of the page are needed, as the user and the password."
        return JSONResponse({"error": text}, 401, {"WWW-Authenticate": 'Basic realm="handfast page", charset="UTF-8"'})

    return authorize


def _credentials(given: str) -> tuple[str, str]:
    try:
        name, _, password = base64.b64decode(given, validate=True).decode().partition(":")
    except ValueError:  # no Base64, or no UTF-8
        return "", ""
    return name.strip(), password
