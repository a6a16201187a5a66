"""The benchmark of the RESP reader."""

from __future__ import annotations

import pytest

from handfast._engine.resp import INCOMPLETE, Reader
from handfast_lab.bench.reader import CASES, GeneralReader, measure


@pytest.mark.parametrize("case", CASES)
def test_both_readers_decode_the_same_frames(case):
    data, count = CASES[case]
    readers = Reader(), GeneralReader()
    for reader in readers:
        reader.feed(data)
    frames = [[reader.frame() for _ in range(count)] for reader in readers]
    assert frames[0] == frames[1]
    assert INCOMPLETE not in frames[0]
    assert all(reader.frame() is INCOMPLETE for reader in readers)


def test_the_time_is_that_of_one_frame():
    data, count = CASES["99 frames in one piece"]
    found = measure(data, count, rounds=3)
    assert 50 < found.fast < 1_000_000
    assert found.low <= found.ratio <= found.high
