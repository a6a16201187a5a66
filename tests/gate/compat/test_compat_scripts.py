"""The scripts of the drop-in locks on a real server: every reply, and every key that they write."""

from __future__ import annotations

import pytest

from handfast.compat import _shared as shared

TTL, LONG = 200_000, 600_000
MINUTE = 60_000
SLACK = 25_000
"""Milliseconds; the values differ by more than a slow machine may lose."""


ENDING = """local server = redis
local redis = {pcall = server.pcall}
function redis.call(name, ...)
  return name == 'PTTL' and 0 or server.call(name, ...)
end
"""


class Drop:
    """The scripts of one lock, with the parameters that their headers name."""

    lock, past = "a", "a:past"

    def __init__(self, client):
        self.client = client
        self.ending = False
        """Whether scripts find that the lock has less than a millisecond left."""

    def run(self, script, *args):
        keys = [getattr(self, key) for key in script.keys]
        assert len(args) == len(script.args)
        source = ENDING * self.ending + script.source
        tag, *fields = reply = self.client.eval(source, len(keys), *keys, *args)
        assert len(fields) == {"busy": 1}.get(tag, 0)
        return reply

    def acquire(self, token, ttl=TTL, *, own=True):
        return self.run(shared.ACQUIRE, token, ttl, int(own))

    def cancel(self, token, *, own=True):
        return self.run(shared.CANCEL, token, int(own))

    def extend(self, token, more=TTL):
        return self.run(shared.EXTEND, token, more)

    def release(self, token):
        return self.run(shared.RELEASE, token)

    def renew(self, token, ttl=TTL, *, even_endless=False):
        return self.run(shared.RENEW, token, ttl, int(even_endless))

    def has(self, lock=None, past=None):
        """Assert that the two keys have these values and these TTLs in ms; -1 means no TTL."""
        for key, expected in ((self.lock, lock), (self.past, past)):
            text, ms = expected or (None, -2)
            assert self.client.get(key) == text, key
            left = self.client.pttl(key)
            assert left == ms if ms < 0 else max(0, ms - SLACK) <= left <= ms, key


@pytest.fixture
def drop(raw):
    return Drop(raw)


# --- acquire


def test_acquire_with_a_generated_token_writes_only_the_lock_key(drop):
    assert drop.acquire("t1") == ["granted"]
    drop.has(("t1", TTL))
    drop.client.delete("a")
    assert drop.acquire("t2", 0) == ["granted"]
    drop.has(("t2", -1))
    assert drop.acquire("t1") == ["busy", -1]


@pytest.mark.parametrize(("ttl", "remembered"), [(TTL, TTL), (2 * LONG, LONG), (0, LONG)])
def test_acquire_with_a_given_token_also_records_the_token(drop, ttl, remembered):
    assert drop.acquire("given", ttl, own=False) == ["granted"]
    drop.has(("given", ttl or -1), ("granted", remembered))
    assert drop.acquire("given", ttl, own=False) == ["granted"], "its own grant again"
    drop.client.delete("a:past")
    assert drop.acquire("given", ttl, own=False)[0] == "busy", "the grant of another acquire with that token"


def test_a_lock_of_one_millisecond_expires(drop):
    drop.acquire("given", 1, own=False)
    assert drop.client.pttl("a") != -1
    assert drop.client.pttl("a:past") < 1000


@pytest.mark.parametrize(("left", "then"), [(TTL // 2, TTL), (3 * TTL, 3 * TTL), (None, -1)])
def test_a_repeated_acquire_restores_the_full_ttl(drop, left, then):
    drop.acquire("t1")
    if left:
        drop.client.pexpire("a", left)
    else:
        drop.client.persist("a")
    assert drop.acquire("t1") == ["granted"]
    drop.has(("t1", then))


def test_busy_reports_the_remaining_ttl_of_the_holder(drop):
    drop.client.set("a", "t1", px=TTL)
    (tag, left) = drop.acquire("t2")
    assert tag == "busy"
    assert TTL - SLACK < left <= TTL
    assert drop.acquire("t1", own=False)[0] == "busy"
    drop.has(("t1", TTL))
    drop.client.delete("a")
    drop.client.hset("a", "no", "text")
    assert drop.acquire("t2") == ["busy", -1]
    assert drop.client.hgetall("a") == {"no": "text"}


def test_an_acquire_after_its_cancel_has_no_effect(drop):
    drop.client.set("a:past", "over", px=TTL)
    assert drop.acquire("t1") == ["over"]
    assert drop.acquire("t1", own=False) == ["over"]
    drop.has(None, ("over", TTL))


# --- cancel


def test_cancel_undoes_an_acquire(drop):
    drop.acquire("t1")
    assert drop.cancel("t1") == ["cancelled"]
    drop.has(None, ("over", LONG))
    drop.client.delete("a:past")
    drop.acquire("given", own=False)
    assert drop.cancel("given", own=False) == ["cancelled"]
    drop.has(None, ("over", LONG))
    assert drop.cancel("given", own=False) == ["cancelled"]
    drop.has(None, ("over", LONG))


@pytest.mark.parametrize(("token", "own"), [("t2", True), ("t2", False), ("t1", False)])
def test_cancel_leaves_the_lock_of_another_token(drop, token, own):
    drop.acquire("t1")
    assert drop.cancel(token, own=own) == ["cancelled"]
    drop.has(("t1", TTL), ("over", LONG))


def test_cancel_leaves_a_key_that_is_not_a_lock(drop):
    drop.client.hset("a", "no", "text")
    assert drop.cancel("t1") == ["cancelled"]
    assert drop.client.hgetall("a") == {"no": "text"}


@pytest.mark.parametrize("mine", [False, True])
def test_at_maxmemory_a_cancel_is_recorded(drop, raw, mine):
    drop.acquire("t1")
    raw.config_set("maxmemory", 1)
    assert drop.cancel("t1" if mine else "t2") == ["cancelled"]
    raw.config_set("maxmemory", 0)
    drop.has(None if mine else ("t1", TTL), ("over", LONG))


# --- extend


def test_a_repeated_extension_writes_once(drop):
    drop.acquire("t1")
    assert drop.extend("t1", TTL) == ["extended"]
    drop.has(("t1", 2 * TTL), ("extended", MINUTE))
    assert drop.extend("t1", TTL) == ["extended"], "the same call again"
    drop.has(("t1", 2 * TTL), ("extended", MINUTE))
    assert drop.extend("t2") == ["lost"]
    drop.client.delete("a")
    assert drop.extend("t1") == ["lost"]


def test_a_lock_without_a_ttl_is_not_extended(drop):
    drop.acquire("t1", 0)
    assert drop.extend("t1") == ["lost"]
    drop.has(("t1", -1))


def test_an_extension_keeps_full_precision(drop):
    drop.acquire("t1")
    assert drop.extend("t1", 2**52 + 1) == ["extended"]
    assert 2**52 < drop.client.pttl("a") <= 2**52 + 1 + TTL


def test_at_maxmemory_extend_works(drop, raw):
    drop.acquire("t1")
    raw.config_set("maxmemory", 1)
    assert drop.extend("t1", TTL) == ["extended"]
    assert drop.renew("t1", 3 * TTL) == ["renewed"]


# --- release


def test_release_deletes_the_lock_once(drop):
    drop.acquire("t1")
    assert drop.release("t2") == ["lost"]
    drop.has(("t1", TTL))
    assert drop.release("t1") == ["released"]
    drop.has(None, ("over", MINUTE))
    drop.client.set("a", "t1", px=TTL)
    assert drop.release("t1") == ["released"], "the same call again: the key now belongs to another"
    drop.has(("t1", TTL), ("over", MINUTE))
    drop.client.delete("a", "a:past")
    assert drop.release("t1") == ["lost"]
    drop.has()


# --- renew


@pytest.mark.parametrize("even_endless", [False, True])
def test_renew_sets_the_ttl_of_its_own_lock_only(drop, even_endless):
    drop.acquire("t1", 2 * TTL)
    assert drop.renew("t1", TTL, even_endless=even_endless) == ["renewed"]
    drop.has(("t1", TTL))
    assert drop.renew("t2", 2 * TTL, even_endless=even_endless) == ["lost"]
    drop.client.persist("a")
    assert drop.renew("t1", TTL, even_endless=even_endless) == (["renewed"] if even_endless else ["lost"])
    drop.has(("t1", TTL if even_endless else -1))


# --- in its last millisecond


def test_a_lock_in_its_last_millisecond_is_still_held(drop):
    drop.acquire("t1")
    drop.ending = True
    assert drop.acquire("t2") == ["busy", 0]
    assert drop.extend("t1", 2 * TTL) == ["extended"]
    drop.has(("t1", 2 * TTL), ("extended", MINUTE))
    assert drop.renew("t1", TTL) == ["renewed"]
    drop.client.delete("a:past")
    assert drop.acquire("t1", 3 * TTL) == ["granted"]
    drop.has(("t1", 3 * TTL))
