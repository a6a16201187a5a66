"""The checks of the items that calls of a debounced name leave: what the server should have, and whom it may give what.

Items are known by their bytes, of which no two in a plan are equal.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from struct import unpack
from typing import Any

from handfast._engine.packing import read_reply
from handfast._engine.resp import ErrorReply
from handfast_lab.simulator.links import Command
from handfast_lab.simulator.network import Network, is_torn
from handfast_lab.simulator.watch import REMEMBERED_S

__all__ = ["SCRIPTS", "ItemWatch"]

_PUT, _TAKE, _DONE = SCRIPTS = b"debounce_put", b"debounce_take", b"debounce_done"

_LEFT, _DONE_FOR_GOOD = -inf, inf


class ItemWatch:
    """The items of all names."""

    def __init__(self, network: Network, find: Callable[[str], None]) -> None:
        self._network = network
        self._find = find
        self._strays: set[bytes] = set()
        """Calls that a server which was the primary has answered."""
        self._count = 0
        self._until_us: dict[bytes, dict[bytes, float]] = {}
        """By the names' keys and the items: until when a run has each. Below zero before that, infinite when it is done."""
        self._put_at: dict[bytes, float] = {}
        """When each was left, in seconds of the world."""
        self._lost: set[bytes] = set()
        """Those of which the server may have lost something; nothing is known of them any more."""
        self.given: dict[bytes, set[bytes]] = {}
        """Which items the server has given to the run of a token."""
        self._ends_us: dict[bytes, float] = {}
        """Until when the run of a token has its items, as it was told first."""
        self._all_ends_us: dict[bytes, set[float]] = {}
        """The same, as it was told ever: a script that was cut off may have begun anew."""
        self._over_at: dict[bytes, float] = {}
        """When the run of a token has ended, in seconds of the world."""
        self.failed: set[bytes] = set()
        """The tokens of runs that have failed."""

    def executed(self, command: Command, frame: Any, tag: bytes, now_us: int) -> None:
        """Check a script that the server has run, before its reply is sent."""
        name, token = command.name, command.token
        until_us = self._until_us.setdefault(tag, {})
        arguments = command.words[command.key_count + 1 :]
        if isinstance(frame, ErrorReply):
            if is_torn(frame):
                self._lost |= {*until_us, *(arguments[:1] if name == _PUT else ())}
            elif frame.startswith("ERR"):
                self._find(f"script: {name.decode()}: {frame}")
            elif frame.startswith("OOM") and name != _PUT:
                self._find(f"invariant 11: {name.decode()} of {token.decode()} is refused at maxmemory")
        elif name == _PUT:
            self._left(until_us, arguments[0])
        elif name == _TAKE:
            self._taken(token, until_us, arguments[0], read_reply(frame), now_us)
        else:
            (ends_us,) = unpack("<d", arguments[0])
            self._over_at.setdefault(token, self._network.world.now)
            if token in self.failed:
                self._find(f"invariant 53: the run of {token.decode()} failed, and its items are done")
            for item, until in until_us.items():
                if until == ends_us:
                    until_us[item] = _DONE_FOR_GOOD
        self._compare(tag, until_us, now_us)

    def cancelled(self, tag: bytes, token: bytes, now_us: int) -> None:
        """Note that a call was withdrawn: the items that it has taken are there for the next run."""
        until_us = self._until_us.setdefault(tag, {})
        ends_us = self._all_ends_us.get(token, set())
        if ends_us:
            self._over_at.setdefault(token, self._network.world.now)
        for item, until in until_us.items():
            if until in ends_us:
                until_us[item] = _LEFT
        self._compare(tag, until_us, now_us)

    def torn(self, tag: bytes, token: bytes) -> None:
        """Note that the cancellation of a call was cut off: what it had taken may be there for the next run, or not yet."""
        ends_us = self._all_ends_us.get(token, set())
        self._lost |= {item for item, until in self._until_us.get(tag, {}).items() if until in ends_us}

    def _left(self, until_us: dict[bytes, float], item: bytes) -> None:
        now = self._network.world.now
        if self._put_at.setdefault(item, now) < now - REMEMBERED_S:
            self._lost.add(item)  # a copy that came so late may have left it once more
        until_us.setdefault(item, _LEFT)

    def _taken(self, token: bytes, until_us: dict[bytes, float], request: bytes, reply: list[Any], now_us: int) -> None:
        """Check which items a run gets."""
        most, _, asked_us, _ = unpack("<dddd", request)
        _, _, ends_us, _, page = reply
        items = {item.partition(b" ")[2] for item in page}
        is_first, ends = token not in self.given, self._ends_us.setdefault(token, ends_us)
        mine = {item for item in self.given.get(token, ()) if until_us[item] == ends} - self._lost
        if not is_first and not asked_us and mine - items:
            self._find(f"invariant 53: the run of {token.decode()} gets {readable(mine - items)} no second time")
        if items and self._network.world.now < self._over_at.get(token, -inf) + REMEMBERED_S:
            self._find(f"invariant 53: the run of {token.decode()} is over, and gets {readable(items)}")
        self.given.setdefault(token, set()).update(items)
        self._all_ends_us.setdefault(token, set()).add(ends_us)
        for item in items:
            until = until_us.get(item)
            if item not in self._lost and (until is None or not (until <= now_us or until == ends_us)):
                why = "done" if until == inf else "not left" if until is None else "with another run"
                self._find(f"invariant 52: the run of {token.decode()} gets {item.decode()}, which is {why}")
            until_us[item] = ends_us
        rest = [item for item, until in until_us.items() if until <= now_us and item not in self._lost]
        if is_first and len(items) + len(self._lost) < most and rest:  # the queue may still have the lost ones
            self._find(f"invariant 53: the run of {token.decode()} does not get {readable(rest)}")

    def _compare(self, tag: bytes, until_us: dict[bytes, float], now_us: int) -> None:
        """Hold what the server has against what it should have."""
        peek = self._network.server.model[b"peek"]
        items, queue = peek(tag + b":items", now_us), peek(tag + b":queue", now_us)
        there = set()
        if items is not None and queue is not None:
            there = {
                items.fields[member].partition(b" ")[2]
                for member in queue.order.values()
                if member[:1] != b"!" and items.fields[member] is not None
            }
        due = {item for item, until in until_us.items() if until != _DONE_FOR_GOOD}
        if missing := due - there - self._lost:
            self._find(f"invariant 53: the server has lost {readable(missing)} of {tag.decode()}")
        if extra := there - due - self._lost:
            self._find(f"invariant 52: the server still has {readable(extra)} of {tag.decode()}")
        if any(one is not None and not one.expires for one in (items, queue)):
            self._find(f"invariant 5: the items of {tag.decode()} have no TTL")

    def strayed(self, command: Command) -> None:
        """Note a script that a server has run which was the primary: the primary knows nothing of it."""
        if command.name == _PUT:
            self._lost.add(command.words[command.key_count + 1])
        self._strays.add(command.token)

    def make(self) -> bytes:
        """Return a new item."""
        self._count += 1
        return b"item %d" % self._count

    def given_to(self, token: bytes, item: bytes, items: tuple[bytes, ...]) -> None:
        """Check the items of the block of a call that has left an item."""
        if item in self._lost or token in self._strays:
            return
        if item not in self._put_at:
            self._find(f"invariant 53: {token.decode()} did not leave {item.decode()}, and did not raise")
        strange = {*items} - self.given.get(token, set()) - {item} - self._lost
        if strange:
            self._find(f"invariant 52: the block of {token.decode()} has {readable(strange)}, which no reply had")

    def forget(self) -> None:
        """Record that the server lost data."""
        for until_us in self._until_us.values():
            self._lost.update(until_us)


def readable(items: Any) -> str:
    """Return items as text."""
    return ", ".join(sorted(item.decode() for item in items))
