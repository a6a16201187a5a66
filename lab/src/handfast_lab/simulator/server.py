"""A server in virtual time: the scripts run in a real Lua, on the model of the commands in ``server.lua``.

Nothing here knows of time, networks or clients: the caller says what the server's clock shows. Texts are bytes, as they
are on the wire.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Any

from handfast._engine.resp import ErrorReply, Reader
from handfast._engine.script import load

__all__ = ["ENGINE_SCRIPTS", "MAIN", "OLD", "PLAIN", "SCRIPT_NAMES", "SimulatedServer"]

_FILES = files("handfast._engine").joinpath("lua").iterdir()
_SCRIPTS = [load(file.name.removesuffix(".lua")) for file in _FILES if file.name.endswith(".lua")]
ENGINE_SCRIPTS = {script.name: script.source for script in _SCRIPTS}
"""The sources of the engine's scripts."""

SCRIPT_NAMES = {text.encode(): script.name.encode() for script in _SCRIPTS for text in (script.digest, script.source)}
"""The names of the scripts by digest and by source."""

PLAIN = {verb: f"return redis.call('{verb}', KEYS[1])" for verb in ("GET", "DEL")}
"""The commands of one key that clients send besides scripts, as scripts."""

MAIN, OLD = 0, 1
"""The data of the primary, and that of a server that was the primary and goes on."""

_HERE = files("handfast_lab.simulator")


class SimulatedServer:
    """The data of a server, and the scripts that it can run.

    ``engine`` is a module of lupa: ``lua51`` is what servers have, ``luajit21`` is faster.
    """

    def __init__(self, scripts: dict[str, str] | None = None, *, engine: str = "lua51") -> None:
        lua = importlib.import_module(f"lupa.{engine}")
        # There is never much to keep, so Lua need not collect often.
        self.lua = lua.LuaRuntime(
            encoding=None, unpack_returned_tuples=True, register_eval=False, register_builtins=False
        )
        self.lua.execute(b"collectgarbage('setpause', 400)")
        if engine.startswith("luajit"):
            self.lua.execute(b"require('jit').off()")  # scripts are too short to be worth a compilation
        self.model = self.lua.execute((_HERE / "server.lua").read_bytes())
        self.invariants = self.lua.execute((_HERE / "invariants.lua").read_bytes(), self.model)
        self.limits = self.lua.execute((_HERE / "limits.lua").read_bytes(), self.model)
        self.outcomes = self.lua.execute((_HERE / "outcomes.lua").read_bytes(), self.model, self.invariants)
        self._call = self.model[b"call"]
        self._messages = self.model[b"messages"]
        for name, source in (PLAIN | (ENGINE_SCRIPTS if scripts is None else scripts)).items():
            self.define(name, source)
        self.reset()

    def define(self, name: str, source: str) -> None:
        """Add a script under this name. Raises ValueError if it is not valid Lua."""
        complaint = self.model[b"define"](name.encode(), source.encode())
        if complaint is not None:
            raise ValueError(f"the script {name!r}: {complaint.decode()}")

    def reset(self) -> None:
        """Delete all data and all subscribers."""
        self.model[b"reset"]()

    def run(self, name: bytes, moment_us: int, key_count: int, words: Iterable[bytes]) -> tuple[Any, Sequence[bytes]]:
        """Return a script's reply, or its error as an `ErrorReply`; and its published channels and messages, alternating."""
        count, *reply = self._call(name, moment_us, key_count, *words)
        messages: Sequence[bytes] = self._messages() if count else ()
        if reply[0] is True:
            return reply[1], messages
        if reply[0] is None:
            return reply[1:], messages
        if reply[0] is False:
            return _read(reply[1]), messages
        return ErrorReply(reply[0].decode(errors="replace")), messages

    def dump(self, moment_us: int) -> str:
        """Return all data, in a fixed order."""
        return str(self.model[b"dump"](moment_us).decode("latin-1"))


def _read(data: bytes) -> Any:
    reader = Reader()
    reader.feed(data)
    return reader.frame()
