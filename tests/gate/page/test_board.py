"""The board: what pages get that know an earlier look."""

from __future__ import annotations

import json
import os
import time

import pytest

from handfast import Holder, LockStatus, ServerRefused, Waiter
from handfast._watch.live import Row, View
from handfast._watch.looker import Outage
from handfast.page import board as module
from handfast.page.board import Board


def row(name, waiting=0):
    return Row("lock", name, LockStatus((), (), 7, 0, waiting, 1, 1, 0, 0.0, None), 100.0)


def view(*rows, at=100.0):
    return View(at, 0.001, rows, is_whole=True)


def answer(board, after=0, run=None):
    known = json.loads(board.answer("", 0, None))["run"]
    return json.loads(board.answer(known if run is None else run, after, None))


@pytest.fixture
def board():
    made = Board()
    made.take(view(row("a"), row("b")), ())
    return made


def test_a_row_that_has_not_changed_is_not_sent(board):
    same = row("b")
    board.take(view(row("a", waiting=1), same), ())
    assert answer(board, 1)["rows"] == {"1": {"waiting": 1, "idle": None}}
    board.take(view(row("a"), same), ())
    assert answer(board, 2)["rows"] == {"1": {"waiting": None, "idle": True}}
    assert answer(board, 3)["rows"] == {}
    assert [one["name"] for one in answer(board)["rows"].values()] == ["a", "b"]


def test_pages_learn_which_names_are_gone_or_get_everything(board, monkeypatch):
    board.take(view(row("a")), ())
    assert answer(board, 1)["gone"] == [2]
    monkeypatch.setattr(module, "MOST_GONE", 2)
    board.take(view(*(row(f"new {number}") for number in range(10))), ())
    board.take(view(row("a")), ())
    assert answer(board, 3)["all"], "ten are gone, and two are remembered"
    assert next(iter(answer(board, 3)["rows"].values()))["name"] == "a"
    assert not answer(board, 4)["all"]


def test_a_look_that_is_long_ago_is_answered_with_everything(board, monkeypatch):
    monkeypatch.setattr(module, "GONE_KEPT", 3)
    board.take(view(row("a")), ())
    for _ in range(5):
        board.take(view(row("a")), ())
    assert answer(board, 1)["all"]
    assert not answer(board, 6)["all"]


def test_a_child_process_has_another_run(board, monkeypatch):
    run = answer(board)["run"]
    monkeypatch.setattr(os, "getpid", lambda: 1)
    assert answer(board, 1, run)["all"]


def test_what_is_old_is_not_sent(board):
    run = answer(board)["run"]
    board.expire()
    assert {"run": run, "number": 0}.items() <= answer(board, 1, run).items()
    assert "rows" not in answer(board)
    board.take(view(row("a")), ())
    assert answer(board)["number"] == 2


def test_answers_are_kept_for_few_looks(board):
    for number in range(30):
        board.take(view(row("a", waiting=number)), ())
    for number in range(30):
        answer(board, number)
    assert len(board._answers) <= module.MOST_ANSWERS


def test_a_queue_is_drawn_while_it_was_one_within_five_minutes(board):
    for number in range(module.SAMPLES + 3):
        board.take(view(row("a", waiting=number == 0), row("b"), at=200 + 5.0 * number), ())
    first, second = answer(board)["rows"].values()
    assert "spark" not in first
    assert "spark" not in second


def test_an_outage_is_reported(board):
    outage = Outage(time.monotonic() - 10, OSError("it hangs"))
    told = json.loads(board.answer("", 0, outage))["outage"]
    assert (told["error"], told["server"], round(told["now"] - told["since"])) == ("it hangs", True, 10)


def test_what_the_server_refuses_is_no_outage_of_the_server():
    refused = ServerRefused("NOPERM", name="", reply="NOPERM", changed_nothing=True)
    assert [Outage(0.0, error).is_of_server for error in (None, OSError(), refused, ZeroDivisionError())] == [
        *(True, True, False, False)
    ]


def test_moments_that_differ_by_a_round_trip_are_the_same(board):
    holder = Holder("t", 7, 1, 20.0, 5.0, "web-1", True, "c.1", False, False)
    waiter = Waiter("u", 1, 0, 3.0, "web-2", True, "c.2", False)
    sent = []
    for late in (0.0, 0.2, -0.1, 5.0):
        status = LockStatus((holder,), (waiter,), 7, 1, 1, 1, 0, 1, 0.0, None)
        board.take(view(Row("lock", "a", status, 100.0 + late)), [("lock", "a")])
        known = answer(board)["run"]
        shown = json.loads(board.answer(known, 0, None, ("lock", "a")))["details"]
        sent.append((answer(board, board.number - 1)["rows"], shown))
    assert [rows for rows, _ in sent[1:3]] == [{}, {}]
    assert sent[3][0]["1"].keys() == {"since", "ends", "first", "queue"}
    assert sent[0][1] == sent[1][1] == sent[2][1] != sent[3][1]
