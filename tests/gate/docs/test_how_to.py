"""Each how-to page begins with a problem, and a page about an object or an adapter says what happens when something goes wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

HOW_TO = Path(__file__).parents[3] / "docs" / "how-to"
PAGES = sorted(HOW_TO.glob("*.md"))

OTHERS = {"least-privilege", "operate", "testing", "troubleshooting", "watch-to-script"}
"""Pages that are neither about an object nor about an adapter."""

CASES = ("an outage of the server", "the server loses its data", "a process is frozen", "a second start in one process")
"""With these words the first cell of a row begins."""

WIDTH = 78
PRINTED = {"least-privilege.md": "ACL SETUSER app reset"}
"""By page, the line that a command prints and that can't be broken."""

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


@pages
def test_a_page_begins_with_its_problem(page):
    _, first, *_ = page.read_text().split("\n\n")
    assert re.match(r"[A-Z][^`|#]", first), first


@pytest.mark.parametrize("page", [page for page in PAGES if page.stem not in OTHERS], ids=lambda page: page.stem)
def test_a_page_about_an_object_says_what_happens_when_something_goes_wrong(page):
    table = page.read_text().partition("\n## When something goes wrong\n")[2].partition("\n## ")[0]
    assert [case for case in CASES if f"\n| {case}" not in table] == []


@pages
def test_code_is_narrow_and_no_object_is_called_a_primitive(page):
    text = re.sub(r"<!-- begin:.*?<!-- end:", "", page.read_text(), flags=re.DOTALL)
    code = "".join(re.findall(r"^ *```\w*.*?\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL))
    wide = [line for line in code.splitlines() if len(line) > WIDTH]
    assert [line for line in wide if not line.startswith(PRINTED.get(page.name, "\n"))] == []
    assert "primitive" not in text.lower()
