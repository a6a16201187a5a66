"""Which calls wait until it is known whether the server has their script."""

from __future__ import annotations

from handfast._drivers.known_scripts import KnownScripts
from handfast._engine.resp import ErrorReply


def test_the_first_call_of_a_script_goes_ahead_of_the_others():
    scripts = KnownScripts()
    assert not scripts.asked
    assert [scripts.may_leave(digest) for digest in ("a", "a", "b", "a")] == [True, False, True, False]
    assert scripts.asked
    scripts.note("a")
    assert [scripts.may_leave(digest) for digest in ("a", "b", "a")] == [True, False, True]
    scripts.note("b")
    assert not scripts.asked


def test_a_call_that_was_given_up_leaves_its_part_to_the_next_one():
    scripts = KnownScripts()
    assert scripts.may_leave("a")
    scripts.learn("a", ErrorReply("NOSCRIPT No matching script"))
    assert [scripts.may_leave("a"), scripts.may_leave("a")] == [True, False]


def test_a_new_connection_keeps_what_is_known():
    scripts = KnownScripts()
    scripts.may_leave("a")
    scripts.note("b")
    scripts.reconnect()
    assert [scripts.may_leave("a"), scripts.may_leave("b"), scripts.may_leave("b")] == [True, True, True]


def test_the_source_of_a_script_leaves_once_for_all_calls_that_were_sent_before_it():
    scripts = KnownScripts()
    assert [scripts.needs_source("a", number, 3) for number in (1, 2, 3)] == [True, False, False]
    assert scripts.needs_source("a", 4, 9), "it left before that call, and the server has lost it"
    scripts.reconnect()
    assert scripts.needs_source("a", 1, 1)
