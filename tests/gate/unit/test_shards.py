"""Sharded inboxes of a connection: which there are, and which a call names."""

from __future__ import annotations

import random

import pytest
from redis.crc import key_slot

from handfast._engine import shards
from handfast._engine.calls import PermitRequest
from handfast._engine.keys import KeySet, inbox_channel
from handfast._engine.options import LeaseOptions
from handfast._engine.resp import ErrorReply
from handfast._engine.shards import Shards, word_of
from handfast._engine.slots import SLOTS, slot_of_call

INBOX = inbox_channel("hf", "c1", 7)
OWNER = f"{INBOX} hf:control:c1 host:1".encode()
CALL = PermitRequest(KeySet("hf", "lock", "a"), LeaseOptions(1)).acquire(b"t")
SLOT = slot_of_call(CALL)


def channel_of(slot):
    return f"hf:inbox:{{{word_of(slot)}}}c1:7".encode()


def test_each_slot_has_a_word_of_its_own():
    slots = random.Random(1).sample(range(SLOTS), 200)
    assert [key_slot(word_of(slot).encode()) for slot in slots] == slots
    assert word_of(slots[0]) == word_of(slots[0])


def test_the_channel_of_a_slot_is_in_that_slot():
    assert key_slot(channel_of(SLOT)) == SLOT


def test_a_sharded_inbox_is_used_once_the_server_has_confirmed_it():
    of_connection = Shards(OWNER)
    assert of_connection.subscribe(SLOT) == b"*2\r\n$10\r\nSSUBSCRIBE\r\n$%d\r\n%b\r\n" % (
        len(channel_of(SLOT)),
        channel_of(SLOT),
    )
    assert of_connection.owner(CALL) == OWNER
    assert of_connection.subscribe(SLOT) == b"", "it is on its way"
    of_connection.take(channel_of(SLOT))
    assert of_connection.owner(CALL) == OWNER.replace(INBOX.encode(), channel_of(SLOT))
    other = PermitRequest(KeySet("hf", "lock", "b"), LeaseOptions(1)).acquire(b"t")
    assert of_connection.owner(other) == OWNER


def test_a_sharded_inbox_ends_with_its_slot():
    of_connection = Shards(OWNER)
    of_connection.subscribe(SLOT)
    of_connection.take(channel_of(SLOT))
    assert of_connection.drop(channel_of(SLOT)) == SLOT
    assert of_connection.owner(CALL) == OWNER
    assert of_connection.subscribe(SLOT)


@pytest.mark.parametrize(
    ("text", "is_tried_again"),
    [
        ("MOVED 1 127.0.0.1:7000", True),
        ("CLUSTERDOWN Hash slot not served", True),
        ("LOADING Redis is loading the dataset in memory", True),
        ("ERR unknown command 'SSUBSCRIBE'", False),
        ("NOPERM this user has no permissions to run the 'ssubscribe' command", False),
    ],
)
def test_a_server_that_refuses_for_good_is_not_asked_again(text, is_tried_again):
    of_connection = Shards(OWNER)
    of_connection.subscribe(SLOT)
    of_connection.refuse(SLOT, ErrorReply(text))
    assert of_connection.owner(CALL) == OWNER
    assert bool(of_connection.subscribe(SLOT)) is bool(of_connection.subscribe(SLOT + 1)) is is_tried_again
    of_connection.refuse(SLOT, ErrorReply("MOVED 1 127.0.0.1:7000"))
    assert bool(of_connection.subscribe(SLOT)) is is_tried_again, "a later reply does not change that"


def test_a_connection_has_no_more_than_so_many(monkeypatch):
    monkeypatch.setattr(shards, "MOST", 2)
    of_connection = Shards(OWNER)
    assert [bool(of_connection.subscribe(slot)) for slot in (1, 2, 3)] == [True, True, False]
    of_connection.drop(channel_of(1))
    assert of_connection.subscribe(3)
