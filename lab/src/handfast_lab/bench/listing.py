"""What a list of very many held names costs the client: CPU time and memory. Linux only. Run with ``-m``.

    python -m handfast_lab.bench.listing
    python -m handfast_lab.bench.listing --names 10000 --repeat 5

A private server gets locks, each with a lease. Then `Handfast.names`, ``handfast ls`` and ``handfast top --once`` look at all of
them, each in a process of its own. Printed are the CPU time of the process from its start and its largest resident memory: the
smallest of several runs, since other programs on the machine only add to them.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from typing import NamedTuple

from handfast import Handfast
from handfast.embedded import PrivateServer

__all__ = ["COMMANDS", "Cost", "main", "measure"]

LEASE_S = 24 * 3600

NAMES = "from handfast import Handfast; found = [*Handfast(sys.argv[1]).names()]"
COMMAND = "sys.argv = ['handfast', *{}, '--url', sys.argv[1]]; from handfast.cli import main; main()"

COMMANDS = {
    "Handfast.names": NAMES,
    "handfast ls": COMMAND.format(["ls"]),
    "handfast top --once": COMMAND.format(["top", "--once", "--size", "120x40"]),
}
"""The programs that are measured."""

PROGRAM = """
import atexit, sys, time
from pathlib import Path

def tell():
    (peak,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:")]
    print(time.process_time(), peak.split()[1], file=sys.stderr)

atexit.register(tell)
"""
"""Prints at the end what the process took. `resource` would count the memory of the process that has started it, too."""


class Cost(NamedTuple):
    """What a process took."""

    cpu_s: float
    peak_mb: float


def measure(program: str, url: str) -> Cost:
    """Run a program in a process of its own."""
    command = [sys.executable, "-c", PROGRAM + program, url]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=True)
    cpu_s, peak_kb = done.stderr.split()[-2:]
    return Cost(float(cpu_s), int(peak_kb) / 1024)


def main(argv: list[str] | None = None, tell: Callable[[str], object] = print) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", type=int, default=100_000)
    parser.add_argument("--repeat", type=int, default=3, help="runs of each program")
    options = parser.parse_args(argv)
    with PrivateServer() as server, Handfast(server.url) as client:
        kept = [client.lock(f"order:{number}", ttl=LEASE_S, renew=False).acquire() for number in range(options.names)]
        for title, program in COMMANDS.items():
            costs = [measure(program, server.url) for _ in range(options.repeat)]
            cpu_s, peak_mb = (min(figures) for figures in zip(*costs, strict=True))
            tell(f"{title:<20} {cpu_s:6.2f} s of CPU  {peak_mb:6.0f} MB, for {len(kept):,} names")
    return 0


if __name__ == "__main__":
    sys.exit(main())
