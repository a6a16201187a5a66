"""An upper bound on the Python frames of calls without contention; an additional layer would exceed it."""

from __future__ import annotations

import pytest

from handfast_lab.bench import frames

MOST = {
    "sync": {"acquire": 24, "release": 19, "with": 56, "limiter": 26, "once, found": 61},
    "asyncio": {"acquire": 35, "release": 25, "with": 70, "limiter": 34, "once, found": 78},
}


@pytest.mark.parametrize("api", MOST)
def test_a_call_stays_within_its_frames(api):
    lines = []
    assert frames.main(["--list"], lines.append) == 0
    counts = {line[9:21].strip(): int(line[21:]) for line in lines if line.startswith(api)}
    assert counts.keys() == MOST[api].keys()
    too_many = {call: count for call, count in counts.items() if count > MOST[api][call]}
    assert not too_many, "\n".join(lines)
    assert min(counts.values()) > 10
    assert len(lines) == sum(int(line[21:]) + 1 for line in lines if line[0] != " ")
