"""Draw the rows as plots: inline SVG whose text remains text.

The palette of Okabe and Ito suits readers who distinguish few hues, and each contender also has its own marker. Client
counts are equally spaced. The ids of each plot get a prefix, because several plots share a page.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from handfast_lab.bench.classic.published import PUBLISHED
from handfast_lab.bench.classic.tables import Table
from handfast_lab.bench.classic.text import in_order
from handfast_lab.bench.contenders import FAIR, HANDFAST
from handfast_lab.bench.figures import FIRST, LUA, Row

__all__ = ["LABELS", "figure", "svg"]

LABELS: Mapping[str, str] = {FIRST: "first form", FAIR: "first form, fair", LUA: "Lua form", HANDFAST: "Handfast"}


class Look(NamedTuple):
    """How the curve of a contender is drawn."""

    color: str
    marker: str


LOOKS: Mapping[str, Look] = {
    FIRST: Look("#D55E00", "o"),
    FAIR: Look("#CC79A7", "v"),
    LUA: Look("#0072B2", "s"),
    HANDFAST: Look("#009E73", "D"),
}

STYLE: Any = {  # matplotlib types its settings as literals, which differ between versions
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Helvetica", "Arial"],
    "font.size": 10,
    "svg.fonttype": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#999",
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 10,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#e5e5e5",
    "axes.axisbelow": True,
    "xtick.color": "#444",
    "ytick.color": "#444",
    "xtick.major.size": 0,
    "xtick.major.pad": 8,
    "ytick.major.pad": 6,
    "ytick.major.size": 0,
    "lines.linewidth": 2,
    "lines.markersize": 6,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
}

PANEL_WIDTH, HEIGHT = 4.0, 3.5
"""Inches."""

WIDTH = 23
"""Width of a panel in the page, in rem."""

Value = Callable[[Row], float | None]


def svg(table: Table, rows: Sequence[Row]) -> str:
    """Return the plots of one table, side by side, for inclusion in a page."""
    with mpl.rc_context(STYLE):
        buffer = io.StringIO()
        figure(table, rows).savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    drawing = buffer.getvalue()
    drawing = drawing[drawing.index("<svg") :]
    for reference in ('id="', 'href="#', "url(#"):
        drawing = drawing.replace(reference, f"{reference}{table.name}-")
    # Width proportional to the number of panels, so that text has the same size in all plots.
    width = f"max-width: {WIDTH * len(_panels(table, rows))}rem"
    head = f'<svg role="img" aria-label="{table.title}: plots of the table below" style="{width}"'
    return re.sub(r"<svg [^>]*?( viewBox=\"[^\"]*\")[^>]*>", rf"{head}\1>", drawing, count=1)


def figure(table: Table, rows: Sequence[Row]) -> Figure:
    """Draw the throughput and effort of one table and, if figures were published, the shape of both."""
    mine = in_order(table, rows)
    panels = _panels(table, mine)
    with mpl.rc_context(STYLE):
        drawing = Figure(figsize=(PANEL_WIDTH * len(panels), HEIGHT))
        axes = drawing.subplots(1, len(panels), squeeze=False)[0]
        for panel, ax in zip(panels, axes, strict=True):
            panel(table, mine, ax)
            _name_clients(ax, mine)
        handles, labels = axes[0].get_legend_handles_labels()
        drawing.legend(handles, labels, loc="upper left", ncols=len(labels), frameon=False, bbox_to_anchor=(0.005, 1.0))
        drawing.tight_layout(rect=(0, 0, 1, 0.92), w_pad=3)
    return drawing


def _panels(table: Table, rows: Sequence[Row]) -> list[Callable[[Table, Sequence[Row], Axes], None]]:
    comparable = table.name in PUBLISHED and _base(table, rows)
    return [_throughput, _effort, *([_shape] if comparable else [])]


def _base(table: Table, rows: Sequence[Row]) -> float | None:
    """Return the rate of the first form with one client."""
    return next((row.rate for row in rows if (row.setting, row.clients, row.contender) == (table.name, 1, FIRST)), None)


def _throughput(table: Table, rows: Sequence[Row], ax: Axes) -> None:
    ax.set_title(f"{table.success} a second")
    for contender, line in _lines(rows).items():
        low = [row.rate - row.slowest for row in line]
        high = [row.fastest - row.rate for row in line]
        places, rates = _places(rows, line), [row.rate for row in line]
        ax.errorbar(places, rates, yerr=[low, high], fmt="none", color=LOOKS[contender].color, elinewidth=1, capsize=4)
    _plot(rows, ax, lambda row: row.rate, named=True)
    _from_zero(ax)


def _effort(table: Table, rows: Sequence[Row], ax: Axes) -> None:
    """Plot the wasted work: WatchErrors for tables that count retries, tries for the others."""
    one = table.success.removesuffix("s")  # one of them
    if table.effort == "retries":
        ax.set_title(f"WatchErrors for each {one}")
        _plot(rows, ax, lambda row: row.retries_each)
    else:
        ax.set_title(f"tries for each {one}")
        _plot(rows, ax, lambda row: row.tries / row.rate if row.rate else None)
    _from_zero(ax)


def _shape(table: Table, rows: Sequence[Row], ax: Axes) -> None:
    """Plot all rates relative to the first form with one client, so that published figures are comparable."""
    published = PUBLISHED[table.name].figures
    base = _base(table, rows) or math.nan
    ax.set_title("as multiples of the first form, 1 client\n(solid: here, dashed: published)")
    ax.set_yscale("log")
    _plot(rows, ax, lambda row: row.rate / base)
    theirs = published[FIRST, 1].successes
    _plot(
        [row for row in rows if (row.contender, row.clients) in published],
        ax,
        lambda row: published[row.contender, row.clients].successes / theirs,
        dashed=True,
        among=rows,
    )
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))  # noqa: RUF001 -- a multiple
    ax.yaxis.set_minor_locator(NullLocator())


def _plot(
    rows: Sequence[Row],
    ax: Axes,
    value: Value,
    *,
    named: bool = False,
    dashed: bool = False,
    among: Sequence[Row] = (),
) -> None:
    """Draw one curve for each contender; ``among`` gives the rows that determine the positions of client counts."""
    for contender, line in _lines(rows).items():
        values = [value(row) for row in line]
        ax.plot(
            _places(among or rows, line),
            [math.nan if one is None else one for one in values],
            label=LABELS[contender] if named else None,
            color=LOOKS[contender].color,
            marker=LOOKS[contender].marker,
            linestyle="--" if dashed else "-",
            alpha=0.6 if dashed else 1.0,
            markerfacecolor="white" if dashed else None,
            clip_on=False,
        )


def _lines(rows: Sequence[Row]) -> dict[str, list[Row]]:
    lines: dict[str, list[Row]] = {}
    for row in rows:
        lines.setdefault(row.contender, []).append(row)
    return lines


def _counts(rows: Sequence[Row]) -> list[int]:
    return sorted({row.clients for row in rows})


def _places(rows: Sequence[Row], line: Sequence[Row]) -> list[int]:
    counts = _counts(rows)
    return [counts.index(row.clients) for row in line]


def _name_clients(ax: Axes, rows: Sequence[Row]) -> None:
    counts = _counts(rows)
    ax.set_xticks(range(len(counts)), list(map(str, counts)))
    ax.set_xlim(-0.25, max(len(counts) - 0.75, 0.25))
    ax.set_xlabel("clients")


def _from_zero(ax: Axes) -> None:
    ax.set_ylim(bottom=0)
    ax.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
