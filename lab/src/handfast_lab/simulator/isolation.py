"""Replace what the library uses of the operating system: clock, random bytes, log and warnings.

The modules of the library import ``monotonic`` by name, so the name is replaced in each of them; a test fails on a module
that reads a clock or draws random bytes in any other way. Within `isolated`, each call is answered by the process whose
event loop is running.
"""

from __future__ import annotations

import gc
import logging
import os
import secrets
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, TracebackType

from handfast._drivers.clock import monotonic
from handfast_lab.simulator.world import Process

__all__ = ["enter", "isolated", "readers_of_the_clock"]

_running: Process | None = None


class enter:  # noqa: N801 -- a function for its callers; a class, since it is called for every turn of a loop
    """Make this process the source of time and randomness within the block."""

    __slots__ = ("_before", "_process")

    def __init__(self, process: Process) -> None:
        self._process = process

    def __enter__(self) -> None:
        global _running
        self._before, _running = _running, self._process

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        global _running  # noqa: PLW0603 -- there is one machine
        _running = self._before


def _monotonic() -> float:
    return 0.0 if _running is None else _running.monotonic()


def _urandom(size: int) -> bytes:
    return bytes(size) if _running is None else _running.urandom(size)


def _token_hex(size: int) -> str:
    return _urandom(size).hex()


def readers_of_the_clock() -> list[ModuleType]:
    """Return the loaded modules of the library that have imported ``monotonic``."""
    return [
        module
        for name, module in list(sys.modules.items())
        if name.startswith("handfast._") and getattr(module, "monotonic", None) is monotonic
    ]


@contextmanager
def isolated() -> Iterator[None]:
    """Keep clock, randomness, log, warnings and garbage collection of this Python from the simulation.

    Garbage is collected at the end and not before: when a lost reference is noticed must depend on nothing but the seed.
    """
    patched, entropy, hooks = readers_of_the_clock(), (os.urandom, secrets.token_hex), sys.get_asyncgen_hooks()
    level, was_collecting = logging.root.manager.disable, gc.isenabled()
    gc.disable()
    gc.freeze()  # what was there before is not looked at when the garbage of the simulation is collected
    for module in patched:
        vars(module)["monotonic"] = _monotonic
    os.urandom, secrets.token_hex = _urandom, _token_hex  # type: ignore[assignment]  # the callers give a size
    sys.set_asyncgen_hooks(firstiter=_ignore, finalizer=_ignore)
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                yield
            finally:
                while gc.collect():  # what is finalized may leave more
                    pass
    finally:
        for module in patched:
            vars(module)["monotonic"] = monotonic
        os.urandom, secrets.token_hex = entropy
        sys.set_asyncgen_hooks(*hooks)
        logging.disable(level)
        gc.unfreeze()
        if was_collecting:
            gc.enable()


def _ignore(_: object) -> None:
    """Do nothing: a process that dies closes nothing."""
