"""The parts shared by the acts: the workers, the screen, its pictures, and waits that redraw it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic
from typing import IO, Any, NamedTuple

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.padding import Padding
from rich.text import Text

from handfast._api.sync.client import Handfast
from handfast._api.sync.lock import Lock

__all__ = ["ActFailed", "Bars", "Board", "Finding", "Report", "Stage", "Timeline"]

FRAME = 0.04
"""Seconds between two redraws."""


class ActFailed(Exception):
    """An act cannot go on: a necessary step did not happen."""


class Finding(NamedTuple):
    """A row of the summary. ``held`` is None where nothing is promised: the row is there for comparison."""

    what: str
    seen: str
    held: bool | None


class Report(NamedTuple):
    worker: str
    word: str
    value: Any
    at: float
    """When the worker sent it, on the monotonic clock, which all processes of a machine share."""


class Board:
    """Who has which item: a line for each worker."""

    def __init__(self, items: Sequence[str]) -> None:
        self.items: Sequence[str] = items
        self.rows: dict[str, set[str]] = {}
        self.remarks: dict[str, str] = {}

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for name, has in self.rows.items():
            row = Text(f"  process {name}  ", no_wrap=True)
            for item in self.items:
                row.append(*((f"{item} ", "bold cyan") if item in has else ("\N{MIDDLE DOT} ", "dim")))
            row.append_text(Text.from_markup(f" {self.remarks.get(name, '')}"))
            yield row


class Bars(dict[str, tuple[int, int, str]]):
    """Progress bars: of each caption the value, the total and a remark."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(10, min(options.max_width - 49, 60))
        for caption, (value, total, remark) in self.items():
            done = min(width, value * width // total)
            bar = f"[cyan]{'━' * done}[/][dim]{'╌' * (width - done)}[/]"
            yield Text.from_markup(f"  {caption:26}{bar} {value:4}  {remark}".rstrip())


STATES = {
    "waits": ("·", "dim", "waits"),
    "holds": ("━", "bold green", "holds the lock"),
    "runs": ("━", "bold green", "makes it"),
    "frozen": ("≈", "cyan", "is frozen"),
    "dead": ("╌", "red", "is dead, its lease has not ended"),
}
"""The states of a process: the character, which can be read in a log file too, its style and its meaning."""

AFTER = {"acquired": "holds", "runs": "runs", "released": "", "got": ""}
"""The state of a worker after a report."""


@dataclass
class Timeline:
    """A row for each process, in the order of their first change; ``seconds`` is the shortest time of a full row."""

    seconds: float
    began: float = field(default_factory=monotonic)
    rows: dict[str, list[tuple[float, str]]] = field(default_factory=dict)
    remarks: dict[str, str] = field(default_factory=dict)

    def change(self, name: str, state: str, remark: str = "", at: float | None = None) -> None:
        """Change the state of a process, now or at that moment, to one of `STATES` or to none (``""``)."""
        self.rows.setdefault(name, []).append((monotonic() if at is None else at, state))
        self.remarks[name] = remark or self.remarks.get(name, "")

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width, now = max(10, min(options.max_width - 44, 60)), monotonic()
        cell = max(self.seconds, now - self.began) / width
        for name, changes in self.rows.items():
            row = Text(f"  process {name}  ", no_wrap=True)
            for moment in (self.began + (column + 0.5) * cell for column in range(width)):
                # Columns that are still to come are left blank, so that the row grows from left to right.
                past = [state for at, state in changes if at <= moment <= now]
                row.append(*STATES.get(past[-1] if past else "", (" ", ""))[:2])
            row.append_text(Text.from_markup(f"  {self.remarks[name]}"))
            row.rstrip()
            yield row
        seen = {state for changes in self.rows.values() for _, state in changes}
        legend = "   ".join(f"{sign} {meaning}" for state, (sign, _, meaning) in STATES.items() if state in seen)
        yield Text(" " * 13 + legend, style="dim", no_wrap=True)


class Stage:
    """The workers and the screen of one run. ``value`` reads a key that they share, and ``pace`` 1 takes 40 seconds."""

    def __init__(self, hf: Handfast, value: Callable[[str], Any], processes: int, pace: float) -> None:
        self.hf: Handfast = hf
        self.value: Callable[[str], Any] = value
        self.processes: int = processes
        self.pace: float = pace
        self.ttl: float = max(2.0, round(2.0 * pace, 1))  # never so short that a busy machine loses a healthy lease
        self.workers: dict[str, subprocess.Popen[str]] = {}
        self.console: Console = Console(highlight=False)
        self.console.width = min(self.console.width, 100)  # longer lines are hard to read
        self._reports: SimpleQueue[Report] = SimpleQueue()
        self._listeners: list[Thread] = []
        self._live: Live | None = None
        self.timeline: Timeline = Timeline(1)

    def start(self, name: str, *args: str) -> None:
        """Start a worker.

        It has a process group of its own, so that a Ctrl-C in the terminal reaches the demo alone.
        """
        command, pipe = [sys.executable, "-m", "handfast.cli.demo.worker", *args, name], subprocess.PIPE
        self.workers[name] = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, process_group=0)
        self._listeners.append(Thread(target=self._listen, args=(name, self.workers[name]), daemon=True))
        self._listeners[-1].start()

    def order(self, name: str, *words: Any) -> None:
        """Send a worker an order. Orders are carried out one after the other."""
        stdin: IO[str] = self.workers[name].stdin  # type: ignore[assignment]  # it is a pipe
        stdin.write(json.dumps(words) + "\n")
        stdin.flush()

    def signal(self, name: str, number: int) -> None:
        """Send a worker a signal.

        A stopped one goes on when the demo ends: so the system treats orphaned process groups.
        """
        os.kill(self.workers[name].pid, number)

    def kill(self, name: str) -> None:
        worker = self.workers.pop(name)
        worker.kill()
        worker.wait()

    def title(self, text: str) -> None:
        self.console.print()
        self.console.rule(Text(text, style="bold"), align="left", style="dim")

    def tell(self, text: str) -> None:
        """Print a paragraph of rich's markup."""
        self.console.print(Padding(Text.from_markup(text), (0, 2), expand=False))

    @contextlib.contextmanager
    def showing(self, picture: Timeline | Bars | Board) -> Iterator[None]:
        """Show a picture, which is redrawn while the block waits; without a terminal it is printed at the end."""
        self.timeline = picture if isinstance(picture, Timeline) else self.timeline
        self.console.print()
        with Live(picture, console=self.console, auto_refresh=False) as self._live:
            yield
        self._live = None
        self.console.print()

    def reports(self, what: str, until: Callable[[], bool]) -> Iterator[Report]:
        """Yield reports until the condition holds. Raises ActFailed if it never does, or if a worker ends."""
        end = monotonic() + 20.0 + 30.0 * self.pace
        while not until():
            with contextlib.suppress(Empty):
                report = self._reports.get(timeout=FRAME)
                if report.worker not in self.workers:
                    continue  # it was killed
                if report.word == "ended":
                    raise ActFailed(f"process {report.worker} ended with {report.value}")
                if report.word in AFTER:
                    self.timeline.change(report.worker, AFTER[report.word], at=report.at)
                yield report
            if self._live is not None:
                self._live.refresh()
            if monotonic() > end:
                raise ActFailed(f"gave up waiting for {what}")

    def until(self, what: str, condition: Callable[[], bool]) -> None:
        for _ in self.reports(what, condition):
            pass

    def words(self, word: str, count: int = 1) -> list[Report]:
        """Wait until so many reports had that word; return all until then."""
        seen: list[Report] = []
        for report in self.reports(f"{word!r}", lambda: sum(one.word == word for one in seen) >= count):
            seen.append(report)  # noqa: PERF402 -- the condition looks at it meanwhile
        return seen

    def pause(self, seconds: float = 1.3) -> None:
        """Leave time to read the latest output."""
        end = monotonic() + seconds * self.pace
        self.until("time to pass", lambda: monotonic() >= end)

    def enqueue(self, lock: Lock, name: str) -> None:
        """Let a worker wait for a lock that is held."""
        self.order(name, "acquire", lock.name, self.ttl)
        self.timeline.change(name, "waits")
        self.until(f"process {name} to wait", lambda: name in [waiter.label for waiter in lock.status().waiters])
        self.pause(0.2)

    def _listen(self, name: str, worker: subprocess.Popen[str]) -> None:
        with worker:
            for line in worker.stdout or ():
                self._reports.put(Report(name, *json.loads(line)))
        self._reports.put(Report(name, "ended", worker.wait(), monotonic()))

    def close(self) -> None:
        """Kill all workers."""
        for name in [*self.workers]:
            self.kill(name)
        for listener in self._listeners:
            listener.join()
