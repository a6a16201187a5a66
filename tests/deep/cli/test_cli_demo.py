"""The demo: shortened, but with real processes and a real server, and above all that nothing is left of it."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from handfast.cli.demo import play as play_module
from handfast.cli.demo.command import command
from handfast.cli.demo.stage import ActFailed, Finding, Stage, Timeline

SHORT = ("--seconds", "1")
BOUND = 30.0
needs_proc = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds processes in /proc")


class Demo:
    """The demo as a process group of its own, whose processes and server can be found again."""

    def __init__(self, *options, stdout=subprocess.PIPE):
        self.marker = f"HANDFAST_DEMO_TEST={uuid.uuid4()}"
        self.folder = Path(tempfile.mkdtemp(prefix="hfd-"))  # short: a socket's path may not be long
        name, value = self.marker.split("=")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "handfast", "demo", *SHORT, *options],
            env=os.environ | {name: value, "TMPDIR": str(self.folder)},
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
        self.output = ""

    def read_until(self, text, source=None):
        """Read until the text has come; all of it if it never comes."""
        fd = source or self.process.stdout.fileno()
        until = time.monotonic() + BOUND
        while text not in self.output and select.select([fd], [], [], max(0, until - time.monotonic()))[0]:
            try:
                data = os.read(fd, 65536)
            except OSError:  # a pty whose other end is closed
                break
            if not data:
                break
            self.output += data.decode(errors="replace")

    def finish(self):
        self.read_until("never said")
        return self.process.wait(BOUND)

    def processes(self):
        """Process ids and states of all that descend from the demo, itself included."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if self.marker.encode() in (folder / "environ").read_bytes():
                    found[int(folder.name)] = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
        return found

    def left(self):
        """What is left: processes by their environment, and the server by its folder, which goes when it has ended."""
        return [*self.processes(), *self.folder.iterdir()]

    def clear(self):
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait(BOUND)
        if self.process.stdout:
            self.process.stdout.close()
        shutil.rmtree(self.folder)


@pytest.fixture
def start():
    demos = []

    def start(*options, **how):
        demos.append(Demo(*options, **how))
        return demos[-1]

    yield start
    for demo in demos:
        demo.clear()


def eventually(condition):
    until = time.monotonic() + BOUND
    while not condition():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.01)


def frozen(demo):
    return "T" in demo.processes().values()


def test_the_page_shows_what_goes_on(start):
    demo = start("--page")
    demo.read_until("1 of 7")
    url = re.search(r"In a browser: (\S+)", demo.output)[1]
    with urllib.request.urlopen(f"{url}api/me", timeout=BOUND) as answer:
        assert json.load(answer)["namespace"].startswith("handfast-demo-")
    assert demo.finish() == 0, demo.output
    assert demo.left() == []


def test_everything_holds_and_the_summary_says_so(start):
    demo = start()
    assert demo.finish() == 0, demo.output
    lines = demo.output.splitlines()
    (lost,) = re.findall(r"lost updates without a lock +(\d+) of 280 +no promise", demo.output)
    assert int(lost) > 0
    (queued,) = [line.split()[1:] for line in lines if line.startswith("  queued")]
    (acquired,) = [line.split()[1:] for line in lines if line.startswith("  acquired  ")]
    assert sorted(queued) == list("ABCDEF")
    assert acquired == queued
    for promise in (
        r"lost updates with the lock +0 of 280 +✓ yes",
        rf"order of the grants +{' '.join(queued)}, as they queued +✓ yes",
        r"the queue behind a dead holder +moved on after .* s \(ttl .* s\) +✓ yes",
        r"late write of a frozen holder +refused by its fence +✓ yes",
        r"lease of that holder +passed on, holder informed +✓ yes",
        r"most calls within 1 s +5 of 5 +✓ yes",
        r"calls beside a dead waiter +all 12 +✓ yes",
        r"results beside a dead process +made by ([A-Z]), had by (?=.*\1)[A-Z], [A-Z], [A-Z] +✓ yes",
    ):
        assert re.search(promise, demo.output), promise
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", demo.output), "control characters without a terminal"
    assert demo.left() == []


def test_on_a_named_server_all_keys_are_its_own_have_ttls_and_are_deleted(start, server, raw):
    raw.set("theirs", "untouched", px=600_000)
    demo = start("--url", server.url, "--processes", "2")
    seen = {}
    while demo.process.poll() is None:
        for key in raw.scan_iter(count=1000):
            seen[key] = raw.pttl(key)
        time.sleep(0.02)
    assert demo.finish() == 0, demo.output
    assert seen.pop("theirs") > 0
    namespaces = {re.search(r"handfast-demo-[0-9a-f]{12}", key)[0] for key in seen}
    assert len(namespaces) == 1
    assert -1 not in seen.values()
    assert {key.rpartition(":")[2] for key in seen} >= {
        "free",
        "locked",
        "resource",
        "state",
        "tokens",
        "1000",
        "result",
    }
    assert list(raw.scan_iter(count=1000)) == ["theirs"]
    assert raw.get("theirs") == "untouched"
    assert demo.left() == []


@needs_proc
@pytest.mark.parametrize("moment", ["at once", "1 of 7", "frozen"])
def test_an_interrupt_leaves_nothing(start, server, raw, moment):
    demo = start("--url", server.url)
    if moment == "frozen":
        eventually(lambda: frozen(demo))
    else:
        demo.read_until("your server" if moment == "at once" else moment)
    os.killpg(demo.process.pid, signal.SIGINT)
    os.killpg(demo.process.pid, signal.SIGINT)  # the impatient press twice
    assert demo.finish() == 130, demo.output
    assert "ended by SIGINT" in demo.output
    assert "Traceback" not in demo.output
    assert demo.left() == []
    assert raw.dbsize() == 0


@needs_proc
def test_an_interrupt_ends_the_private_server_too(start):
    demo = start()
    demo.read_until("1 of 7")
    assert len(demo.left()) > 7  # itself, six workers, the server's folder
    os.killpg(demo.process.pid, signal.SIGINT)
    assert demo.finish() == 130, demo.output
    assert demo.left() == []


@needs_proc
@pytest.mark.parametrize("moment", ["1 of 7", "frozen"])
def test_a_kill_of_the_demo_ends_everything_it_started(start, moment):
    demo = start()
    if moment == "frozen":
        eventually(lambda: frozen(demo))
    else:
        demo.read_until(moment)
    assert len(demo.left()) > 7
    demo.process.kill()
    demo.process.wait(BOUND)
    eventually(lambda: demo.left() == [])


def test_on_a_terminal_pictures_move_and_the_cursor_comes_back(start):
    ours, theirs = pty.openpty()
    try:
        demo = start(stdout=theirs)
        os.close(theirs)
        demo.read_until("the counter says", ours)
        assert "\x1b[?25l" in demo.output  # the cursor is hidden
        demo.process.send_signal(signal.SIGTERM)
        demo.read_until("never said", ours)
        assert demo.process.wait(BOUND) == 128 + signal.SIGTERM
        assert demo.output.rindex("\x1b[?25h") > demo.output.rindex("\x1b[?25l")
        assert demo.left() == []
    finally:
        os.close(ours)


def an_act(*findings, failure=None):
    def act(stage):
        """An act."""
        if failure:
            raise ActFailed(failure)
        return [*findings]

    return act


@pytest.mark.parametrize(
    ("acts", "code", "expected"),
    [
        ([an_act(Finding("this", "fine", held=True))], 0, ["this +fine +✓ yes"]),
        ([an_act(Finding("this", "seen", None))], 0, ["this +seen +no promise"]),
        (
            [an_act(Finding("this", "broken", held=False)), an_act(Finding("that", "fine", held=True))],
            1,
            ["✗ NO", "✓ yes"],
        ),
        ([an_act(failure="gave up"), an_act(Finding("that", "fine", held=True))], 1, ["An act +gave up +✗ NO"]),
    ],
)
def test_a_broken_promise_is_shown_and_gives_1(monkeypatch, server, acts, code, expected):
    monkeypatch.setattr(play_module, "ACTS", tuple(acts))
    result = CliRunner().invoke(command, ["--url", server.url])
    assert result.exit_code == code, result.output
    for line in expected:
        assert re.search(line, result.output)
    assert ("that" in result.output) == ("✓ yes" in expected)


@pytest.mark.parametrize(
    ("url", "code", "reason"), [("unix:///nowhere/s", 69, "handfast: .*Error"), ("nonsense", 64, "handfast: .* scheme")]
)
def test_an_unreachable_server_is_reported_in_one_line(url, code, reason):
    result = CliRunner().invoke(command, ["--url", url])
    assert result.exit_code == code
    assert re.search(rf"^{reason}", result.stderr, re.MULTILINE)


def test_a_worker_that_fails_ends_the_act_with_its_name(server):
    stage = Stage(None, None, 2, 0.1)
    stage.start("A", server.url, "handfast-demo-test")
    stage.order("A", "nonsense")
    with contextlib.closing(stage), pytest.raises(ActFailed, match="process A ended with 1"):
        stage.words("never said")


def drawn(timeline, width):
    console = Console(width=width, color_system=None)
    with console.capture() as captured:
        console.print(timeline)
    return captured.get().splitlines()


def test_a_remark_fits_into_80_columns():
    timeline, remark = Timeline(10), "acquired 1.9 s after the kill"
    timeline.change("A", "holds", remark)
    line, _ = drawn(timeline, 80)
    assert line.endswith(f"  {remark}")
    assert len(line) <= 80


def test_lines_can_be_read_in_monochrome():
    timeline = Timeline(10)
    timeline.began -= 10
    for at, state in enumerate(["waits", "holds", "frozen", "dead", ""]):
        timeline.change("A", state, "done", timeline.began + 2 * at)
    line, legend = drawn(timeline, 64)
    assert line == "  process A  ····━━━━≈≈≈≈╌╌╌╌      done"
    assert "· waits" in legend
    assert "is frozen" in legend
