"""Mistakes planted in the scripts and the clients are detected by the random programs of the gate."""

from __future__ import annotations

import importlib

import pytest
from hypothesis import settings

import handfast._engine.calls
from handfast import HandfastError
from handfast._engine.script import LuaScript, as_sent
from tests.gate.api import test_machines as gate
from tests.gate.api.test_machines import (
    BRIEF,
    LockAllMachine,
    LockMachine,
    RLockMachine,
    RWLockMachine,
    SemaphoreMachine,
    run,
)

stage = gate.stage


def script(names, *edits):
    """Plant a mistake in the named scripts: texts, each with the one that replaces it."""

    def plant(monkeypatch):
        for name in names:
            sound = getattr(handfast._engine.calls, name)
            source = sound.source
            for old, new in edits:
                assert source.count(as_sent(old)) == 1
                source = source.replace(as_sent(old), as_sent(new))
            broken = LuaScript(sound.name, source, sound.header)
            monkeypatch.setattr(handfast._engine.calls, name, broken)

    return plant


def method(module, owner, name, broken):
    """Plant a mistake in a method of both APIs."""

    def plant(monkeypatch):
        for api, prefix in (("sync", ""), ("aio", "Async")):
            imported = importlib.import_module(f"handfast._api.{api}.{module}")
            monkeypatch.setattr(getattr(imported, owner.format(prefix)), name, broken)

    return plant


ALL = ["ACQUIRE", "RELEASE", "CANCEL", "REVOKE", "LOWER", "RESIZE", "MULTI_ACQUIRE"]
FIRST = "local head, score = unpack(redis.call('ZRANGEBYSCORE', tokens, '-inf', '(0', 'WITHSCORES', 'LIMIT', 0, 1))"
FIRST_THAT_FITS = """
    local head, score
    for _, waiter in ipairs(redis.call('ZRANGEBYSCORE', tokens, '-inf', '(0')) do
      local _, weight, limit = struct.unpack('<ddd', redis.call('HGET', state, waiter))
      head = head or waiter
      if used() + weight <= (set_limit > 0 and set_limit or limit) then
        head = waiter
        break
      end
    end
    score = head and redis.call('ZSCORE', tokens, head)"""

HANDS_OVER = "struct.pack('<d', (hand_over()))", "struct.pack('<d', 0)"

MISTAKES = {
    "a release hands nothing over": (
        LockMachine,
        script(
            ["RELEASE"],
            ("if holder == token and lease_end > 0 and out == 0 and set_limit == 0 then", "if false then"),
            ("if length > 0 then\n    more = 1", "if false then\n    more = 1"),
        ),
    ),
    "a timeout leaves its queue entry": (
        LockMachine,
        script(["CANCEL"], ("    leave_queue(token)\n  end\n  add_tombstone(token)\n", "  end\n")),
    ),
    "a fence is used again": (
        LockMachine,
        script(
            ["ACQUIRE"],
            ("fence < now and now or fence + 1", "fence"),
            ("fence = math.max(fence + 1, now,", "fence = math.max(fence, fence == 0 and now or 0,"),
        ),
    ),
    "a revocation spares those who came late": (
        LockMachine,
        script(["REVOKE"], ("its_fence > up_to_fence", "its_fence > 9")),
    ),
    "small requests overtake in the queue": (SemaphoreMachine, script(ALL, (FIRST, FIRST_THAT_FITS))),
    "a newcomer overtakes": (
        SemaphoreMachine,
        script(
            ["ACQUIRE"],
            ("if length == 0 and is_out + weight <=", "if is_out + weight <="),
            ("used + weight <= limit and length == 0 and", "used + weight <= limit and"),
        ),
    ),
    "a release does not settle": (
        SemaphoreMachine,
        script(["RELEASE"], ("      out = out - struct.unpack('<d', text, 9)\n", "")),
    ),
    "a resize hands nothing over": (SemaphoreMachine, script(["RESIZE"], HANDS_OVER)),
    "a downgrade hands nothing over": (RWLockMachine, script(["LOWER"], HANDS_OVER)),
    "a downgrade makes nothing free": (RWLockMachine, script(["LOWER"], ("    record = its_record\n    save()\n", ""))),
    "who is in a block waits for itself": (
        RWLockMachine,
        method("rwlock", "_Side", "_existing_lease", lambda *_, **__: None),
    ),
    "the first release of several gives a reentrant lock up": (
        RLockMachine,
        method("rlock", "{}RLease", "_is_last", lambda *_: True),
    ),
    "a caller that comes again waits for itself": (
        RLockMachine,
        method("rlock", "{}RLock", "_existing_lease", lambda *_, **__: None),
    ),
    "a part of the names will do": (
        LockAllMachine,
        script(["MULTI_ACQUIRE"], ("if position == 0 then", "if position <= 1 then")),
    ),
    "only the first of several names is given back": (
        LockAllMachine,
        script(["RELEASE"], ("for k = 1, #KEYS, 2 do\n  local text", "for k = 1, 2, 2 do\n  local text")),
    ),
    "a waiter for several names is overtaken": (
        LockAllMachine,
        script(ALL, ("elseif claim_ms == 0 then", "elseif claim_ms < 0 then")),
    ),
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_is_detected(stage, monkeypatch, mistake):
    machine, plant = MISTAKES[mistake]
    run(machine, stage, settings(BRIEF, max_examples=1))
    plant(monkeypatch)
    stage.patience = 1.0
    with pytest.raises((AssertionError, HandfastError, pytest.fail.Exception)):
        run(machine, stage, settings(BRIEF, max_examples=100, report_multiple_bugs=False))
