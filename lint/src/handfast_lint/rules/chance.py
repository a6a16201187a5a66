"""Randomness and clocks: what makes a second run of the same script behave differently.

Servers replicate the writes of a script, not the script, so replicas are consistent in any case. But a client sends a
script again after a lost reply, and tests repeat it; both need the same behaviour twice. Random commands are therefore
a warning. Lua's own random numbers are an error, because they are predictable: they restart with the server, and up to
Redis 6.2 with each run. The server's clock is the only one that all clients share.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from handfast_lint.commands import RANDOM
from handfast_lint.findings import Finding
from handfast_lint.parsing import Node
from handfast_lint.script import CheckedScript

__all__ = ["RULES", "check"]

RULES = {
    "random": "Randomness comes from the caller.",
    "clock": "The time is read from the server, redis.call('TIME'), not from a client.",
}

_CLIENT_CLOCK = re.compile(r"(?:now|current_time|client_time)(?:_\w+)?", re.IGNORECASE)


def check(script: CheckedScript) -> Iterator[Finding]:
    """Check commands, functions of Lua, and arguments named like a clock."""
    for command in script.commands:
        if command.name in RANDOM:
            yield script.finding(
                "random",
                command.node,
                f"{command.name} replies at random, so a second run behaves differently: let the caller choose, or pass a "
                "random number as an argument",
                "warning",
            )
    for call in script.nodes:
        if call.kind == "call":
            yield from _call(script, call)
    yield from _client_clocks(script)


def _call(script: CheckedScript, call: Node) -> Iterator[Finding]:
    called = script.flow.called(call)
    if called == "math.random":
        yield from _random(script, call)
    elif called in ("os.time", "os.date", "os.difftime", "os.clock"):
        why = "measures the server's CPU time" if called == "os.clock" else "is not available to scripts"
        yield script.finding(
            "clock", call, f"{called} {why}: call redis.call('TIME'), which replies seconds and microseconds"
        )


def _random(script: CheckedScript, call: Node) -> Iterator[Finding]:
    seeds = [one for one in script.nodes if script.flow.called(one) == "math.randomseed"]
    if not seeds:
        yield script.finding(
            "random",
            call,
            "math.random returns the same numbers on every server after each start, and on Redis 6.2 in each run: pass a random "
            "number as an argument, or seed it with one",
        )
    elif not any(_from_caller(script, seed) for seed in seeds):
        yield script.finding(
            "random",
            call,
            "math.random is not seeded by the caller, so a second run behaves differently: pass the seed",
            "warning",
        )


def _from_caller(script: CheckedScript, seed: Node) -> bool:
    return any(script.scopes.is_global(node, "ARGV") for node in script.flow.made_of(seed))


def _client_clocks(script: CheckedScript) -> Iterator[Finding]:
    message = "{!r} looks like the time of a client, and clients disagree: call redis.call('TIME') in the script"
    declared = [name for name in script.header.args if _CLIENT_CLOCK.fullmatch(name)]
    for name in declared:
        found = script.finding_in_header("clock", "ARGV", name, message.format(name))
        yield Finding(found.name, found.line, found.column, found.rule, "warning", found.message)
    if script.header.declares:
        return
    for node in script.nodes:
        for local, value in zip(node.many("names"), node.many("values"), strict=False):
            if node.kind == "local" and _CLIENT_CLOCK.fullmatch(local.word) and _is_argument(script, value):
                yield script.finding("clock", local, message.format(local.word), "warning")


def _is_argument(script: CheckedScript, value: Node) -> bool:
    if script.flow.called(value) == "tonumber" and value.many("arguments"):
        value = value.many("arguments")[0]
    return any(origin.kind == "argument" for origin in script.flow.origins(value))
