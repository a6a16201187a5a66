"""The tool that keeps the words of our own invention out."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[3] / "tools/check_words.py"


@pytest.fixture
def tool():
    spec = importlib.util.spec_from_file_location("check_words", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def house(tmp_path):
    for folder in ("src/deep", "docs"):
        (tmp_path / folder).mkdir(parents=True)
    return tmp_path


def found(tool, text):
    return list(tool.check(text))


# In this file the words are put together, so that it passes the check itself.
BODY = "no" + "body"
RUN = "err" + "and"


@pytest.mark.parametrize(
    "text",
    [
        BODY,
        BODY.upper(),
        BODY.title(),
        f"_{BODY}_else",
        f"run_{RUN}s({RUN}_ttl)".replace(f"{RUN}_ttl", "1"),
        f"Run{RUN.title()}Now",
        f"HTTP{RUN.title()}",
        "for" + " ever",
        "for\n# " + "ever",
        "for\n  " + "ever",
        "are-" + "told",
    ],
)
def test_a_banned_word_is_found(tool, text):
    assert [line for line, _ in found(tool, f"fine\n{text}\nfine")] == [2]


@pytest.mark.parametrize("text", ["forever", "anti" + BODY, BODY + "less", "told", "in " + "vainly", "years", "label"])
def test_other_words_are_not(tool, text):
    assert found(tool, text) == []


def test_a_comment_allows_what_it_names_on_its_line(tool):
    assert found(tool, f"user = '{BODY}'  # words: allow {BODY}") == []
    assert found(tool, f"{BODY} {RUN}  # words: allow {BODY}") == [(1, RUN)]
    assert found(tool, f"{BODY} {RUN}  # words: allow {RUN}, {BODY}") == []
    assert found(tool, f"<!-- words: allow {BODY} -->\n{BODY}")[0] == (2, BODY)


def test_a_permission_that_nothing_needs_is_a_fault(tool):
    assert found(tool, f"fine  # words: allow {BODY}") == [(1, f"{BODY} is allowed here, and is not used")]


def test_it_names_file_line_and_word(tool, house, capsys):
    (house / "src/deep/a.py").write_text(f"fine\n# {BODY}\n")
    (house / "README.md").write_text(f"An {RUN}.\n")
    assert tool.main(house) == 1
    assert capsys.readouterr().out.splitlines() == [f"README.md:1: {RUN}", f"src/deep/a.py:2: {BODY}"]


def test_what_programs_wrote_and_pictures_are_left_out(tool, house):
    (house / "results").mkdir()
    (house / "results/a.json").write_text(BODY)
    (house / "docs/a.png").write_bytes(b"\x89PNG\r\n\xff" + BODY.encode())
    (house / "src/__pycache__").mkdir()
    (house / "src/__pycache__/a.txt").write_text(BODY)
    assert tool.main(house) == 0


def test_pronouns_are_bounded_over_all_docstrings(tool, house):
    (house / "src/deep/made.py").write_text('# Generated from said.py\n"""Its one."""\n')
    said = house / "src/deep/said.py"
    said.write_text(f'"""Return its fence. {"word " * 247}"""\n')
    assert list(tool.pronouns(house / "src")) == []
    said.write_text(f'"""Return its fence. {"word " * 240}"""\n')
    (line,) = tool.pronouns(house / "src")
    assert line == "src: 4.1 times 'its' in 1,000 words of docstrings, above 4; most in deep/said.py, deep/made.py"
