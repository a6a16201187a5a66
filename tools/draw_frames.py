"""Draw the frames of ``handfast top`` in the documentation, of a real server on which something is wrong.

It takes 75 seconds, since what is wrong takes its time. The frames are put below the comments that name them:

    <!-- frame: names 80x16 -->
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from handfast import Handfast
from handfast._watch.live import Live
from handfast._watch.problems import find_problems
from handfast.cli.top.cells import drawn
from handfast.cli.top.frames import Screen
from handfast.testing import ServerController

PAGE = Path(__file__).parents[1] / "docs/how-to/operate.md"

FRAME = re.compile(r"(<!-- frame: (\w+) (\d+)x(\d+) -->\n\n```text\n)(?:(?!```).*\n)*(```\n)")

SCENE_S, WAITERS, DEAD_AFTER_S = 75.0, 12, 30.0

DEAD = """
import sys, threading
from handfast import Handfast
lock = Handfast(sys.argv[1], label="web-7:90").lock("catalog")
for _ in range(2):
    threading.Thread(target=lock.acquire).start()
"""
"""Two waiters in a process that is killed."""


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

    def client(label: str) -> Handfast:
        return Handfast(server.url, label=label)

    def waits_for_export(number: int) -> None:
        client(f"web-{number}:36").lock("nightly-export").acquire()

    watching = client("ops@bastion")
    live = Live(watching)
    batch = client("batch-2:311")
    held = [batch.lock("nightly-export").acquire(), client("index-1:7").lock("catalog").acquire()]
    gpu = [client(f"gpu-{number}:12").semaphore("gpu", 4).acquire() for number in range(4)]
    readers = [client(f"api-{number}:5").rwlock("config").read().acquire() for number in range(2)]
    for number in range(3):
        _start(partial(_work, client(f"web-{number}:36")))
    watching.hold("deploy", 2 * 3600, reason="DB migration")
    mail = client("mail-1:9").limiter("mail", "100/min")
    mail.acquire(cost=96)
    for _ in range(6):
        _start(mail.acquire)
    client("mail-1:9").limiter("vendor", "5/s").pause(600)
    dead = subprocess.Popen([sys.executable, "-c", DEAD, server.url])
    began = time.monotonic()
    for number in range(int(SCENE_S)):
        if number % 6 == 0 and number // 6 < WAITERS:
            _start(partial(waits_for_export, number // 6))
        if number % 20 == 3:
            _start(client("gpu-9:12").semaphore("gpu", 4).acquire)
        if number == DEAD_AFTER_S:
            dead.kill()
        if number == 40:
            _start(client("writer-1:4").rwlock("config").write().acquire)
        view = live.step([("lock", "catalog"), ("lock", "nightly-export")])
        time.sleep(max(0.0, began + number + 1 - time.monotonic()))
    del held, gpu, readers
    return Screen("hf on redis.internal:6379", view, find_problems(view))


def _work(client: Handfast) -> None:
    while True:
        with client.lock("order:42"):
            time.sleep(0.2)


def _start(work: Callable[[], object]) -> None:
    threading.Thread(target=work, daemon=True).start()


if __name__ == "__main__":
    sys.exit(main())
