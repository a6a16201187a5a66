"""Slots of a cluster: of keys and of calls; what nodes tell of them, and what a client makes of it."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from handfast._drivers.chart import Chart
from handfast._engine.calls import MultiRequest, PermitRequest
from handfast._engine.effects import PROBE, Call
from handfast._engine.keys import KeySet
from handfast._engine.options import LeaseOptions
from handfast._engine.script import command, pack
from handfast._engine.server_facts import INFO, TIME, setting
from handfast._engine.slots import (
    SHARES,
    SLOTS,
    Node,
    Redirection,
    read_redirection,
    read_shares,
    slot_of_call,
    slot_of_key,
)

ONE, TWO, THREE = Node("10.0.0.1", 6379), Node("10.0.0.2", 6379), Node("10.0.0.3", 6380)

REPLY = [
    [0, 99, [b"10.0.0.1", 6379, b"id1", []], [b"10.0.0.9", 6379, b"id9", []]],
    [100, 16383, [b"10.0.0.2", 6379, b"id2", []]],
]


@given(st.binary(max_size=12) | st.text("{}:ab", max_size=8).map(str.encode))
def test_the_slot_of_a_key_is_that_of_the_servers(key):
    assert slot_of_key(key) == key_slot(key)


@pytest.mark.parametrize("namespace", ["hf", "{bank}"])
def test_all_calls_of_a_name_go_to_the_slot_of_its_keys(namespace):
    place = KeySet(namespace, "lock", "orders:42")
    request = PermitRequest(place, LeaseOptions(30_000))
    calls = request.acquire(b"t"), request.try_acquire(b"t"), request.release(b"t"), request.confirm(b"t")
    calls += request.renew_for(b"t", 1), request.cancel(b"t"), request.inspect(), request.revoke(0, "why")
    assert {slot_of_call(call) for call in calls} == {key_slot(place.key("state").encode())}


def test_the_names_of_a_namespace_in_braces_share_a_slot():
    places = [KeySet("{bank}", "lock", name) for name in ("ann", "bob", "a:b", "{x}")]
    assert {slot_of_key(place.key(part).encode()) for place in places for part in ("state", "tokens")} == {
        key_slot(b"bank")
    }
    call = MultiRequest(places, LeaseOptions(1, renew=False, max_waiters=1)).acquire(b"t")
    assert slot_of_call(call) == key_slot(b"bank")


@pytest.mark.parametrize("call", [PROBE, SHARES, INFO, TIME, setting("save"), Call(command("SCAN", 1), pack(["0"]))])
def test_a_call_without_keys_goes_to_any_node_or_to_that_of_the_slot_it_names(call):
    assert slot_of_call(call) is None
    assert slot_of_call(call._replace(slot=7)) == 7


@pytest.mark.parametrize(
    ("text", "redirection"),
    [
        ("MOVED 3999 127.0.0.1:6381", Redirection(3999, Node("127.0.0.1", 6381), for_once=False)),
        ("ASK 1 2001:db8::1:6381", Redirection(1, Node("2001:db8::1", 6381), for_once=True)),
        ("MOVED 3999 :6381", Redirection(3999, Node("", 6381), for_once=False)),
        ("MOVED", None),
        ("ERR MOVED 3999 127.0.0.1:6381", None),
        ("TRYAGAIN Multiple keys request during rehashing of slot", None),
    ],
)
def test_redirections_are_read(text, redirection):
    assert read_redirection(text) == redirection


def test_shares_are_read_and_replicas_left_out():
    assert [*read_shares(REPLY)] == [(range(100), ONE), (range(100, SLOTS), TWO)]


def chart(remap=lambda node: node):
    return Chart([THREE, ONE], remap)


def test_a_chart_knows_the_primaries_that_a_node_has_told_of():
    known = chart()
    assert (known.node_of(5), known.node_of(None), known.primaries(), known.candidates()) == (
        None,
        None,
        [],
        [THREE, ONE],
    )
    known.learn(REPLY, THREE)
    assert (known.node_of(5), known.node_of(16383), known.node_of(None)) == (ONE, TWO, ONE)
    assert known.primaries() == [ONE, TWO]
    asked = [known.candidates() for _ in range(4)]
    assert asked == [[ONE, TWO, THREE], [TWO, ONE, THREE]] * 2, "by turns; those that the user named last"
    assert known.learn(REPLY[1:], THREE)
    assert known.node_of(5) is None
    assert not known.learn([], THREE), "it has left the cluster"
    assert known.primaries() == [TWO]


def test_a_chart_follows_redirections_and_learns_only_those_that_hold():
    known = chart()
    known.learn(REPLY, ONE)
    assert known.follow(Redirection(5, THREE, for_once=True), ONE) == THREE
    assert known.node_of(5) == ONE
    assert known.follow(Redirection(5, THREE, for_once=False), ONE) == THREE
    assert (known.node_of(5), known.node_of(6)) == (THREE, ONE)


def test_a_chart_is_right_for_each_slot_whatever_the_order_of_what_it_learns():
    chance, known, each = random.Random(1), chart(), {}
    known.learn(REPLY[:1], ONE)
    each.update(dict.fromkeys(range(100), ONE))
    for _ in range(300):
        slot, node = (
            chance.choice((0, 1, 99, 100, 101, 16382, 16383, chance.randrange(SLOTS))),
            chance.choice((ONE, TWO)),
        )
        known.follow(Redirection(slot, node, for_once=False), THREE)
        each[slot] = node
        near = {slot - 1, slot, slot + 1, *chance.sample(range(SLOTS), 5)}
        assert all(known.node_of(one) == each.get(one) for one in near if 0 <= one < SLOTS)
    assert set(known.primaries()) == set(each.values())
    known.learn([[first, last, [b"h", last, b"id"]] for first, last in ((200, 16383), (0, 99), (100, 150))], ONE)
    found = [known.node_of(slot) for slot in (0, 99, 100, 150, 151, 199, 200, 16383)]
    assert [node and node.port for node in found] == [99, 99, 150, 150, None, None, 16383, 16383]


def test_a_node_that_leaves_its_own_host_out_is_where_it_was_asked():
    known = chart(remap=lambda node: Node("outside", node.port + 1))
    known.learn([[0, 99, [b"", 6379, b"id"]], [100, 16383, [b"10.0.0.2", 6379, b"id2"]]], ONE)
    assert (known.node_of(5), known.node_of(100)) == (ONE, Node("outside", 6380))
    assert known.follow(Redirection(5, Node("", 7000), for_once=False), TWO) == Node("10.0.0.2", 7000)


@pytest.mark.parametrize("more", [[b"ip", b"10.0.0.2"], {b"ip": b"10.0.0.2"}])
def test_a_node_without_a_name_is_at_its_address(more):
    known = chart()
    known.learn([[0, 99, [b"one", 6379, b"id1", more]], [100, 16383, [b"?", 6380, b"id2", more]]], THREE)
    assert known.primaries() == [Node("one", 6379), Node("10.0.0.2", 6380)]
    assert known.follow(Redirection(5, Node("?", 6381), for_once=False), ONE) is None
    assert known.follow(Redirection(5, Node("?", 6380), for_once=False), ONE) is None, "two nodes have this port"
    assert known.node_of(5) == Node("one", 6379)


def test_a_redirection_to_a_node_without_a_name_leads_to_the_only_one_at_its_port():
    known = Chart([THREE, ONE, TWO], lambda node: node)
    known.learn([[0, 16383, [b"?", 7000, b"id", [b"ip", b"10.0.0.7"]]]], THREE)
    assert known.follow(Redirection(5, Node("?", 7000), for_once=True), ONE) == Node("10.0.0.7", 7000)
    assert known.follow(Redirection(5, Node("?", 6379), for_once=True), ONE) is None
