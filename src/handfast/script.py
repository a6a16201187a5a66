"""Scripts of the user's own: a Lua file as a function that Python can call.

    take = Script.from_file("take.lua")
    take(client, account="a:1", amount=3)

    @take.typed
    def take_from(conn: redis.Redis, *, account: str, amount: int) -> int: ...

What a script takes and answers stands in its header (see `handfast._engine.header`), so a call is checked before anything
is sent. The same object serves every kind of client, in both colours.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ParamSpec, Self, TypeVar, cast, get_type_hints

from handfast._api.aio.client import AsyncHandfast
from handfast._api.sync.client import Handfast
from handfast._drivers import clients
from handfast._drivers.clients import Value
from handfast._engine.header import read_header
from handfast._engine.replies import Reader, Reply, reader, tagged
from handfast._engine.script import LuaScript
from handfast._protocol.structures import run_script

__all__ = ["Script"]

P = ParamSpec("P")
R = TypeVar("R")

_PLAIN: tuple[tuple[type, Callable[[Any], Value]], ...] = (
    (str, str.__str__),
    (bytes, bytes.__bytes__),
    (int, int.__int__),
    (float, float.__float__),
)
"""What a value is without the class it was given, such as an enum's, which would print as something else."""


class Script:
    """A Lua script, to be called with a client and with its keys and arguments by name.

    ``source`` is Lua text, which may begin with a header; ``name`` is what errors call it. Nothing is sent before the
    first call. Raises HeaderFault, a ValueError, for a header that cannot be understood.
    """

    def __init__(self, source: str, *, name: str = "script") -> None:
        if not isinstance(source, str):
            raise TypeError(f"a script's source must be a str, not {type(source).__name__}")
        self._script = LuaScript(name, source, read_header(source))

    @classmethod
    def from_file(cls, path: str | Path) -> Self:
        """The script in that file, named after it."""
        return cls(Path(path).read_text(encoding="utf-8-sig"), name=Path(path).stem)

    @classmethod
    def from_package(cls, package: str, path: str) -> Self:
        """The script that an installed package brings along, at that path within it."""
        return cls(files(package).joinpath(path).read_text(encoding="utf-8-sig"), name=Path(path).stem)

    def __repr__(self) -> str:
        return f"<Script {self.name!r} ({', '.join((*self.keys, *self.args)) or 'no names'})>"

    @property
    def name(self) -> str:
        """What errors call it."""
        return self._script.name

    @property
    def source(self) -> str:
        """The text that the server is given."""
        return self._script.source

    @property
    def digest(self) -> str:
        """What the server knows it by: the SHA-1 of the source, in hex."""
        return self._script.digest

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of its keys, in their order."""
        return self._script.header.keys

    @property
    def args(self) -> tuple[str, ...]:
        """The names of its arguments, in their order."""
        return self._script.header.args

    def __call__(self, client: Any, /, **values: Any) -> Any:
        """Run it, and give its reply.

        ``client`` is a client of redis-py, of any kind: an asyncio one gives an awaitable; a pipeline queues the call and
        is given back; a cluster's keys must share a slot. Or it is a Handfast or AsyncHandfast, which sends the script once
        only unless its header says what happens TWICE, and to which servers send replies of 32 MB at most by default.

        Keys and arguments are named as in the header; a name with three dots takes an iterable. Without a header they are
        the sequences ``keys`` and ``args``. They are str, bytes, int or float.

        A reply that the header lists is a `Reply`; any other, and all in a pipeline, are what the client gives. Raises
        TypeError and ValueError before anything is sent, and ScriptError where the script fails.
        """
        keys, args = self._arranged(values)
        return self._run(client, keys, args, self.read)

    def read(self, reply: Any) -> Any:
        """What a call makes of the server's reply: for those that a pipeline gives. An error among them is raised."""
        if isinstance(reply, Exception):
            raise self.explain(reply)
        header = self._script.header
        if header.in_words or not header.replies:
            record = tagged(header.replies, reply)
            return reply if record is None else record
        return self._named(self._record, reply)

    def explain(self, error: Exception) -> Exception:
        """The ScriptError for an error that a pipeline gave for this script; the error itself where no line is to blame.

        Which of a pipeline's scripts it was, the error does not say.
        """
        fault = clients.blame(self._script, error)
        if fault is None:
            return error
        fault.__cause__ = error
        return fault

    def typed(self, stub: Callable[P, R]) -> Callable[P, R]:
        """Decorate a stub, whose parameters are the client and then the header's names, and whose body is not run.

        The annotation of what it gives says how the reply is read (see `handfast._engine.replies`); what it names is the
        same with ``decode_responses`` on and off. An ``async def`` makes a coroutine function, for asyncio clients. A
        pipeline is taken too, and given back. Raises TypeError for a stub that does not fit the header.
        """
        signature = inspect.signature(stub)
        read = self._reader(stub, signature)
        awaited = inspect.iscoroutinefunction(stub)

        def prepare(*args: P.args, **kwargs: P.kwargs) -> Any:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            client, *_ = values = list(bound.arguments.values())
            if not clients.is_pipeline(client) and _is_asynchronous(client) is not awaited:
                colour = "an asyncio client" if awaited else "a client that does not have to be awaited"
                raise TypeError(f"{stub.__name__} takes {colour}, not {client!r}")
            keys, arguments = self._arranged(dict(zip(list(bound.arguments)[1:], values[1:], strict=True)))
            return self._run(client, keys, arguments, read)

        if not awaited:
            return cast("Callable[P, R]", functools.wraps(stub)(prepare))

        @functools.wraps(stub)
        async def call(*args: P.args, **kwargs: P.kwargs) -> Any:
            given = prepare(*args, **kwargs)
            return await given if inspect.iscoroutine(given) else given

        return cast("Callable[P, R]", call)

    def _reader(self, stub: Callable[..., Any], signature: inspect.Signature) -> Reader:
        """How a stub's replies are read."""
        client, *names = signature.parameters or [""]
        declares = self._script.header.declares
        wanted = {*self.keys, *self.args} if declares else {"keys", "args"} & set(names)
        if not client or set(names) != wanted:
            ours = (
                ", ".join((*self.keys, *self.args)) if declares else "keys and args, as a script without a header does"
            )
            raise TypeError(f"{stub.__name__} must take a client and then {ours or 'nothing'}, not {', '.join(names)}")
        if signature.return_annotation is signature.empty:
            raise TypeError(f"{stub.__name__} does not say what it gives: annotate it, with Any at least")
        # Of no use here, the other annotations may name what only type checkers import.
        only = SimpleNamespace(__annotations__={"return": signature.return_annotation})
        hints = get_type_hints(only, globalns=inspect.unwrap(stub).__globals__)
        return functools.partial(self._named, reader(hints["return"], self._record))

    def _named(self, read: Reader, reply: Any) -> Any:
        """Read a reply; an error names the script."""
        try:
            return read(reply)
        except ValueError as error:
            raise ValueError(f"the script {self.name!r}: {error}") from error

    def _record(self, reply: Any) -> Reply:
        record = tagged(self._script.header.replies, reply)
        if record is None:
            raise ValueError(f"its header does not list the reply {reply!r}")
        return record

    def _run(self, client: Any, keys: Sequence[Value], args: Sequence[Value], read: Reader) -> Any:
        if isinstance(client, Handfast | AsyncHandfast):
            given = client._driver.run(run_script(self._script, keys, args), self.name)  # noqa: SLF001 -- of the same floor
            return _reading(given, read) if inspect.iscoroutine(given) else read(given)
        if not clients.is_supported(client):
            raise TypeError(f"a script takes a client of redis-py, a Handfast or an AsyncHandfast, not {client!r}")
        if clients.is_pipeline(client):
            return clients.queue(client, self._script, keys, args)
        if clients.is_asynchronous(client):
            return _reading(clients.run_async(client, self._script, keys, args), read)
        return read(clients.run(client, self._script, keys, args))

    def _arranged(self, values: dict[str, Any]) -> tuple[list[Value], list[Value]]:
        """Keys and arguments in the order of the header."""
        header = self._script.header
        if not header.declares:
            if unknown := values.keys() - {"keys", "args"}:
                raise TypeError(
                    f"the script {self.name!r} has no header, so it takes keys= and args=, not {', '.join(sorted(unknown))}"
                )
            return [self._many(name, values.get(name, ())) for name in ("keys", "args")]  # type: ignore[return-value]  # two of them
        names = {*header.keys, *header.args}
        if values.keys() != names:
            missing, unknown = names - values.keys(), values.keys() - names
            wrong = [f"{', '.join(sorted(missing))} missing"] if missing else []
            wrong += [f"{', '.join(sorted(unknown))} unknown"] if unknown else []
            raise TypeError(
                f"the script {self.name!r} takes {', '.join((*header.keys, *header.args))}: {'; '.join(wrong)}"
            )
        return (
            self._listed(header.keys, values, more=header.more_keys),
            self._listed(header.args, values, more=header.more_args),
        )

    def _listed(self, names: tuple[str, ...], values: dict[str, Any], *, more: bool) -> list[Value]:
        single = names[:-1] if more else names
        listed = [self._checked(name, values[name]) for name in single]
        return listed + (self._many(names[-1], values[names[-1]]) if more else [])

    def _many(self, name: str, values: Iterable[Any]) -> list[Value]:
        if isinstance(values, str | bytes | bytearray | memoryview) or not isinstance(values, Iterable):
            raise TypeError(f"{name} of the script {self.name!r} must be several values, not {values!r}")
        return [self._checked(name, value) for value in values]

    def _checked(self, name: str, value: Any) -> Value:
        for kind, plain in _PLAIN:
            if isinstance(value, kind) and not isinstance(value, bool):
                return plain(value)
        raise TypeError(f"{name} of the script {self.name!r} must be str, bytes, int or float, not {value!r}")


def _is_asynchronous(client: object) -> bool:
    return isinstance(client, AsyncHandfast) or clients.is_asynchronous(client)


async def _reading(coming: Any, read: Reader) -> Any:
    return read(await coming)
