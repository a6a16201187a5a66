"""Distributed locks, semaphores and read-write locks through Redis or Valkey.

    from handfast import Handfast

    hf = Handfast("redis://localhost:6379/0")
    with hf.lock("nightly") as lease:
        ...

Handfast is the sync API; AsyncHandfast is the asyncio API, the same with ``await`` and ``async with``. Each has all the
others as methods: `Handfast.lock`, `Handfast.semaphore`, `Handfast.rwlock` and so on give an object with the verbs
``acquire``, ``try_acquire``, ``status`` and ``force_release``, and an acquire gives a `Lease`.

Only the parts used by a program are imported: a program with the sync API never imports the asyncio API (PEP
562).
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from handfast import arguments, errors
from handfast._kinds import public_names
from handfast._version import __version__ as __version__

MODULES = {
    "Handfast": "handfast._api.sync.client",
    "AsyncHandfast": "handfast._api.aio.client",
    "AcquireContext": "handfast._api.aio",
    **public_names(),
    **dict.fromkeys(errors.__all__, "handfast.errors"),
    **dict.fromkeys(arguments.__all__, "handfast.arguments"),
    **dict.fromkeys(("HeaderError", "Reply", "Script"), "handfast.script"),
    **dict.fromkeys(("AuditEntry", "ServerFinding"), "handfast.records"),
}
"""Where each public name is. Type checkers read ``__init__.pyi``, which tools/exports.py makes from this."""

__all__ = sorted(MODULES)  # noqa: PLE0605 -- type checkers do not read this


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__} - {"Any", "MODULES", "annotations", "public_names", "import_module"})
