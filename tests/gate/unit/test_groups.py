"""Requests over several slots of a cluster: their groups, and the leases of all groups as one."""

from __future__ import annotations

from math import inf

import pytest

from handfast import LeaseLost
from handfast._engine.calls import MultiRequest, PermitRequest
from handfast._engine.keys import KeySet
from handfast._engine.options import LeaseOptions
from handfast._engine.slots import slot_of_call, slot_of_key
from handfast._protocol.acquire import Attempt, Grant
from handfast._protocol.groups import GroupedAttempt, GroupedLease
from handfast._protocol.lease import LeaseState, LeaseTable
from handfast._protocol.loss import EXPIRED, revoked
from handfast._protocol.waiting import HELD_POLL_S, Watch

NAMES = [f"n{number}" for number in range(20)]


def request(names=("a", "b", "c"), namespace="hf", **options):
    places = [KeySet(namespace, "lock", name) for name in names]
    return MultiRequest(places, LeaseOptions(**{"ttl_ms": 30_000, "max_waiters": 9, "timeout": 5.0} | options))


def leases(*deadlines):
    parts = zip(request().groups, deadlines, strict=True)
    return [
        LeaseState(part, b"%d" % number, Grant(7 - number, deadline, 30.0), asked_at=90.0)
        for number, (part, deadline) in enumerate(parts)
    ]


def table_of(parts):
    return LeaseTable({one.token: one for one in parts})


# --- requests


def test_groups_are_of_one_slot_each_in_the_order_of_the_slots():
    whole = request(NAMES)
    slots = [slot_of_call(one.acquire(b"t")) for one in whole.groups]
    assert slots == sorted(set(slots))
    assert sorted(name for one in whole.groups for name in one.names) == sorted(NAMES)
    for group, slot in zip(whole.groups, slots, strict=True):
        assert {slot_of_key(part.place.tag.encode()) for part in group.parts} == {slot}
        assert (group.name, group.ttl_ms, group.renew, group.timeout) == (whole.name, 30_000, True, 5.0)
    assert [one.names for one in request(NAMES[::-1]).groups] == [one.names[::-1] for one in whole.groups]


@pytest.mark.parametrize(
    "whole",
    [
        request(NAMES, "{hf}"),
        request(["a"]),
        PermitRequest(KeySet("hf", "lock", "a"), LeaseOptions(1)),
    ],
    ids=["a namespace in braces", "one name", "one lock"],
)
def test_what_is_in_one_slot_is_one_group(whole):
    assert whole.groups == (whole,)


def test_other_names_have_other_groups():
    whole = request(["{x}", "b"])
    assert len(whole.groups) == 2
    assert len(whole.adapted(lambda _: "b", None).groups) == 1


# --- leases


def test_a_lease_of_groups_is_what_its_parts_are_together():
    parts = leases(130.0, 131.0, 129.0)
    whole = GroupedLease(request(), parts)
    assert (whole.token, whole.fence, whole.deadline) == (b"0,1,2", 5, 129.0)
    assert (whole.acquired_at, whole.waited, whole.held_for(110.0)) == (101.0, 11.0, 9.0)
    assert (whole.lost(110.0), whole.loss, whole.ended_at) == (False, None, inf)
    parts[2].renewed(115.0, 30_000_000)
    assert whole.deadline == 130.0
    whole.block = "a block"
    assert [part.block for part in parts] == ["a block"] * 3
    parts[2].let_go(120.0)
    assert not whole.is_released
    whole.let_go(121.0)
    assert whole.is_released
    assert whole.block is None
    assert whole.held_for(130.0) == 19.0


def test_a_lease_of_groups_is_lost_with_the_first_for_its_reason():
    parts = leases(130.0, 131.0, 129.0)
    whole = GroupedLease(request(), parts)
    assert not whole.lost(128.9)
    parts[1].lose(revoked("maintenance"), 125.0)
    assert whole.lost(140.0)
    assert parts[2].loss == EXPIRED
    assert whole.loss == revoked("maintenance")
    assert whole.lost(140.0)


def test_when_one_part_is_lost_none_is_renewed_any_more():
    parts = leases(130.0, 131.0, 129.0)
    whole = GroupedLease(request(), parts)
    table = table_of(parts)
    assert table.remove_expired(129.5) == [parts[2]]
    assert not table
    assert whole.lost(129.5)
    table = table_of(parts)
    table.lose(parts[0], revoked("maintenance"), 126.0)
    assert not table


def test_a_callback_is_that_of_all_parts():
    parts = leases(130.0, 131.0, 129.0)
    whole = GroupedLease(request(), parts)
    whole.callbacks.append(print)
    assert [part.callbacks for part in parts] == [[print]] * 3


def test_a_wait_ends_when_what_is_held_is_lost():
    held = leases(130.0, 131.0, 129.0)[:2]
    attempts = [Attempt(one, b"t", 90.0, 3) for one in request().groups]
    whole = GroupedAttempt(request(), attempts)
    assert (whole.caller, whole.asked_at, whole.needs_undo) == (3, 90.0, False)
    watch = Watch(attempts[2].request, table_of(held), tuple, print, held=held)
    assert watch(100.0) == 100.0 + HELD_POLL_S
    with pytest.raises(LeaseLost, match=r"'a, b, c'.*its ttl ended"):
        watch(130.0)
