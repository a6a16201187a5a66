"""The calls of an object without leases, packed from the headers of its scripts.

A script has the name of its object and a verb, such as ``latch_watch``. Its header names keys and arguments, and lists
the values packed into an argument (`handfast._engine.contract`). So `ObjectRequest` packs the calls of every
object: from values given once (``fixed``) and values given with each call, by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from handfast._engine.constants import TOKEN_SIZE
from handfast._engine.contract import WANTS, contract_of
from handfast._engine.effects import Call, make_call
from handfast._engine.keys import KeySet
from handfast._engine.packing import double
from handfast._engine.resp import bulk
from handfast._engine.script import CommandPrefix, LuaScript, command, load, pack
from handfast._kinds import KINDS

__all__ = ["ObjectRequest"]


class _Shape(NamedTuple):
    """The call of a script, with the parts that are the same in each call."""

    prefix: CommandPrefix
    script: LuaScript
    counts: tuple[int, int]
    """Of keys and of arguments."""
    keys: bytes
    head: bytes
    """The keys, and the length of a token."""
    tail: bytes
    """The arguments after the token, with ``%b`` for each value given with a call."""
    slots: tuple[tuple[str, Callable[[Any], bytes]], ...]
    """The names of the values given with a call, and the function that packs each."""
    wants: bytes | None
    """The beginning of the record; None if the call does not wait."""


class ObjectRequest:
    """The calls of an object. ``fixed`` are the values that all calls share, by name."""

    __slots__ = ("_shapes", "fixed", "name", "place")

    def __init__(self, place: KeySet, **fixed: Any) -> None:
        self.name: str = place.name
        self.place: KeySet = place
        self.fixed: dict[str, Any] = fixed
        self._shapes: dict[str, _Shape] = {}

    @property
    def kind(self) -> str:
        """The kind of the object."""
        return self.place.kind

    @property
    def question(self) -> tuple[Any, ...]:
        """A key for `SharedWaits`: requests with equal keys get the same answer."""
        return self.place.tag, *self.fixed.values()

    def keyed(self, parts: tuple[str, ...]) -> ObjectRequest:
        """Return a copy for the name with key parts appended."""
        return type(self)(self.place.keyed(parts), **self.fixed)

    def having(self, **values: Any) -> ObjectRequest:
        """Return a copy with more fixed values."""
        return ObjectRequest(self.place, **self.fixed, **values)

    def call(self, verb: str, token: bytes = b"", *, more: Sequence[Any] = (), **values: Any) -> Call:
        """Return the call of a verb. ``more`` are the values of a variable last argument (``parts...`` in the header)."""
        shape = self._shapes.get(verb) or self._shaped(verb)
        prefix, script, counts, keys, head, tail, slots, wants = shape
        if slots:
            tail %= tuple([packed(values[name]) for name, packed in slots])
        if more:
            prefix = script.prefix_for(counts[0], counts[1] + len(more))
            tail += pack(more)
        waiter = b"" if wants is None else token
        if len(token) == TOKEN_SIZE:
            return make_call((prefix, head, token, tail, waiter, wants or b"", b"", None, False, None, None, b""))
        args = keys + (b"$%d\r\n%b" % (len(token), token) if token else b"") + tail
        return Call(prefix, args, waiter=waiter, wants=wants or b"")

    def cancel(self, token: bytes) -> Call:
        """Return the call that undoes a request, granted or not."""
        return self.call("cancel", token)

    def command(self, name: str, part: str, *args: Any) -> Call:
        """Return a plain command on a key."""
        return Call(command(name, 1 + len(args)), pack((self._key(part), *args)))

    def _key(self, name: str) -> str:
        """Return a key by the name in the headers. A fixed value of the same name replaces the key's part."""
        return self.place.key(self.fixed.get(name, name))

    def _shaped(self, verb: str) -> _Shape:
        script = load(f"{KINDS[self.place.kind].scripts}_{verb}")
        header, packs, fixed = script.header, contract_of(script.name).packs, self.fixed
        keys = [*header.keys[: len(header.keys) - header.more_keys]]
        if header.more_keys:
            keys += fixed.get(header.keys[-1], ())  # none where they are those of further names
        names = [*header.args[: len(header.args) - header.more_args]]
        wants = None
        # The session appends its channels to this argument, so it stays apart from the packed tail.
        if names[-1:] == [WANTS]:
            names.pop()
            found = packs.get(WANTS)
            wants = b"" if found is None else b"".join(_packed(found.codes, (fixed[name] for name in found.names)))
        has_token = names[:1] == ["token"]
        # The token stands in front of the tail: of its usual
        # size, it is sent as a piece of its own and not copied.
        tail, slots = [b"\r\n"] if has_token else [], []
        for name in names[has_token:]:
            found = packs.get(name)
            if found is not None:
                tail.append(b"$%d\r\n" % (8 * len(found.codes)))
                for part in found.names:
                    if part in fixed:
                        tail.append(_literal(double(fixed[part])))
                    else:
                        tail.append(b"%b")
                        slots.append((part, double))
                tail.append(b"\r\n")
            elif name in fixed:
                tail.append(_literal(bulk(fixed[name])))
            else:
                tail.append(b"%b")
                slots.append((name, bulk))
        packed = pack(map(self._key, keys))
        counts = len(keys), len(names) + (wants is not None)
        # Fixed values have each percent sign doubled for the
        # formatting in `call`, which is left out without slots.
        text = b"".join(tail) if slots else b"".join(tail).replace(b"%%", b"%")
        shape = _Shape(
            script.prefix_for(*counts),
            script,
            counts,
            packed,
            b"%b$%d\r\n" % (packed, TOKEN_SIZE),
            text,
            tuple(slots),
            wants,
        )
        self._shapes[verb] = shape
        return shape


def _packed(codes: Iterable[str], values: Iterable[Any]) -> Iterable[bytes]:
    for code, value in zip(codes, values, strict=True):
        yield double(value) if code == "d" else b"%c%b" % (len(value), value)


def _literal(packed: bytes) -> bytes:
    """Return bytes as they stand in a template."""
    return packed.replace(b"%", b"%%")
