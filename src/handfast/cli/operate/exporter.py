"""``handfast exporter``: metrics of all names of a server, for Prometheus."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable
from fnmatch import fnmatchcase
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, ClassVar

import click

from handfast.cli.connect import namespace_option, server_options, unreachable
from handfast.cli.exits import DONE, UNAVAILABLE, exit_codes
from handfast.cli.listening import listen_options, shown
from handfast.cli.operate.looking import connected
from handfast.cli.program import say

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["MetricsServer", "command"]

PORT = 9631

REQUEST_S = 10.0
"""How long, in seconds, a client may take for its request."""

EPILOG = exit_codes({DONE: "it was ended by SIGINT or SIGTERM", UNAVAILABLE: "the port cannot be used"})


@click.command("exporter", epilog=EPILOG)
@listen_options(PORT)
@click.option(
    "--name",
    "kept",
    multiple=True,
    metavar="PATTERN",
    help="Names that keep series of their own, such as 'gpu:*'; repeatable. Others that differ in digits only share one.",
)
@click.option(
    "--every",
    default=5.0,
    show_default=True,
    type=click.FloatRange(1, 3600),
    metavar="SECONDS",
    help="How often to look at the server, at most.",
)
@server_options
@namespace_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    host: str,
    port: int,
    kept: tuple[str, ...],
    every: float,
    url: str,
    namespace: str,
) -> None:
    """Serve metrics of all names for Prometheus, until it is ended.

    Looks at the server in turns: a look that takes long is followed by a rest of twenty times as long. Where the server
    does not answer, handfast_up is 0 and there are no figures of names, counters included.
    """
    from handfast._watch.exposition import Exposition
    from handfast._watch.looker import Looker
    from handfast._watch.survey import REST, SLOW_S, Survey
    from handfast.metrics import Labels

    labels = Labels(keeping=lambda name: any(fnmatchcase(name, pattern) for pattern in kept))
    with connected(url, namespace=namespace, retry_for=0, label="handfast exporter") as client:
        exposition = Exposition(labels)
        looker = Looker(
            "handfast-exporter",
            Survey(client).step,
            exposition.take,
            every=lambda: every,
            rests=REST,
            slow=SLOW_S,
            on_change=lambda error: _tell(error, url),
        )
        try:
            server = MetricsServer((host, port), lambda: exposition.text(looker))
        except OSError as error:
            say(f"cannot listen on {host}:{port}: {error.strerror}")
            ctx.exit(UNAVAILABLE)
        with server:
            say(f"http://{shown(server.server_address)}/metrics")
            looker.start()
            _serve_until_ended(server)
            looker.end()


def _tell(error: Exception | None, url: str) -> None:
    """Say that looks fail, or succeed again."""
    from handfast._watch.looker import is_known

    if error is None:
        say("looks at the server")
    else:
        say(f"cannot look: {unreachable(error, url) if is_known(error) else repr(error)}")


def _serve_until_ended(server: ThreadingHTTPServer) -> None:
    def end(_number: int, _frame: FrameType | None) -> None:
        threading.Thread(target=server.shutdown, daemon=True).start()  # it waits for the loop that this interrupts

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    server.serve_forever(poll_interval=0.2)


class MetricsServer(ThreadingHTTPServer):
    """Serves the text of the latest look."""

    daemon_threads: bool = True
    allow_reuse_address: bool = True
    address_family: int

    def __init__(self, address: tuple[str, int], text: Callable[[], str]) -> None:
        self.text: Callable[[], str] = text
        if ":" in address[0]:
            import socket

            self.address_family = socket.AF_INET6
        super().__init__(address, _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: the client has hung up."""


class _Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD of ``/metrics``."""

    timeout: ClassVar[float] = REQUEST_S
    server_version = "handfast"
    sys_version = ""
    server: MetricsServer

    def do_GET(self) -> None:
        from handfast._watch.exposition import CONTENT_TYPE

        if self.path.partition("?")[0] not in ("/metrics", "/"):
            self.send_error(404)
            return
        body = self.server.text().encode()
        self.send_response(200)
        for name, value in (("Content-Type", CONTENT_TYPE), ("Content-Length", str(len(body)))):
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            with contextlib.suppress(OSError):  # the client has hung up
                self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815 -- of the base class

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- of the base class
        """Say nothing of requests."""
