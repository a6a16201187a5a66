"""Look up names and credentials for connections, in threads apart from the event loop's executor.

The default executor of an event loop is the program's. Where that executor is full of jobs, a lookup would wait for
a job to end, and nothing would be renewed meanwhile.
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
"""The classes of connections that were made, by the class of redis-py or of the user that they extend."""


async def in_thread(function: Callable[[], T]) -> T:
    """Call a function in a new thread, or here if no thread can be started.

    If the caller is cancelled meanwhile, the thread goes on alone.
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
    """A connection of redis-py that resolves the host name in a separate thread."""

    host: str
    port: int
    _address: str

    async def _connect(self) -> None:
        connect: Callable[[], Any] = super()._connect  # type: ignore[misc]  # of redis-py's class, the next base
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
    """Return a subclass of a connection class that resolves host names in separate threads."""
    if issubclass(connection_class, _LookingUpApart):
        return connection_class
    if connection_class not in _made:
        _made[connection_class] = type(connection_class.__name__, (_LookingUpApart, connection_class), {})
    return _made[connection_class]


class _ProvidingApart(CredentialProvider):
    """A credential provider called in a thread: it may be slow."""

    def __init__(self, provider: CredentialProvider) -> None:
        self._provider = provider

    def get_credentials(self) -> Any:
        return self._provider.get_credentials()

    async def get_credentials_async(self) -> Any:
        return await in_thread(self._provider.get_credentials)


def providing_apart(provider: CredentialProvider) -> CredentialProvider:
    """Return a provider that blocks no event loop. A provider with an asyncio form is returned unchanged.

    redis-py before 5.3 calls every provider in the thread of the loop.
    """
    inherited = getattr(CredentialProvider, "get_credentials_async", None)
    if inherited is None or type(provider).get_credentials_async is not inherited:
        return provider
    return _ProvidingApart(provider)
