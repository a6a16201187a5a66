"""Names that are meant to break out of the keys they become a part of, and rights that are to hold them in.

    R30  hostile names: collisions                two of them that would share a key, and keys that do not say whose they are
    R30  hostile names: slots                     names whose keys would lie in several slots of a cluster
    R30  hostile names: rights of a namespace     keys and channels of one namespace that the rights of another would open, and
                                                  those that its own would not

Namespaces, kinds and names are put together from what keys, hash tags, percent-encodings and patterns are made of, so that
many differ by where a border lies and by nothing else. No server is asked: `tests/acl/test_acl_names.py` does that.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import unquote

from redis.crc import key_slot

from handfast._engine.keys import KeySet, control_channel, inbox_channel
from handfast.acl import NAMESPACED, rights_for
from handfast.compat._shared import beside
from handfast.fencing import guard_key
from handfast_lab.chaos.figures import Figure, examples_of
from handfast_lab.chaos.trials import Tell
from handfast_lab.rivals.contender import Contender

__all__ = ["COUNT", "ROWS", "applies", "hostile", "trial"]

ROWS = ("R30",)
COUNT = 1_000_000
"""Names."""

PIECES = (
    *"a:{}%*?[]\\^~&|+-@/.,;'\"`$#()<>=! \t\n\r\0\x7f",
    *("{}", "}:", "}:holders", "{hf:lock:a}", "%7B", "%7D", "%257D", "%3A", "%00", "[^a]", "[a-z]", "\\*", "..", "://"),
    *(
        "hf",
        "lock",
        "semaphore",
        "inbox",
        "control",
        "holders",
        "queue",
        "tokens",
        "tombstones",
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
"""What names are made of."""

PARTS = {
    "lock": ("holders", "queue", "tokens", "tombstones"),
    "semaphore": ("holders", "queue", "tokens", "tombstones"),
    "rwlock": ("holders", "queue", "tokens", "tombstones"),
    "autocomplete": ("exact", "folded", "exact_ranked", "exact_ranked:ranks", "folded_ranked", "folded_ranked:ranks"),
    "scores": ("members", "answer:t"),
}
"""What is kept of each kind of thing."""

NAMESPACES = 500
OTHERS = 3
"""Other namespaces whose rights each name is held against."""

STRANGE = 1_000
"""One in so many keys with a brace that is no hash tag is looked at: for each of them thousands of names are tried out."""

_KEY = re.compile(r"\{([^:{}]+):([^:{}]+):([^{}]+)\}:(.+)")
_GLOB = frozenset("*?[\\")


def applies(contender: Contender) -> bool:
    """Both APIs have the same keys."""
    return contender.is_ours and contender.api == "sync"


def trial(contender: Contender, count: int, seed: int, tell: Tell) -> list[Figure]:
    """So many names."""
    chance = random.Random(seed)  # noqa: S311 -- no secret
    spaces = [_Namespace.of(text) for text in {hostile(chance) for _ in range(NAMESPACES)}]
    keys, slots, rights = _Tally(), _Tally(), _Tally()
    tags, whose = set(), set()
    for number in range(1, count + 1):
        space, kind, name = chance.choice(spaces), chance.choice(list(PARTS)), hostile(chance)
        place = KeySet(space.text, kind, name)
        tags.add(hash(place.tag))
        whose.add(hash((space.text, kind, name)))
        found = {part: place.key(part) for part in PARTS[kind]}
        for part, key in found.items():
            keys.hold(_read(key) == (space.text, kind, name, part), "{} is not read as it was written", key)
        slots.hold(len({key_slot(key.encode()) for key in found.values()}) == 1, "{} is in several slots", place.tag)
        for what in _beside(name, chance):
            slots.hold(what == key_slot(name.encode()), "{} and what is kept beside it are in two slots", name)
        words = *found.values(), inbox_channel(space.text, "c", 1), control_channel(space.text, "c")
        is_open = all(space.opens(word, kind) for word in words)
        rights.hold(is_open, "{} does not open its own {}", space.text, place.tag)
        for other in chance.sample(spaces, OTHERS):
            if other is not space:
                rights.hold(not any(map(other.opens, words)), "{} opens one of {}", other.text, words)
        if number % 1000 == 0 or number == count:
            tell(number)
    keys.wrong += ["two names share a tag"] * (len(whose) - len(tags))
    return [
        keys.figure(contender, "hostile names: collisions", "keys", seed, names=len(whose)),
        slots.figure(contender, "hostile names: slots", "in two slots", seed, names=len(whose)),
        rights.figure(contender, "hostile names: rights of a namespace", "wrong", seed, namespaces=len(spaces)),
    ]


def hostile(chance: random.Random) -> str:
    """A name that somebody might think of who wants to be somewhere else."""
    return "".join(chance.choices(PIECES, k=chance.randint(1, 6)))


@dataclass
class _Tally:
    tried: int = 0
    wrong: list[str] = field(default_factory=list)

    def hold(self, is_right: bool, otherwise: str, *about: object) -> None:  # noqa: FBT001 -- it is what it is about
        """One more of these."""
        self.tried += 1
        if not is_right:
            self.wrong.append(otherwise.format(*map(repr, about)))

    def figure(self, contender: Contender, what: str, unit: str, seed: int, **measured: float) -> Figure:
        """As the scoreboard has it."""
        wrong = examples_of(self.wrong)
        return Figure("R30", what, contender.name, self.tried, len(self.wrong), unit, {**measured}, seed, wrong)


@dataclass(frozen=True, eq=False, slots=True)
class _Namespace:
    text: str
    patterns: dict[str, tuple[str, ...]]
    """By kind: what its rights open, up to the star at the end."""
    all_of_them: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> _Namespace:
        found = {}
        for kind in PARTS:
            rights = rights_for([kind], namespace=text)
            found[kind] = tuple(_literal(pattern) for pattern in (*rights.keys, *rights.channels))
        whole = rights_for(NAMESPACED, namespace=text)
        return cls(text, found, tuple(_literal(pattern) for pattern in (*whole.keys, *whole.channels)))

    def opens(self, word: str, kind: str | None = None) -> bool:
        """Whether its rights, or those to one kind of thing, open a key or a channel."""
        return word.startswith(self.all_of_them if kind is None else self.patterns[kind])


def _literal(pattern: str) -> str:
    """A pattern without the star at its end. One with another in it is no pattern of ours: then it opens everything."""
    text = pattern.removesuffix("*")
    return text if text != pattern and not _GLOB & set(text) else ""


def _read(key: str) -> tuple[str, str, str, str] | None:
    """Namespace, kind, name and part, as they stand in a key. What can be read back from each key is in no two names'."""
    found = _KEY.fullmatch(key)
    return (unquote(found[1]), found[2], unquote(found[3]), found[4]) if found else None


def _beside(name: str, chance: random.Random) -> Iterator[int]:
    """The slots of what is kept beside a key of the user's own of that name."""
    key = name.encode()
    yield key_slot(guard_key(key))
    start = key.find(b"{")
    if start < 0 or key.find(b"}", start) > start + 1 or chance.randrange(STRANGE) == 0:
        yield key_slot(beside(key, b"0" * 32))
