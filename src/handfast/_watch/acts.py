"""Acts of an operator on a name, each with an entry in the audit: for commands, ``handfast top`` and the page."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from redis.exceptions import RedisError

from handfast._engine.calls import ANY_HOLD, NO_HOLD, PermitRequest
from handfast._engine.keys import KeySet, read_shown, shown_name
from handfast._engine.options import LeaseOptions
from handfast._engine.validate import check_reason, milliseconds
from handfast._protocol import admin, limiting
from handfast._watch.faces import FACES
from handfast._watch.faces.face import Act
from handfast._watch.faces.leases import hold_version
from handfast._watch.faces.limiter import pause_version
from handfast.errors import HandfastError
from handfast.events import Operated

if TYPE_CHECKING:
    from handfast import Handfast, Limiter
    from handfast._protocol.asking import Acted
    from handfast.records import LimiterStatus, LockStatus, OperatorAction

__all__ = [
    "ACTS",
    "ANY_RATE",
    "MAX_PAUSE_S",
    "NO_VERSION",
    "ROUNDED_S",
    "Act",
    "Done",
    "Named",
    "acting_as",
    "note_failure",
]

ACTS: tuple[Act, ...] = get_args(Act)
"""The acts that a page may allow."""

ANY_RATE = "1/s"
"""The rate with which a limiter is paused, where rates do not count. Waiters keep their own."""

MAX_PAUSE_S = 366 * 86_400.0

ROUNDED_S = 0.002
"""How much longer than asked a pause may be, as it is rounded to milliseconds."""

NO_VERSION = str(NO_HOLD)
"""The version of a hold where there was none."""


class Done(NamedTuple):
    """The result of an act."""

    taken: int
    """How many leases were taken; of other acts 1, or 0 where there was nothing to do."""
    unaudited: str = ""
    """Why there is no entry in the audit; empty if there is one, or if nothing was done."""
    ended: str = ""
    """The hold or the pause that was ended: by whom, when and why it was set. Empty where the caller gave the version."""

    def text(self, done: str) -> str:
        """Return a message: the act, and that the audit failed if it did."""
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

    def release(self, client: Handfast, *, reason: str, fence: int, single: bool = False) -> Done:
        """Take the leases up to a fence: later leases are safe. 0 takes all. With ``single``, take only the lease with this fence."""
        label, least = client._driver.label, fence if single else 0  # noqa: SLF001 -- as below
        steps = admin.force_release(self._permits(client), _needed(reason), label, fence, least_fence=least)
        count = client._driver.run(steps, self.shown)  # noqa: SLF001 -- the same for all kinds, and for all parts
        return self._done(client, "release", reason, count, count=count, fence=fence or None, single=single)

    def hold(self, client: Handfast, *, seconds: float, reason: str, version: str = "") -> Done:
        """Put the name on hold. With a version, only in place of the hold of this version; `NO_VERSION` if none was shown.

        Raises ValueError if the name has another hold by now.
        """
        ttl_ms, shown_us = milliseconds(seconds, "seconds"), int(version or ANY_HOLD)
        label = client._driver.label  # noqa: SLF001 -- as above
        steps = admin.hold_shown(self._permits(client), ttl_ms, _needed(reason), label, shown_us)
        if (acted := client._driver.run(steps, self.shown)) != "done":  # noqa: SLF001 -- as above
            raise ValueError(_not_done(acted, "", self._status(client).hold or "not on hold"))
        return self._done(client, "hold", reason, duration=seconds)

    def unhold(self, client: Handfast, *, reason: str, version: str = "") -> Done:
        """End the hold of this version. Without a version, end the present hold, and describe it in `Done.ended`.

        Raises ValueError if the name has another hold by now.
        """
        _needed(reason)
        ended = ""
        if not version:
            status = self._status(client)
            if status.hold is None:
                return Done(0)
            version, ended = hold_version(status.hold), f"{status.hold}{_since(status.last, 'hold')}"
        steps = admin.unhold(self._permits(client), reason, client._driver.label, int(version))  # noqa: SLF001 -- as above
        acted = client._driver.run(steps, self.shown)  # noqa: SLF001 -- as above
        if acted in {"other", "unknown"}:
            raise ValueError(_not_done(acted, "hold", self._status(client).hold or "not on hold"))
        return self._done(client, "unhold", reason, acted == "done")._replace(ended=ended)

    def pause(self, client: Handfast, *, seconds: float, reason: str) -> Done:
        """Admit no one to a limiter for so long. Raises ValueError, with the pause in force, if a longer one goes on."""
        left = self._limiter(client).pause(seconds, at_most=MAX_PAUSE_S, reason=_needed(reason))
        if left > seconds + ROUNDED_S:
            raise ValueError(f"nothing was done: it is paused for {left:,.0f} s already")
        return self._done(client, "pause", reason, duration=seconds)

    def resume(self, client: Handfast, *, reason: str, version: str = "") -> Done:
        """End the pause of this version. Without a version, end the present pause, and describe it in `Done.ended`.

        Raises ValueError if the limiter has another pause by now.
        """
        _needed(reason)
        limiter, ended = self._limiter(client), ""
        if not version:
            status = limiter.status()
            if not status.paused_until:
                return Done(0)
            version, ended = pause_version(status), _paused(status)
        steps = limiting.resume(limiter._request, client._driver.label, reason, int(version))  # noqa: SLF001 -- as above
        acted = client._driver.run(steps, self.shown)  # noqa: SLF001 -- as above
        if acted in {"other", "unknown"}:
            raise ValueError(_not_done(acted, "pause", _paused(limiter.status())))
        return self._done(client, "resume", reason, acted == "done")._replace(ended=ended)

    def version(self, client: Handfast) -> str:
        """Return the version of the record of a key of `once`, or of the parts of a latch; empty if there are none."""
        return FACES[self.kind].version(client, self.name, self.parts)

    def forget(self, client: Handfast, *, reason: str, version: str) -> Done:
        """Forget that a key of `once` or the parts of a latch were done, if they are still those of this version.

        Raises ValueError, with the facts of now, if they are not.
        """
        _needed(reason)
        acted = FACES[self.kind].forget(client, self.name, self.parts, version)
        if acted != "done":
            raise ValueError(_not_done(acted, "", self.state(client)))
        return self._done(client, "forget", reason)

    def state(self, client: Handfast) -> str:
        """Return the record of a key of `once`, or of a latch, for people."""
        return FACES[self.kind].recorded(client, self.name, self.parts)

    def _status(self, client: Handfast) -> LockStatus:
        """Return the status of a name with leases."""
        status: LockStatus = client._driver.look(admin.status(self._permits(client)), self.shown)  # noqa: SLF001 -- as above
        return status

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


def _paused(status: LimiterStatus) -> str:
    """Return who has paused a limiter, when and why."""
    if status.paused_until is None:
        return "not paused"
    last = status.last if status.last is not None and status.last.what == "pause" else None
    by = f" by {last.by}: {last.why}{_since(last, 'pause')}" if last else ""
    return f"paused until {status.paused_until:%Y-%m-%d %H:%M:%S} UTC{by}"


def _since(last: OperatorAction | None, what: str) -> str:
    """Return when a hold or a pause was set, where that was the last act."""
    return f" (since {last.at:%Y-%m-%d %H:%M:%S} UTC)" if last is not None and last.what == what else ""


def _not_done(acted: Acted, what: str, now: object) -> str:
    """Return why an act on a shown record, hold or pause was not done, or is not known to be."""
    if acted == "unknown":
        return f"it is not known whether it was done: the server was asked twice, and it is now {now}"
    return f"nothing was done: it is not {f'the {what} that' if what else 'what'} was shown; it is now {now}"


def note_failure(client: Handfast, what: str, name: str, **fields: Any) -> str:
    """Write an act into the audit. The act is done by then, so a failure is a text to show; empty if there is none."""
    try:
        client.note(what, name, **fields)
    except (HandfastError, RedisError, OSError, ValueError) as error:  # ValueError: the name with its parts is too long
        return f"not written into the audit: {error}"
    return ""


@contextlib.contextmanager
def acting_as(client: Handfast, label: str) -> Iterator[Handfast]:
    """Lend a client of the same server and namespace with another label: the label shown to others for these acts.

    Functions that listen to ``client`` hear of them.
    """
    other = type(client)(client._server, namespace=client._namespace, label=label, retry_for=0)  # noqa: SLF001 -- ours
    if (dispatcher := client._driver.events.dispatcher) is not None:  # noqa: SLF001 -- as above
        fields = [field.name for field in dataclasses.fields(Operated) if field.name != "at"]
        other.on(lambda event: dispatcher.operated(**{name: getattr(event, name) for name in fields}), Operated)
    with other:
        yield other


def _needed(reason: str) -> str:
    """Check a reason before anything is done: one that the audit refuses would leave an act without an entry."""
    if not reason:
        raise ValueError("nothing was done: a reason is needed")
    return check_reason(reason)
