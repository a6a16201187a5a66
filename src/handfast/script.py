"""Lua scripts of your own, called like functions.

    take = Script.from_file("take.lua")
    take(client, account="a:1", amount=3)

    @take.typed
    def take_from(conn: redis.Redis, *, account: str, amount: int) -> int: ...

The header of a script, its first comment, names the keys, arguments and replies, so a call is checked before anything
is sent. A single `Script` serves every kind of client, of both APIs.
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
from handfast._engine.header import HeaderError, read_header
from handfast._engine.replies import Reader, Reply, is_named, reader, tagged
from handfast._engine.script import LuaScript
from handfast._naming import name_publicly
from handfast._protocol.scripts import run_script
from handfast._signatures import signature_of

__all__ = ["HeaderError", "Reply", "Script"]

P = ParamSpec("P")
R = TypeVar("R")

_PLAIN: tuple[tuple[type, Callable[[Any], Value]], ...] = (
    (str, str.__str__),
    (bytes, bytes.__bytes__),
    (int, int.__int__),
    (float, float.__float__),
)
"""How to strip a subclass from a value: a member of a str enum, for example, would be sent by another text."""


class Script:
    r"""A Lua script, called with a client, and with keys and arguments by name.

    Making a Script sends nothing. The first comment of the source may be a header, with any of these lines,
    and a line for each kind of reply::

        -- KEYS source target          names of the keys, in their order
        -- ARGV amount note...         names of the arguments; dots: any number of values
        -- REPLY taken left            a reply: an array of its tag and its fields
        -- REPLY - what is left        a reply that is no such array, in words
        -- NEEDS redis 7.0, valkey 8.0 the oldest servers that can run it
        -- TWICE nothing changes       what a second run does: the call may be sent again

    A script without KEYS and ARGV lines takes the sequences ``keys`` and ``args``.

    Args:
        source: The Lua source.
        name: The script's name in errors.

    Raises:
        TypeError: ``source`` is not a str.
        HeaderError: The header can't be understood. It is a ValueError.

    Example:
        header = "-- KEYS account\n-- ARGV amount\n"
        take = Script(header + "return redis.call('DECRBY', KEYS[1], ARGV[1])")
        take(client, account="a:1", amount=3)
    """

    def __init__(self, source: str, *, name: str = "script") -> None:
        if not isinstance(source, str):
            raise TypeError(f"a script's source must be a str, not {type(source).__name__}")
        self._script = LuaScript(name, source, read_header(source))

    @classmethod
    def from_file(cls, path: str | Path) -> Self:
        """Return the script of a file, named after it.

        Args:
            path: The path of the file, in UTF-8.

        Raises:
            OSError: The file can't be read.
            HeaderError: The header can't be understood.
        """
        return cls(Path(path).read_text(encoding="utf-8-sig"), name=Path(path).stem)

    @classmethod
    def from_package(cls, package: str, path: str) -> Self:
        """Return a script contained in an installed package, named after its file.

        Args:
            package: The import name of the package.
            path: The path of the file within the package.

        Raises:
            ModuleNotFoundError: There is no such package.
            OSError: The file can't be read.
            HeaderError: The header can't be understood.
        """
        return cls(files(package).joinpath(path).read_text(encoding="utf-8-sig"), name=Path(path).stem)

    def __repr__(self) -> str:
        return f"<Script {self.name!r} ({', '.join((*self.keys, *self.args)) or 'no names'})>"

    @property
    def name(self) -> str:
        """The script's name in errors."""
        return self._script.name

    @property
    def source(self) -> str:
        """The Lua source."""
        return self._script.source

    @property
    def digest(self) -> str:
        """The SHA-1 of the source in hex, by which the server finds it."""
        return self._script.digest

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of the keys, in their order."""
        return self._script.header.keys

    @property
    def args(self) -> tuple[str, ...]:
        """The names of the arguments, in their order."""
        return self._script.header.args

    def __call__(self, client: Any, /, **values: Any) -> Any:
        """Run the script and return the reply.

        A client of redis-py sends it by EVALSHA, and with the source if the server does not know it; a pipeline always
        sends the source. Handfast and AsyncHandfast send it once only, unless the header has a TWICE line; the
        server limits their replies to 32 MB by default.

        Args:
            client: A Handfast or AsyncHandfast, or a client of redis-py: sync, asyncio, a pipeline, a cluster.
            values: Keys and arguments by name, each a str, bytes, int or float, or an iterable for a name with three
                dots. Without a header: the iterables ``keys`` and ``args``.

        Returns:
            A `Reply` if the header lists it, else the client's own result. For an asyncio client, an awaitable of these;
            for a pipeline, the pipeline: see `read` for the replies.

        Raises:
            TypeError: The client or a value has the wrong type, or the names are not those of the header. Nothing was
                sent.
            ValueError: The keys are in different slots of the cluster (nothing was sent), or the header does not list
                the reply.
            ScriptError: The script failed; everything written before stays.
        """
        keys, args = self._arranged(values)
        return self._run(client, keys, args, self.read)

    def read(self, reply: Any) -> Any:
        """Convert a reply from a pipeline to the result of a call.

        Args:
            reply: The reply, or the exception in place of the reply.

        Returns:
            A `Reply` if the header lists it, else the reply itself.

        Raises:
            Exception: The reply is an exception; `explain` says which exception is raised.
            ValueError: The header does not list the reply.
        """
        if isinstance(reply, Exception):
            raise self.explain(reply)
        header = self._script.header
        if header.untagged or not header.replies:
            record = tagged(header.replies, reply)
            return reply if record is None else record
        return self._named(self._record, reply)

    def explain(self, error: Exception) -> Exception:
        """Return the ScriptError for an exception from a pipeline.

        The exception does not say which script of the pipeline raised it: pass only exceptions of this script.

        Args:
            error: The exception in the place of a reply.

        Returns:
            The ScriptError, or the exception itself if it does not name a line of a script.
        """
        fault = clients.blame(self._script, error)
        if fault is None:
            return error
        fault.__cause__ = error
        return fault

    def typed(self, stub: Callable[P, R]) -> Callable[P, R]:
        """Decorate a stub, to call the script as a function with types.

        The parameters of the stub are the client and then the names of the header; its body is not run. Its return
        annotation says how to read the reply, with the same result whether or not the client decodes responses::

            None                     nothing
            bool                     1 is True, 0 and nil are False
            int, float, str, bytes   a number, or a text that is one; a text
            X | None                 None for nil
            list[X], tuple[X, ...], set[X], frozenset[X], tuple[X, Y]
            dict[K, V]               an array of keys and values in turn
            a NamedTuple, dataclass  an array, field by field
            Literal["a", "b"]        one of these texts
            Reply, Any               as the header says; as it comes

        An ``async def`` stub makes a coroutine function for asyncio clients. Both kinds take a pipeline, too, and
        return it.

        Args:
            stub: The function to decorate.

        Returns:
            A function with the signature of the stub, which runs the script.

        Raises:
            TypeError: The parameters are not those of the header, or the return annotation is missing or can't be read.
        """
        signature = signature_of(stub)
        read, raw = self._reader(stub, signature)
        awaited = inspect.iscoroutinefunction(stub)

        def prepare(*args: P.args, **kwargs: P.kwargs) -> Any:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            client, *_ = values = list(bound.arguments.values())
            if not clients.is_pipeline(client) and _is_asynchronous(client) is not awaited:
                kind = "an asyncio client" if awaited else "a sync client"
                raise TypeError(f"{stub.__name__} takes {kind}, not {client!r}")
            keys, arguments = self._arranged(dict(zip(list(bound.arguments)[1:], values[1:], strict=True)))
            return self._run(client, keys, arguments, read, raw=raw)

        if not awaited:
            return cast("Callable[P, R]", functools.wraps(stub)(prepare))

        @functools.wraps(stub)
        async def call(*args: P.args, **kwargs: P.kwargs) -> Any:
            given = prepare(*args, **kwargs)
            return await given if inspect.iscoroutine(given) else given

        return cast("Callable[P, R]", call)

    def _reader(self, stub: Callable[..., Any], signature: inspect.Signature) -> tuple[Reader, bool]:
        """Return the reader of a stub's replies, and whether it takes bytes for all of them.

        Raises TypeError for a stub that does not fit the header.
        """
        client, *names = signature.parameters or [""]
        declares = self._script.header.declares
        wanted = {*self.keys, *self.args} if declares else {"keys", "args"} & set(names)
        if not client or set(names) != wanted:
            ours = (
                ", ".join((*self.keys, *self.args)) if declares else "keys and args, as a script without a header does"
            )
            raise TypeError(f"{stub.__name__} must take a client and then {ours or 'nothing'}, not {', '.join(names)}")
        if signature.return_annotation is signature.empty:
            raise TypeError(f"{stub.__name__} has no return annotation; add one, at least Any")
        # The annotations of the parameters may name what only type checkers import.
        only = SimpleNamespace(__annotations__={"return": signature.return_annotation})
        hints = get_type_hints(only, globalns=inspect.unwrap(stub).__globals__)
        read = functools.partial(self._named, reader(hints["return"], self._record))
        return read, is_named(hints["return"])

    def _named(self, read: Reader, reply: Any) -> Any:
        """Read a reply. An error names the script."""
        try:
            return read(reply)
        except ValueError as error:
            raise ValueError(f"the script {self.name!r}: {error}") from error

    def _record(self, reply: Any) -> Reply:
        record = tagged(self._script.header.replies, reply)
        if record is None:
            raise ValueError(f"its header does not list the reply {reply!r}")
        return record

    def _run(
        self, client: Any, keys: Sequence[Value], args: Sequence[Value], read: Reader, *, raw: bool = False
    ) -> Any:
        if isinstance(client, Handfast | AsyncHandfast):
            given = client._driver.run(run_script(self._script, keys, args), self.name)  # noqa: SLF001 -- the public edge may use the driver
            return _reading(given, read) if inspect.iscoroutine(given) else read(given)
        if not clients.is_supported(client):
            raise TypeError(f"a script takes a client of redis-py, a Handfast or an AsyncHandfast, not {client!r}")
        if clients.is_pipeline(client):
            return clients.queue(client, self._script, keys, args)
        if clients.is_asynchronous(client):
            return _reading(clients.run_async(client, self._script, keys, args, raw=raw), read)
        return read(clients.run(client, self._script, keys, args, raw=raw))

    def _arranged(self, values: dict[str, Any]) -> tuple[list[Value], list[Value]]:
        """Return keys and arguments in the order of the header."""
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


name_publicly(globals(), "handfast")
