"""Chance and clocks: what makes a second run of the same script do something else.

Servers pass on what a script wrote, not the script, so replicas stay right. But a script is sent again when its reply got
lost, and it is tested; for both it has to do the same thing twice. So random commands are warned of. Lua's own random
numbers are worse, since they can be foretold: they begin anew with the server, and up to Redis 6.2 with each run. Of clocks
there is one that all clients share, the server's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from handfast.lint.commands import RANDOM
from handfast.lint.findings import Finding
from handfast.lint.parsing import Node
from handfast.lint.script import Body

__all__ = ["RULES", "check"]

RULES = {
    "random": "Nothing depends on chance, unless the caller passes it in.",
    "clock": "The time is the server's, redis.call('TIME'), and not a client's.",
}

_CLIENT_CLOCK = re.compile(r"(?:now|current_time|client_time)(?:_\w+)?", re.IGNORECASE)


def check(body: Body) -> Iterator[Finding]:
    """Commands, functions of Lua, and arguments that are called like a clock."""
    for command in body.commands:
        if command.name in RANDOM:
            yield body.finding(
                "random",
                command.node,
                f"{command.name} answers at random, so a second run does something else: let the caller choose, or pass a "
                "random number as an argument",
                "warning",
            )
    for call in body.nodes:
        if call.kind == "call":
            yield from _call(body, call)
    yield from _client_clocks(body)


def _call(body: Body, call: Node) -> Iterator[Finding]:
    called = body.flow.called(call)
    if called == "math.random":
        yield from _random(body, call)
    elif called in ("os.time", "os.date", "os.difftime", "os.clock"):
        why = "counts the server's computing time" if called == "os.clock" else "is not there for scripts"
        yield body.finding(
            "clock", call, f"{called} {why}: ask redis.call('TIME'), which gives seconds and microseconds"
        )


def _random(body: Body, call: Node) -> Iterator[Finding]:
    seeds = [one for one in body.nodes if body.flow.called(one) == "math.randomseed"]
    if not seeds:
        yield body.finding(
            "random",
            call,
            "math.random gives the same numbers on every server, after every start, and on Redis 6.2 in every run: pass a random "
            "number as an argument, or seed it with one",
        )
    elif not any(_from_caller(body, seed) for seed in seeds):
        yield body.finding(
            "random",
            call,
            "math.random is not seeded by the caller, so a second run does something else: pass the seed",
            "warning",
        )


def _from_caller(body: Body, seed: Node) -> bool:
    return any(body.scopes.is_global(node, "ARGV") for node in body.flow.made_of(seed))


def _client_clocks(body: Body) -> Iterator[Finding]:
    message = "{!r} looks like the time on a client, and clients disagree: ask redis.call('TIME') in the script"
    declared = [name for name in body.header.args if _CLIENT_CLOCK.fullmatch(name)]
    for name in declared:
        found = body.finding_in_header("clock", "ARGV", name, message.format(name))
        yield Finding(found.name, found.line, found.column, found.rule, "warning", found.message)
    if body.header.declares:
        return
    for node in body.nodes:
        for local, value in zip(node.many("names"), node.many("values"), strict=False):
            if node.kind == "local" and _CLIENT_CLOCK.fullmatch(local.word) and _is_argument(body, value):
                yield body.finding("clock", local, message.format(local.word), "warning")


def _is_argument(body: Body, value: Node) -> bool:
    if body.flow.called(value) == "tonumber" and value.many("arguments"):
        value = value.many("arguments")[0]
    return any(origin.kind == "argument" for origin in body.flow.origins(value))
