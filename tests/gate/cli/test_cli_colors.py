"""Colors: on a terminal that wants them, and nowhere else; and messages that are wrapped between words."""

from __future__ import annotations

import contextlib
import io
import re

import click
import pytest
from rich.cells import cell_len

from handfast import Holder, LockStatus, ServerFinding, Waiter
from handfast._watch.rows import Row
from handfast.cli.colors import BOLD, DIM, RED, YELLOW, colored, has_color, wrapped
from handfast.cli.operate import words
from handfast.cli.program import say, show_usage_error


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "40")
    return Terminal()


@contextlib.contextmanager
def on(terminal):
    """Write to a terminal. A fixture cannot: pytest sets the streams once more before a test."""
    with contextlib.redirect_stdout(terminal), contextlib.redirect_stderr(terminal):
        yield


def plain(line):
    return re.sub(r"\x1b\[[0-9;]*m", "", line)


@pytest.mark.parametrize(("variable", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_a_terminal_may_want_no_colors(terminal, monkeypatch, variable, value):
    with on(terminal):
        assert has_color()
        assert colored("a", RED) == "\x1b[31ma\x1b[0m"
        monkeypatch.setenv(variable, value)
        assert not has_color()
        assert colored("a", RED) == "a"


def test_a_pipe_has_none(terminal):
    assert not has_color(io.StringIO())
    assert colored("a", RED, io.StringIO()) == "a"


def row(name, held_for, waits):
    holder = Holder("t", 1, 1, 20.0, held_for, "web-1", True, "o", released=False, lock_all=False, ttl=30.0)
    queue = tuple(Waiter("w", 1, 0, wait, "web-2", True, "p", lock_all=False, silent_for=wait / 20) for wait in waits)
    return Row("lock", name, LockStatus((holder,), queue, 1, 1, len(queue), 1, 0, 3, 1.0, None), 0.0)


def test_a_table_shows_what_is_bad(terminal):
    with on(terminal):
        rows = [row("stuck", 7200.0, [700.0]), row("slow", 90.0, [80.0]), row("fine", 5.0, [])]
        head, stuck, slow, fine = words.summary(map(words.entry, rows), 80, last_used=False)
        assert all(f"\x1b[{DIM}m{text}" in head for text in ("NAME", "KIND"))
        assert f"\x1b[{BOLD}mstuck" in stuck
        assert re.findall(r"\x1b\[31m *(\S+)\x1b", stuck) == ["2h00m", "11m40s"]
        assert re.findall(rf"\x1b\[{YELLOW}m *(\S+)\x1b", slow) == ["1m20s"]
        assert "\x1b" not in fine
        assert [cell_len(plain(line)) for line in (head, stuck, slow)] == [cell_len(plain(head))] * 3


def test_show_marks_the_name_and_who_is_silent(terminal):
    with on(terminal):
        lines = [*words.described(row("stuck", 7200.0, [700.0, 10.0]), 100, whole_queue=False)]
        assert lines[0] == "\x1b[1mlock stuck\x1b[0m"
        assert lines[1].startswith(f"\x1b[{RED}m  held by web-1 for 2h00m; 2 waiting")
        assert [bool(re.search(r"\x1b\[31mweb-2", line)) for line in lines if "web-2" in line] == [True, False]


def test_findings_have_the_color_of_their_level(terminal):
    with on(terminal):
        found = [ServerFinding(severity, "x", f"text {severity}") for severity in ("ok", "info", "warning", "failure")]
        lines = [*words.diagnosis(found, 80)]
        assert [plain(line).split()[0] for line in lines] == ["FAIL", "WARN", "info", "ok"]
        assert [re.match(r"\x1b\[(\d+)m", line)[1] for line in lines] == ["31", "33", "2", "32"]


def test_messages_are_wrapped_between_words(terminal):
    with on(terminal):
        say("the server does not know 'a': it was not used in the last hour")
        assert terminal.getvalue() == (
            "\x1b[31mhandfast:\x1b[0m the server does not know 'a':\n  it was not used in the last hour\n"
        )
        assert wrapped("x " * 30, None, indent=2) == ["x " * 30]


def test_wrong_usage_is_said_as_all_else_is(capsys):
    command = click.Command("forget")
    with click.Context(command, info_name="forget") as ctx:
        show_usage_error(click.UsageError("Missing argument 'NAME'.", ctx))
    assert capsys.readouterr().err.splitlines()[-1] == "handfast: Missing argument 'NAME'."
