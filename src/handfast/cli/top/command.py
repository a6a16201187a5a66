"""``handfast top``: look in a thread, read keys, and show frames."""

from __future__ import annotations

import contextlib
import re
import shutil
import sys
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from handfast._watch.live import Live, View
from handfast._watch.looker import EVERY_S, REST, SLOW_S, Looker, Outage
from handfast._watch.problems import find_problems
from handfast._watch.rows import Key
from handfast.cli.colors import has_color
from handfast.cli.connect import namespace_option, server_options, unreachable
from handfast.cli.exits import DONE, UNAVAILABLE, USAGE, exit_codes
from handfast.cli.operate.looking import connected, label_option, operator, uncollected
from handfast.cli.program import say
from handfast.cli.top.acts import Act, act_for
from handfast.cli.top.cells import drawn
from handfast.cli.top.frames import SORTS, VIEWS, Screen, ViewName
from handfast.cli.top.terminal import Terminal

if TYPE_CHECKING:
    from handfast import Handfast

__all__ = ["command"]

SIZE = (80, 24)
"""The frame of ``--once`` where there is no terminal."""

MOVES = {"j": 1, "down": 1, "k": -1, "up": -1, "page down": 15, "page up": -15, "home": -(10**9), "end": 10**9}
MOVES |= {"g": MOVES["home"], "G": MOVES["end"]}

EPILOG = """
\b
Keys:
  j k arrows  mark a name      enter  show it          esc  back
  /           filter           s      sort             f    freeze
  w           all problems     l      limiters         q    quit
  r           take its leases  h      hold, or unhold  p    pause, or resume
  ?           these keys
""" + exit_codes(
    {DONE: "ended by q or Ctrl-C, or one frame was printed", USAGE: "wrong usage, such as no terminal and no --once"}
)


@click.command("top", epilog=EPILOG)
@click.option("--once", is_flag=True, help="Print one frame and end.")
@click.option("--view", type=click.Choice(VIEWS), default="names", show_default=True, help="The first view.")
@click.option("--filter", "words", metavar="TEXT", default="", help="Show names that have these words in them.")
@click.option(
    "--size", metavar="COLSxLINES", help="The size of the frame of --once.  [default: the terminal's, or 80x24]"
)
@label_option
@server_options
@namespace_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    once: bool,
    view: ViewName,
    words: str,
    size: str | None,
    label: str | None,
    url: str,
    namespace: str,
) -> None:
    """Show who holds and waits, and what is wrong, each second.

    The third line is the worst problem; w lists all problems. Each queue is a picture: a bar for each waiter, in their
    order, taller for longer; a cross is silent, since its process has ended or is frozen.
    """
    frame_size = _size(size)
    if not once and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("This is no terminal: print one frame with --once.", ctx)
    with connected(url, namespace=namespace, retry_for=0, label=label or operator()) as client:
        screen = Screen(f"{namespace} on {client._driver.address}", shows=view, filter=words)  # noqa: SLF001
        if once:
            with uncollected():
                screen.view = Live(client).step()
                screen.problems = find_problems(screen.view)
            _print(screen, frame_size or (shutil.get_terminal_size(SIZE) if sys.stdout.isatty() else SIZE))
            return
        with contextlib.suppress(KeyboardInterrupt, EOFError):
            _run(screen, client, url)
    if not screen.view.is_whole and screen.outage:
        say(str(screen.reason))
        ctx.exit(UNAVAILABLE)


def _size(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    found = re.fullmatch(r"([1-9][0-9]{1,3})x([1-9][0-9]{0,3})", text)
    if found is None:
        raise click.BadParameter(f"{text!r} is no size such as 120x40", param_hint="--size")
    return int(found[1]), int(found[2])


def _print(screen: Screen, size: tuple[int, int]) -> None:
    is_terminal = sys.stdout.isatty()
    for line in screen.frame(*size, screen.view.at):
        click.echo(drawn(line, size[0], color=has_color(), plain=not is_terminal).rstrip())


def _run(screen: Screen, client: Handfast, url: str) -> None:
    with Terminal() as terminal:
        watching = Watching(screen, client, url, terminal)
        watching.looker.start()
        keyboard = Keyboard(screen, watching)
        try:
            while True:
                size = terminal.size
                watching.note_outage()
                lines = screen.frame(*size, watching.now())
                terminal.paint([drawn(line, size[0], color=has_color()) for line in lines], size)
                watching.seen = screen.seen(size[1])
                for key in terminal.keys(EVERY_S):
                    if not keyboard.press(key):
                        return
        finally:
            watching.looker.end()


class Watching:
    """The state of the screen, and the thread that looks: so keys work while the server does not answer."""

    def __init__(self, screen: Screen, client: Handfast, url: str, terminal: Terminal) -> None:
        self.seen: Sequence[Key] = screen.seen(SIZE[1])
        self._screen, self._client, self._url, self._terminal = screen, client, url, terminal
        self._live = Live(client)
        self._started_at = time.monotonic()
        self.looker: Looker[View] = Looker(
            "handfast-top", self._look, self._show, every=lambda: EVERY_S, rests=REST, slow=SLOW_S, on_change=self._wake
        )

    def now(self) -> float:
        """Return the moment that the screen shows: that of the last look while nothing new is seen."""
        screen = self._screen
        return screen.view.at if (screen.outage or screen.is_frozen) and screen.view.at else time.monotonic()

    def note_outage(self) -> None:
        """Say for how long the server has not answered, also while a look goes on without an answer."""
        screen, outage = self._screen, self.looker.outage
        screen.outage = outage
        screen.silent_for = time.monotonic() - (screen.view.at or self._started_at)
        screen.reason = self._reason(outage) if outage else ""

    def perform(self, act: Act, typed: str) -> None:
        """Perform an act in a thread, and say how it has ended."""

        def do() -> None:
            self._screen.note = act.perform(self._client, typed)
            self._terminal.wake()

        self._screen.note = "…"
        threading.Thread(target=do, name="handfast-act", daemon=True).start()

    def _look(self) -> View | None:
        return None if self._screen.is_frozen else self._live.step(self.seen)

    def _show(self, view: View) -> None:
        self._screen.problems, self._screen.view = find_problems(view), view
        self._terminal.wake()

    def _wake(self, _error: Exception | None) -> None:
        self._terminal.wake()

    def _reason(self, outage: Outage) -> str:
        error = outage.error
        return unreachable(error, self._url) if error is not None and outage.is_of_server else outage.text


class Keyboard:
    """Keys and their effects."""

    def __init__(self, screen: Screen, watching: Watching) -> None:
        self._screen, self._watching = screen, watching
        self._act: Act | None = None
        """The act of the prompt; None while the filter is typed."""

    def press(self, key: str) -> bool:
        """React to a key. Return False to quit."""
        screen = self._screen
        screen.note = ""
        # First: while a text is typed, each key belongs to it, q and escape too.
        if screen.prompt is not None:
            self._type(key)
        elif key == "q":
            return False
        elif key == "escape":
            # Keys that work in each view come before those that depend on the view.
            self._go_back()
        elif key == "f":
            screen.is_frozen = not screen.is_frozen
        elif key == "?":
            self._toggle("keys")
        elif key == "w":
            self._toggle("problems")
        elif key == "l":
            self._toggle("limits")
        elif key in MOVES and screen.shows in VIEWS:
            screen.move(MOVES[key])
        elif key == "s" and screen.shows == "names":
            screen.sort = SORTS[(SORTS.index(screen.sort) + 1) % len(SORTS)]
        elif key == "/" and screen.shows in ("names", "limits"):
            screen.prompt, screen.typed, self._act = "filter:", screen.filter, None
        elif key == "enter" and screen.shows in ("names", "problems"):
            screen.open()
        elif key in ("r", "h", "p"):
            self._ask(key)
        return True

    def _type(self, key: str) -> None:
        screen = self._screen
        if key == "enter" and self._act is not None:
            self._watching.perform(self._act, screen.typed.strip())
        if key in ("enter", "escape"):
            screen.prompt = None
        elif key == "back":
            screen.typed = screen.typed[:-1]
        elif len(key) == 1 and key.isprintable():
            screen.typed += key
        if self._act is None and key != "enter":
            screen.filter, screen.first = "" if key == "escape" else screen.typed, 0

    def _go_back(self) -> None:
        screen = self._screen
        if screen.shows != "names":
            screen.shows = "names"
        else:
            screen.marked, screen.filter = None, ""

    def _toggle(self, view: ViewName) -> None:
        self._screen.shows = "names" if self._screen.shows == view else view
        self._screen.first = 0

    def _ask(self, key: str) -> None:
        """Ask for the text of an act."""
        screen = self._screen
        row = screen.marked_row()
        if row is None:
            screen.note = "mark a name first: j, k or the arrows"
            return
        outage = screen.outage
        silent = "the latest look has failed" if outage and not outage.is_of_server else "the server does not answer"
        act = silent if outage else act_for(key, row)
        if isinstance(act, str):
            screen.note = act
        else:
            screen.prompt, screen.typed, self._act = act.asks, "", act
