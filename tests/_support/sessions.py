"""Sessions: scripts called step by step, as text with the answers, and laws for every step.

`docs/design/sessions.md` has the grammar and the laws. A `Stage` runs one call from a stored state to the next, by a
clock set by the session; so a call can be sent twice, cut off or refused from the same state.
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
from collections.abc import Iterator
from functools import cache
from math import inf
from pathlib import Path
from struct import pack, unpack_from
from typing import Any, NamedTuple

import redis

from handfast._engine.contract import WANTS, contract_of
from handfast._engine.keys import KeySet
from handfast._engine.script import load

START_US = 1_700_000_000_123_456
"""The time of ``@0``."""

QUEUED, FINISHED = -(2**52), 2**52
"""Added to a ticket, and to the end of a tombstone, for the score among the tokens of a lease."""

MANY = 20
"""More items of a value are counted instead of shown."""

MOST_CUTS = 100
"""A call with more commands is not cut off before each of them."""

ROUNDED_US = 2000
"""The tolerance of a TTL, which has whole milliseconds."""

SLOW_US = 200_000
"""The tolerance where time goes on while a script runs."""

SAME_ARGUMENTS = {"multi_acquire": "permit_acquire"}
"""Scripts that take the arguments of another."""

NAME = "a"
"""The name whose keys a call uses if it says nothing else."""

MOST_STARVED = 10
"""Tries of a call at ``maxmemory``: a script that stores what a TTL says may find a millisecond less."""

LEAST_MS = 10_000
"""The least TTL of a key at ``maxmemory``, where time goes on from one command to the next."""

ANSWER = "    "
"""Begins each line of an answer but the first."""

STAGED = """local server, cut, now = redis, tonumber(table.remove(ARGV)), table.remove(ARGV)
local calls, redis = 0, {error_reply = redis.error_reply, status_reply = redis.status_reply}
for _, way in ipairs({'call', 'pcall'}) do
  redis[way] = function(name, ...)
    if calls == cut then
      error('cut off')
    end
    calls = calls + 1
    if name == 'TIME' then
      return {string.sub(now, 1, -7), string.sub(now, -6)}
    end
    return server[way](name, ...)
  end
end
local function run()
%s
end
"""
"""A script with a clock set by the session, which counts commands and fails in place of a chosen command."""

RUN = f"{STAGED}local reply = run()\nreturn {{calls, reply}}\n"
"""Runs the script once."""

LOOK = """local function digest(kind, value, lapsed)
  if kind == 'string' then
    return server.sha1hex(value)
  end
  local items, step = {}, kind == 'list' and 1 or 2
  for i = 1, #value, step do
    if not (lapsed and tonumber(value[i + 1]) <= lapsed) then
      local item = step == 1 and value[i] or value[i] .. ' ' .. value[i + 1]
      items[#items + 1] = #item .. ':' .. item
    end
  end
  if kind == 'hash' then
    table.sort(items)
  end
  return server.sha1hex(table.concat(items))
end
local function look(lapses, whole)
  local found, read = {}, {hash = 'HGETALL', zset = 'ZRANGE', string = 'GET', list = 'LRANGE'}
  for i, key in ipairs(server.call('KEYS', '*')) do
    local kind = server.call('TYPE', key).ok
    local range = kind == 'zset' and {0, -1, 'WITHSCORES'} or kind == 'list' and {0, -1} or {}
    local value = server.call(read[kind], key, unpack(range))
    found[i] = {key, server.call('PTTL', key), digest(kind, value, kind == 'zset' and lapses[key])}
    if whole then
      found[i][4], found[i][5], found[i][6] = kind, server.call('DUMP', key), value
    end
  end
  return found
end
"""
"""Reads each key: its TTL and a digest of its value, and on demand the value itself.

A digest leaves out the members of some sorted sets whose score is not above a moment: ``lapses`` has it, by key.
"""

READ = f"""local server, lapses = redis, {{}}
{LOOK}for i, key in ipairs(KEYS) do
  lapses[key] = tonumber(ARGV[1])
end
return look(lapses, true)
"""

REPLAY = f"""{STAGED}{LOOK}local given, dumps, found = cjson.decode(table.remove(ARGV)), {{}}, {{}}
for i = #given.stored, 1, -1 do
  dumps[i] = table.remove(ARGV)
end
for i, at in ipairs(given.cuts) do
  server.call('FLUSHALL')
  for j, one in ipairs(given.stored) do
    server.call('RESTORE', one[1], one[2], dumps[j])
  end
  calls, cut = 0, at
  local is_whole = pcall(run)
  cut = -1
  local is_good, reply = pcall(run)
  found[i] = {{is_whole and 1 or 0, is_good and reply or 'error', look(given.lapses)}}
end
return found
"""
"""Runs the script two times from the same state on, again and again, the first time cut off before another command."""


class Stored(NamedTuple):
    """A key: the end of the TTL by the clock of the session, a digest of the value, and the value if it was asked for."""

    ends_us: float
    digest: bytes
    kind: str = ""
    dump: bytes = b""
    value: Any = None


class Outcome(NamedTuple):
    """The result of a call."""

    reply: Any
    """As the server sent it; the text of an error."""
    state: dict[bytes, Stored]
    told: list[tuple[str, bytes]]
    """Channel and message of each publication that reached a subscriber."""
    commands: int = 0
    is_refused: bool = False

    @property
    def values(self) -> dict[bytes, Any]:
        """All stored values, without the TTLs."""
        return _values(self.state)


class Call(NamedTuple):
    """A script, with keys and arguments."""

    source: str
    keys: tuple[str, ...]
    args: tuple[Any, ...]
    ttl_ms: float = 0
    """The lease of a grant whose reply is the fence alone."""


class Stage:
    """Runs calls on a private server."""

    def __init__(self, client: redis.Redis, subscriber: Any) -> None:
        self.subscriber = subscriber
        self.now_us = START_US
        self.is_exact = client.info("server")["redis_version"] >= "7.2"
        """Whether time stands still in a transaction, which makes TTLs the same each time."""
        self.has_laws = self.is_exact
        """Whether each step is also repeated, cut off and refused."""
        self.lapses: list[str] = []
        """Sorted sets whose members are over with the time that is their score."""
        self._client = client
        self._digests: dict[str, str] = {}

    def play(self, state: dict[bytes, Stored], *calls: Call, maxmemory: int = 0) -> Outcome:
        """Run calls in sequence from a state on. Return the outcome of the last one."""
        pipe = self._client.pipeline(transaction=not maxmemory)
        pipe.execute_command("FLUSHALL")
        for key, one in state.items():
            least_ms = LEAST_MS if maxmemory else 1
            pipe.execute_command("RESTORE", key, self._ttl_ms(one, least_ms), one.dump)
        if maxmemory:
            pipe.execute_command("CONFIG", "SET", "maxmemory", maxmemory)
        for call in calls:
            args = (*call.args, self.now_us, -1)
            pipe.execute_command("EVALSHA", self._known(RUN % call.source), len(call.keys), *call.keys, *args)
        pipe.execute_command("EVALSHA", self._known(READ), len(self.lapses), *self.lapses, self.now_us)
        if maxmemory:
            pipe.execute_command("CONFIG", "SET", "maxmemory", 0)
        results = pipe.execute(raise_on_error=False)
        reply, found = results[-3:-1] if maxmemory else results[-2:]
        after, told = {key: self._stored(*rest) for key, *rest in sorted(found)}, self._told()
        if isinstance(reply, redis.ResponseError):
            return Outcome(str(reply), after, told, is_refused=True)
        return Outcome(_whole(reply[1], calls[-1].ttl_ms), after, told, reply[0])

    def replay(self, state: dict[bytes, Stored], call: Call, cuts: list[int]) -> Iterator[tuple[bool, Outcome]]:
        """Run a call two times from a state on, once for each cut: the first time it fails in place of that command.

        Yield whether the first call went through, and the outcome of the second, with the messages of all.
        """
        given = {
            "stored": [(key.decode(), self._ttl_ms(one)) for key, one in state.items()],
            "lapses": dict.fromkeys(self.lapses, self.now_us),
            "cuts": cuts,
        }
        args = (*call.args, *(one.dump for one in state.values()), json.dumps(given), self.now_us, -1)
        digest = self._known(REPLAY.replace("%s", call.source))
        replies = self._client.evalsha(digest, len(call.keys), *call.keys, *args)
        told = self._told()
        for is_whole, reply, found in replies:
            after = {key: self._stored(*rest) for key, *rest in sorted(found)}
            yield bool(is_whole), Outcome(_whole(reply, call.ttl_ms), after, told)

    def _ttl_ms(self, one: Stored, least: int = 1) -> int:
        return 0 if one.ends_us == inf else max(least, round((one.ends_us - self.now_us) / 1000))

    def _known(self, source: str) -> str:
        if source not in self._digests:
            self._digests[source] = self._client.script_load(source)
        return self._digests[source]

    def _stored(self, ttl: int, digest: bytes, kind: bytes = b"", dump: bytes = b"", value: Any = None) -> Stored:
        if kind == b"hash":
            value = dict(sorted(zip(value[::2], value[1::2], strict=True)))
        elif kind == b"zset":
            value = [(member, float(score)) for member, score in zip(value[::2], value[1::2], strict=True)]
        return Stored(inf if ttl == -1 else self.now_us + ttl * 1000, digest, kind.decode(), dump, value)

    def _told(self) -> list[tuple[str, bytes]]:
        self.subscriber.ping()
        told = []
        while (message := self.subscriber.get_message(timeout=10)) is None or message["type"] != "pong":
            if message is not None and message["type"] in ("message", "smessage"):
                told.append((message["channel"].decode(), message["data"]))
        return told


class LawBroken(AssertionError):
    """A step breaks a promise of every script."""


class Session:
    """The steps of a session, played in sequence."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._state: dict[bytes, Stored] = {}
        self._given: dict[str, str] = {}
        self._kind = self._prefix = ""
        self._verbs: dict[str, tuple[str, dict[str, str]]] = {}
        self._formats: dict[str, str] = {}
        self._final: tuple[str, ...] = ()
        self._kept: dict[bytes, Stored] = {}
        self._waived: set[str] = set()
        self._counts: set[str] = set()
        self._calls: dict[str, list[Call]] = {}
        """The calls so far, by token."""
        stage.now_us, stage.lapses = START_US, []

    def play(self, line: str) -> Iterator[str]:
        """Play a line. Yield it, with the answers behind it."""
        words = [] if line.startswith("#") else shlex.split(line)
        step = getattr(self, f"_on_{words[0].lstrip('!')}", None) if words else None
        if not words:
            yield line.rstrip()
        elif re.fullmatch(r"[+-][\d_]+", words[0]):
            self._on_time(int(words[0].replace("_", "")))
            yield line.rstrip()
        elif step is not None:
            step(*words[1:])
            yield line.rstrip()
        else:
            yield from self._call(line.partition(" ->")[0].rstrip())

    # --- preparations

    def _on_object(self, kind: str, prefix: str = "") -> None:
        self._kind, self._prefix = kind, prefix or kind

    def _on_exact(self) -> None:
        """Do nothing: where time goes on while a script runs, the session is not played."""

    def _on_given(self, *values: str) -> None:
        self._given |= dict(value.split("=", 1) for value in values)

    def _on_verb(self, verb: str, _: str, script: str, *values: str) -> None:
        self._verbs[verb] = script, dict(value.split("=", 1) for value in values)

    def _on_final(self, *verbs: str) -> None:
        self._final = verbs

    def _on_lapses(self, *parts: str) -> None:
        self._stage.lapses = [self._key(part) for part in parts]

    def _on_waives(self, *laws: str) -> None:
        self._waived = {*laws}

    def _on_counts(self, *fields: str) -> None:
        self._counts = {*fields}

    def _on_packed(self, *formats: str) -> None:
        self._formats |= dict(one.split("=", 1) for one in formats)

    def _on_listens(self, *channels: str) -> None:
        self._listen(channels, is_there=True)

    def _on_leaves(self, *channels: str) -> None:
        self._listen(channels, is_there=False)

    def _listen(self, channels: tuple[str, ...], *, is_there: bool) -> None:
        """Subscribe or unsubscribe, and wait until the server has."""
        subscriber = self._stage.subscriber
        for channel in channels:
            verb = "s" * ("{" in channel) + ("subscribe" if is_there else "unsubscribe")
            getattr(subscriber, verb)(channel)
            confirmed = None
            while confirmed is None or (confirmed["type"], confirmed["channel"]) != (verb, channel.encode()):
                confirmed = subscriber.get_message(timeout=10)

    def _on_lose(self, *parts: str) -> None:
        """Forget these keys, or all."""
        gone = [self._key(part).encode() for part in parts]
        self._state = {key: one for key, one in self._state.items() if parts and key not in gone}

    def _on_each(self, numbers: str, *words: str) -> None:
        """Make a call for each of these numbers, without looking at the answers."""
        first, last = map(int, numbers.split(".."))
        numbered = [[word.replace("{n}", str(number)) for word in words] for number in range(first, last + 1)]
        calls = [self._packed(verb, rest)[1] for verb, *rest in numbered]
        self._state = self._stage.play(self._state, *calls).state

    def _on_store(self, part: str, *values: str) -> None:
        """Have fields of a hash, or a string in pieces, as another program may write them."""
        is_hash = "=" in values[0]
        args = [_read(item) for one in values for item in one.split("=", 1)]
        command = "HSET" if is_hash else "SET"
        source = f"return redis.call('{command}', KEYS[1], unpack(ARGV))"
        store = Call(source, (self._key(part),), tuple(args if is_hash else [b"".join(args)]))
        self._state = self._stage.play(self._state, store).state

    def _on_drop(self, part: str, *members: str) -> None:
        """Take members out of a sorted set, or fields out of a hash, as a cut-off script may leave them out."""
        command = "ZREM" if self._state[self._key(part).encode()].kind == "zset" else "HDEL"
        drop = Call(f"return redis.call('{command}', KEYS[1], unpack(ARGV))", (self._key(part),), members)
        self._state = self._stage.play(self._state, drop).state

    def _on_keep(self) -> None:
        """Take a copy of the stored state."""
        self._kept = self._state

    def _on_restore(self, *parts: str) -> None:
        """Go back to the copy, as a restored server; or have these keys as in the copy."""
        again = {key: one for key, one in self._kept.items() if _part(key) in parts}
        self._state = self._state | again if parts else self._kept

    def _on_time(self, us: int) -> None:
        self._stage.now_us += us
        self._state = {key: one for key, one in self._state.items() if one.ends_us > self._stage.now_us}

    # --- a call

    def _call(self, step: str) -> Iterator[str]:
        verb, *words = shlex.split(step)
        waived = {word[1:] for word in words if word.startswith("!")}
        token, call, fields = self._packed(verb, [word for word in words if not word.startswith("!")])
        outcome = self._stage.play(self._state, call)
        with _naming(step):
            laws = self._laws(call, outcome, waived, fields) if self._stage.has_laws else ()
            notes = [f"{outcome.commands} commands", *laws]
        if outcome.is_refused:
            yield f"{step} -> {_error(outcome.reply)}"
        else:
            answer = f"{step} -> {self._reply(outcome.reply, fields)}"
            yield f"{answer}  [{'; '.join(notes)}]"
        for key in sorted({*self._state, *outcome.state}):
            if (one := outcome.state.get(key)) is None:
                yield f"{ANSWER}{_part(key)} is gone"
            elif not self._is_same(one, self._state.get(key)):
                yield f"{ANSWER}{_part(key)} {self._ttl(one)}: {self._value(_part(key), one)}"
        told = [f"{ANSWER}tells {self._message(message)} on {channel}" for channel, message in outcome.told]
        yield from told if len(told) <= MANY else (told[0], f"{ANSWER}tells {len(told) - 2} others", told[-1])
        self._state = outcome.state
        if verb in self._final:
            with _naming(step):
                self._is_final(token, outcome)
        self._calls.setdefault(token, []).append(call)

    def _packed(self, verb: str, words: list[str]) -> tuple[str, Call, dict[str, tuple[str, ...]]]:
        """Return the token, the call, and the fields of each reply, from a verb and the words after it."""
        name, given = self._verbs.get(verb, (verb, {}))
        script = _script(f"{self._prefix}_{name}", name)
        header, packs = script.header, contract_of(SAME_ARGUMENTS.get(script.name, script.name)).packs
        plain = [word for word in words if not re.match(r"\w+=", word)]
        given = self._given | given | dict(word.split("=", 1) for word in words if re.match(r"\w+=", word))
        packed = [name for one in packs.values() for name in one.names]
        token = plain.pop(0) if "token" in (*header.args, *packed) else ""

        def value(name: str, code: str = "") -> Any:
            text = token if name == "token" else given[name]
            if "{" in text:
                text = re.sub(r"{(\w+)}", lambda found: ({"token": token} | given).get(found[1], found[0]), text)
            return _read(text, code)

        def argument(name: str) -> Any:
            found = packs.get(name)
            head = b"" if found is None else _pack(found.codes, [value(*one) for one in zip(found.names, found.codes)])  # noqa: B905
            if name == WANTS and "caller" in given:
                head += pack("<d", value("caller", "d"))
            return head + value("owner") if name == WANTS else head if found is not None else value(name)

        args = [argument(name) for name in header.args[: len(header.args) - header.more_args]]
        own = header.keys[: len(header.keys) - header.more_keys]
        keys = [self._key(f"{name}/{part}") for name in given.get("names", NAME).split(",") for part in own]
        if header.more_keys:
            keys += [self._key(part) for part in given.get(header.keys[-1], "").split(",") if part]
        if header.more_args:
            args += [_read(word) for word in plain]
        call = Call(script.source, tuple(keys), tuple(args), float(given.get("ttl_ms", "0").replace("_", "")))
        return token, call, header.replies

    def _key(self, part: str) -> str:
        name, _, part = part.rpartition("/")
        return _key_of(self._kind, name or NAME, part)

    # --- laws

    def _laws(
        self, call: Call, outcome: Outcome, waived: set[str], fields: dict[str, tuple[str, ...]]
    ) -> Iterator[str]:
        """Check the promises of all headers. Yield notes for the answer."""
        if outcome.is_refused:
            assert outcome.values == _values(self._state), "it is refused, and has changed something"
            return
        _all_end(outcome.state)
        own = {key.encode() for key in call.keys}
        changed = {key for key, value in outcome.values.items() if value != _values(self._state).get(key)}
        assert changed <= own, f"it touches other keys: {changed - own}"
        said = self._reply(outcome.reply, fields)
        waives = waived | self._waived
        cuts = [*range(0, outcome.commands, 1 + outcome.commands // MOST_CUTS)] if "cut" not in waives else []
        if "twice" not in waives and not re.search(r"^more$| more=1", said):
            cuts.append(-1)
        for cut, (is_whole, again) in zip(cuts, self._stage.replay(self._state, call, cuts), strict=True):
            assert is_whole == (cut < 0), f"command {cut} is not reached"
            when = "the second time" if cut < 0 else f"cut off before its command {cut}, and sent again,"
            if cut < 0:
                second, first = (self._constant(self._reply(one.reply, fields)) for one in (again, outcome))
                assert second == first, f"{when} its reply is another one: {second}"
                again = again._replace(reply=outcome.reply)  # noqa: PLW2901 -- as far as it counts
            _is_alike(again, outcome, when)
        for _ in range(MOST_STARVED):
            starved = self._stage.play(self._state, call, maxmemory=1)
            if starved.is_refused or starved.values in (outcome.values, _values(self._state)):
                break
        if starved.is_refused:
            assert "maxmemory" in starved.reply, starved.reply
            assert starved.values == _values(self._state), "at maxmemory it is refused, and has changed something"
            yield "refused at maxmemory"
        elif starved.reply != outcome.reply and starved.values == _values(self._state):
            yield f"at maxmemory: {self._reply(starved.reply, fields)}"
        else:
            assert starved.values == outcome.values, f"at maxmemory it leaves something else: {starved.values}"
            _is_alike(starved, outcome, "at maxmemory", ends=False)  # time goes on there
        yield from sorted(f"!{law} waived" for law in waived - {"twice", "cut"})

    def _is_same(self, one: Stored, other: Stored | None) -> bool:
        """Return whether value and TTL are as before, but for rounding."""
        if other is None or one.value != other.value:
            return False
        tolerated_us = ROUNDED_US if self._stage.is_exact else SLOW_US
        return one.ends_us == other.ends_us or abs(one.ends_us - other.ends_us) <= tolerated_us

    def _constant(self, answer: str) -> str:
        """Leave the fields given by ``counts`` out of a reply."""
        return " ".join(word for word in answer.split() if word.partition("=")[0] not in self._counts)

    def _is_final(self, token: str, outcome: Outcome) -> None:
        """Check that copies of earlier calls of a token change nothing after the final call."""
        for copy in self._calls.get(token, []):
            late = self._stage.play(outcome.state, copy)
            assert late.values == outcome.values, f"a copy that arrives late changes something: {late.reply}"
            assert late.told == [], "a copy that arrives late tells someone"

    # --- answers as text

    def _reply(self, reply: Any, fields: dict[str, tuple[str, ...]]) -> str:
        if isinstance(reply, list) and reply and isinstance(reply[0], list):
            return "[" + "; ".join(self._reply(one, fields) for one in reply) + "]"
        if isinstance(reply, list):
            tag, *values = reply
        else:
            tag, _, packed = reply.partition(b" ")
            if tag.decode("latin-1") not in fields:
                return self._unpacked("d*", reply)
            values = _doubles(packed)
        names = fields[tag.decode()]
        more = ",".join(map(self._number, values[len(names) :]))
        found = [f"{name}={self._field(name, '', value)}" for name, value in zip(names, values, strict=False)]
        assert len(found) == len(names)
        return " ".join([tag.decode(), *found, *([f"rests={more}"] if more else [])])

    def _ttl(self, one: Stored) -> str:
        left = (one.ends_us - self._stage.now_us) / 1e6
        return "without end" if left == inf else f"{left:.3f}".rstrip("0").rstrip(".") + " s"

    def _value(self, part: str, one: Stored) -> str:
        if one.kind != "string" and len(one.value) > MANY:
            return f"{len(one.value)} items"
        if one.kind == "hash":
            fields = ((name, self._field(part, name.decode(), value)) for name, value in one.value.items())
            return " ".join(f"{self._shown(name)}={value}" for name, value in fields)
        if one.kind == "zset":
            return " ".join(f"{self._shown(member)}={self._number(score)}" for member, score in one.value)
        return self._field(part, "", one.value)

    def _field(self, part: str, name: str, value: Any) -> str:
        part = part.rpartition("/")[2]
        form = self._formats.get(f"{part}.{name}") or self._formats.get(part)
        if form and isinstance(value, list):
            items = (self._shown(one) if one.isdigit() else self._field(part, name, one) for one in value)
            return "(" + " ".join(items) + ")"
        return self._unpacked(form, value) if form and value and isinstance(value, bytes) else self._shown(value)

    def _unpacked(self, form: str, value: bytes) -> str:
        """Show a value that begins with packed numbers or texts."""
        found: list[str] = []
        for code in re.findall(r"d\*|d|Bc0\*|Bc0", form):
            if not value or (code == "d" and len(value) < 8):
                break
            if code == "d*":
                packed, value = _with_names(value)
                found += map(self._number, _doubles(packed))
            elif code == "d":
                found.append(self._number(unpack_from("<d", value)[0]))
                value = value[8:]
            else:
                size, text, value = value[0], value[1 : value[0] + 1], value[value[0] + 1 :]
                packed, names = _with_names(text) if code == "Bc0*" else (b"", text)
                numbers = "(" + " ".join(map(self._number, _doubles(packed))) + ")" if packed else ""
                found.append(numbers + (names.decode() if packed else self._shown(names)))
                assert len(text) == size
        return ("<" + " ".join(found) + ">" if found else "") + (self._shown(value) if value else "")

    def _message(self, message: bytes) -> str:
        kind, token, rest = message.split(b" ", 2)
        shown = " ".join(map(self._number, _doubles(rest))) if kind == b"granted" else self._shown(rest)
        return f"{token.decode()} {kind.decode()} {shown}"

    def _shown(self, value: Any) -> str:
        if isinstance(value, list):
            return "(" + " ".join(map(self._shown, value)) + ")"
        if isinstance(value, int | float):
            return self._number(value)
        text = value.decode("utf-8", "backslashreplace")
        if re.fullmatch(r"\d{16}", text):
            return self._number(int(text))
        return text if re.fullmatch(r"[\w:.!/@=-]+", text) else '"' + text.replace('"', '\\"') + '"'

    def _number(self, value: float) -> str:
        if value in (inf, -inf):
            return str(value)
        for start, name in ((QUEUED, "queued"), (FINISHED, "finished"), (0, "")):
            if 10**15 <= value - start < 10**16 / 4:
                return f"{name}@{value - start - START_US:.0f}"
        return f"{value + 0:.0f}" if value == int(value) else repr(value)  # old servers store -0


@contextlib.contextmanager
def _naming(step: str) -> Iterator[None]:
    try:
        yield
    except AssertionError as error:
        raise LawBroken(f"{step}: {error}") from None


def _whole(reply: Any, ttl_ms: float) -> Any:
    """Return the reply of a grant in full where it is the fence alone."""
    return b"granted " + pack("<dd", reply, ttl_ms * 1000) if isinstance(reply, int) else reply


def _error(text: str) -> str:
    """Return the error of a script, without the line number."""
    said = re.sub(r"^.*user_script:\d+: ", "", text)
    return "error: " + said.partition(" script: ")[0].removeprefix("ERR ")


@cache
def _script(*names: str) -> Any:
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            script = load(name)
            script.header  # noqa: B018 -- reads the file
            return script
    raise KeyError(f"no script is called {' or '.join(names)}")


def _values(state: dict[bytes, Stored]) -> dict[bytes, Any]:
    return {key: one.value for key, one in state.items()}


def _all_end(state: dict[bytes, Stored]) -> None:
    stays = [key.decode() for key, one in state.items() if one.ends_us == inf]
    assert not stays, f"keys without a TTL: {stays}"


def _is_alike(again: Outcome, outcome: Outcome, when: str, *, ends: bool = True) -> None:
    """Check that the repeated call has the same outcome, and sent no other message."""
    assert again.reply == outcome.reply, f"{when} its reply is another one: {again.reply}"
    other = [
        key.decode()
        for key in sorted({*again.state, *outcome.state})
        if key not in again.state or key not in outcome.state or again.state[key].digest != outcome.state[key].digest
    ]
    assert not other, f"{when} it leaves something else in {', '.join(other)}"
    _all_end(again.state)
    short = [key for key, one in again.state.items() if one.ends_us < outcome.state[key].ends_us - ROUNDED_US]
    assert not (ends and short), f"{when} these keys end earlier: {short}"
    assert {*again.told} <= {*outcome.told}, f"{when} it tells something else: {again.told}"


@cache
def _key_of(kind: str, name: str, part: str) -> str:
    return KeySet("hf", kind, name).key(part)


def _part(key: bytes) -> str:
    """Return a key's part, behind the name if that is not the usual one."""
    place, _, part = key.decode().partition("}:")
    name = place.rpartition(":")[2]
    return part if name == NAME else f"{name}/{part}"


def _doubles(packed: bytes) -> list[float]:
    return [unpack_from("<d", packed, start)[0] for start in range(0, len(packed), 8)]


def _with_names(packed: bytes) -> tuple[bytes, bytes]:
    """Divide packed numbers from the names behind a semicolon, if there are any."""
    found = re.search(rb";[a-z0-9_,]+$", packed)
    start = found.start() if found and found.start() % 8 == 0 else len(packed)
    return packed[:start], packed[start:]


def _read(text: str, code: str = "") -> Any:
    """Return the value of a text, as an argument or to be packed."""
    if code != "d" and text[:1] not in "<@-0123456789":
        return text.encode()
    if found := re.fullmatch("<(.*)>(.*)", text):
        return b"".join(pack("<d", _read(word, "d")) for word in found[1].split()) + found[2].encode()
    if re.fullmatch(r"@-?[\d_]+", text):
        text = str(START_US + int(text[1:].replace("_", "")))
    elif re.fullmatch(r"-?\d[\d_]*", text):
        text = text.replace("_", "")
    return float(text) if code == "d" else text.encode()


def _pack(codes: tuple[str, ...], values: list[Any]) -> bytes:
    return b"".join(
        pack("<d", value) if code == "d" else bytes([len(value)]) + value
        for code, value in zip(codes, values, strict=True)
    )


class SessionFile:
    """A file of sessions: a preface for all sessions, and the lines of each session with answers."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.preface: list[str] = []
        self.sessions: dict[str, list[str]] = {}
        lines = self.preface
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("# "):
                lines = self.sessions.setdefault(line, [line])
                assert len(lines) == 1, f"two sessions begin with {line!r}"
            else:
                lines.append(line)

    def play(self, name: str, stage: Stage) -> list[str]:
        """Play a session from an empty server on. Return the lines with answers."""
        session = Session(stage)
        steps = [line for line in (*self.preface, *self.sessions[name]) if not line.startswith(ANSWER)]
        lines = [text for step in steps for text in session.play(step)]
        return lines[len([line for line in self.preface if not line.startswith(ANSWER)]) :]

    def rewrite(self, name: str, lines: list[str]) -> None:
        """Write the lines of a session into the file."""
        self.sessions[name] = lines
        whole = [*self.preface, *(line for one in self.sessions.values() for line in one)]
        self.path.write_text("\n".join(whole) + "\n", encoding="utf-8")
