"""The measurement of how programs start."""

from __future__ import annotations

import os

from handfast_lab.bench.start import BASE, PROGRAMS, print_times, take_turns


def test_every_program_runs_once_per_turn_and_is_compared_with_the_base(server, capsys):
    seconds = take_turns(2, os.environ | {"HANDFAST_URL": server.url})
    assert {name: len(times) for name, times in seconds.items()} == dict.fromkeys(PROGRAMS, 2)
    print_times({BASE: [0.1, 0.2, 0.3], "twice": [0.2, 0.4, 0.6]})
    *_, row = capsys.readouterr().out.splitlines()
    assert row.split() == ["twice", "400.0", "200.0", "(100.0", "to", "300.0)", "2.00", "(2.00", "to", "2.00)"]
