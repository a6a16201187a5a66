"""The pages tell the truth: their examples run, in their order, on a real server."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from handfast.lint import RULES

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r'^```(\w+)(?: title="([\w.]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
PAGES = [page for page in sorted((ROOT / "docs").glob("*.md")) if "```python" in page.read_text()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_examples_of_a_page_run(page, server, raw, tmp_path, monkeypatch):
    """A block with a title is a file beside them; a value that stands behind an expression is held against it."""
    monkeypatch.chdir(tmp_path)
    seen = {}
    for language, title, text in BLOCK.findall(page.read_text()):
        if title:
            (tmp_path / title).write_text(text)
        elif language == "python":
            here = text.replace("redis.Redis()", f"redis.Redis.from_url({server.url!r})")
            here = here.replace('"redis://localhost:6379/0"', repr(server.url))
            here = re.sub(r"^(\w+\.\w+\(.*\))  # (.+)$", r"assert repr(\1) == '''\2'''", here, flags=re.MULTILINE)
            exec(compile(here, page.name, "exec", dont_inherit=True), seen)
    made = [value for value in seen.values() if type(value).__name__ in {"Redis", "Handfast"}]
    assert made, "the page has no client"
    for client in made:
        client.close()


def test_every_rule_of_the_linter_is_told_in_its_own_words():
    page = (ROOT / "docs/scripts.md").read_text()
    for rule, words in RULES.items():
        assert f"| `{rule}` | {words} |" in page
    assert len(re.findall(r"^\| `[a-z-]+` \| [^|]* \|$", page.split("| rule | asks that |")[1], re.MULTILINE)) == len(
        RULES
    )
