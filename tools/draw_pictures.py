"""Draw the pictures of the README and the docs, each for a light and a dark page; ``--check`` fails if one is out of date.

- ``queue``: six processes that queue for one lock, from ``results/pictures/queue.json``. ``--record`` makes that file anew: it
  starts an embedded server and six real processes, which takes a few seconds.
- ``contended``: one lock and many asyncio tasks, from ``results/benchmarks/async.json``.
- ``acquire-free``, ``acquire-taken``, ``lease``: how one acquire works, from the text below.
- ``objects/…``: a pictogram of each object, in colors that suit both.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from handfast import Handfast
from handfast.embedded import PrivateServer
from handfast_lab.bench.machine import describe

ROOT = Path(__file__).parent.parent
ASSETS = ROOT / "docs/assets"
RECORD = ROOT / "results/pictures/queue.json"
BENCHMARK = ROOT / "results/benchmarks/async.json"

THEMES = {
    "light": {
        "back": "#ffffff",
        "text": "#3d444d",
        "faint": "#d1d9e0",
        "wait": "#9aa4ae",
        "ours": "#1f5fd6",
        "others": ("#b35900", "#2f7d32", "#8250df", "#b3261e", "#6e7781"),
    },
    "dark": {
        "back": "#0d1117",
        "text": "#c9d1d9",
        "faint": "#3d444d",
        "wait": "#768390",
        "ours": "#6aa6ff",
        "others": ("#f0a35e", "#7ec699", "#c8a6ff", "#ff9b8f", "#9da7b3"),
    },
}

PROCESSES = "ABCDEF"
TURN, STEP = 0.4, 0.12
"""Seconds for which each process holds the lock, and seconds between two arrivals."""

SERIES = {
    "handfast": "Handfast",
    "floor": "bare socket",
    "redis-py": "redis-py",
    "coredis": "coredis",
    "redis-fifo-lock": "redis-fifo-lock",
    "py-redis-semaphore": "py-redis-semaphore",
}
"""The lines of the plot: contenders of the benchmark and their labels."""

Step = tuple[str, str, str]
"""A message (from, to, text), or a note beside one line (whose, "", text)."""

FREE: tuple[Step, ...] = (
    ("client", "server", "permit_acquire: token, ttl 30 s"),
    ("server", "", "no holder, queue empty:"),
    ("server", "", "grant, fence = max(last + 1, clock)"),
    ("server", "client", "granted, fence, 30 s"),
    ("client", "", "deadline = moment of sending + 30 s"),
)

TAKEN: tuple[Step, ...] = (
    ("B", "server", "permit_acquire"),
    ("server", "", "taken: B enters the queue"),
    ("server", "B", "queued"),
    ("B", "", "waits on its own channel"),
    ("A", "server", "permit_release"),
    ("server", "", "remove A, grant B"),
    ("server", "B", "message: granted, fence"),
    ("server", "A", "released"),
)


HELD, QUEUED, DONE, LINE = "#5b83e6", "#cb860f", "#2f9560", "#8b929c"
"""Colors of pictograms: at least 3:1 on white and on the dark page."""


def squares(*places: float, size: float = 8, y: float = 12, color: str = HELD) -> str:
    """Draw holders, with their left edges at these places."""
    return "".join(f'<rect x="{x}" y="{y}" width="{size}" height="{size}" rx="1.5" fill="{color}"/>' for x in places)


def outlines(*places: float, size: float = 8, y: float = 12) -> str:
    """Draw readers, candidates and parts that are to come."""
    frame = f'width="{size - 1.5}" height="{size - 1.5}" rx="1.5" fill="none" stroke="{HELD}" stroke-width="1.5"'
    return "".join(f'<rect x="{x + 0.75}" y="{y + 0.75}" {frame}/>' for x in places)


def waiting(first: float, count: int) -> str:
    """Draw a gate and a queue: the higher a bar, the longer it waits."""
    heights = [16 - 2.5 * number for number in range(count)]
    gate = f'<path d="M{first - 6} 6v20" stroke="{LINE}"/>'
    bars = [(first + 7 * number, 26 - height, height) for number, height in enumerate(heights)]
    return gate + "".join(f'<rect x="{x}" y="{y}" width="4" height="{h}" rx="1" fill="{QUEUED}"/>' for x, y, h in bars)


def used(share: float, y: float = 13, height: float = 6) -> str:
    """Draw a limit, and how much of it is used."""
    bar = f'x="2" y="{y}" height="{height}" rx="{height / 2}"'
    return f'<rect {bar} width="60" fill="{LINE}" opacity=".5"/><rect {bar} width="{60 * share:.0f}" fill="{HELD}"/>'


def circles(*places: float, color: str = DONE) -> str:
    """Draw members."""
    return "".join(f'<circle cx="{x}" cy="16" r="4.5" fill="{color}"/>' for x in places)


def path(way: str, dashed: str = "") -> str:
    """Draw a line or an arrow."""
    return f'<path d="{way}" fill="none" stroke="{LINE}" stroke-width="1.5"{dashed}/>'


def text(x: float, word: str, color: str = HELD) -> str:
    """Draw a letter or a digit."""
    return f'<text x="{x}" y="21" font-family="system-ui,sans-serif" font-size="13" font-weight="600" fill="{color}">{word}</text>'


OBJECTS = {
    "lock": squares(4) + waiting(24, 5),
    "semaphore": squares(2, 12, 22) + waiting(42, 3),
    "rwlock": outlines(2, 12, 22) + waiting(42, 1),
    "lock_all": squares(4, size=10, y=3) + squares(4, size=10, y=19) + path("M16 8h8v16h-8") + waiting(36, 3),
    "limiter": used(0.77),
    "budget": used(0.83, 5, 5) + used(0.33, 14, 5) + used(0.57, 23, 5),
    "together": used(0.83, 8) + used(0.33, 19),
    "debounce": "".join(squares(x, size=3, y=16, color=QUEUED) for x in (4, 9, 14, 19, 24, 29))
    + path("M36 19h13", ' stroke-dasharray="2 2"')
    + squares(52, size=10, y=13),
    "once": squares(2, size=10, y=11)
    + path("M14 16h10M24 16l10-9M24 16h10M24 16l10 9")
    + "".join(f'<circle cx="39" cy="{y}" r="3.5" fill="{DONE}"/>' for y in (7, 16, 25)),
    "latch": squares(2, 13, 24, color=DONE) + outlines(35) + path("M50 16h9m-3.5-3.5L59 16l-3.5 3.5"),
    "election": squares(6, size=11, y=6) + outlines(28, 40, 52, y=11),
    "group": circles(10, 23, 36) + circles(49, color=LINE),
    "partition": "".join(
        f'<rect x="{x}" y="4" width="12" height="24" rx="2" fill="none" stroke="{LINE}"/>'
        + "".join(squares(x + 3.5, size=5, y=y) for y in rows)
        for x, rows in ((4, (7, 14, 21)), (19, (7, 14, 21)), (34, (7, 14)), (49, (7, 14)))
    ),
    "slot": text(6, "0") + text(21, "1") + text(36, "2", LINE) + text(51, "3"),
    "run": text(2, "$") + path("M16 16h12m-3.5-3.5L28 16l-3.5 3.5") + squares(34) + waiting(52, 2),
    "fence": text(2, "7")
    + path("M14 16h14m-3.5-3.5L28 16l-3.5 3.5")
    + squares(34, size=11, y=10, color=DONE)
    + path("M52 8v16"),
}
"""By object, the shapes of a pictogram of 64 by 32."""


def pictogram(shapes: str) -> Iterator[str]:
    """Yield a pictogram."""
    yield f'<svg xmlns="http://www.w3.org/2000/svg" width="64" height="32" viewBox="0 0 64 32">{shapes}</svg>'


def main() -> int:
    """Draw everything, or with ``--check`` name the pictures that are out of date."""
    if "--process" in sys.argv:
        one_process(*sys.argv[2:])
        return 0
    if "--record" in sys.argv:
        RECORD.parent.mkdir(exist_ok=True)
        RECORD.write_text(json.dumps(record(), indent=1) + "\n", encoding="utf-8")
    stale = []
    for name, lines in pictures():
        path = ASSETS / f"{name}.svg"
        path.parent.mkdir(exist_ok=True)
        text = "\n".join(lines) + "\n"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(path.name)
            if "--check" not in sys.argv:
                path.write_text(text, encoding="utf-8")
    for name in stale:
        print(f"{name} {'is out of date: run python tools/draw_pictures.py' if '--check' in sys.argv else 'drawn'}")
    return int(bool(stale) and "--check" in sys.argv)


def pictures() -> Iterator[tuple[str, Iterator[str]]]:
    """Each picture with its lines."""
    lanes, rows = json.loads(RECORD.read_text())["waiters"], json.loads(BENCHMARK.read_text())["rows"]
    for theme, colors in THEMES.items():
        yield f"queue-{theme}", queue(lanes, colors)
        yield f"contended-{theme}", contended(rows, colors)
        yield f"acquire-free-{theme}", sequence({"client": 40, "server": 400}, FREE, colors)
        yield f"acquire-taken-{theme}", sequence({"A": 40, "B": 190, "server": 400}, TAKEN, colors)
        yield f"lease-{theme}", lease(colors)
    for name, shapes in OBJECTS.items():
        yield f"objects/{name}", pictogram(shapes)


def record() -> dict[str, Any]:
    """Let six processes queue for one lock; when each of them queued, got in and left, in seconds."""
    with PrivateServer() as server:
        machine = describe(server.url)
        command = [sys.executable, __file__, "--process", server.url]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        processes = {name: subprocess.Popen([*command, name], **pipes) for name in PROCESSES}  # type: ignore[call-overload]
        for process in processes.values():
            process.stdout.readline()  # it is ready
        for process in processes.values():
            process.stdin.write("go\n")
            process.stdin.flush()
            time.sleep(STEP)
        lanes = [
            {"name": name, **json.loads(process.communicate(timeout=30)[0])} for name, process in processes.items()
        ]
    start = min(lane["queued"] for lane in lanes)
    waiters = [
        {key: value if key == "name" else round(value - start, 4) for key, value in lane.items()} for lane in lanes
    ]
    return {"machine": machine, "waiters": waiters}


def one_process(url: str, label: str) -> None:
    """One of the six, in a process of its own: hold the lock for a moment, when told to."""
    with Handfast(url, label=label) as hf:
        lock = hf.lock("door")
        lock.status()  # connect
        print("ready", flush=True)
        sys.stdin.readline()
        queued = time.time()
        with lock:
            entered = time.time()
            time.sleep(TURN)
            left = time.time()
        print(json.dumps({"queued": queued, "in": entered, "out": left}))


def queue(lanes: Sequence[Mapping[str, Any]], colors: Mapping[str, Any]) -> Iterator[str]:
    """One lane for each process: a thin line while it waits, a bar while it holds the lock, an arrow at each handoff."""
    left, width, row, top = 86, 640, 30, 14
    scale = (width - left - 20) / max(lane["out"] for lane in lanes)
    height = top + row * len(lanes) + 44
    yield from _open(width, height, colors)
    for number, lane in enumerate(lanes):
        y = top + row * number + row / 2
        begin, enter, leave = (left + scale * lane[key] for key in ("queued", "in", "out"))
        yield f'<text x="{left - 12}" y="{y + 4:.1f}" text-anchor="end">process {lane["name"]}</text>'
        yield f'<path d="M{begin:.1f} {y:.1f}H{enter:.1f}" stroke="{colors["wait"]}" stroke-width="2" stroke-dasharray="2 4"/>'
        yield f'<circle cx="{begin:.1f}" cy="{y:.1f}" r="3.5" fill="{colors["wait"]}"/>'
        bar = f'x="{enter:.1f}" y="{y - 8:.1f}" width="{leave - enter:.1f}" height="16"'
        yield f'<rect {bar} rx="3" fill="{colors["ours"]}"/>'
        if number + 1 < len(lanes):
            then = left + scale * lanes[number + 1]["in"]
            yield f'<path d="M{leave:.1f} {y:.1f}h3V{y + row - 11:.1f}" stroke="{colors["text"]}" fill="none"/>'
            yield f'<path d="M{leave:.1f} {y + row - 14:.1f}h6l-3 5z" fill="{colors["text"]}"/>'
            yield f"<!-- handed over after {(then - leave) / scale * 1000:.0f} ms -->"
    y = height - 14
    for x, text in (
        (left, "queues"),
        (left + 84, "waits"),
        (left + 184, "holds the lock"),
        (left + 330, "release hands it over"),
    ):
        yield f'<text x="{x + (12 if text == "queues" else 34)}" y="{y}">{text}</text>'
    yield f'<circle cx="{left}" cy="{y - 4}" r="3.5" fill="{colors["wait"]}"/>'
    yield f'<path d="M{left + 86} {y - 4}h26" stroke="{colors["wait"]}" stroke-width="2" stroke-dasharray="2 4"/>'
    yield f'<rect x="{left + 186}" y="{y - 11}" width="26" height="14" rx="3" fill="{colors["ours"]}"/>'
    yield f'<path d="M{left + 344} {y - 12}v8" stroke="{colors["text"]}"/><path d="M{left + 341} {y - 6}h6l-3 6z" fill="{colors["text"]}"/>'
    yield "</svg>"


def contended(rows: Sequence[Mapping[str, Any]], colors: Mapping[str, Any]) -> Iterator[str]:
    """Acquires per second by number of tasks, both on logarithmic axes, with the names at the ends of the lines."""
    left, right, top, bottom, width, height = 76, 150, 16, 46, 640, 320
    lines = {
        contender: sorted(
            (row["clients"], row["rate"]) for row in rows if row["setting"] == "one" and row["contender"] == contender
        )
        for contender in SERIES
    }

    def x(tasks: float) -> float:
        return left + (width - left - right) * math.log10(tasks) / 3

    def y(rate: float) -> float:
        return height - bottom - (height - top - bottom) * (math.log10(rate) - 2) / 2

    yield from _open(width, height, colors)
    for rate in (100, 1000, 10000):
        yield f'<path d="M{left} {y(rate):.1f}H{width - right}" stroke="{colors["faint"]}"/>'
        yield f'<text x="{left - 8}" y="{y(rate) + 4:.1f}" text-anchor="end">{rate:,}</text>'
    for tasks in (1, 10, 100, 1000):
        yield f'<text x="{x(tasks):.1f}" y="{height - bottom + 18}" text-anchor="middle">{tasks:,}</text>'
    middle = (left + width - right) / 2
    yield f'<text x="{middle:.0f}" y="{height - 8}" text-anchor="middle">asyncio tasks that want the same lock</text>'
    turn = f'transform="rotate(-90 14 {(top + height - bottom) / 2:.0f})"'
    yield f'<text x="14" y="{(top + height - bottom) / 2:.0f}" text-anchor="middle" {turn}>acquires per second</text>'
    ends = {contender: y(points[-1][1]) for contender, points in lines.items()}
    labels = dict(zip(sorted(ends, key=ends.__getitem__), _apart(sorted(ends.values()), 15), strict=True))
    others = iter(colors["others"])
    for contender, points in reversed(lines.items()):
        ours = contender == "handfast"
        color = colors["ours"] if ours else next(others)
        style = f'stroke="{color}" stroke-width="{3.5 if ours else 1.8}" fill="none"' + ' stroke-dasharray="4 3"' * (
            contender == "floor"
        )
        path = "L".join(f"{x(tasks):.1f} {y(rate):.1f}" for tasks, rate in points)
        yield f'<path d="M{path}" {style}/>'
        for tasks, rate in points:
            yield f'<circle cx="{x(tasks):.1f}" cy="{y(rate):.1f}" r="{4 if ours else 2.6}" fill="{color}"/>'
        weight = ' font-weight="700"' * ours
        at = f'x="{width - right + 12}" y="{labels[contender] + 4:.1f}"'
        yield f'<text {at} style="fill:{color}"{weight}>{escape(SERIES[contender])}</text>'
    yield "</svg>"


def sequence(actors: Mapping[str, float], steps: Sequence[Step], colors: Mapping[str, Any]) -> Iterator[str]:
    """A diagram of messages: a line for each actor, time runs down."""
    top, row, width = 46, 34, 480
    height = top + row * len(steps) + 10
    yield from _open(width, height, colors)
    for actor, x in actors.items():
        yield f'<text x="{x}" y="20" text-anchor="middle" font-weight="700">{actor}</text>'
        yield f'<path d="M{x} 30V{height}" stroke="{colors["wait"]}" stroke-width="1.5"/>'
    for number, (source, target, text) in enumerate(steps):
        y, begin = top + row * number + 14, actors[source]
        if not target:  # a note, on the side where there is room
            y -= 4
            left = begin > width / 2
            yield f'<circle cx="{begin}" cy="{y}" r="4" fill="{colors["text"]}"/>'
            anchor = "end" if left else "start"
            yield f'<text x="{begin + (-10 if left else 10)}" y="{y + 4}" text-anchor="{anchor}">{escape(text)}</text>'
            continue
        end = actors[target]
        way = 1 if end > begin else -1
        yield f'<path d="M{begin} {y}H{end - 7 * way}" stroke="{colors["ours"]}" stroke-width="2"/>'
        yield f'<path d="M{end} {y}l{-9 * way} -5v10z" fill="{colors["ours"]}"/>'
        near = max(x for x in actors.values() if x < max(begin, end))  # between the last two lines that it crosses
        middle = (near + max(begin, end)) / 2
        yield f'<text x="{middle:.0f}" y="{y - 7}" text-anchor="middle" style="fill:{colors["ours"]}">{escape(text)}</text>'
    yield "</svg>"


def lease(colors: Mapping[str, Any]) -> Iterator[str]:
    """A lease of 30 s whose renewals fail after the second one."""
    left, right, width, height, y = 30, 20, 480, 132, 62
    lost = colors["others"][3]

    def x(seconds: float) -> float:
        return left + (width - left - right) * seconds / 60

    yield from _open(width, height, colors)
    yield f'<rect x="{x(0):.0f}" y="{y - 9}" width="{x(50) - x(0):.0f}" height="18" rx="3" fill="{colors["ours"]}"/>'
    yield f'<path d="M{x(50):.0f} {y}H{x(60):.0f}" stroke="{colors["wait"]}"/>'
    for seconds, text in ((0, "granted"), (10, "renewed"), (20, "renewed"), (50, "lost")):
        color = lost if text == "lost" else colors["text"]
        yield f'<path d="M{x(seconds):.0f} {y - 16}v32" stroke="{color}" stroke-width="2"/>'
        yield f'<text x="{x(seconds):.0f}" y="{y - 24}" text-anchor="middle" style="fill:{color}">{text}</text>'
        yield f'<text x="{x(seconds):.0f}" y="{y + 34}" text-anchor="middle">{seconds} s</text>'
    for seconds in range(30, 50, 2):
        yield f'<path d="M{x(seconds) - 4:.1f} {y - 4}l8 8m0 -8l-8 8" stroke="{colors["back"]}" stroke-width="2"/>'
    yield f'<text x="{x(40):.0f}" y="{y - 24}" text-anchor="middle">renewals fail</text>'
    yield f'<text x="{x(29):.0f}" y="{y + 58}" text-anchor="middle">each renewal moves the deadline to 30 s after it was sent</text>'
    yield "</svg>"


def _apart(places: Sequence[float], least: float) -> list[float]:
    """The same places, moved down where two would touch."""
    moved: list[float] = []
    for place in places:
        moved.append(max(place, moved[-1] + least) if moved else place)
    return moved


def _open(width: float, height: float, colors: Mapping[str, Any]) -> Iterator[str]:
    yield f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">'
    yield f'<style>text{{font:13px system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif;fill:{colors["text"]}}}</style>'


if __name__ == "__main__":
    sys.exit(main())
