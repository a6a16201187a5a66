"""Two names that look alike are two things, in all that shows a name or takes one: each key has one text, and each text one key."""

from __future__ import annotations

from glob import escape

from handfast._engine.keys import KEYED
from handfast._watch.acts import Named
from tests._support.helpers import settled

ALIKE = [
    ("a|b", "c"),
    ("a", "b|c"),
    ("a", "b", "c"),
    ("a|b|c",),
    ("a\\", "b", "c"),
    ("a\\|b", "c"),
    ("a", "b\\|c"),
    ("a\\\\|b\\|c",),
]
"""Names, with the parts of a key behind them."""

USES = {
    "once": lambda made: made.run(lambda: 1),
    "limiter": lambda made: made.try_acquire(),
    "latch": lambda made: made.done("x"),
    "autocomplete": lambda made: made.add("x"),
    "scores": lambda made: made.advance({"x": 1}),
}
"""By the kind of the name, a call that leaves something."""

ACTS = {
    "once": lambda there, named: named.forget(there, reason="trial", version=named.version(there)),
    "latch": lambda there, named: named.forget(there, reason="trial", version=named.version(there)),
    "limiter": lambda there, named: named.pause(there, seconds=60, reason="trial"),
}
"""By the kind of the name, an act of an operator."""

WAS_HIT = {
    "once": lambda status: status.state == "idle",
    "latch": lambda status: status.number == 0,
    "limiter": lambda status: status.paused_for > 0,
}
"""By the kind of the name, whether an act has hit what has this status."""


def applies(row, api):
    return None if row.of in KEYED - {"partition"} else "it has no keys"


def made_by(row, client):
    """Return the object of each key."""
    objects = [(row.make(client, name), parts) for name, *parts in ALIKE]
    return [made.keyed(*parts) if parts else made for made, parts in objects]


async def test_alike(client, there, row):
    made, act, was_hit = made_by(row, client), ACTS.get(row.of), WAS_HIT.get(row.of)
    texts = [one.name for one in made]

    assert len(set(texts)) == len(ALIKE)
    assert [(named.name, *named.parts) for named in (Named.of(row.of, text) for text in texts)] == ALIKE
    for one in made if row.of in USES else ():
        await settled(USES[row.of](one))
    if act is None:
        return
    assert sorted(found.name for found in there.names(kinds=[row.of], recorded=True)) == sorted(texts)
    for number, text in enumerate(texts, 1):
        assert [found.name for found in there.names(escape(text), kinds=[row.of], recorded=True)] == [text]
        act(there, Named.of(row.of, text))
        hit = [was_hit(await settled(one.status())) for one in made]
        assert hit == [place < number for place in range(len(made))], text
