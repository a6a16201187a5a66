"""Names and namespaces that are meant to break out: their keys stay apart, and rights to one open nothing of another."""

from __future__ import annotations

import random
import re
from urllib.parse import unquote

import redis
from redis.crc import key_slot

from handfast._engine.keys import KeySet, control_channel, inbox_channel
from handfast._kinds import KINDS
from handfast.acl import NAMESPACED, rights_for
from handfast.compat._shared import beside
from handfast.fencing import guard_key

PIECES = [
    *"a:{}%*?[]\\^~&|+-@/.,;'\"`$#()<>=! \t\n\r\0\x7f",
    *("{}", "}:", "}:state", "{hf:lock:a}", "%7B", "%7D", "%257D", "%3A", "%00", "[^a]", "[a-z]", "\\*", "..", "://"),
    *("hf", "lock", "semaphore", "inbox", "control", "state", "tokens", "fence", "handfast", "m4l"),
    *("é", "e\u0301", "\u1112\u1161\u11ab", "\u202e", "\ufeff", "\N{LOCK}", "\U0010ffff", "\ud7ff", "İ"),
]
"""Pieces that names are made of: the characters of keys, hash tags, percent-encoding and patterns."""

PARTS = sorted(
    {part for kind in KINDS.values() for part in kind.parts} | {"tokens", "window:1000", "exact_ranked:ranks"}
)
"""Parts of keys: those of each kind by which its names are found, and some in each form."""

KEY = re.compile(r"\{([^:{}]+):([^:{}]+):([^{}]+)\}:(.+)")
KEY_IN_BRACES = re.compile(r"\{([^:{}]+)\}:([^:{}]+):([^:{}]+):(.+)")
"""The same of a namespace that stands in braces."""


def hostile(chance):
    return "".join(chance.choices(PIECES, k=chance.randint(1, 6)))


def read(key):
    """Parse namespace, kind, name and part from a key. If every key can be parsed, no two names share one."""
    found, is_in_braces = KEY.fullmatch(key), False
    if not found:
        found, is_in_braces = KEY_IN_BRACES.fullmatch(key), True
    space, kind, name, part = found.groups()
    return f"{{{unquote(space)}}}" if is_in_braces else unquote(space), kind, unquote(name), part


def prefixes(kinds, space):
    """Return what the patterns of these rights begin with. Each ends with its only wildcard."""
    rights = rights_for(kinds, namespace=space)
    patterns = [*rights.keys, *rights.channels]
    assert all(pattern.endswith("*") and not set("*?[\\") & set(pattern[:-1]) for pattern in patterns)
    return tuple(pattern[:-1] for pattern in patterns)


def test_each_name_has_keys_of_its_own_in_one_slot_which_its_own_rights_alone_open():
    chance = random.Random(1)
    spaces = sorted({hostile(chance) for _ in range(200)})
    opened = {space: prefixes(NAMESPACED, space) for space in spaces}
    for _ in range(2000):
        space, kind, name = chance.choice(spaces), chance.choice([*KINDS]), hostile(chance)
        place = KeySet(space, kind, name)
        keys = {part: place.key(part) for part in PARTS}
        assert [read(key) for key in keys.values()] == [(space, kind, name, part) for part in keys]
        assert len({key_slot(key.encode()) for key in keys.values()}) == 1
        words = *keys.values(), inbox_channel(space, "c", 1), control_channel(space, "c")
        assert all(word.startswith(prefixes([kind], space)) for word in words)
        for other in chance.sample(spaces, 3):
            assert other == space or not any(word.startswith(opened[other]) for word in words)


def test_what_is_kept_beside_a_key_of_the_user_is_in_its_slot():
    chance = random.Random(1)
    names = [hostile(chance).encode() for _ in range(2000)]
    for name in names:
        assert key_slot(guard_key(name)) == key_slot(name)
        start = name.find(b"{")
        if start < 0 or name.find(b"}", start) > start + 1:  # else it tries thousands of names
            assert key_slot(beside(name, b"0" * 32)) == key_slot(name)


def test_server_confines_each_user_to_its_namespace(raw, server):
    chance = random.Random(1)
    spaces = list({hostile(chance) for _ in range(30)} | {"hf", "h*", "h?", "hf:lock", "{hf", "hf}", "[h]f", "h\\f"})
    words = {
        space: (
            ["ZCOUNT", KeySet(space, "lock", hostile(chance)).key("tokens"), 0, 1],
            ["PUBLISH", inbox_channel(space, "c", 1), "x"],
            ["PUBLISH", control_channel(space, "c"), "x"],
        )
        for space in spaces
    }
    try:
        for mine in spaces:
            rules = rights_for(["lock"], namespace=mine).rules()
            raw.execute_command("ACL", "SETUSER", "app", "reset", "on", ">secret", *rules)
            with redis.Redis.from_url(server.url.replace("unix://", "unix://app:secret@")) as client:
                pipeline = client.pipeline(transaction=False)
                for space in spaces:
                    for command in words[space]:
                        pipeline.execute_command(*command)
                answers = pipeline.execute(raise_on_error=False)
            opened = [isinstance(answer, int) for answer in answers]
            assert opened == [space == mine for space in spaces for _ in range(3)]
    finally:
        raw.acl_deluser("app")
        raw.acl_log_reset()
