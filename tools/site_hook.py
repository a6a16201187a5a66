"""The hook of the documentation site: a page for each class, a rank in the search, Markdown beside each page, llms.txt.

- Each class of an object has a page in ``reference/api/``, with a table of its members. Members that several classes
  inherit from one base are shown in full on the page of the first class, and are links on the pages of the others.
- The search ranks pages for users before design and results.
- ``how-to/cron.md`` is the source of ``how-to/cron/``, for readers without a browser; ``llms.txt`` lists these files.
- A line of code that is wider than its column is a warning, so ``mkdocs build --strict`` fails.
"""

from __future__ import annotations

import html
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe  # type: ignore[import-not-found, unused-ignore]  # comes with the group docs alone
from mkdocs.structure.files import File  # type: ignore[import-not-found, unused-ignore]  # see above

from handfast._kinds import KINDS

ROOT = Path(__file__).parent.parent
DOCS, SOURCES = ROOT / "docs", ROOT / "src"

CLASSES = (
    "Handfast",
    *(name for kind in KINDS.values() for names in kind.modules.values() for name in names),
    "Script",
    "Reply",
)
"""The classes that have pages, in the order of the menu."""

RANKS = {"start/": 3, "answers/": 4, "how-to/": 3, "explanation/": 1, "reference/": 1, "design/": 0.1, "results/": 0.1}
"""By folder, the factor of a page in the search."""

ICON = SOURCES / "handfast/page/static/icon.svg"

OPTIONAL = "Design", "Results"
"""Parts of the menu that a reader with little time leaves out."""

COLUMN = 86
"""Characters of code in a line at a width of 768 px; 93 at 1,280 px."""

WRAPPED = "design/", "results/"
"""Folders with contracts of scripts, which are wrapped, sessions and records."""

TITLE = re.compile(r"\A\s*# [^\n]*?(\w+)\)\n")
"""A title with an object in parentheses."""

DIRECTIVE = re.compile(r"^::: (\S+)\n(?:(?:    .*)?\n)*", re.MULTILINE)
MEMBER = re.compile(r"\]\[handfast\.(\w+)\.\w+\]")
"""The end of a link to a member."""

CODE = re.compile(r"(?<!wrapped highlight\">)<pre[^>]*>.*?<code>(.*?)</code></pre>", re.DOTALL)
"""Code, but for blocks of the class ``wrapped``."""

log = logging.getLogger("mkdocs.plugins.handfast")
EXTENSIONS = griffe.load_extensions(str(ROOT / "tools/griffe_examples.py"))
api: Any = griffe.load("handfast", search_paths=[SOURCES], extensions=EXTENSIONS, resolve_aliases=True)
sections: list[Any] = []
"""The menu of this build."""


def on_config(config: Any) -> None:
    """Put the classes into the menu, in place of the folder that stands for them."""
    for part in config.nav:
        for entries in part.values():
            for entry in entries:
                if isinstance(entry, dict) and entry.get("Classes") == "reference/api/":
                    entry["Classes"] = [{name: _path(name)} for name in CLASSES]


def on_files(files: Any, config: Any) -> None:
    """Add the mark, which the page of the command has too, and the pages of the classes."""
    files.append(File.generated(config, "assets/icon.svg", abs_src_path=str(ICON)))
    shown: dict[str, str] = {}
    for name in CLASSES:
        files.append(File.generated(config, _path(name), content="\n".join(_class_page(name, shown))))


def on_nav(nav: Any, **_: Any) -> None:
    """Keep the menu for ``llms.txt``."""
    sections[:] = nav.items


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Rank the page in the search, and draw the object whose name ends the title."""
    rank = next((rank for folder, rank in RANKS.items() if page.file.src_uri.startswith(folder)), 1)
    page.meta["search"] = {"boost": rank}
    return TITLE.sub(lambda found: f"{found[0]}\n{_picture(found[1], page.file.src_uri)}", markdown, count=1)


def on_post_page(output: str, *, page: Any, **_: Any) -> str:
    """Name the Markdown of the page in its head, give the search of the theme a name, and warn of code that is cut."""
    for block in CODE.findall(output):
        longest = max(html.unescape(re.sub(r"<[^>]+>", "", block)).splitlines(), key=len, default="")
        if len(longest) > COLUMN and not page.file.src_uri.startswith(WRAPPED):
            log.warning(
                "%s: code of %d columns, of which %d are shown: %s", page.file.src_uri, len(longest), COLUMN, longest
            )
    source = f"{page.canonical_url.removesuffix(page.url)}{page.file.src_uri}"
    output = output.replace(
        'data-md-component="search" role="dialog"', 'data-md-component="search" role="dialog" aria-label="Search"'
    )
    return output.replace("</head>", f'<link rel="alternate" type="text/markdown" href="{source}"></head>', 1)


def on_post_build(config: Any) -> None:
    """Write the Markdown of all pages, and ``llms.txt``."""
    site = Path(config.site_dir)
    lines = [f"# {config.site_name}", "", f"> {config.site_description}."]
    for part in sections:
        lines += ["", f"## {'Optional: ' * (part.title in OPTIONAL)}{part.title}", ""]
        for page in _pages(part):
            text = DIRECTIVE.sub(lambda found: "\n".join(_spelled_out(found[1])) + "\n", page.markdown)
            text = MEMBER.sub(lambda found: f"]({found[1].lower()}.md)", text)
            target = site / page.file.src_uri
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
            lines.append(f"- [{page.title}]({config.site_url}{page.file.src_uri}): {_summary(page)}")
    (site / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _picture(name: str, page: str) -> str:
    """Return the pictogram of an object, if there is one."""
    drawn = Path("assets/objects", f"{name}.svg")
    return f"\n![]({'../' * page.count('/')}{drawn}){{ .object }}\n" if (DOCS / drawn).exists() else ""


def _path(name: str) -> str:
    return f"reference/api/{name.lower()}.md"


def _pages(part: Any) -> Iterator[Any]:
    if part.is_page:
        yield part
    for child in part.children or ():
        yield from _pages(child)


def _summary(page: Any) -> str:
    """Return the description of a page, or its first sentence."""
    if described := page.meta.get("description"):
        return str(described)
    paragraphs = re.sub(r"^```.*?^```$", "", page.markdown, flags=re.MULTILINE | re.DOTALL).split("\n\n")
    prose = next((one.strip() for one in paragraphs if re.match(r"[\w*`\[]", one.strip())), page.title)
    plain = re.sub(r"\[([^\]]+)\](?:\([^)]+\)|\[[^\]]+\])", r"\1", " ".join(prose.split()))
    return re.split(r"(?<=[.?!]) ", plain, maxsplit=1)[0]


def _class_page(name: str, shown: dict[str, str]) -> Iterator[str]:
    """Yield the page of a class: the docstring, the table of members, the members that no page before has."""
    cls, twin = api[name], api.members.get(f"Async{name}")
    yield f"---\ntitle: {name}\ndescription: {json.dumps(_first_line(cls))}\n---\n"
    yield f"::: handfast.{name}\n    options:\n      heading_level: 1\n      members: false\n      inherited_members: false\n"
    module = next((one for kind in KINDS.values() for one, names in kind.modules.items() if name in names), "")
    yield _picture(module, _path(name))
    if twin:
        yield f"In asyncio it is `{twin.name}`, with the same members; the table says which of them are awaited.\n"
    members = {one.name: (one, shown.setdefault(_target(one).path, name)) for one in _members(cls)}
    own = [one for one, (_, page) in members.items() if page == name]
    yield "| member |" + " asyncio |" * bool(twin) + " summary |\n|---|" + "---|" * bool(twin) + "---|"
    for one in sorted(members, key=lambda one: one not in own):
        member, page = members[one]
        cell = f" {_in_asyncio(twin.all_members[one])} |" if twin else ""
        yield f"| [`{one}`][handfast.{page}.{one}] |{cell} {_first_line(member)} |"
    for one in own:
        yield f"\n::: handfast.{name}.{one}\n    options:\n      heading_level: 2\n"


def _members(cls: Any) -> list[Any]:
    """Return the documented members of a class: public, or the call, which is what a decorator is."""
    found = cls.all_members.items()
    return [one for name, one in found if (name == "__call__" or name[0] != "_") and _doc(one)]


def _in_asyncio(member: Any) -> str:
    found = _target(member)
    if not found.is_function:
        return ""
    answer = str(found.returns)
    if any(str(one.value) == "acquire_context" for one in found.decorators):
        return "`await`, `async with`"
    for start, said in {
        "AsyncIterator": "`async for`",
        "AbstractAsync": "`async with`",
        "Awaitable": "`await`",
    }.items():
        if answer.startswith(start):
            return said
    return "`await`" if "async" in found.labels else ""


def _target(thing: Any) -> Any:
    """Return the definition of an inherited or imported object."""
    return thing.final_target if thing.is_alias else thing


def _doc(thing: Any) -> str:
    return thing.docstring.value if thing.docstring else ""


def _first_line(thing: Any) -> str:
    return _doc(thing).partition("\n\n")[0].replace("\n", " ").replace("|", "\\|")


def _spelled_out(identifier: str, level: int = 2) -> Iterator[str]:
    """Yield a module, a class or a member as Markdown: the docstrings with the signatures."""
    thing = api[identifier.removeprefix("handfast.")]
    if not thing.is_module:
        yield f"{'#' * level} {identifier.removeprefix('handfast.')}\n"
    if thing.is_function:
        yield f"```python\n{_target(thing).signature()}\n```\n"
    yield f"{_doc(thing)}\n"
    members = [one for one in thing.members.values() if one.is_public] if thing.is_module else []
    for one in members:
        if one.is_class or one.is_function:
            yield from _spelled_out(f"{identifier}.{one.name}")
        for method in _members(one) if one.is_class else []:
            yield from _spelled_out(f"{identifier}.{one.name}.{method.name}", 3)
