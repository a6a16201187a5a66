"""Windows of rate limiters are added up right, and one above its limit is found."""

from __future__ import annotations

import pytest

from handfast_lab.checker.windows import Admitted, largest_window, windows_above


def admissions(*moments, cost=1):
    return [Admitted(moment, cost) for moment in moments]


@pytest.mark.parametrize(
    ("found", "limit", "above"),
    [
        ([], 1, []),
        (admissions(0, 1, 2), 1, []),  # after exactly a period it has lapsed
        (admissions(0, 0.999, 2), 1, [2]),
        (admissions(0, 0.1, 0.2, 0.3), 2, [3, 4]),
        (admissions(0.3, 0.1, 0.2, 0), 2, [3, 4]),  # in any order
        (admissions(0.9, 0.95, 1.05, 1.1), 3, [4]),  # around the turn of a second
        (admissions(0, 0.5, cost=2), 3, [4]),
        (admissions(0, 0, 0), 3, []),
    ],
)
def test_every_window_that_ends_with_an_admission_is_added_up(found, limit, above):
    assert windows_above(found, limit, 1.0) == above


def test_the_largest_window_is_measured():
    assert largest_window([], 1.0) == 0
    assert largest_window(admissions(0, 0.5, 1.2, cost=3), 1.0) == 6
    assert largest_window(admissions(0, 0.5, 1.2, cost=3), 2.0) == 9
