"""Foreign keys and odd values beside a name cost only the odd names: the name works and is listed, an act on an odd name is refused."""

from __future__ import annotations

import pytest

from handfast import ServerRefused
from handfast._kinds import KINDS
from tests._support.helpers import settled
from tests._support.kinds import OPERATED

ODD = {
    "list": lambda raw, key: raw.rpush(key, "x"),
    "text": lambda raw, key: raw.set(key, "x"),
    "hash": lambda raw, key: raw.hset(key, mapping={"s": b"\1\2", "last": b"\1", "": "x", "x" * 32: b"\3"}),
    "zset": lambda raw, key: raw.zadd(key, {"x" * 32: 1, "y": float("inf"), b"\xff": -1}),
}
"""By the name that it has, what stands in each key of a name."""


def applies(row, api):
    return "it is as its object" if row.loop else None


@pytest.fixture
def _odd(raw, row):
    """Odd values in the keys of odd names of that kind."""
    kind = row.of
    for name, write in ODD.items():
        for part in {"state", "tokens", *KINDS[kind].parts}:
            write(raw, f"{{hf:{kind}:{name}}}:{part}")
    for key in (
        f"{{hf:{kind}:%zz%}}:state",
        f"{{hf:{kind}:{'n' * 5000}}}:state",
        f"{{hf:{kind}:}}:state",
        f"hf:{kind}",
    ):
        raw.set(key, "x")
    raw.set(f"{{hf:{kind}:".encode() + b"\xff\xfe}:result", b"\xff")
    yield
    raw.flushall()


@pytest.mark.usefixtures("_odd")
async def test_foreign(client, there, row, visit):
    if row.shape == "calls":
        await settled(row.calls.use(client, "a"))
    else:
        one = visit()
        assert await one.enters(), repr(one.error)
    found = {one.name: str(one) for one in there.names(recorded=True)}
    own = {name for name in found if name.partition("|")[0] in {"a", "b", "c"}}  # a partition may have its items by now
    assert set(found) <= own | {*ODD}
    assert "a" in found or row.of not in OPERATED
    if row.shape != "calls":
        assert await one.leaves() is None
    if row.of in OPERATED:
        with pytest.raises(ServerRefused, match="'list'"):
            there.hold("list", 60, kind=row.of, reason="a migration")
