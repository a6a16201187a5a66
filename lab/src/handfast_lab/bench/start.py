"""Measure how long programs take to start that import the product, and ``handfast run``. Run with ``-m``.

    python -m handfast_lab.bench.start
    python -m handfast_lab.bench.start --instructions

Every figure is of a whole process, from its start to its end. One process of each program runs in turn, and differences and
ratios are computed within a turn, so that other load on the machine affects both sides. The table has the quartiles of all turns.
With ``--instructions``, ``valgrind --tool=callgrind`` counts what each process executes instead, which no load changes. The
programs use a server of their own on a unix socket, and what Python has compiled is cached by a first turn that does not count.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import quantiles
from time import perf_counter

from handfast.embedded import PrivateServer

__all__ = ["PROGRAMS", "count_instructions", "take_turns"]

BASE = "import redis"
"""The program with which the others are compared."""

PYTHON = [sys.executable, "-c"]
RUN = [sys.executable, "-m", "handfast", "run", "x", "--", "true"]

PROGRAMS = {
    BASE: [*PYTHON, BASE],
    "import handfast": [*PYTHON, "import redis, handfast"],
    "from handfast import Handfast": [*PYTHON, "from handfast import Handfast"],
    "from handfast import AsyncHandfast": [*PYTHON, "from handfast import AsyncHandfast"],
    "handfast run x -- true": RUN,
}


def take_turns(turns: int, env: dict[str, str]) -> dict[str, list[float]]:
    """Return the seconds of each program in each turn."""
    seconds: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    for turn in range(turns + 1):
        for name, command in PROGRAMS.items():
            begun = perf_counter()
            subprocess.run(command, env=env, check=True)
            if turn:
                seconds[name].append(perf_counter() - begun)
    return seconds


def count_instructions(command: list[str], env: dict[str, str]) -> int:
    """Return the instructions of one process, without those of its child processes."""
    with tempfile.TemporaryDirectory(prefix="hf") as folder:
        tool = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={Path(folder, 'out')}"]
        done = subprocess.run([*tool, *command], env=env, check=True, stderr=subprocess.PIPE)
    found = re.search(rb"Collected : (\d+)", done.stderr)
    if found is None:
        raise RuntimeError(f"callgrind has counted nothing: {done.stderr.decode(errors='replace')}")
    return int(found[1])


def print_times(seconds: dict[str, list[float]]) -> None:
    """Print the medians, and the quartiles of differences and ratios to the base."""
    print(f"{'':<36}{'ms':>7}{'more than the base':>25}{'ratio':>21}")
    for name, times in seconds.items():
        low, middle, high = quantiles([(one - base) * 1e3 for one, base in zip(times, seconds[BASE], strict=True)], n=4)
        least, ratio, most = quantiles([one / base for one, base in zip(times, seconds[BASE], strict=True)], n=4)
        print(
            f"{name:<36}{quantiles(times, n=4)[1] * 1e3:>7.1f}{middle:>9.1f} ({low:.1f} to {high:.1f})"
            f"{ratio:>9.2f} ({least:.2f} to {most:.2f})"
        )


def main() -> int:
    """Measure all programs and print a table."""
    parser = argparse.ArgumentParser(description="Measure how long programs with the product take to start.")
    parser.add_argument("--turns", type=int, default=40, help="processes of each program, at least 2 (default: 40)")
    parser.add_argument("--instructions", action="store_true", help="count instructions, in millions")
    options = parser.parse_args()
    with PrivateServer() as server:
        env = os.environ | {"HANDFAST_URL": f"unix://{server.socket}"}
        if not options.instructions:
            print_times(take_turns(options.turns, env))
            return 0
        env |= {"PYTHONHASHSEED": "0"}
        take_turns(0, env)
        for name, command in PROGRAMS.items():
            print(f"{name:<36}{count_instructions(command, env) / 1e6:>8.1f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
