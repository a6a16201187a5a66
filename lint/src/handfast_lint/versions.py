"""Which server versions have which features: everything newer than Redis 6.2, the oldest supported server.

`tests/gate/lint/test_lint_tables.py` compares these tables with real servers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeAlias

__all__ = ["API", "COMMANDS", "DEFAULT", "OPTIONS", "SHEBANG", "Servers", "missing_on", "parse_oldest", "shown"]

Version: TypeAlias = tuple[int, int]
Servers: TypeAlias = Mapping[str, Version]
Since: TypeAlias = dict[str, Version | None]
"""The first version of each kind of server that has a feature; None if no version has it."""

DEFAULT: Servers = {"redis": (6, 2), "valkey": (7, 2)}
"""The oldest servers that scripts are checked for by default."""

COMMANDS_TABLE = """
7.0  7.2  BLMPOP BZMPOP EVALSHA_RO EVAL_RO EXPIRETIME FCALL FCALL_RO FUNCTION LCS LMPOP PEXPIRETIME SINTERCARD SORT_RO
7.0  7.2  SPUBLISH SSUBSCRIBE SUNSUBSCRIBE ZINTERCARD ZMPOP
7.2  7.2  WAITAOF
7.4  9.0  HEXPIRE HEXPIREAT HEXPIRETIME HPERSIST HPEXPIRE HPEXPIREAT HPEXPIRETIME HPTTL HTTL
8.0  9.0  HGETEX HSETEX
8.0  9.1  HGETDEL
8.4  9.1  MSETEX
-    8.1  COMMANDLOG
-    9.0  DELIFEQ
-    9.1  CLUSTERSCAN
8.0  -    VADD VCARD VDIM VEMB VGETATTR VINFO VLINKS VRANDMEMBER VREM VSETATTR VSIM
8.2  -    VISMEMBER XACKDEL XDELEX
8.4  -    DELEX DIGEST VRANGE
8.6  -    HOTKEYS XCFGSET
8.8  -    ARCOUNT ARDEL ARDELRANGE ARGET ARGETRANGE ARGREP ARINFO ARINSERT ARLASTITEMS ARLEN ARMGET ARMSET ARNEXT AROP
8.8  -    ARRING ARSCAN ARSEEK ARSET INCREX XNACK
"""

OPTIONS_TABLE = """
7.0  7.2  BITCOUNT BIT BYTE
7.0  7.2  BITPOS BIT BYTE
7.0  7.2  EXPIRE NX XX GT LT
7.0  7.2  EXPIREAT NX XX GT LT
7.0  7.2  PEXPIRE NX XX GT LT
7.0  7.2  PEXPIREAT NX XX GT LT
7.0  7.2  XGROUP ENTRIESREAD
7.0  7.2  XSETID ENTRIESADDED MAXDELETEDID
7.2  7.2  ZRANK WITHSCORE
7.2  7.2  ZREVRANK WITHSCORE
7.4  8.0  HSCAN NOVALUES
-    8.0  ZSCAN NOSCORES
8.4  8.1  SET IFEQ
8.4  -    SET IFNE IFDEQ IFDNE
-    9.0  GEOSEARCH BYPOLYGON
-    9.0  GEOSEARCHSTORE BYPOLYGON
8.2  -    BITOP DIFF DIFF1 ANDOR ONE
8.2  -    XTRIM KEEPREF DELREF ACKED
8.2  -    XADD KEEPREF DELREF ACKED
8.6  -    XADD IDMP IDMPAUTO
8.4  -    XREADGROUP CLAIM
"""
"""A command, and its options that are newer than the command."""

API_TABLE = """
7.0  7.2  redis.acl_check_cmd redis.REDIS_VERSION redis.REDIS_VERSION_NUM
-    7.2  redis.SERVER_NAME redis.VALKEY_VERSION redis.VALKEY_VERSION_NUM server
7.4  8.0  os.clock
"""

_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.\d+)?")


def _version(text: str) -> Version | None:
    match = _VERSION.fullmatch(text)
    return (int(match[1]), int(match[2])) if match else None


def _rows(table: str) -> list[tuple[Since, list[str]]]:
    rows = [line.split() for line in table.strip().splitlines()]
    return [({"redis": _version(redis), "valkey": _version(valkey)}, words) for redis, valkey, *words in rows]


COMMANDS: dict[str, Since] = {name: since for since, names in _rows(COMMANDS_TABLE) for name in names}
OPTIONS: dict[tuple[str, str], Since] = {
    (name, option): since for since, (name, *options) in _rows(OPTIONS_TABLE) for option in options
}
API: dict[str, Since] = {name: since for since, names in _rows(API_TABLE) for name in names}
SHEBANG: Since = {"redis": (7, 0), "valkey": (7, 2)}


def missing_on(since: Since, oldest: Servers) -> str:
    """Say which of the oldest servers lacks a feature, and since when its kind has it; "" if none lacks it."""
    for kind, version in oldest.items():
        first = since[kind]
        if first is None:
            return f"no {shown(kind)} has it"
        if version < first:
            return f"{shown(kind)} has it from {first[0]}.{first[1]} on, and the script must run on {version[0]}.{version[1]}"
    return ""


def shown(kind: str) -> str:
    """Return the name of a kind of server for messages."""
    return kind.capitalize()


def parse_oldest(text: str) -> Servers:
    """Parse the oldest servers for `check`.

    Args:
        text: Such as ``"redis=6.2,valkey=7.2"``, or one of the two.

    Returns:
        The versions by kind of server.

    Raises:
        ValueError: The text has another form.

    """
    found: dict[str, Version] = {}
    for part in text.split(","):
        kind, _, version = part.strip().partition("=")
        parsed = _version(version)
        if kind not in DEFAULT or parsed is None:
            raise ValueError(
                f"{part.strip()!r} is not a server version: write redis=6.2 or valkey=7.2, or both, separated by a comma"
            )
        found[kind] = parsed
    return found
