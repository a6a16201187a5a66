"""Draw the frames of ``handfast top`` in the documentation, of a real server on which something is wrong.

It takes 75 seconds, since what is wrong takes its time. The frames are put below the comments that name them:

    <!-- frame: names 80x16 -->
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from handfast._watch.live import Live
from handfast._watch.problems import find_problems
from handfast.cli.top.cells import drawn
from handfast.cli.top.frames import Screen
from handfast.testing import ServerController
from scene import Scene

PAGE = Path(__file__).parents[1] / "docs/how-to/operate.md"

FRAME = re.compile(r"(<!-- frame: (\w+) (\d+)x(\d+) -->\n\n```text\n)(?:(?!```).*\n)*(```\n)")

SCENE_S = 75.0


def main() -> int:
    """Play the scene, and write the frames into the page."""
    with ServerController() as server:
        screen = _played(server)
        text = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(FRAME.sub(lambda found: found[1] + _frame(screen, found) + found[5], text), encoding="utf-8")
        sys.stdout.flush()
        os._exit(0)  # with all the threads that wait


def _frame(screen: Screen, found: re.Match[str]) -> str:
    columns, lines = int(found[3]), int(found[4])
    screen.shows = found[2]  # type: ignore[assignment]
    screen.marked = ("lock", "catalog") if screen.shows == "show" else None
    frame = screen.frame(columns, lines, screen.view.at)
    return "".join(drawn(line, columns, color=False, plain=True).rstrip() + "\n" for line in frame)


def _played(server: ServerController) -> Screen:
    """Play the scene. Return the screen after it."""
    scene = Scene(server.url)
    scene.begin()
    live = Live(scene.client("ops@bastion"))
    screen = Screen("hf on redis.internal:6379")

    def look() -> None:
        screen.view = live.step([("lock", "catalog"), ("lock", "nightly-export")])

    scene.play(SCENE_S, look)
    screen.problems = find_problems(screen.view)
    return screen


if __name__ == "__main__":
    sys.exit(main())
