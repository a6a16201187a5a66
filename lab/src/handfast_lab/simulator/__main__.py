"""``python -m handfast_lab.simulator 12345`` shows one seed; ``0..100000`` runs many."""

from __future__ import annotations

import argparse
import contextlib
import sys

from handfast_lab.simulator.faults import SETTINGS
from handfast_lab.simulator.hunt import hunt, replay


def main(argv: list[str] | None = None) -> int:
    """Run the command line. Return 1 if there are findings."""
    parser = argparse.ArgumentParser(prog="python -m handfast_lab.simulator", description=__doc__)
    parser.add_argument("seeds", nargs="?", help="a seed to show, or FIRST..LAST to run without LAST")
    parser.add_argument("-j", "--processes", type=int, default=1, help="how many processes share the seeds (1)")
    parser.add_argument("--every", type=int, default=8, help="one in so many histories is checked as a whole (8)")
    parser.add_argument("--setting", choices=SETTINGS, default="server", help="what there is of servers (server)")
    options = parser.parse_args(argv)
    if options.seeds is None:
        parser.error("which seed?")
    first, dots, last = options.seeds.partition("..")
    if not dots:
        with contextlib.suppress(BrokenPipeError):  # the reader of the output has seen enough
            return _show(int(first), options.setting)
        return 1
    tally = hunt(
        *(int(first), int(last)),
        processes=options.processes,
        every=options.every,
        setting=options.setting,
        found=_print_error,
    )
    print(*tally.lines(), sep="\n")
    return 1 if tally.findings else 0


def _show(seed: int, setting: str) -> int:
    findings = replay(seed, log=print, setting=setting)
    print(*(findings or ["no findings"]), sep="\n")
    return 1 if findings else 0


def _print_error(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
