"""The loss of any one key of a name never lets a holder in too many, and never keeps all others out.

Only the loss of ``holders`` is an unlock: nothing else says who holds.
"""

from __future__ import annotations

import pytest

from handfast._engine.calls import PARTS


@pytest.mark.parametrize("part", PARTS)
def test_of_a_semaphore(make, listening, part):
    engine = make(3)
    listening("w1", "w2")
    engine.acquire("h1", 2)
    engine.acquire("h2", 1)
    engine.acquire("w1", 1)
    engine.client.delete(engine.key(part))
    engine.acquire("n1", 1, wait=0)
    engine.acquire("w2", 1)
    if part == "holders":
        assert engine.release("h1") == ["lost"]
    else:
        assert set(engine.holders()) == {"h1", "h2"}
        assert engine.release("h1") == ["released", 0]
        assert engine.release("h2") == ["released", 0]
    engine.acquire("w3", 3)
    for token in ("n1", "w1", "w2", "w3"):
        engine.cancel(token)
    assert engine.acquire("last", 3)[0] == "granted"


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("verb", ["lower", "resize", "remove limit", "release", "cancel"])
def test_of_a_read_write_lock_held_by_a_writer(rw, listening, part, verb):
    listening("r1", "w2")
    rw.acquire("w", rw.limit)
    rw.acquire("r1")
    rw.acquire("w2", rw.limit)
    rw.client.delete(rw.key(part))
    if verb == "lower":
        lowered = rw.lower("w", 1)
        assert lowered == (["lowered", 0] if part in ("queue", "tombstones") else ["lost"])
    elif verb in ("resize", "remove limit"):
        rw.resize(rw.limit if verb == "resize" else 0)
    elif verb == "release":
        assert rw.release("w") == (["lost"] if part == "holders" else ["released", 0])
    else:
        rw.cancel("r1")
    rw.acquire("n1", wait=0)
    rw.acquire("n2", rw.limit, wait=0)
    weights = {token: int((rw.field(token) or "0").split()[0]) for token in rw.holders()}
    assert sum(weights.values()) <= rw.limit
    if "w" in weights and not (verb == "lower" and lowered == ["lowered", 0]):
        assert list(weights) == ["w"]
    for token in ("w", "r1", "w2", "n1", "n2"):
        rw.cancel(token)
    assert rw.acquire("last", rw.limit, wait=0)[0] == "granted"


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("lost", [0, 1])
def test_of_one_of_two_locks(both, listening, part, lost):
    listening("t2", "t3")
    both.acquire("t1")
    both.acquire("t2")
    one = both.engines[lost]
    one.acquire("t3")
    one.client.delete(one.key(part))
    replies = {}
    for _ in range(6):
        for token, names in (("t2", both), ("t3", one)):
            if replies.get(token) != "finished":
                replies[token] = names.acquire(token)[0]
            assert all(len(held) <= 1 for held in both.holders())
            if replies[token] == "granted":
                assert names.release(token)[0] == "released"
        both.release("t1")
    assert set(replies.values()) == {"finished"}, "all were served"
    assert both.holders() == both.queues() == [[], []]
