"""Try names that are meant to break out of their keys, and check that the rights of a namespace contain them.

    R30  hostile names: collisions                Two names that share a key, and keys that do not identify their name.
    R30  hostile names: slots                     Names whose keys lie in more than one cluster slot.
    R30  hostile names: rights of a namespace     Keys and channels that the rights of another namespace open, and those
                                                  that the rights of their own namespace do not open.

Namespaces and names are combined from the characters of keys, hash tags, percent-encoding and patterns, so that many
differ only in where a boundary lies. No server is needed here; `tests/gate/acl/test_acl_names.py` asks one.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote

from redis.crc import key_slot

from handfast._engine.calls import PARTS
from handfast._engine.keys import KeySet, control_channel, inbox_channel
from handfast.acl import NAMESPACED, rights_for
from handfast.compat._shared import beside
from handfast.fencing import guard_key
from handfast_lab.chaos.figures import Figure, Tally
from handfast_lab.chaos.trials import Progress
from handfast_lab.rivals.contender import Contender

__all__ = ["COUNT", "ROWS", "applies", "hostile", "trial"]

ROWS = ("R30",)
COUNT = 1_000_000
"""Names."""

PIECES = (
    *"a:{}%*?[]\\^~&|+-@/.,;'\"`$#()<>=! \t\n\r\0\x7f",
    *("{}", "}:", "}:state", "{hf:lock:a}", "%7B", "%7D", "%257D", "%3A", "%00", "[^a]", "[a-z]", "\\*", "..", "://"),
    *(
        "hf",
        "lock",
        "semaphore",
        "inbox",
        "control",
        "state",
        "tokens",
        "fence",
        "handfast",
        "m4l",
    ),
    *(
        "é",
        "e\u0301",
        "\u1112\u1161\u11ab",
        "\u202e",
        "\ufeff",
        "\N{LOCK}",
        "\U0010ffff",
        "\ud7ff",
        "\N{LATIN SMALL LETTER LONG S}",
        "İ",
    ),
)
"""Pieces that names are made of."""

ALL_PARTS = {
    "lock": PARTS,
    "semaphore": PARTS,
    "rwlock": PARTS,
    "autocomplete": ("exact", "folded", "exact_ranked", "exact_ranked:ranks", "folded_ranked", "folded_ranked:ranks"),
    "scores": ("members", "answer:t"),
}
"""Key parts of each kind."""

NAMESPACES = 500
OTHERS = 3
"""Other namespaces that each name is checked against."""

STRANGE = 1_000
"""One in this many keys with a brace but no hash tag is checked: for each of them `beside` tries thousands of names."""

_KEY = re.compile(r"\{([^:{}]+):([^:{}]+):([^{}]+)\}:(.+)")
_KEY_IN_BRACES = re.compile(r"\{([^:{}]+)\}:([^:{}]+):([^:{}]+):(.+)")
"""The same of a namespace that stands in braces."""
_GLOB = frozenset("*?[\\")


def applies(contender: Contender) -> bool:
    """Return True for the sync API of Handfast; both APIs use the same keys."""
    return contender.is_ours and contender.api == "sync"


def trial(contender: Contender, count: int, seed: int, progress: Progress) -> list[Figure]:
    """Check `count` names."""
    chance = random.Random(seed)  # noqa: S311 -- test data
    spaces = [_Namespace.of(text) for text in {hostile(chance) for _ in range(NAMESPACES)}]
    keys, slots, rights = Tally(), Tally(), Tally()
    tags, whose = set(), set()
    for number in range(1, count + 1):
        space, kind, name = chance.choice(spaces), chance.choice(list(ALL_PARTS)), hostile(chance)
        place = KeySet(space.text, kind, name)
        tags.add(hash(place.tag))
        whose.add(hash((space.text, kind, name)))
        found = {part: place.key(part) for part in ALL_PARTS[kind]}
        for part, key in found.items():
            keys.check(_read(key) == (space.text, kind, name, part), "{} is not read as it was written", key)
        slots.check(len({key_slot(key.encode()) for key in found.values()}) == 1, "{} is in several slots", place.tag)
        for what in _beside(name, chance):
            slots.check(what == key_slot(name.encode()), "{} and what is kept beside it are in two slots", name)
        words = *found.values(), inbox_channel(space.text, "c", 1), control_channel(space.text, "c")
        is_open = all(space.opens(word, kind) for word in words)
        rights.check(is_open, "{} does not open its own {}", space.text, place.tag)
        for other in chance.sample(spaces, OTHERS):
            if other is not space:
                rights.check(not any(map(other.opens, words)), "{} opens one of {}", other.text, words)
        if number % 1000 == 0 or number == count:
            progress(number)
    keys.wrong += ["two names share a tag"] * (len(whose) - len(tags))
    keys.measured["names"] = slots.measured["names"] = len(whose)
    rights.measured["namespaces"] = len(spaces)
    return [
        keys.figure("R30", "hostile names: collisions", contender.name, "keys", seed=seed),
        slots.figure("R30", "hostile names: slots", contender.name, "in two slots", seed=seed),
        rights.figure("R30", "hostile names: rights of a namespace", contender.name, "wrong", seed=seed),
    ]


def hostile(chance: random.Random) -> str:
    """Return a random name of hostile pieces."""
    return "".join(chance.choices(PIECES, k=chance.randint(1, 6)))


@dataclass(frozen=True, eq=False, slots=True)
class _Namespace:
    text: str
    patterns: dict[str, tuple[str, ...]]
    """By kind, the prefixes of the keys and channels that its rights open."""
    all_of_them: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> _Namespace:
        found = {}
        for kind in ALL_PARTS:
            rights = rights_for([kind], namespace=text)
            found[kind] = tuple(_literal(pattern) for pattern in (*rights.keys, *rights.channels))
        whole = rights_for(NAMESPACED, namespace=text)
        return cls(text, found, tuple(_literal(pattern) for pattern in (*whole.keys, *whole.channels)))

    def opens(self, word: str, kind: str | None = None) -> bool:
        """Return whether the rights of the namespace, or those for one kind, open a key or channel."""
        return word.startswith(self.all_of_them if kind is None else self.patterns[kind])


def _literal(pattern: str) -> str:
    """Return the pattern without its final star.

    With any other wildcard, return an empty prefix, which opens everything.
    """
    text = pattern.removesuffix("*")
    return text if text != pattern and not _GLOB & set(text) else ""


def _read(key: str) -> tuple[str, str, str, str] | None:
    """Parse namespace, kind, name and part from a key. If every key can be parsed, no two names share one."""
    for pattern, space in ((_KEY, "{}"), (_KEY_IN_BRACES, "{{{}}}")):
        if found := pattern.fullmatch(key):
            return space.format(unquote(found[1])), found[2], unquote(found[3]), found[4]
    return None


def _beside(name: str, chance: random.Random) -> Iterator[int]:
    """Yield the slots of the keys that are stored beside a user's own key of that name."""
    key = name.encode()
    yield key_slot(guard_key(key))
    start = key.find(b"{")
    if start < 0 or key.find(b"}", start) > start + 1 or chance.randrange(STRANGE) == 0:
        yield key_slot(beside(key, b"0" * 32))
