"""The table of the rows and the list of what is known to be wrong: each kind of name is asked, and no row refuses much."""

from __future__ import annotations

from handfast._kinds import KINDS
from tests._support.kinds import ALWAYS_ASKED, ROWS
from tests.gate.questions.conftest import HERE, failing

QUESTIONS = {path.stem.removeprefix("test_") for path in HERE.glob("test_*.py")} - {"table"}


def test_each_kind_of_name_has_a_row():
    assert {row.of for row in ROWS.values()} == set(KINDS)


def test_rows_refuse_questions_with_a_reason_and_not_those_that_are_always_asked():
    assert ALWAYS_ASKED <= QUESTIONS
    for row in ROWS.values():
        assert row.no.keys() <= QUESTIONS - ALWAYS_ASKED
        assert all(row.no.values())


def test_a_row_like_another_has_questions_of_its_own_and_the_other_is_asked_all():
    alike = [row for row in ROWS.values() if row.like]
    assert not [row.like for row in alike if ROWS[row.like].like]
    assert all(row.own and {*row.own} <= QUESTIONS for row in alike)


def test_what_is_known_to_be_wrong_is_of_the_table():
    for question, row, api in failing():
        assert any(question.startswith(asked) for asked in QUESTIONS)
        assert row in ROWS
        assert api in {"sync", "asyncio"}
