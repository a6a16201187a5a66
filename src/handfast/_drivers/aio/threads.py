"""What connecting waits for, on threads of its own: names and credentials.

The default executor of an event loop is the program's. Where it is full of jobs, a lookup in it waits for one of them
to end, and nothing is renewed meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from redis.credentials import CredentialProvider

from handfast._drivers.addresses import is_address, resolve
from handfast._drivers.background import Background

__all__ = ["in_thread", "looking_up_apart", "providing_apart"]

T = TypeVar("T")

_made: dict[type[Any], type[Any]] = {}
"""The classes of connections that were made, each by the one of redis-py or of the user behind it."""


async def in_thread(function: Callable[[], T]) -> T:
    """Call a function in a new thread, or here if none can be started.

    A caller that is cancelled meanwhile leaves the thread to itself.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(settle_with: Callable[[], None]) -> None:
        if not done.done():
            settle_with()

    def run() -> None:
        try:
            settle_with = partial(done.set_result, function())
        except Exception as error:  # noqa: BLE001 -- whatever it is, the caller gets it
            settle_with = partial(done.set_exception, error)
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, settle_with)

    try:
        Background("handfast-connect", daemon=True).call(run)
    except RuntimeError:
        return function()
    return await done


class _LookingUpApart:
    """A connection of redis-py that resolves the name of its host in a thread of its own."""

    host: str
    port: int
    _address: str

    async def _connect(self) -> None:
        connect: Callable[[], Any] = super()._connect  # type: ignore[misc]  # of redis-py's class, which comes behind this one
        if not hasattr(super(), "_connection_arguments") or is_address(self.host):
            self._address = ""
            await connect()
            return
        *others, last = await in_thread(partial(resolve, self.host, self.port))
        for self._address in others:
            with contextlib.suppress(OSError):
                await connect()
                return
        self._address = last
        await connect()

    def _connection_arguments(self) -> Mapping[str, Any]:
        arguments: dict[str, Any] = dict(super()._connection_arguments())  # type: ignore[misc]  # as above
        if self._address:
            arguments["host"] = self._address
            if "ssl" in arguments:
                arguments.setdefault("server_hostname", self.host)
        return arguments


def looking_up_apart(connection_class: type[Any]) -> type[Any]:
    """Return a class of connections like this one, which resolve names in threads of their own."""
    if issubclass(connection_class, _LookingUpApart):
        return connection_class
    if connection_class not in _made:
        _made[connection_class] = type(connection_class.__name__, (_LookingUpApart, connection_class), {})
    return _made[connection_class]


class _ProvidingApart(CredentialProvider):
    """A credential provider for threads, which may take its time."""

    def __init__(self, provider: CredentialProvider) -> None:
        self._provider = provider

    def get_credentials(self) -> Any:
        return self._provider.get_credentials()

    async def get_credentials_async(self) -> Any:
        return await in_thread(self._provider.get_credentials)


def providing_apart(provider: CredentialProvider) -> CredentialProvider:
    """Return a provider that blocks no event loop. One that is made for asyncio is returned as it is.

    Before redis-py 5.3 none is: it calls all of them in the thread of the loop.
    """
    inherited = getattr(CredentialProvider, "get_credentials_async", None)
    if inherited is None or type(provider).get_credentials_async is not inherited:
        return provider
    return _ProvidingApart(provider)
