"""Which requests share a batch, what it sends, and what each of them gets of its reply."""

from __future__ import annotations

import pytest

from handfast._engine.batches import ACQUIRE, MOST, RELEASE, join, replies, split
from handfast._engine.calls import MultiRequest, PermitRequest
from handfast._engine.effects import Call
from handfast._engine.keys import KeySet
from handfast._engine.packing import doubles, read_reply
from handfast._engine.resp import Reader, bulk
from handfast._engine.script import command


def place(name):
    return KeySet("hf", "lock", name)


def lock(name, ttl_ms=1000, **options):
    return PermitRequest(place(name), ttl_ms=ttl_ms, renew=True, **options)


class Request:
    def __init__(self, call):
        self.call = call
        self.again = False


def parted(*calls):
    """Return the tokens that go alone, and those of each batch."""
    alone, batches = split([Request(call) for call in calls])
    return [request.call.token for request in alone], [[request.call.token for request in batch] for batch in batches]


def test_acquires_and_releases_of_different_locks_join_a_batch_each():
    calls = [lock("a").acquire(b"a"), lock("b").release(b"b"), lock("c").acquire(b"c"), lock("d").release(b"d")]
    assert parted(*calls) == ([], [[b"a", b"c"], [b"b", b"d"]])


def test_a_request_that_is_alone_and_those_that_are_no_short_way_keep_their_order():
    several = MultiRequest([place("a"), place("b")], ttl_ms=1000, renew=True, max_waiters=1)
    calls = [
        lock("a").acquire(b"t1", ticket=5),
        lock("b").acquire(b"t2"),
        lock("c", limit=2).acquire(b"t3"),
        lock("d").release(b"t4", copies=True),
        lock("e").renew_for(b"t5", 1),
        lock("f").cancel(b"t6"),
        several.acquire(b"t7"),
        lock("g").release(b"t8"),
        Call(command("PING", 0), b""),
    ]
    rows = [Request(call) for call in calls]
    assert split(rows) == (rows, [])


def test_of_several_requests_for_one_lock_none_joins():
    calls = [lock("a").acquire(b"1"), lock("b").acquire(b"2"), lock("a").acquire(b"3"), lock("c").acquire(b"4")]
    assert parted(*calls) == ([b"1", b"3"], [[b"2", b"4"]])


def test_acquires_with_other_leases_join_other_batches():
    calls = [lock(name, ttl_ms).acquire(name.encode()) for name, ttl_ms in zip("abcd", (1000, 2000) * 2, strict=True)]
    assert parted(*calls) == ([], [[b"a", b"c"], [b"b", b"d"]])


def test_an_acquire_joins_a_try():
    assert parted(lock("a").acquire(b"a"), lock("b").try_acquire(b"b")) == ([], [[b"a", b"b"]])


def test_what_was_sent_before_and_what_tasks_contend_for_goes_alone():
    taken = lock("c")
    taken.acquire(b"").lock.is_free = False
    rows = [Request(lock(name).acquire(name.encode())) for name in "abd"] + [Request(taken.acquire(b"c"))]
    rows[0].again = True
    alone, (batch,) = split(rows)
    assert (alone, batch) == ([rows[0], rows[3]], rows[1:3])


@pytest.mark.parametrize("number", [MOST - 1, MOST, MOST + 1, MOST + 2, 3 * MOST + 1])
def test_a_batch_has_no_more_names_than_allowed(number):
    alone, batches = parted(*(lock(str(n)).acquire(b"%d" % n) for n in range(number)))
    assert [b"%d" % n for n in range(number)] == [token for batch in batches for token in batch] + alone
    assert len(alone) == (number % MOST == 1)
    assert all(2 <= len(batch) <= MOST for batch in batches)


def words(call):
    reader = Reader()
    reader.feed(call.prefix.evalsha + call.args + (bulk(call.wants) if call.waiter else b""))
    return reader.frame()


def test_a_batch_is_a_call_of_its_script():
    acquires = join([lock("a").acquire(b"t1", caller=7), lock("b").acquire(b"token2", caller=9)])
    assert words(acquires) == [
        b"EVALSHA",
        ACQUIRE.digest.encode(),
        b"2",
        *(place(name).key("state").encode() for name in "ab"),
        b"\x02t1" + doubles(7) + b"\x06token2" + doubles(9),
        b"1000",
        doubles(1, 1, 1000),
    ]
    releases = join([lock("a").release(b"t1"), lock("b").release(b"token2")])
    assert words(releases)[1:3] == [RELEASE.digest.encode(), b"2"]
    assert words(releases)[5:] == [b"\x02t1\x06token2"]


def test_the_replies_are_those_of_the_ordinary_scripts():
    acquires = join([lock(name).acquire(name.encode()) for name in "abc"])
    first, second, third = replies(acquires, doubles(7, 0, 2**52))
    assert (first, bool(second), third) == (7, False, 2**52)
    releases = join([lock(name).release(name.encode()) for name in "abc"])
    first, second, third = replies(releases, b"101")
    assert read_reply(first) == read_reply(third) == read_reply(b"released " + doubles(0))
    assert not second
