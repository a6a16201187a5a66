"""What an act says of itself whose reply was lost: the server was asked twice, and others act as well."""

from __future__ import annotations

import struct

import pytest

from handfast._engine.calls import PermitRequest
from handfast._engine.effects import Answer
from handfast._engine.keys import KeySet
from handfast._engine.limits import Limit, LimitRequest
from handfast._engine.objects import ObjectRequest
from handfast._engine.once import NEVER, OnceRequest, version_of
from handfast._engine.options import LeaseOptions
from handfast._protocol import admin, latching, limiting, once
from tests._support.helpers import performed

NOW_US, MINUTE_US = 1_700_000_000_000_000, 60_000_000

LOCK = PermitRequest(KeySet("hf", "lock", "a"), LeaseOptions(1, renew=False))
LIMITER = LimitRequest(KeySet("hf", "limiter", "a"), [Limit(1, 1000)], max_waiters=9, timeout=None)
ONCE = OnceRequest(KeySet("hf", "once", "a"), LeaseOptions(1, max_waiters=9), keep_ms=1, refresh_ms=NEVER)
LATCH = ObjectRequest(KeySet("hf", "latch", "a"), count=2)


def answer(reply, *, again=False):
    """Return a reply: with ``again`` to the second copy of a call."""
    return Answer(0.0, reply, again)


def noted(text):
    return struct.pack("<d", NOW_US) + text.encode()


def lock(*, last="", hold=None):
    """Return the status of a lock: the last act on it, and by whom it is on hold, and why."""
    shown = []
    if hold is not None:
        by, reason = hold
        until_us = NOW_US + MINUTE_US
        record = struct.pack("<5d", until_us, 10**9, 0, 0, 0) + f"- - {by} reason={reason} hold={until_us}".encode()
        shown = [b"!hold", str(until_us).encode(), record]
    used = 10**9 if hold else 0
    return answer([b"state", NOW_US, 0, 0, used, len(shown) // 3, 0, 0, 0, noted(last) if last else b"", shown, []])


def limiter(*, last="", paused_us=0):
    return answer([b"state", NOW_US, 0, paused_us, noted(last) if last else b"", b"", [0, 0], 0, b""])


def test_the_hold_that_there_is_now_is_looked_up_and_meant():
    steps = admin.unhold(LOCK, "over", "me")
    effects, result = performed(steps, lock(hold=("ann", "x")), answer([b"ended", 1, 0]))
    assert result == "done"
    assert struct.pack("<d", NOW_US + MINUTE_US) in effects[-1].packed
    assert performed(admin.unhold(LOCK, "over", "me"), lock())[1] == "nothing"


@pytest.mark.parametrize(
    ("replies", "result"),
    [
        ([answer([b"other", NOW_US])], "other"),
        ([answer([b"ended", 0, 0])], "nothing"),
        ([answer([b"ended", 1, 1]), answer([b"other", NOW_US])], "done"),
        ([answer([b"other", NOW_US], again=True), lock(last="hold ann x", hold=("ann", "x"))], "unknown"),
        ([answer([b"other", NOW_US], again=True), lock(last="unhold me over")], "done"),
        ([answer([b"ended", 0, 0], again=True), lock(last="unhold me over")], "done"),
        ([answer([b"ended", 0, 0], again=True), lock(last="unhold ann over")], "nothing"),
    ],
)
def test_unhold_says_what_it_has_done(replies, result):
    assert performed(admin.unhold(LOCK, "over", "me", NOW_US), *replies)[1] == result


@pytest.mark.parametrize(
    ("replies", "result"),
    [
        ([answer([b"held", NOW_US, 0, -1, 0])], "done"),
        ([answer([b"other", NOW_US])], "other"),
        ([answer([b"other", NOW_US], again=True), lock(hold=("me", "x"))], "done"),
        ([answer([b"other", NOW_US], again=True), lock(hold=("ann", "x"))], "unknown"),
        ([answer([b"other", NOW_US], again=True), lock()], "unknown"),
    ],
)
def test_hold_of_a_name_that_was_shown_says_what_it_has_done(replies, result):
    assert performed(admin.hold_shown(LOCK, 1000, "x", "me"), *replies)[1] == result


def test_the_pause_that_there_is_now_is_looked_up_and_meant():
    steps = limiting.resume(LIMITER, "me", "over")
    effects, result = performed(steps, limiter(paused_us=MINUTE_US), answer([b"paused", 1, 0]))
    assert result == "done"
    assert struct.pack("<dd", 0, NOW_US + MINUTE_US) in effects[-1].packed
    assert performed(limiting.resume(LIMITER, "me", "over"), limiter())[1] == "nothing"


@pytest.mark.parametrize(
    ("replies", "result"),
    [
        ([answer([b"changed", 5])], "other"),
        ([answer([b"paused", 0, 0])], "nothing"),
        ([answer([b"paused", 5, 1]), answer([b"changed", 5])], "done"),
        ([answer([b"changed", 5], again=True), limiter(last="pause ann x", paused_us=5)], "unknown"),
        ([answer([b"changed", 5], again=True), limiter(last="resume me over")], "done"),
        ([answer([b"paused", 0, 0], again=True), limiter(last="resume me over")], "done"),
        ([answer([b"paused", 0, 0], again=True), limiter(last="pause ann x")], "nothing"),
    ],
)
def test_resume_says_what_it_has_done(replies, result):
    assert performed(limiting.resume(LIMITER, "me", "over", NOW_US), *replies)[1] == result


RECORD = struct.pack("<dd", NOW_US, 1) + b"\4done\1t\0value"


@pytest.mark.parametrize(
    ("replies", "result"),
    [
        ([answer(None)], "other"),
        ([answer(RECORD), answer([b"forgotten"])], "done"),
        ([answer(RECORD), answer([b"changed"])], "other"),
        ([answer(RECORD), answer([b"changed"], again=True), answer(None)], "done"),
        ([answer(RECORD), answer([b"changed"], again=True), answer(RECORD)], "unknown"),
    ],
)
def test_forget_says_what_it_has_done_to_a_record(replies, result):
    assert performed(once.forget_shown(ONCE, version_of(RECORD)), *replies)[1] == result


@pytest.mark.parametrize(
    ("replies", "result"),
    [
        ([answer([b"forgotten"])], "done"),
        ([answer([b"changed"])], "other"),
        ([answer([b"changed"], again=True), answer([b"state", 0, 0, 0, []])], "done"),
        ([answer([b"changed"], again=True), answer([b"state", 1, 0, NOW_US, [b"a"]])], "unknown"),
    ],
)
def test_forget_says_what_it_has_done_to_parts(replies, result):
    assert performed(latching.forget_shown(LATCH, 2, NOW_US), *replies)[1] == result
