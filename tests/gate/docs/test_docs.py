"""The pages tell the truth: their examples run, in their order, on a real server."""

from __future__ import annotations

import ast
import asyncio
import dataclasses
import inspect
import re
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path
from typing import get_args

import pytest

from handfast import Handfast, events
from handfast._kinds import KINDS
from handfast._watch.exposition import METRICS

ROOT = Path(__file__).parents[3]
BLOCK = re.compile(r'^( *)```(\w+)(?: title="([\w.]+)")?\n(.*?)^\1```$', re.MULTILINE | re.DOTALL)
"""Those in tabs are indented."""
LINK = re.compile(r"(?:\]\(|^\[[^\]]+\]: |(?:src|srcset|href)=\")([^)\"\s]+)", re.MULTILINE)
URLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
PAGES = [
    page for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))) if "```python" in page.read_text()
]


def charge(order, *, fence):
    """What the README's examples protect."""
    assert order == "orders:42"
    assert fence > 0


class ImportShop:
    """What the front page calls, and awaits."""

    def __init__(self, shop):
        assert shop == 7

    def __await__(self):
        yield from ()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_examples_of_a_page_run(page, server, raw, tmp_path, monkeypatch):
    """A block with a title is a file beside them; a value that stands behind an expression is held against it."""
    monkeypatch.chdir(tmp_path)
    seen = {"charge": charge, "import_shop": ImportShop, "order": "orders:42"}
    ran = 0
    with asyncio.Runner() as runner:
        for _, language, title, indented in BLOCK.findall(page.read_text()):
            text = textwrap.dedent(indented)
            if title:
                (tmp_path / title).write_text(text)
                if language == "python":
                    compile(text, title, "exec", dont_inherit=True)
            elif language == "python":
                here = text.replace("redis.Redis()", f"redis.Redis.from_url({server.url!r})")
                here = here.replace('"redis://localhost:6379/0"', repr(server.url))
                here = here.replace("Handfast.embedded()", f"Handfast({server.url!r})")
                here = re.sub(r"^(\w+\.\w+\(.*\))  # (.+)$", r"assert repr(\1) == '''\2'''", here, flags=re.MULTILINE)
                code = compile(here, page.name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
                result = eval(code, seen)
                if inspect.iscoroutine(result):
                    runner.run(result)
                ran += 1
        made = [value for value in seen.values() if type(value).__name__ in {"Redis", "Handfast", "AsyncHandfast"}]
        assert made or not ran, "the page has no client"
        for client in made:
            if type(client).__name__ != "AsyncHandfast":
                client.close()
        for client in seen.values():
            if type(client).__name__ == "AsyncHandfast":
                runner.run(client.close())


def test_the_readme_prints_what_it_shows(server, raw):
    """As it is pasted up to there, but for the server."""
    programs, shown = re.search(
        r"(.*?```)\n\n```text\n(\d{16}[^`]*)```", (ROOT / "README.md").read_text(), re.DOTALL
    ).groups()
    code = "\n".join(text for _, language, _, text in BLOCK.findall(programs) if language == "python")
    code = code.replace('"redis://localhost:6379/0"', repr(server.url))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    changing = re.compile(r"\d{16}|by \S+")
    assert changing.sub("…", done.stdout) == changing.sub("…", shown)


def test_the_commands_of_the_readme_run(server):
    """Its shell lines, with a command that is there."""
    [lines] = re.findall(r"```console\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    runs = re.findall(r"^\$ handfast (run .*?) -- ", lines, re.MULTILINE)
    assert runs
    for run in runs:
        words = re.sub(r"redis://\S+", server.url, run).split()
        subprocess.run([sys.executable, "-m", "handfast", *words, "--", "true"], check=True, timeout=30)


@pytest.mark.parametrize("tool", ["refresh_docs.py", "draw_pictures.py"])
def test_the_generated_sections_and_pictures_are_up_to_date(tool):
    subprocess.run([sys.executable, ROOT / "tools" / tool, "--check"], check=True, timeout=60)


@pytest.mark.parametrize("project", [ROOT, ROOT / "lint", ROOT / "lab"], ids=["product", "lint", "lab"])
def test_every_link_of_a_package_description_is_absolute_and_leads_somewhere(project):
    """The package index shows the README without the files beside it."""
    hatch = tomllib.loads((project / "pyproject.toml").read_text())["tool"]["hatch"]
    description = (project / "README.md").read_text()
    for rule in hatch.get("metadata", {}).get("hooks", {}).get("fancy-pypi-readme", {}).get("substitutions", []):
        description, count = re.subn(rule["pattern"], rule["replacement"], description)
        assert count, f"{rule} changes nothing"
    links = LINK.findall(description)
    assert links
    for link in links:
        assert link.startswith(("https://", "#")), f"{link} is relative"
        target, _, anchor = link.partition("#")
        if path := file_of(target):
            assert path.exists(), link
            titles = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
            assert not anchor or anchor in map(slug, titles), link


def test_every_link_of_the_readme_leads_to_a_file_beside_it():
    links = [
        link for link in LINK.findall((ROOT / "README.md").read_text()) if not link.startswith(("#", "https://martin."))
    ]
    assert len(links) > 10
    for link in links:
        assert (ROOT / link.partition("#")[0]).is_file(), link


def file_of(url):
    """Return the file of this repository that a URL of the project shows; None for other URLs."""
    source, pages = f"{URLS['Source']}/blob/main/", f"{URLS['Documentation']}/"
    if url.startswith(source):
        return ROOT / url.removeprefix(source)
    if url.startswith(pages):
        path = re.sub(r"/$|^$", ".md", url.removeprefix(pages))
        return ROOT / "docs" / ("index.md" if path == ".md" else path)
    return None


def slug(title):
    return re.sub(r"[^\w-]+", "-", title.lower()).strip("-")


def test_every_file_that_a_page_names_is_there():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    named = {
        (page.name, path)
        for page in pages
        if page.parent.name != "results"  # a record names what there was
        for path in re.findall(r"\b(?:src|tests|lab|tools|examples)/[\w/-]+\.(?:py|lua)\b", page.read_text())
    }
    assert len(named) > 15
    assert not {(page, path) for page, path in named if not (ROOT / path).is_file()}


def test_the_messages_of_the_troubleshooting_page_are_those_of_the_code():
    """A message that was reworded is not found by those who search for it."""
    page = (ROOT / "docs/how-to/troubleshooting.md").read_text()
    rows = re.findall(r"^\| (`.*?) \|", page.partition("## By message")[2], re.MULTILINE)
    source = "".join(path.read_text() for path in (ROOT / "src/handfast").rglob("*.py"))
    source = re.sub(r'"\s*(?:\n\s*)?f?"', "", source)  # literals that stand behind each other are one
    shown = [message for row in rows for message in re.findall(r"`([^`]+)`", row) if "cron's mail" not in row]
    missing = [one for one in shown for part in one.split("…") if part.strip() not in source]
    assert len(shown) > 15
    assert not missing


def test_the_page_on_settings_names_all_options_of_an_object():
    table = (ROOT / "docs/reference/settings.md").read_text().partition("## Options of an object")[2]
    named = set(
        re.findall(r"`(\w+)`", re.sub(r"^(\|[^|]*\|).*", r"\1", table.partition("\n## ")[0], flags=re.MULTILINE))
    )
    makers = {*KINDS, "rlock", "lock_all"} - {"autocomplete", "scores"}
    options = {
        option.name
        for maker in makers
        for option in inspect.signature(getattr(Handfast, maker)).parameters.values()
        if option.kind is option.KEYWORD_ONLY
    }
    assert {"ttl", "head_start", "yields", "refresh", "every"} <= options
    assert sorted(options - named) == []


def test_the_page_on_metrics_names_all_of_the_exporter():
    page = (ROOT / "docs/how-to/measure.md").read_text()
    assert "handfast_held" in METRICS
    assert [name for name in METRICS if f"`{name}`" not in page] == []


def test_the_page_on_events_names_all_of_them_with_their_fields():
    table = (ROOT / "docs/how-to/measure.md").read_text().partition("| event | when |")[2].partition("\n\n")[0]
    said = {
        row[0].strip("`"): set(re.findall(r"`(\w+)`", row[-1]))
        for line in table.splitlines()[2:]
        if (row := line.strip("| ").split(" | "))
    }
    common = {field.name for field in dataclasses.fields(events.NameEvent)}
    kinds = [value for value in vars(events).values() if inspect.isclass(value) and issubclass(value, events.Event)]
    have = {kind.__name__: {field.name for field in dataclasses.fields(kind)} - common for kind in kinds}
    assert said == {name: fields for name, fields in have.items() if fields}


def test_the_page_on_metrics_names_all_outcomes_and_causes():
    text = " ".join(
        (ROOT / "docs/how-to/measure.md").read_text().partition("handfast_renewals_failed_total")[2].split()
    )
    said = set(re.findall(r"`(\w+)`", text.partition("`outcome` is ")[2].partition("## ")[0]))
    assert {*get_args(events.Outcome), *get_args(events.LossCause)} <= said


def test_the_page_on_tests_names_all_scripts():
    page = (ROOT / "docs/how-to/testing.md").read_text()
    table = page.partition("| of | scripts of Handfast |")[2].partition("<!--")[0]
    scripts = {path.stem for path in (ROOT / "src/handfast/_engine/lua").glob("*.lua")}
    assert set(re.findall(r"`(\w+_\w+)`", table)) - {"lock_all"} == scripts


WIDTH = 100
PROSE = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")} - {ROOT / "docs/results/reliability.md"})
"""All but a page that is generated."""


@pytest.mark.parametrize("path", PROSE, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_prose_is_wrapped(path):
    """What is generated, front matter, tables, code, HTML and pictures are as wide as they are; so is a word."""
    text = re.sub(
        r"\A---\n.*?\n---|<!-- begin:.*?<!-- end:|^ *```.*?^ *```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL
    )
    wide = [
        line for line in text.splitlines() if len(line) > WIDTH and not line.lstrip().startswith(("|", "<", "!", "#"))
    ]
    assert [line for line in wide if len(line.split()) > 4] == []


def test_the_readme_fits_into_130_lines():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 130
