"""Acts of an operator on a name, each with its entry in the audit: for commands, ``handfast top`` and the page."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from redis.exceptions import RedisError

from handfast._engine.calls import PermitRequest
from handfast._engine.keys import SEPARATOR, KeySet
from handfast._engine.options import LeaseOptions
from handfast._engine.validate import check_reason
from handfast._protocol import admin
from handfast.errors import HandfastError

if TYPE_CHECKING:
    from handfast import Handfast, Latch, Limiter, Once

__all__ = ["ANY_RATE", "MAX_PAUSE_S", "Done", "Named", "acting_as", "limiter", "note_failure"]

ANY_RATE = "1/s"
"""The rate with which a limiter is paused, where rates do not count. Waiters keep their own."""

MAX_PAUSE_S = 366 * 86_400.0


class Done(NamedTuple):
    """The result of an act."""

    taken: int
    """How many leases were taken; of other acts 1, or 0 where there was nothing to do."""
    unaudited: str = ""
    """Why there is no entry in the audit; empty if there is one, or if nothing was done."""

    def text(self, done: str) -> str:
        """Return a message: what was done, and that the audit failed if it did."""
        return f"{done}, but {self.unaudited}" if self.unaudited else done


class Named(NamedTuple):
    """The name of an act."""

    kind: Any
    name: str
    parts: tuple[str, ...] = ()
    """The parts behind it, of a key."""

    @classmethod
    def of(cls, kind: Any, name: str) -> Named:
        """Return the name that is shown as this: with parts behind a ``|``, if its kind has any."""
        if kind not in ("limiter", "once", "latch", "partition", "debounce"):
            return cls(kind, name)
        plain, *parts = name.split(SEPARATOR)
        return cls(kind, plain, tuple(parts)) if plain and all(parts) else cls(kind, name)

    @property
    def shown(self) -> str:
        """The name as it is shown."""
        return SEPARATOR.join((self.name, *self.parts))

    def release(self, client: Handfast, *, reason: str, fence: int) -> Done:
        """Take the leases up to a fence: those that came later are safe. 0 takes all."""
        driver = client._driver  # noqa: SLF001 -- the library has an object for each kind; this is the same for all
        place = KeySet(client._namespace, self.kind, self.name, self.parts)  # noqa: SLF001 -- as above
        request = PermitRequest(place, LeaseOptions(1, renew=False))
        steps = admin.force_release(request, check_reason(_needed(reason)), driver.label, fence)
        count = driver.run(steps, self.shown)
        return self._done(client, "release", reason, count, count=count, fence=fence or None)

    def hold(self, client: Handfast, seconds: float, *, reason: str) -> Done:
        """Let no one in for so long."""
        client.hold(self.shown, seconds, kind=self.kind, reason=_needed(reason))
        return self._done(client, "hold", reason)

    def unhold(self, client: Handfast, *, reason: str) -> Done:
        """End a hold."""
        return self._done(client, "unhold", reason, client.unhold(self.shown, kind=self.kind, reason=_needed(reason)))

    def pause(self, client: Handfast, seconds: float, *, reason: str) -> Done:
        """Admit no one to a limiter for so long."""
        _needed(reason)
        limiter(client, self).pause(seconds, at_most=MAX_PAUSE_S)
        return self._done(client, "pause", reason)

    def resume(self, client: Handfast, *, reason: str) -> Done:
        """End a pause."""
        _needed(reason)
        limiter(client, self).resume()
        return self._done(client, "resume", reason)

    def forget(self, client: Handfast, *, reason: str) -> Done:
        """Forget that a key of `once` or the parts of a latch were done."""
        _needed(reason)
        one: Once | Latch = client.latch(self.name, 1) if self.kind == "latch" else client.once(self.name)
        return self._done(client, "forget", reason, (one.keyed(*self.parts) if self.parts else one).forget())

    def _done(self, client: Handfast, what: str, reason: str, done: int = 1, **fields: Any) -> Done:
        if not done:
            return Done(0)
        return Done(int(done), note_failure(client, what, self.shown, kind=self.kind, reason=reason, **fields))


def note_failure(client: Handfast, what: str, name: str, **fields: Any) -> str:
    """Write an act into the audit. The act is done by then, so a failure is a text to show; empty if there is none."""
    try:
        client.note(what, name, **fields)
    except (HandfastError, RedisError, OSError) as error:
        return f"not written into the audit: {error}"
    return ""


def limiter(client: Handfast, named: Named) -> Limiter:
    """Return the limiter of a name, with any rate: it is paused or resumed under every rate."""
    found = client.limiter(named.name, ANY_RATE)
    return found.keyed(*named.parts) if named.parts else found


@contextlib.contextmanager
def acting_as(client: Handfast, label: str) -> Iterator[Handfast]:
    """Lend a client of the same server and namespace with another label, which is what others see of its acts."""
    other = type(client)(client._server, namespace=client._namespace, label=label, retry_for=0)  # noqa: SLF001 -- ours
    with other:
        yield other


def _needed(reason: str) -> str:
    if not reason:
        raise ValueError("nothing was done: a reason is needed")
    return reason
