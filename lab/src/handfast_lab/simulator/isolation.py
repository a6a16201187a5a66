"""Replace what the library uses of the operating system: clock, random bytes, log and warnings.

The modules of the library import ``monotonic`` by name, so the name is replaced in each of them; a test fails on a
module that reads a clock or draws random bytes in any other way. Within `isolated`, each call is answered by the
process whose event loop is running.
"""

from __future__ import annotations

import gc
import importlib
import logging
import os
import pkgutil
import secrets
import sys
import warnings
from asyncio import events
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from types import ModuleType

from handfast._api import aio as api
from handfast._drivers import aio as driver
from handfast._drivers.clock import monotonic
from handfast_lab.simulator.loop import VirtualLoop
from handfast_lab.simulator.world import Process

__all__ = ["isolated", "readers_of_the_clock"]

for package in (api, driver):
    for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        importlib.import_module(
            found.name
        )  # the library imports some when it needs them: in a simulation that is too late


def _running() -> Process | None:
    loop = events._get_running_loop()  # noqa: SLF001 -- asyncio offers it to those who write loops
    return loop.process if isinstance(loop, VirtualLoop) else None


def _monotonic() -> float:
    process = _running()
    return 0.0 if process is None else process.monotonic()


def _urandom(size: int) -> bytes:
    process = _running()
    return bytes(size) if process is None else process.urandom(size)


def _token_hex(size: int) -> str:
    return _urandom(size).hex()


@lru_cache(1)
def _readers_of_the_clock(loaded: int) -> list[ModuleType]:
    """Return the same for so many loaded modules: there are a thousand, and each simulation asks."""
    del loaded
    return readers_of_the_clock()


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

    Garbage is collected at the end and not before: when a lost reference is noticed must depend on nothing but the
    seed.
    """
    patched, entropy, hooks = (
        _readers_of_the_clock(len(sys.modules)),
        (os.urandom, secrets.token_hex),
        sys.get_asyncgen_hooks(),
    )
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
