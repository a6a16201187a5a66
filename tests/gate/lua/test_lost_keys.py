"""The loss of any one key of a name never lets a holder in too many, and never keeps all others out.

It is an unlock for the holders that the key had, and for no others: ``state`` has the first one, ``tokens`` the others.
"""

from __future__ import annotations

import pytest

from handfast._engine.calls import PARTS
from tests._support.engine import weight_of


@pytest.mark.parametrize("part", PARTS)
def test_of_a_semaphore(make, listening, part):
    engine = make(3)
    listening("w1", "w2")
    engine.acquire("h1", 2)
    engine.acquire("h2", 1)
    engine.acquire("w1", 1)
    engine.lose(part)
    engine.acquire("n1", 1, wait=0)
    engine.acquire("w2", 1)
    kept, lost = ("h2", "h1") if part == "state" else ("h1", "h2")
    assert kept in engine.holders()
    if part == "state":
        assert engine.holders() == ["h2"], "how many permits it has is not known, so that all others wait"
    assert engine.release(kept) == ["released", 0]
    assert engine.release(lost) == ["unknown"]
    engine.acquire("w3", 3)
    for token in ("n1", "w1", "w2", "w3"):
        engine.cancel(token)
    assert engine.acquire("latest", 3)[0] == "granted"


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("verb", ["lower", "resize", "remove limit", "release", "cancel"])
def test_of_a_read_write_lock_held_by_a_writer(rw, listening, part, verb):
    listening("r1", "w2")
    rw.acquire("w", rw.limit)
    rw.acquire("r1")
    rw.acquire("w2", rw.limit)
    rw.lose(part)
    if verb == "lower":
        lowered = rw.lower("w", 1)
        assert lowered == (["lost"] if part == "state" else ["lowered", 0])
    elif verb in ("resize", "remove limit"):
        rw.resize(rw.limit if verb == "resize" else 0)
    elif verb == "release":
        assert rw.release("w") == (["unknown"] if part == "state" else ["released", 0])
    else:
        rw.cancel("r1")
    rw.acquire("n1", wait=0)
    rw.acquire("n2", rw.limit, wait=0)
    weights = {token: weight_of(rw.record(token)) for token in rw.holders()}
    assert sum(weights.values()) <= rw.limit
    if "w" in weights and not (verb == "lower" and lowered == ["lowered", 0]):
        assert list(weights) == ["w"]
    for token in ("w", "r1", "w2", "n1", "n2"):
        rw.cancel(token)
    assert rw.acquire("latest", rw.limit, wait=0)[0] == "granted"


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("lost", [0, 1])
def test_of_one_of_two_locks(both, listening, part, lost):
    listening("t2", "t3")
    both.acquire("t1")
    both.acquire("t2")
    one = both.engines[lost]
    served = set()
    one.acquire("t3")
    one.lose(part)
    for _ in range(6):
        for token, names in (("t2", both), ("t3", one)):
            granted = token not in served and names.acquire(token)[0] == "granted"
            assert all(len(held) <= 1 for held in both.holders())
            if granted:
                assert names.release(token)[0] == "released"
                served.add(token)
        both.release("t1")
    assert served == {"t2", "t3"}
    assert both.holders() == both.queues() == [[], []]
