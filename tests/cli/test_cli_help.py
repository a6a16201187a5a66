"""The help of the whole command, and its completion."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys

import pytest

from handfast.cli import COMMANDS


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
        "handfast._naming",
        "handfast._version",
        "handfast.arguments",
        "handfast.cli",
        "handfast.errors",
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_says_what_the_command_says_of_itself(name):
    target, text = COMMANDS[name]
    module, _, attribute = target.partition(":")
    assert getattr(importlib.import_module(module), attribute).get_short_help_str(100) == text
