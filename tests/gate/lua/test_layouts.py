"""Every script of the engine refuses a name that is stored in another layout, and changes nothing."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from handfast._engine import script
from handfast._engine.batches import join
from handfast._engine.budgets import AccountRequest, BudgetRequest, Terms
from handfast._engine.calendar import Calendar
from handfast._engine.calls import MultiRequest, PermitRequest
from handfast._engine.keys import KeySet
from handfast._engine.limits import Limit, LimitRequest
from handfast._engine.objects import ObjectRequest
from handfast._engine.once import NEVER, OnceRequest
from handfast._engine.options import LeaseOptions
from handfast._engine.packing import doubles
from handfast._kinds import KINDS

TOKEN = b"0" * 32
PLACES = {"lock": ("state", "s"), "limiter": ("settings", "paused_until"), "debounce": ("burst", "due")}
PLACES["budget"] = ("account", "s")
PLACES["once"] = PLACES["election"] = PLACES["group"] = PLACES["lock"]

LOCK = PermitRequest(KeySet("hf", "lock", "a"), LeaseOptions(30_000))
SEVERAL = MultiRequest([LOCK.place], LeaseOptions(30_000, max_waiters=9))
ONCE = OnceRequest(KeySet("hf", "once", "a"), LeaseOptions(30_000, max_waiters=9), keep_ms=1, refresh_ms=NEVER)
LIMITER = LimitRequest(KeySet("hf", "limiter", "a"), [Limit(1, 1)], max_waiters=9, timeout=None)
BUDGET = BudgetRequest([KeySet("hf", "budget", "a")], Terms(1, Calendar("day", "UTC", 1)))
ACCOUNT = AccountRequest(BUDGET.accounts[0], BUDGET.terms)
ELECTION = ObjectRequest(KeySet("hf", "election", "a"), known=-1)
GROUP = ObjectRequest(KeySet("hf", "group", "a"), latest=-1, known=-1, shown=9)
DEBOUNCE = ObjectRequest(KeySet("hf", "debounce", "a"), quiet_ms=1, at_most_ms=1)

CALLS = [
    *(LOCK.acquire(TOKEN), LOCK.try_acquire(TOKEN), LOCK.acquire(TOKEN, 9), LOCK.release(TOKEN)),
    *(LOCK.release(TOKEN, copies=True), LOCK.confirm(TOKEN), LOCK.renew_for(TOKEN, 1), LOCK.cancel(TOKEN)),
    *(LOCK.inspect(), LOCK.revoke(9, ""), LOCK.adopt(TOKEN, "c", "l"), LOCK.lower(TOKEN), LOCK.slot(TOKEN, 0)),
    *(LOCK.resize(2, "me"), LOCK.overtake(TOKEN, 0, "", ""), LOCK.hold(9, -1, "", "")),
    *(SEVERAL.acquire(TOKEN), SEVERAL.release(TOKEN), SEVERAL.renew_for(TOKEN, 1), SEVERAL.cancel(TOKEN)),
    *(ONCE.acquire(TOKEN), ONCE.ending_as("done", b"").release(TOKEN), ONCE.cancel(TOKEN)),
    *(
        LIMITER.acquire(TOKEN, 0),
        LIMITER.settle(TOKEN, 0, copies=False),
        LIMITER.pause(1, "", ""),
        LIMITER.resize("", ""),
    ),
    *(LIMITER.call("reset", until_us=1), LIMITER.call("inspect")),
    *(BUDGET.reserve(TOKEN), BUDGET.cancel(TOKEN), ACCOUNT.inspect(), ACCOUNT.set(1, 0, "", "", "")),
    *(ELECTION.call("watch", TOKEN, wait_ms=0), GROUP.call("watch", TOKEN, wait_ms=0)),
    *(DEBOUNCE.call("enter", TOKEN, left_us=0, ticket=0), DEBOUNCE.cancel(TOKEN), DEBOUNCE.call("inspect")),
]
BATCHES = [join([LOCK.acquire(TOKEN)]), join([LOCK.release(TOKEN)]), join([LIMITER.acquire(TOKEN, 0)])]


def asked(server, raw, call):
    """Make a call for a name in another layout; return the first line of the reply. Nothing may have changed."""
    kind = call.packed.split(b"{hf:", 1)[1].split(b":", 1)[0].decode()
    part, field = PLACES[kind]
    key = f"{{hf:{kind}:a}}:{part}"
    raw.hset(key, mapping={field: "layout 2", "other": "of a newer version"})
    raw.pexpire(key, 600_000)
    there = {key: raw.dump(key) for key in raw.keys("*")}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(server.socket)
        connection.sendall(call.prefix.eval_source + call.packed + (call.record(b"in out me") if call.waiter else b""))
        reply = connection.recv(4096)
    assert {key: raw.dump(key) for key in raw.keys("*")} == there
    return reply


@pytest.mark.parametrize("number", range(len(CALLS)), ids=lambda number: f"{number}-{CALLS[number].prefix.name}")
def test_a_script_refuses_another_layout_before_it_writes(server, raw, number):
    assert b"stored in layout 2" in asked(server, raw, CALLS[number]).partition(b"\r\n")[0]


@pytest.mark.parametrize("call", BATCHES, ids=lambda call: call.prefix.name)
def test_a_batch_leaves_the_name_to_the_script_for_one(server, raw, call):
    answer = asked(server, raw, call).partition(b"\r\n")[2].strip(b"\r\n")
    assert answer.strip(b"\0") in (b"", b"0") or answer.endswith(doubles(-1)), "none"


def test_all_scripts_of_kinds_with_layouts_are_here():
    scripts = {path.stem for path in Path(str(script._LUA)).glob("*.lua")}
    without = tuple(f"{kind.scripts}_" for kind in KINDS.values() if not kind.has_layouts)
    others = {name for name in scripts if name.startswith(without)}
    others |= {"election_announce", "group_ring"}  # nor have the history of an election and those who watch
    others |= {"once_forget"}  # a result of any layout is forgotten
    others |= {f"debounce_{verb}" for verb in ("put", "take", "done")}  # nor have items: a new form has a new key
    assert {call.prefix.name for call in (*CALLS, *BATCHES)} == scripts - others
