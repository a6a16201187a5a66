"""The contract of an engine's script, beyond the header that users' scripts have as well.

    -- ARGV token request wants
    -- PACK request <dddd wait_ms patience_us max_waiters ticket
    -- ALONE admitted now_us 0

PACK
    The names of values packed into an argument, and the format with which the script unpacks them: codes of Lua's
    ``struct``, where ``d`` is a double and ``Bc0`` a text after a byte with the length. The session appends the owner
    text to a last argument ``wants``.
ALONE
    The reply where there is no server: tag and numbers. ``now_us`` is the time.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from handfast._engine.script import lua_text

__all__ = ["WANTS", "Contract", "Packed", "contract_of"]

WANTS = "wants"
"""The argument to which the session appends the owner text."""


class Packed(NamedTuple):
    """An argument that holds several values."""

    format: str
    names: tuple[str, ...]
    codes: tuple[str, ...]
    """The code of each value."""


class Contract(NamedTuple):
    """How the arguments of a script are packed, by name, and the words of the reply without a server."""

    packs: dict[str, Packed]
    alone: tuple[str, ...]


def _codes(form: str) -> list[str]:
    codes = form.removeprefix("<").replace("Bc0", "B")
    return ["Bc0" if code == "B" else code for code in codes]


@cache
def contract_of(script: str) -> Contract:
    """Read the contract of a script in ``lua/``."""
    packs: dict[str, Packed] = {}
    alone: tuple[str, ...] = ()
    for line in lua_text(f"{script}.lua").splitlines():
        match line.split():
            case ["--", "PACK", argument, form, *names]:
                packs[argument] = Packed(form, tuple(names), tuple(_codes(form)))
            case ["--", "ALONE", *words]:
                alone = tuple(words)
            case ["--", *_]:
                pass
            case _:
                break
    return Contract(packs, alone)
