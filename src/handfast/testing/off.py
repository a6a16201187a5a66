"""Switch coordination off, for unit tests of code with locks."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator
from typing import Any
from weakref import WeakKeyDictionary

from handfast._drivers.aio.cluster import AsyncClusterDriver
from handfast._drivers.aio.contexts import Contexts as AsyncContexts
from handfast._drivers.aio.driver import AsyncDriver
from handfast._drivers.aio.null import AsyncNullDriver
from handfast._drivers.null import TAKEN, NullDriver
from handfast._drivers.sync.cluster import SyncClusterDriver
from handfast._drivers.sync.contexts import Contexts as SyncContexts
from handfast._drivers.sync.driver import SyncDriver
from handfast._drivers.sync.null import SyncNullDriver
from handfast._engine.defaults import NULL, VARIABLES
from handfast._protocol.lease import LeaseState

__all__ = ["busy", "deactivate"]

REPLACED: dict[type, type[NullDriver]] = {
    SyncContexts: SyncNullDriver,
    SyncDriver: SyncNullDriver,
    SyncClusterDriver: SyncNullDriver,
    AsyncContexts: AsyncNullDriver,
    AsyncDriver: AsyncNullDriver,
    AsyncClusterDriver: AsyncNullDriver,
}

KEPT = "caller", "is_over", "call", "receive"
"""What a driver goes on doing itself."""

BOTH = "open", "close"
"""What a driver does itself as well."""


@contextlib.contextmanager
def deactivate() -> Iterator[None]:
    """Have every client of this process grant every request at once, without a server, in both APIs.

    Blocks, decorators, timeouts, fences and errors work as they do with a server whose names are all free. No one is
    kept out, and ``status()`` shows no holder. It holds for existing clients as well, such as a client made by a module
    at import. ``Handfast()`` needs no variable with the server's URL. Features that need data of a server, such as
    ``autocomplete`` and ``scores``, raise ServerUnsupported.

    A lease granted before is released and renewed at its server. A lease granted here is to end here. With
    pytest, the fixture ``handfast_deactivated`` does the same for a test.

    Names taken by `busy` are granted to no one.

    Example:
        with deactivate():
            assert charge("orders:42") == "charged"  # a function with @hf.lock("{order}")
    """
    nulls: WeakKeyDictionary[Any, NullDriver] = WeakKeyDictionary()
    with contextlib.ExitStack() as undone:
        for driver, null in REPLACED.items():
            for name in vars(NullDriver):
                if (
                    name in vars(driver)
                    and not name.startswith("_")
                    and name not in KEPT
                    and callable(vars(driver)[name])
                ):
                    own = vars(driver)[name]
                    undone.callback(setattr, driver, name, own)
                    setattr(driver, name, _instead(own, name, null, nulls))
        if not any(map(os.environ.get, VARIABLES)):
            undone.callback(os.environ.pop, VARIABLES[0], None)
            os.environ[VARIABLES[0]] = NULL
        yield


@contextlib.contextmanager
def busy(*names: str) -> Iterator[None]:
    """Have names be taken, for clients without a server: to test how a program goes on then.

    It is for clients within `deactivate`, and for ``Handfast("null:")``. ``try_acquire()`` returns None, an acquire with a timeout
    raises AcquireTimeout at once, a limiter refuses for a second, a budget has nothing left, and `once` is running. An
    acquire without a timeout would wait forever, and raises WouldDeadlock.

    Example:
        with deactivate(), busy("orders:42"):
            assert charge("orders:42") == "try again later"

    Args:
        names: The names, of any kind. The name of a key is ``name|key``.

    Raises:
        TypeError: There is no name, or a name is no str.
    """
    if not names or not all(isinstance(name, str) for name in names):
        raise TypeError(f"busy needs the names that are to be taken, not {names!r}")
    mine = set(names) - TAKEN
    TAKEN.update(mine)
    try:
        yield
    finally:
        TAKEN.difference_update(mine)


def _instead(
    own: Callable[..., Any], name: str, null: type[NullDriver], nulls: WeakKeyDictionary[Any, NullDriver]
) -> Callable[..., Any]:
    @functools.wraps(own)
    def method(driver: Any, *args: Any, **options: Any) -> Any:
        lease = args[0] if args else None
        if isinstance(lease, LeaseState) and not isinstance(lease.parts[0].owner, NullDriver):
            return own(driver, *args, **options)
        if driver not in nulls:
            nulls[driver] = null(driver.label)
        if name in BOTH:
            getattr(NullDriver, name)(nulls[driver], **options)
            return own(driver, **options)
        return getattr(nulls[driver], name)(*args, **options)

    return method
