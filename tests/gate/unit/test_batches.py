"""Which requests share a batch, what it sends, and what each of them gets of its reply."""

from __future__ import annotations

import pytest

from handfast._engine.batches import ACQUIRE, MOST, RELEASE, join, replies, split
from handfast._engine.calls import MultiRequest, PermitRequest
from handfast._engine.constants import TOKEN_SIZE
from handfast._engine.effects import Call
from handfast._engine.keys import KeySet
from handfast._engine.options import LeaseOptions
from handfast._engine.packing import doubles, read_reply
from handfast._engine.resp import Reader
from handfast._engine.script import command


def place(name):
    return KeySet("hf", "lock", name)


def lock(name, ttl_ms=1000, limit=1, weight=1, **options):
    return PermitRequest(place(name), LeaseOptions(ttl_ms, **options), limit=limit, weight=weight)


def full(token):
    """Return a token of the size that tokens have."""
    return token.ljust(TOKEN_SIZE, b".")


class Request:
    def __init__(self, call):
        self.call = call
        self.again = False


def parted(*calls):
    """Return the tokens that go alone, and those of each batch."""
    alone, batches = split([Request(call) for call in calls])
    return [called(request) for request in alone], [[called(request) for request in batch] for batch in batches]


def called(request):
    return request.call.token.rstrip(b".")


def test_acquires_and_releases_of_different_locks_join_a_batch_each():
    calls = [
        lock("a").acquire(full(b"a")),
        lock("b").release(full(b"b")),
        lock("c").acquire(full(b"c")),
        lock("d").release(full(b"d")),
    ]
    assert parted(*calls) == ([], [[b"a", b"c"], [b"b", b"d"]])


def test_a_request_that_is_alone_and_those_that_are_no_short_way_keep_their_order():
    several = MultiRequest([place("a"), place("b")], LeaseOptions(1000, max_waiters=1))
    calls = [
        lock("a").acquire(full(b"t1"), ticket=5),
        lock("b").acquire(full(b"t2")),
        lock("c", limit=2).acquire(full(b"t3")),
        lock("d").release(full(b"t4"), copies=True),
        lock("e").renew_for(b"t5", 1),
        lock("f").cancel(b"t6"),
        several.acquire(full(b"t7")),
        lock("g").release(full(b"t8")),
        Call(command("PING", 0), b""),
    ]
    rows = [Request(call) for call in calls]
    assert split(rows) == (rows, [])


def test_of_several_requests_for_one_lock_none_joins():
    calls = [
        lock("a").acquire(full(b"1")),
        lock("b").acquire(full(b"2")),
        lock("a").acquire(full(b"3")),
        lock("c").acquire(full(b"4")),
    ]
    assert parted(*calls) == ([b"1", b"3"], [[b"2", b"4"]])


def test_acquires_with_other_leases_join_other_batches():
    calls = [
        lock(name, ttl_ms).acquire(full(name.encode())) for name, ttl_ms in zip("abcd", (1000, 2000) * 2, strict=True)
    ]
    assert parted(*calls) == ([], [[b"a", b"c"], [b"b", b"d"]])


def test_an_acquire_joins_a_try():
    assert parted(lock("a").acquire(full(b"a")), lock("b").try_acquire(full(b"b"))) == ([], [[b"a", b"b"]])


def test_what_was_sent_before_and_what_tasks_contend_for_goes_alone():
    taken = lock("c")
    taken.acquire(full(b"")).joining.is_free = False
    rows = [Request(lock(name).acquire(full(name.encode()))) for name in "abd"] + [Request(taken.acquire(full(b"c")))]
    rows[0].again = True
    alone, (batch,) = split(rows)
    assert (alone, batch) == ([rows[0], rows[3]], rows[1:3])


@pytest.mark.parametrize("number", [MOST - 1, MOST, MOST + 1, MOST + 2, 3 * MOST + 1])
def test_a_batch_has_no_more_names_than_allowed(number):
    alone, batches = parted(*(lock(str(n)).acquire(full(b"%d" % n)) for n in range(number)))
    assert [b"%d" % n for n in range(number)] == [token for batch in batches for token in batch] + alone
    assert len(alone) == (number % MOST == 1)
    assert all(2 <= len(batch) <= MOST for batch in batches)


def words(call):
    reader = Reader()
    reader.feed(call.prefix.evalsha + call.packed + (call.record(b"") if call.waiter else b""))
    return reader.frame()


def test_a_batch_is_a_call_of_its_script():
    acquires = join([lock("a").acquire(full(b"t1"), caller=7), lock("b").acquire(full(b"token2"), caller=9)])
    assert words(acquires) == [
        b"EVALSHA",
        ACQUIRE.digest.encode(),
        b"2",
        *(place(name).key("state").encode() for name in "ab"),
        b"\x20" + full(b"t1") + doubles(7) + b"\x20" + full(b"token2") + doubles(9),
        b"1000",
        doubles(1, 1, 1000) + b" ttl=1000",
    ]
    releases = join([lock("a").release(full(b"t1")), lock("b").release(full(b"token2"))])
    assert words(releases)[1:3] == [RELEASE.digest.encode(), b"2"]
    assert words(releases)[5:] == [b"\x20" + full(b"t1") + b"\x20" + full(b"token2")]


@pytest.mark.parametrize("size", [1, TOKEN_SIZE - 1, TOKEN_SIZE, TOKEN_SIZE + 1, 200])
def test_a_call_says_the_same_for_a_token_of_any_size(size):
    """Only tokens of the usual size are packed in pieces and join batches."""
    one, token = lock("a", ttl_ms=60_000), b"x" * size
    keys = [place("a").key(part).encode() for part in ("state", "tokens")]
    wants = doubles(1, 1, 2000, 7) + b" ttl=60000"
    request, trying = doubles(60_000, 60_000, 100_000, 0), doubles(60_000, 0, 100_000, 0)
    assert words(one.acquire(token, caller=7))[3:] == [*keys, token, request, wants]
    assert words(one.try_acquire(token, caller=7))[3:] == [*keys, token, trying, wants]
    assert words(one.release(token))[2:] == [b"2", *keys, token]
    assert words(one.confirm(token))[2:] == [b"2", *keys, token, b"60000"]
    for call in (one.acquire(token), one.try_acquire(token), one.release(token)):
        assert (call.joining is not None) == (size == TOKEN_SIZE)


def test_the_replies_are_those_of_the_ordinary_scripts():
    acquires = join([lock(name).acquire(full(name.encode())) for name in "abc"])
    first, second, third = replies(acquires, doubles(7, 0, 2**52))
    assert (first, bool(second), third) == (7, False, 2**52)
    releases = join([lock(name).release(full(name.encode())) for name in "abc"])
    first, second, third = replies(releases, b"101")
    assert read_reply(first) == read_reply(third) == read_reply(b"released " + doubles(0))
    assert not second
