"""Measure the fast path of the product's RESP reader, `Reader._read_flat`, for typical frames.

    python -m handfast_lab.bench.reader

The second reader has no fast path: its general parser decodes every frame. The two decode the same bytes in short,
interleaved slices, and each ratio is computed within a pair of slices, so that other load on the machine affects both.
The table has medians, and the quartiles of the ratio.
"""

from __future__ import annotations

import argparse
import sys
from statistics import median, quantiles
from time import perf_counter_ns
from typing import NamedTuple

from handfast._engine.resp import Reader, bulk

__all__ = ["CASES", "GeneralReader", "Result", "measure"]

GRANTED = b"*3\r\n$7\r\ngranted\r\n:1234567\r\n:30000000\r\n"
"""The reply to an acquire: tag, fence and lease in µs."""

RELEASED = b"*2\r\n$8\r\nreleased\r\n:1\r\n"

MESSAGE = b">3\r\n" + b"".join(
    map(
        bulk,
        (
            "message",
            "hf:inbox:0123456789abcdef0123456789abcdef:0",
            "granted 0123456789abcdef012345 1234567 1700000000000000 2000000",
        ),
    )
)
"""The message by which a waiter learns of its grant."""

CASES = {
    "one reply": (GRANTED, 1),
    "one message": (MESSAGE, 1),
    "99 frames in one piece": ((GRANTED + RELEASED + MESSAGE) * 33, 99),
}
"""The bytes of one read from the socket, and the number of frames in them."""

SLICE = 2_000
"""Frames that one reader decodes before it is the other one's turn: a few ms."""


class GeneralReader(Reader):
    """The reader without its fast path."""

    __slots__ = ()

    def _read_flat(self, data: bytes) -> bytes:
        return data


class Result(NamedTuple):
    """The time for one frame, in ns: medians of all rounds. The ratio is that of the time without the fast path."""

    fast: float
    general: float
    ratio: float
    low: float
    """The first quartile of the ratio."""
    high: float
    """The third quartile of the ratio."""


def measure(data: bytes, frames: int, rounds: int) -> Result:
    """Decode the same bytes with both readers, in turn."""
    pairs = []
    for number in range(rounds):
        if number % 2:
            general, fast = time_slice(GeneralReader(), data, frames), time_slice(Reader(), data, frames)
        else:
            fast, general = time_slice(Reader(), data, frames), time_slice(GeneralReader(), data, frames)
        pairs.append((fast, general))
    low, ratio, high = quantiles((general / fast for fast, general in pairs), n=4)
    return Result(median(fast for fast, _ in pairs), median(general for _, general in pairs), ratio, low, high)


def time_slice(reader: Reader, data: bytes, frames: int) -> float:
    """Return the time for one frame, in ns."""
    repeats = range(max(1, SLICE // frames))
    each = range(frames)
    begun = perf_counter_ns()
    for _ in repeats:
        reader.feed(data)
        for _ in each:
            reader.frame()
    return (perf_counter_ns() - begun) / len(repeats) / frames


def main() -> int:
    """Measure all cases and print a table."""
    parser = argparse.ArgumentParser(description="Measure the fast path of the RESP reader.")
    parser.add_argument("--rounds", type=int, default=300, help="pairs of slices for each case (default: 300)")
    options = parser.parse_args()
    print(f"{'ns per frame':<24}{'with':>8}{'without':>9}{'ratio':>7}   quartiles")
    for case, (data, frames) in CASES.items():
        found = measure(data, frames, options.rounds)
        print(
            f"{case:<24}{found.fast:>8,.0f}{found.general:>9,.0f}{found.ratio:>7.2f}   {found.low:.2f} to {found.high:.2f}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
