"""The base of both drivers: it performs the protocols of one client, in one process."""

from __future__ import annotations

import os
import threading
from abc import abstractmethod
from binascii import hexlify
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from weakref import ref

from handfast._drivers.clock import monotonic
from handfast._drivers.connect import Connector
from handfast._drivers.events import Events
from handfast._drivers.failures import already_held
from handfast._drivers.forks import OfOneProcess
from handfast._protocol.acquire import BaseAttempt
from handfast._protocol.limiting import Announcements

if TYPE_CHECKING:
    from handfast._protocol.detached import DetachedLease

__all__ = ["A", "Claim", "Driver"]

A = TypeVar("A", bound=BaseAttempt)
C = TypeVar("C", bound=Connector)


class Claim:
    """The right of a caller to adopt a token. It ends with this object, however the caller ends."""

    __slots__ = ("__weakref__",)


class Driver(OfOneProcess, Generic[C]):
    """The settings of one client, and how the server is reached."""

    def __init__(
        self, connector: C, namespace: str, label: str | None, retry_for: float, *, release_at_exit: bool
    ) -> None:
        self._connector = connector
        self.events: Events = connector.events
        self.announcements: Announcements = Announcements()
        self._namespace = namespace
        self._label = label
        self._retry_for = retry_for
        self._release_at_exit = release_at_exit
        self._closed = False
        self.openings: int = 0
        """How often the client was opened again after its end."""
        self._claims: dict[bytes, ref[Claim]] = {}
        """By token, who adopts it: it gets into the leases only after a round trip."""
        self._opening = threading.Lock()
        super().__init__()

    @property
    def address(self) -> str:
        return self._connector.address

    @property
    def hears(self) -> bool:
        """Whether messages reach this client."""
        return self._connector.heard

    @property
    def is_embedded(self) -> bool:
        """Whether this is the embedded server."""
        return self._connector.is_embedded

    @property
    def is_cluster(self) -> bool:
        """Whether there are several primaries, each with some of the slots."""
        return bool(self._connector.seeds)

    @property
    def reply_s(self) -> float:
        """The response timeout, in seconds."""
        return self._connector.response_timeout

    @property
    def label(self) -> str:
        """The name by which people call this client: by default host and process."""
        return self._label or f"{os.uname().nodename}:{os.getpid()}"

    def begin(self, kind: Callable[[Any, bytes, float], A], request: Any) -> A:
        """Start an attempt without a lease. The caller must call ``undo`` on any exception."""
        self._check_open(request.name)
        return kind(request, hexlify(os.urandom(16)), monotonic())

    def claim(self, detached: DetachedLease, name: str) -> Claim:
        """Return the right to adopt a lease. Raises ValueError if this client holds it already, or adopts it."""
        token, claim = detached.token, Claim()
        mine = ref(claim, lambda dead: self._claims.get(token) is dead and self._claims.pop(token, None))
        other = self._claims.setdefault(token, mine)  # atomic
        if other is not mine and other() is not None:
            raise already_held(name)
        self._claims[token] = mine
        if self._holds(token):
            del self._claims[token]  # the error keeps this frame
            raise already_held(name)
        return claim

    def is_open_since(self, opening: int) -> bool:
        """Return whether the client is open, and was not closed since opening number ``opening``."""
        return not self._closed and self.openings == opening

    def _reopen(self) -> None:
        """Open a closed client: it begins without connections and without leases."""
        with self._opening:
            if self._closed:
                self._in_this_process()
                self._start()
                self.openings += 1
                self._closed = False

    @abstractmethod
    def _start(self) -> None:
        """Begin with nothing: no connection and no lease."""

    @abstractmethod
    def _holds(self, token: bytes) -> bool:
        """Whether this client holds a lease with this token."""

    @abstractmethod
    def _check_open(self, name: str) -> None:
        """Raise ClientClosed if the client is closed."""
