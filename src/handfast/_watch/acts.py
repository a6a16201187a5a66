"""Acts of an operator on a name, each with its entry in the audit: for commands, ``handfast top`` and the page."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, get_args

from redis.exceptions import RedisError

from handfast._engine.calls import PermitRequest
from handfast._engine.keys import KeySet, read_shown, shown_name
from handfast._engine.options import LeaseOptions
from handfast._engine.validate import check_reason, milliseconds
from handfast._protocol import admin
from handfast.errors import HandfastError

if TYPE_CHECKING:
    from handfast import Handfast, Limiter

__all__ = ["ACTS", "ANY_RATE", "MAX_PAUSE_S", "Act", "Done", "Named", "acting_as", "note_failure"]

Act: TypeAlias = Literal["release", "hold", "pause", "forget"]

ACTS: tuple[Act, ...] = get_args(Act)
"""The acts that a page may allow: ``hold`` includes unhold, ``pause`` includes resume."""

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
        """Return the name that is shown as this. Raises ValueError for a text that no name of this kind has."""
        return cls(kind, *read_shown(kind, name))

    @property
    def shown(self) -> str:
        """The name as it is shown."""
        return shown_name(self.kind, self.name, self.parts)

    def release(self, client: Handfast, *, reason: str, fence: int) -> Done:
        """Take the leases up to a fence: those that came later are safe. 0 takes all."""
        steps = admin.force_release(self._permits(client), _needed(reason), client._driver.label, fence)  # noqa: SLF001
        count = client._driver.run(steps, self.shown)  # noqa: SLF001 -- the same for all kinds, and for all parts
        return self._done(client, "release", reason, count, count=count, fence=fence or None)

    def hold(self, client: Handfast, *, seconds: float, reason: str) -> Done:
        """Let no one in for so long."""
        ttl_ms = milliseconds(seconds, "seconds")
        steps = admin.hold(self._permits(client), ttl_ms, _needed(reason), client._driver.label)  # noqa: SLF001
        client._driver.run(steps, self.shown)  # noqa: SLF001 -- as above
        return self._done(client, "hold", reason)

    def unhold(self, client: Handfast, *, reason: str) -> Done:
        """End a hold."""
        steps = admin.unhold(self._permits(client), _needed(reason), client._driver.label)  # noqa: SLF001 -- as above
        return self._done(client, "unhold", reason, client._driver.run(steps, self.shown))  # noqa: SLF001 -- as above

    def pause(self, client: Handfast, *, seconds: float, reason: str) -> Done:
        """Admit no one to a limiter for so long."""
        _needed(reason)
        self._limiter(client).pause(seconds, at_most=MAX_PAUSE_S)
        return self._done(client, "pause", reason)

    def resume(self, client: Handfast, *, reason: str) -> Done:
        """End a pause."""
        _needed(reason)
        self._limiter(client).resume()
        return self._done(client, "resume", reason)

    def forget(self, client: Handfast, *, reason: str, state: str | None = None) -> Done:
        """Forget that a key of `once` or the parts of a latch were done.

        ``state`` is what was shown of a key, as `OnceStatus` has it: if it is another one by now, nothing is forgotten.
        """
        _needed(reason)
        if self.kind == "latch":
            latch = client.latch(self.name, 1)
            return self._done(client, "forget", reason, (latch.keyed(*self.parts) if self.parts else latch).forget())
        once = client.once(self.name)
        key = once.keyed(*self.parts) if self.parts else once
        if state is not None and (now := key.status().state) != state:
            raise ValueError(f"nothing was done: it was {state} when it was shown, and is {now} now")
        return self._done(client, "forget", reason, key.forget())

    def _permits(self, client: Handfast) -> PermitRequest:
        place = KeySet(client._namespace, self.kind, self.name, self.parts)  # noqa: SLF001 -- as above
        return PermitRequest(place, LeaseOptions(1, renew=False))

    def _limiter(self, client: Handfast) -> Limiter:
        """Return the limiter, with any rate: it is paused or resumed under every rate."""
        found = client.limiter(self.name, ANY_RATE)
        return found.keyed(*self.parts) if self.parts else found

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


@contextlib.contextmanager
def acting_as(client: Handfast, label: str) -> Iterator[Handfast]:
    """Lend a client of the same server and namespace with another label, which is what others see of its acts."""
    other = type(client)(client._server, namespace=client._namespace, label=label, retry_for=0)  # noqa: SLF001 -- ours
    with other:
        yield other


def _needed(reason: str) -> str:
    """Check a reason before anything is done: one that the audit refuses would leave an act without an entry."""
    if not reason:
        raise ValueError("nothing was done: a reason is needed")
    return check_reason(reason)
