"""What ``handfast page`` costs, beside many names among many more keys, with several viewers. Run with ``-m``.

    python -m handfast_lab.bench.page
    python -m handfast_lab.bench.page --names 10000 --keys 1000000 --viewers 1 10 --seconds 60 --browser

It fills a server of its own with names that are held, with queues, and with keys of other programs, and serves the page in a
process of its own. For each number of viewers, who ask as the page does, it prints the CPU time of the server and of that
process, and the bytes that a viewer gets: with the first answer, and a second afterwards. With ``--browser`` it also prints what
a tab with the table costs in Chromium, which needs Playwright.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from http.client import HTTPConnection
from typing import Any

import redis

from handfast import Handfast
from handfast.embedded import PrivateServer
from handfast_lab.bench.looks import cpu_of, fill

__all__ = ["main"]

QUEUES, WAITERS = 20, 5
"""Names that are waited for, and by how many."""

WARM_S, IDLE_S = 10.0, 20.0
"""How long looks go on before anything is measured, since the first one reads everything; and how long the server is measured
without them."""

TICK_HZ = os.sysconf("SC_CLK_TCK")


class Viewer:
    """Asks as the page does: once a second for what has changed."""

    def __init__(self, port: int) -> None:
        self._connection = HTTPConnection("127.0.0.1", port, timeout=30)
        self._run, self._number = "", 0
        self.first, self.later = 0, 0
        """Bytes of the first answer with all names, and of all later ones."""

    def look(self, seconds: float) -> None:
        """Ask for so long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            began = time.monotonic()
            self._ask()
            time.sleep(max(0.0, began + 1 - time.monotonic()))

    def _ask(self) -> None:
        self._connection.request(
            "GET", f"/api/looks?run={self._run}&after={self._number}", headers={"Accept-Encoding": "gzip"}
        )
        answer = self._connection.getresponse()
        body = answer.read()
        found = json.loads(gzip.decompress(body) if answer.headers["Content-Encoding"] == "gzip" else body)
        if found["number"] and not self.first:
            self.first = len(body)
        elif self.first:
            self.later += len(body)
        self._run, self._number = found["run"], found["number"]


def cpu_of_process(pid: int) -> float:
    """Return the seconds of CPU time that a process has taken."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK_HZ


def queue_up(url: str) -> list[Any]:
    """Let names be waited for. Return what keeps them."""
    holder = Handfast(url, label="holder")
    leases = [holder.lock(f"busy:{number}").acquire() for number in range(QUEUES)]
    for number in range(QUEUES * WAITERS):
        lock = Handfast(url, label=f"web-{number}").lock(f"busy:{number % QUEUES}")
        threading.Thread(target=lock.acquire, daemon=True).start()
    return [holder, leases]


def measure(conn: redis.Redis, page: subprocess.Popen[str], port: int, viewers: int, seconds: float) -> str:
    """Return what so many viewers cost, in a line."""
    found = [Viewer(port) for _ in range(viewers)]
    before, mine, began = cpu_of(conn), cpu_of_process(page.pid), time.monotonic()
    threads = [threading.Thread(target=one.look, args=(seconds,)) for one in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    passed = time.monotonic() - began
    server, its = (cpu_of(conn) - before) / passed, (cpu_of_process(page.pid) - mine) / passed
    each = sum(one.later for one in found) / viewers / passed
    return (
        f"{viewers:2} viewers: CPU of the server {server:.2%}, of the page {its:.1%} of a core; "
        f"{found[0].first / 1000:.0f} kB with the first answer, then {each / 1000:.1f} kB/s each"
    )


def measure_browser(url: str, seconds: float) -> str:
    """Return what a tab with the table costs, in a line."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        tab = browser.new_page(viewport={"width": 1440, "height": 900})
        tab.goto(f"{url}#/held")
        tab.locator("#live", has_text="Live").wait_for()
        tab.wait_for_timeout(3000)
        session = tab.context.new_cdp_session(tab)
        session.send("Performance.enable")

        def read() -> dict[str, float]:
            return {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}

        before = read()
        tab.wait_for_timeout(seconds * 1000)
        after = read()
        rows = tab.locator(".grid-row").count()
        browser.close()
    used = {name: (after[name] - before[name]) / seconds * 1000 for name in ("TaskDuration", "ScriptDuration")}
    return (
        f"a tab with the table: {used['TaskDuration']:.0f} ms/s, of which {used['ScriptDuration']:.0f} script; {rows} rows, "
        f"{after['JSHeapUsedSize'] / 1e6:.0f} MB"
    )


def main(argv: Sequence[str] | None = None, tell: Callable[[str], object] = print) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", type=int, default=10_000)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--viewers", type=int, nargs="+", default=[1, 10])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--browser", action="store_true", help="also measure a tab of Chromium")
    options = parser.parse_args(argv)
    with PrivateServer() as server, redis.Redis.from_url(server.url) as conn:
        kept = [fill(server.url, options.names, options.keys), queue_up(server.url)]
        words = [sys.executable, "-m", "handfast", "page", "--port", "0", "--url", server.url]
        page = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        try:
            url = (page.stderr.readline() if page.stderr else "").split()[-1]
            port = int(url.rpartition(":")[2].strip("/"))
            time.sleep(WARM_S)
            idle = cpu_of(conn)
            time.sleep(IDLE_S)
            tell(
                f"{int(conn.dbsize()):,} keys; without a viewer the server takes {(cpu_of(conn) - idle) / IDLE_S:.2%} of a core"
            )
            Viewer(port).look(WARM_S)
            for viewers in options.viewers:
                tell(measure(conn, page, port, viewers, options.seconds))
            if options.browser:
                tell(measure_browser(url, min(20.0, options.seconds)))
        finally:
            page.terminate()
            page.wait()
        sys.stdout.flush()
        del kept
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # with all the threads that wait
