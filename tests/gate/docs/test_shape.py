"""How-to pages and answers have their shape: the problem first, and the second day in a table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[3] / "docs"
PAGES = sorted((DOCS / "how-to").glob("*.md"))
ANSWERS = sorted({*(DOCS / "answers").glob("*.md")} - {DOCS / "answers/index.md"})

OTHERS = {"least-privilege", "operate", "testing", "troubleshooting", "watch-to-script"}
"""Pages that are neither about an object nor about an adapter."""

CASES = ("an outage of the server", "the server loses its data", "a process is frozen", "a second start in one process")
"""With these words the first cell of a row begins."""

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
def test_no_object_is_called_a_primitive(page):
    assert "primitive" not in page.read_text().lower()


@pytest.mark.parametrize("page", ANSWERS, ids=lambda page: page.stem)
def test_an_answer_is_short_and_has_the_second_day(page):
    text = page.read_text()
    assert len(text.splitlines()) <= 60
    assert "\n**The usual answers.** " in text
    day = text.partition("\n## The second day\n")[2]
    assert [case for case in CASES if f"\n| {case}" not in day] == []
    assert f"({page.name})" in (page.parent / "index.md").read_text()
    assert f"answers/{page.name}\n" in (DOCS.parent / "mkdocs.yml").read_text()
