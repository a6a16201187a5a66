"""The bench of threads that share a connection measures what it says."""

from __future__ import annotations

import pytest

from handfast.testing import ServerController
from handfast_lab.bench import threads


@pytest.fixture(scope="module")
def server():
    with ServerController() as server:
        yield server


def test_a_crowd_uses_one_connection_more_than_it_may_have_of_its_own(server):
    found = threads.crowd(server, 3, 12)
    assert found.connections == 4
    assert found.in_order


def test_a_rate_counts_what_all_threads_acquired(server):
    assert threads.rate(server.url, 1, 3, 0.3, same=False) > 3


def test_the_first_contender_is_the_measure(server):
    found = threads.ratios(server.url, [2, 1], 2, 0.1, 3, same=True)
    assert found[0] == [1.0] * 3
    assert all(one > 0 for one in found[1])


def test_it_prints_a_row_for_each_number_of_threads(capsys):
    threads.main(["--seconds", "0.05", "--rounds", "1", "--crowd", "5", "--max-sessions", "2", "1"])
    printed = capsys.readouterr().out
    assert [line.split()[0] for line in printed.splitlines() if "own" in line] == ["1", "4", "16"]
    assert "max_sessions=1       2 connections" in printed
