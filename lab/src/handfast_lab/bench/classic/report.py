"""The results as one self-contained page: tables, plots, method and doubts.

The frame and its prose are `report.html`; this module fills it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from importlib.resources import files
from itertools import groupby
from string import Template
from typing import Any

from handfast_lab.bench.classic.plots import LABELS, svg
from handfast_lab.bench.classic.published import PUBLISHED, SECONDS
from handfast_lab.bench.classic.tables import TABLES, Table
from handfast_lab.bench.classic.text import in_order, number, published_of, total
from handfast_lab.bench.contenders import HANDFAST
from handfast_lab.bench.figures import FIRST, LUA, Row
from handfast_lab.bench.table import Cells

__all__ = ["page"]


def page(
    rows: Sequence[Row], machine: Mapping[str, Any], rounds: int, seconds: float, complaints: Sequence[str]
) -> str:
    """Return the whole page, with ``complaints`` at its top."""
    tables = [table for table in TABLES.values() if any(row.setting == table.name for row in rows)]
    frame = Template((files("handfast_lab.bench.classic") / "report.html").read_text(encoding="utf-8"))
    return frame.substitute(
        where=escape(f"{machine['cpu']}, {machine['cores']} cores; {machine['server']}; {machine['date']}"),
        alarm=_list("alarm", complaints),
        glance=_list("glance", [line for table in tables for line in _glance(table, rows)]),
        sections="\n".join(_section(table, rows, rounds) for table in tables),
        seconds=f"{seconds:g}",
        rounds="was 1 round" if rounds == 1 else f"were {rounds} rounds",
        cores="one core" if machine["cores"] == 1 else f"{machine['cores']} cores",
        machine="\n".join(
            f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>"
            for name, value in machine.items()
            if value is not None
        ),
    )


def _list(kind: str, lines: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f'<ul class="{kind}">{items}</ul>' if lines else ""


def _glance(table: Table, rows: Sequence[Row]) -> list[str]:
    """Summarize the figures at the largest client count in one sentence."""
    mine = in_order(table, rows)
    most = max(row.clients for row in mine)
    last = {row.contender: row for row in mine if row.clients == most}
    if FIRST not in last:
        return []
    told = [
        f"{LABELS[contender]} {last[contender].to_first:,.1f} times"
        for contender in (LUA, HANDFAST)
        if contender in last and last[contender].to_first is not None
    ]
    line = [f"{' and '.join(told)} the {table.success} of the first form"] if told else []
    vain = last[FIRST].retries_each or 0
    line += [f"the first form starts over {vain:,.1f} times for each"] if vain >= 0.1 else []
    clients = "1 client" if most == 1 else f"{most} clients"
    return [f"{table.title}, {clients}: {'; '.join(line)}."] if line else []


def _section(table: Table, rows: Sequence[Row], rounds: int) -> str:
    mine = in_order(table, rows)
    parts = [
        f'<h2 id="{table.name}">{escape(table.title)}</h2>',
        f"<p>{escape(table.about)}</p>",
        f'<div class="wide">{svg(table, rows)}</div>',
        f'<div class="wide">{_grid(table, mine)}</div>',
        *(f'<p class="note">{escape(note)}</p>' for note in _notes(table, rounds)),
    ]
    return "\n".join(parts)


def _cells(table: Table, seconds: float) -> Cells:
    cells: dict[str, Callable[[Row], str]] = {
        f"tries in {seconds:g} s": lambda row: total(row, row.tries),
        f"{table.success} in {seconds:g} s": lambda row: total(row, row.rate),
        f"{table.success} a second": lambda row: number(row.rate),
        "smallest to largest": _spread,
        "fairness": lambda row: "-" if row.clients == 1 else f"{row.fairness:.2f}",
        "WatchErrors": lambda row: total(row, row.retries),
        "times the first form": lambda row: "-" if row.to_first is None else f"{row.to_first:.2f}",
    }
    if table.lenient:
        cells["over the limit"] = lambda row: number(row.violations)
    found = PUBLISHED.get(table.name)
    if found is not None and found.timed:
        cells[f"published, {SECONDS:g} s"] = lambda row: published_of(row, 1)
        cells["published, a second"] = lambda row: published_of(row, 1 / SECONDS)
    elif found is not None:
        cells["published"] = lambda row: published_of(row, 1)
    return cells


def _spread(row: Row) -> str:
    return "-" if row.rounds == 1 else f"{number(row.slowest)} to {number(row.fastest)}"


def _grid(table: Table, mine: Sequence[Row]) -> str:
    cells = _cells(table, mine[0].seconds)
    names = [escape(name).replace(" s", "&nbsp;s") for name in ("clients", "contender", *cells)]
    head = "".join(f"<th>{name}</th>" for name in names)
    bodies = []
    for clients, block in groupby(mine, key=lambda row: row.clients):
        lines = []
        for place, row in enumerate(block):
            texts = ["" if place else str(clients), LABELS[row.contender], *(cell(row) for cell in cells.values())]
            kind = ' class="ours"' if row.contender == HANDFAST else ""
            lines.append(f"<tr{kind}>{''.join(f'<td>{escape(text)}</td>' for text in texts)}</tr>")
        bodies.append(f"<tbody>{''.join(lines)}</tbody>")
    return f"<table><thead><tr>{head}</tr></thead>{''.join(bodies)}</table>"


def _notes(table: Table, rounds: int) -> list[str]:
    notes = []
    found = PUBLISHED.get(table.name)
    if found is not None and found.timed:
        notes.append(
            "Published: tries / acquires of other people's machine, in 10 s and, for comparison, of one second."
        )
    elif found is not None:
        notes.append("Published: successes, without a duration or a machine; only their shape can be compared.")
    if table.lenient:
        among = "of all rounds" if rounds > 1 else "of the round"
        notes.append(f"Over the limit: how many holds {among} began while as many others as there may be were certain.")
    return notes
