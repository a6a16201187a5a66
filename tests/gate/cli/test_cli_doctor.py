"""``handfast doctor``: what it prints, and when it fails."""

from __future__ import annotations

import pytest
from click.testing import CliRunner
from rich.cells import cell_len

from handfast import ServerFinding
from handfast.cli.operate import words
from handfast.cli.operate.doctor import command as doctor


def call(url, *words):
    result = CliRunner().invoke(doctor, [*words, "--url", url])
    return result.exit_code, result.output


def test_a_server_that_is_not_there_is_no_finding():
    code, output = call("redis://127.0.0.1:1/0")
    assert code == 69
    assert output.startswith("handfast: ")


@pytest.mark.parametrize("words", [["--for", "unknown"], ["--url", "nonsense"]])
def test_wrong_usage(words):
    assert CliRunner().invoke(doctor, ["--url", "redis://127.0.0.1:1/0", *words]).exit_code == 64


@pytest.mark.parametrize("most", [20, 40, 79, None])
def test_long_lines_are_broken_between_words_for_a_terminal_only(most):
    found = [ServerFinding("warning", "eviction", "some words that are many " * 5, "do this", "CONFIG SET x y")]
    lines = list(words.diagnosis(found, most))
    assert lines[0].startswith("WARN  some words")
    assert all(line.startswith((" " * 6, "    → ")) for line in lines[1:])
    assert sum(line.startswith("    → do this:") for line in lines) == 1
    assert most is not None or len(lines) == 2
    assert most is None or all(cell_len(line) <= most for line in lines)
