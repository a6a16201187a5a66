"""An upper bound on the Python frames of an uncontended acquire and release; an additional layer would exceed it."""

from __future__ import annotations

import re

from handfast_lab.bench import frames

MOST = {"sync": (24, 19), "asyncio": (36, 26)}


def test_an_uncontended_acquire_and_release_stay_within_their_frame_limit():
    lines = []
    assert frames.main(["--list"], lines.append) == 0
    counts = {line.split(":")[0]: tuple(map(int, re.findall(r"\d+", line))) for line in lines if line[0] != " "}
    assert counts.keys() == MOST.keys()
    for api, (acquire, release) in counts.items():
        assert 10 < release < acquire
        assert acquire <= MOST[api][0], lines
        assert release <= MOST[api][1], lines
    assert sum(counts[api][verb] for api in counts for verb in (0, 1)) == len(lines) - len(counts)
