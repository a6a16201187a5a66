"""The help of the whole command, and its completion."""

from __future__ import annotations

import importlib
import os
import re
import signal
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from handfast import cli
from handfast.cli import COMMANDS, exits


def handfast(*words, **variables):
    """Run the command; return what it prints, and the modules that it imports."""
    code = (
        "import atexit, sys; sys.argv[0] = 'handfast'; from handfast.cli import main;"
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr)); main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout, set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize(
    ("words", "variables"),
    [(["--help"], {}), ([], {"_HANDFAST_COMPLETE": "bash_complete", "COMP_WORDS": "handfast ", "COMP_CWORD": "1"})],
    ids=["help", "completion"],
)
def test_the_commands_are_listed_without_importing_them(words, variables):
    printed, imported = handfast(*words, **variables)
    for name in COMMANDS:
        assert name in printed
    assert "redis" not in imported
    assert {name for name in imported if name.startswith("handfast")} <= {
        "handfast",
        "handfast._kinds",
        "handfast._amounts",
        "handfast._naming",
        "handfast._version",
        "handfast.arguments",
        "handfast.cli",
        "handfast.cli.exits",
        "handfast.cli.program",
        "handfast.errors",
    }


def pages(group, ctx, path="handfast"):
    """Yield the path and the help of every command, as on a terminal of 80 columns."""
    with click.Context(group, parent=ctx, info_name=path.rpartition(" ")[2], terminal_width=80) as inner:
        yield path, group.get_help(inner)
        if isinstance(group, click.Group):
            for name in group.list_commands(inner):
                yield from pages(group.get_command(inner, name), inner, f"{path} {name}")


def test_every_help_page_fits_80_columns():
    found = dict(pages(cli._group(), None))
    assert {"handfast", "handfast run", "handfast script check"} <= set(found)
    wide = [(path, line) for path, text in found.items() for line in text.splitlines() if len(line) > 80]
    assert wide == []


def test_a_page_says_how_a_time_is_written_if_an_option_takes_one():
    found = {path: " ".join(text.split()) for path, text in pages(cli._group(), None)}
    wrong = [
        path for path, text in found.items() if (" TIME " in text) != ("TIME is in seconds, or has units: " in text)
    ]
    assert wrong == []


def test_every_exit_code_has_a_name():
    codes = {getattr(exits, name) for name in exits.__all__ if name.isupper()} | {exits.SIGNALED + signal.SIGINT}
    tables = [text.partition("Exit codes:")[2].partition("\n\n")[0] for _, text in pages(cli._group(), None)]
    said = {int(code) for table in tables for code in re.findall(r"^ +(\d+)  ", table, re.MULTILINE)}
    assert len(said) > 8
    assert said <= codes


@pytest.mark.parametrize("module", sorted({target.partition(":")[0] for target, _ in COMMANDS.values()}))
def test_a_command_says_the_codes_that_it_exits_with(module):
    found = importlib.import_module(module)
    used = {value for name, value in vars(found).items() if name in exits.__all__ and name.isupper()} - {exits.SIGNALED}
    said = "".join(value.epilog or "" for value in vars(found).values() if isinstance(value, click.Command))
    assert {str(code) for code in used} <= set(re.findall(r"^ +(\d+)  ", said, re.MULTILINE))


def test_a_command_of_another_package_says_where_it_is(monkeypatch):
    monkeypatch.setattr(cli, "_plugins", dict)
    for command, package in (("torture", "handfast-lab"), ("script", "handfast-lint")):
        done = CliRunner().invoke(cli._group(), [command])
        assert done.exit_code == 64
        assert f"pip install {package}" in done.stderr


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("rnu", "run"),
        ("realese", "release"),
        ("tortue", "torture"),
        ("status", "show"),
        ("unlock", "release"),
        ("locks", "ls"),
    ],
)
def test_a_command_that_there_is_not_may_be_another_one(given, meant):
    done = CliRunner().invoke(cli._group(), [given, "x"])
    assert done.exit_code == 64
    assert f"There is no command {given!r}. Did you mean {meant!r}?" in done.stderr


def test_what_others_call_a_command_is_none_of_ours():
    assert set(cli.INSTEAD.values()) <= set(COMMANDS)
    assert not cli.INSTEAD.keys() & COMMANDS.keys()
    unlike = CliRunner().invoke(cli._group(), ["xyzzy"])
    assert (unlike.exit_code, unlike.stderr.splitlines()[-1]) == (64, "handfast: There is no command 'xyzzy'.")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_says_what_the_command_says_of_itself(name):
    target, text = COMMANDS[name]
    module, _, attribute = target.partition(":")
    assert getattr(importlib.import_module(module), attribute).get_short_help_str(100) == text


@pytest.mark.parametrize("missing", ["click", "rich"])
def test_a_command_without_its_extra_says_what_to_install(missing):
    """Not with 1, which a job that ran and failed has."""
    code = f"import sys; sys.modules['{missing}'] = None; from handfast.cli import main; main(['elect', '--help'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 69
    assert done.stderr == (
        "handfast: the command needs click and rich; install them with: pip install 'handfast[cli]'\n"
    )
