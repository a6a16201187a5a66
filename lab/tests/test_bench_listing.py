"""The benchmark of lists of held names. No test depends on a measured figure."""

from __future__ import annotations

import sys

import pytest

from handfast_lab.bench.listing import COMMANDS, main


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
def test_each_program_looks_at_all_names_and_its_cost_is_printed():
    lines = []
    assert main(["--names", "30", "--repeat", "1"], lines.append) == 0
    assert [line.startswith(title) for line, title in zip(lines, COMMANDS, strict=True)] == [True] * len(COMMANDS)
    assert all(line.endswith(" MB, for 30 names") for line in lines)
