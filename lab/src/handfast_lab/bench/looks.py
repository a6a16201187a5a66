"""What the looks of ``handfast exporter`` and ``top`` cost a server with many names among many more keys. Run with ``-m``.

    python -m handfast_lab.bench.looks
    python -m handfast_lab.bench.looks --names 10000 --keys 1000000 --looks 5 --output results/benchmarks/looks.json
    python -m handfast_lab.bench.looks --top 60

It fills a server of its own with names that are held and with keys of other programs, and looks at it in turns. For each look
it prints how long it took, the CPU time of the server meanwhile, and the share of the server's time that looks take with the
rests between them. With ``--top`` it does what `handfast top` does for so many seconds, and prints the same of its steps.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import redis

from handfast import Handfast
from handfast._watch.exposition import Exposition
from handfast._watch.live import Live
from handfast._watch.looker import EVERY_S as EVERY_STEP_S
from handfast._watch.looker import REST as STEP_REST
from handfast._watch.looker import Looker
from handfast._watch.problems import find_problems
from handfast._watch.survey import REST, Survey
from handfast.cli.top.frames import Screen
from handfast.embedded import PrivateServer
from handfast.metrics import Labels
from handfast_lab.bench.machine import describe

__all__ = ["main"]

EVERY_S = 5.0
"""As of the exporter."""


def cpu_of(conn: redis.Redis) -> float:
    """Return the seconds of CPU time that the server has taken."""
    found = conn.info("cpu")
    return float(found["used_cpu_user"]) + float(found["used_cpu_sys"])


def fill(url: str, names: int, keys: int) -> list[Any]:
    """Take leases of that many names, and set keys of other programs until there are so many. Return what keeps them."""
    client = Handfast(url)
    leases = [client.lock(f"order:{number}", ttl=3600, renew=False).acquire() for number in range(names)]
    with redis.Redis.from_url(url) as conn:
        left = keys - int(conn.dbsize())
        for start in range(0, left, 10_000):
            conn.mset({f"cache:{number}": "x" * 64 for number in range(start, min(left, start + 10_000))})
    return [client, leases]


def watch_live(url: str, conn: redis.Redis, seconds: int, tell: Callable[[str], object]) -> None:
    """Look as `handfast top` does, and print what it costs."""
    with Handfast(url, retry_for=0) as client:
        screen, live, took = Screen("a server"), Live(client), list[float]()
        before, mine, began = cpu_of(conn), os.times(), time.monotonic()
        while time.monotonic() < began + seconds:
            screen.view = live.step(screen.seen(24))
            screen.problems = find_problems(screen.view)
            screen.frame(80, 24, screen.view.at)
            took.append(screen.view.took)
            time.sleep(max(EVERY_STEP_S - took[-1], STEP_REST * took[-1]))
        passed, spent = time.monotonic() - began, os.times()
        mine_s = spent.user + spent.system - mine.user - mine.system
        tell(f"{len(screen.view.rows):,} names among {int(conn.dbsize()):,} keys; first step {took[0]:.2f} s")
        tell(
            f"of {len(took) - 1} later ones the median is {median(took[1:]) * 1000:.0f} ms, the longest {max(took[1:]) * 1000:.0f} ms"
        )
        tell(f"CPU: server {(cpu_of(conn) - before) / passed:.2%}, top {mine_s / passed:.2%} of {passed:.0f} s")


def main(argv: list[str] | None = None, tell: Callable[[str], object] = print) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", type=int, default=10_000)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--looks", type=int, default=5)
    parser.add_argument("--top", type=int, metavar="SECONDS", help="look as `handfast top` does, for so long")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the figures to a JSON file")
    options = parser.parse_args(argv)
    rows = []
    with PrivateServer() as server, redis.Redis.from_url(server.url) as conn:
        kept = fill(server.url, options.names, options.keys)
        exposition = Exposition(Labels())
        if options.top:
            watch_live(server.url, conn, options.top, tell)
            return 0
        with Handfast(server.url, retry_for=0) as client:
            survey = Survey(client)
            looker = Looker("bench", survey.step, exposition.take, every=lambda: EVERY_S, rests=REST)
            for _ in range(options.looks):
                before, mine = cpu_of(conn), os.times()
                look = survey.step()
                exposition.take(look)
                now, spent = cpu_of(conn), os.times()
                rest = max(EVERY_S - look.took, REST * look.took)
                row = {
                    "names": len(look.rows),
                    "keys": int(conn.dbsize()),
                    "look_s": round(look.took, 3),
                    "server_cpu_s": round(now - before, 3),
                    "exporter_cpu_s": round(spent.user + spent.system - mine.user - mine.system, 3),
                    "server_share": round((now - before) / (look.took + rest), 4),
                    "bytes": len(exposition.text(looker)),
                }
                rows.append(row)
                tell("  ".join(f"{key} {value:,}" for key, value in row.items()))
        found = {"machine": describe(server.url), "rows": rows}
        del kept
    share = median(row["server_share"] for row in rows)
    tell(f"median: {median(row['look_s'] for row in rows):.2f} s a look, {share:.2%} of the server's time")
    if options.output:
        options.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
