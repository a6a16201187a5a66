"""The parts of the page fit together: words and a button for each act, a cell for each column, a place for each field."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from handfast.cli.operate import objects
from handfast.page import wire
from handfast.page.serving import DOINGS

STATIC = Path(wire.__file__).parent / "static"

NARROWER = [(), ("c-rate", "c-spark"), ("c-kind", "c-lease")]
"""The columns left out at each width of the page, from the widest on."""


def source(name):
    return (STATIC / name).read_text(encoding="utf-8")


def constant(name, text):
    """Return the items of a constant of a script, as text."""
    return re.search(rf"^const {name} = (.*?\n)?[]}}];$", text, re.MULTILINE | re.DOTALL)[1]


def test_every_act_has_a_button_and_words():
    scripts = "".join(source(path.name) for path in STATIC.glob("*.js"))
    asked = re.findall(r'"(\w+)"', "".join(re.findall(r"[^.\w]act\((.*?), [{r]", scripts)))
    assert set(asked) == set(DOINGS)
    assert set(re.findall(r"^  (\w+): {", constant("DIALOGS", source("acts.js")), re.MULTILINE)) == set(DOINGS)


def test_every_act_in_the_audit_has_words():
    command = "".join(path.read_text(encoding="utf-8") for path in Path(objects.__file__).parent.glob("*.py"))
    noted = set(re.findall(r"""(?:note\(client|_done\(client, given), "(\w+)\"""", command))
    assert {"raise", "resize", "reset"} <= noted
    said = set(re.findall(r'(\w+): "', constant("DONE", source("name.js"))))
    assert {*DOINGS, *noted, "force_release", "preempt"} <= said


def test_every_column_has_a_cell_and_a_width():
    script, style = source("held.js"), source("page.css")
    columns = re.findall(r'\[("\w+"|null), "', constant("COLUMNS", script))
    cells = re.findall(r'\w+: "(c-[\w ]+)"', constant("CELLS", script))
    assert len(columns) == len(cells) > 8
    sorts = re.findall(r"^  (\w+): \(row\)", constant("SORTS", script), re.MULTILINE)
    assert [column.strip('"') for column in columns if column != "null"] == sorts
    widths = re.findall(r"\.grid-head, \.grid-row {\s*(?:display.*\s*)?grid-template-columns: (.*?);", style)
    left = len(columns)
    for tracks, gone in zip(widths, NARROWER, strict=True):
        left -= len(gone)
        assert len(re.sub(r"\(.*?\)", "", tracks).split()) == left
        assert not gone or f".{', .'.join(gone)} {{ display: none" in style


def test_every_field_of_a_holder_and_of_a_waiter_is_drawn():
    scripts = source("name.js") + source("acts.js") + source("pictures.js")
    for made, name in ((wire._holder, "holder"), (wire._waiter, "waiter")):
        keys = re.findall(r'^        "(\w+)":', inspect.getsource(made), re.MULTILINE)
        assert len(keys) > 6
        read = rf"\b(?:{name}|one|next)\.%s\b|\({{[^}}]*\b%s\b[^}}]*}}\) =>"  # the field of one, or an argument taken apart
        assert [key for key in keys if not re.search(read % (key, key), scripts)] == []
