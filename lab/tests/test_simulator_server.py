"""The simulator's model of a server, compared with a real one whose clock is stopped: replies, state, messages, TTLs.

Both run the same steps: the scripts with random tokens and arguments, and the commands that they use. The test advances
the time between steps. After each step, both must store the same data.
"""

from __future__ import annotations

import mmap
import os
import random
import shutil
import struct
import subprocess
from functools import partial

import pytest
import redis

from handfast._engine.calls import PARTS
from handfast._engine.packing import doubles
from handfast._engine.resp import ErrorReply
from handfast._engine.script import load
from handfast.embedded import PrivateServer

lupa = pytest.importorskip("lupa")

from handfast_lab.simulator.server import ENGINE_SCRIPTS, MAIN, SimulatedServer  # noqa: E402 -- needs lupa

STEPS = 160
TTLS_MS = 1, 5, 30, 3_000, 30_000, 30_000, 100_000_000
START_US = 1_790_000_000_123_456

CLOCK = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *now;

__attribute__((constructor)) static void begin(void) {
  int file = open(getenv("STANDING_CLOCK"), O_RDONLY);
  now = mmap(0, 8, PROT_READ, MAP_SHARED, file, 0);
}

int clock_gettime(clockid_t clock, struct timespec *to) {
  int real = syscall(SYS_clock_gettime, clock, to);
  if (now && clock <= CLOCK_MONOTONIC) {
    int64_t creeping = clock == CLOCK_MONOTONIC ? to->tv_sec * 1000 + to->tv_nsec / 1000000 : 0;
    to->tv_sec = *now / 1000000;
    to->tv_nsec = *now % 1000000 * 1000 + creeping;
    to->tv_sec += to->tv_nsec / 1000000000;
    to->tv_nsec %= 1000000000;
  }
  return real;
}

int gettimeofday(struct timeval *restrict to, void *restrict zone) {
  struct timespec shown;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &shown);
  to->tv_sec = shown.tv_sec;
  to->tv_usec = shown.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *to) {
  struct timespec shown;
  clock_gettime(CLOCK_REALTIME, &shown);
  if (to) *to = shown.tv_sec;
  return shown.tv_sec;
}
"""
"""Build a library for LD_PRELOAD that reads the wall clock from a file."""


class StandingServer:
    """A real server whose wall clock is set by the test."""

    def __init__(self, folder):
        compiler = shutil.which("cc")
        if compiler is None:
            pytest.skip("no C compiler")
        (folder / "clock.c").write_text(CLOCK)
        library = folder / "clock.so"
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, folder / "clock.c"], check=True)
        (folder / "now").write_bytes(struct.pack("q", START_US))
        with open(folder / "now", "r+b") as file:
            self._now = mmap.mmap(file.fileno(), 8)
        before = {name: os.environ.get(name) for name in ("LD_PRELOAD", "STANDING_CLOCK")}
        os.environ |= {"LD_PRELOAD": str(library), "STANDING_CLOCK": str(folder / "now")}
        try:
            self.server = PrivateServer()
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)
        self.client = redis.Redis.from_url(self.server.url)
        self._pubsub = redis.Redis.from_url(self.server.url).pubsub()

    def reset(self):
        self.client.config_set("maxmemory", 0)
        self.client.replicaof("NO", "ONE")
        self.client.flushall()
        self._pubsub.close()
        self._pubsub = self.client.pubsub(ignore_subscribe_messages=True)
        self._pubsub.subscribe("always")  # redis-py blocks without a limit on a connection without subscriptions

    def set_clock(self, now_us):
        self._now[:] = struct.pack("q", now_us)

    def run(self, source, keys, words):
        try:
            reply = self.client.execute_command("EVAL", source, len(keys), *keys, *words)
        except redis.RedisError as error:
            return ErrorReply(f"{type(error).__name__} {error}")
        return reply

    def listen(self, channel, count):
        (self._pubsub.subscribe if count else self._pubsub.unsubscribe)(channel)
        self.heard()

    def heard(self):
        """Return the messages published to the subscribed channels."""
        self._pubsub.ping()
        found = []
        while True:
            message = self._pubsub.get_message(timeout=5)
            if message is None:
                continue
            if message["type"] == "pong":
                return found
            found.append((message["channel"], message["data"]))

    def dump(self, now_us):
        lines = []
        for key in sorted(self.client.scan_iter()):  # which also removes expired keys
            kind = self.client.type(key).decode()
            left = self.client.pttl(key)
            line = [key.decode(), kind, "forever" if left < 0 else str(now_us // 1000 + left)]
            if kind == "zset":
                members = self.client.zrange(key, 0, -1, withscores=True)
                line += [f"{member.decode('latin-1')}={score:.17g}" for member, score in members]
            elif kind == "hash":
                line += [
                    f"{name.decode('latin-1')}={value.decode('latin-1')}"
                    for name, value in sorted(self.client.hgetall(key).items())
                ]
            else:
                line.append(self.client.get(key).decode("latin-1"))
            lines.append(" ".join(line))
        return "\n".join(lines)

    def close(self):
        self._pubsub.close()
        self.client.close()
        self.server.close()


@pytest.fixture(scope="module")
def standing(tmp_path_factory):
    server = StandingServer(tmp_path_factory.mktemp("clock"))
    yield server
    server.close()


@pytest.fixture(scope="module", params=["lua51", "luajit21"])
def model(request):
    return SimulatedServer(ENGINE_SCRIPTS | OTHERS, engine=request.param)


COMMAND = "return redis.call(unpack(ARGV))"
PACKING = """
local numbers = {}
for i = 1, #ARGV do
  numbers[i] = tonumber(ARGV[i])
end
local token = string.rep('t', #ARGV[1])
local text = struct.pack('<ddddddBc0d', numbers[1], numbers[2], numbers[3], numbers[4], numbers[5], numbers[6], #token, token, 7)
local a, b, c, d, e, f, holder, last, after = struct.unpack('<ddddddBc0d', text)
local again, next_one = struct.unpack('Bc0', text, 49)
local found = {text, struct.pack('<d', numbers[1]), holder, last, after, again, next_one}
for _, number in ipairs({a, b, c, d, e, f, (struct.unpack('<d', text, 9))}) do
  found[#found + 1] = string.format('%.17g', number)
end
return found
"""
"""What scripts do with the library ``struct``, for six numbers."""

OTHERS = {"command": COMMAND, "packing": PACKING}


class Pair:
    """Runs every step on the model and on the real server."""

    def __init__(self, model, standing, seed):
        self.random = random.Random(seed)
        self.model, self.real = model, standing
        self.now_us = START_US
        self.listened = set()
        model.reset()
        standing.set_clock(self.now_us)
        standing.reset()
        self.said = []

    def run(self, name, keys, words):
        keys = [key.encode() for key in keys]
        words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        self.said.append((name, keys, words, self.now_us))
        reply, messages = self.model.run(name.encode(), self.now_us, len(keys), [*keys, *words])
        real = self.real.run((ENGINE_SCRIPTS | OTHERS)[name], keys, words)
        if isinstance(reply, ErrorReply):
            assert isinstance(real, ErrorReply), (self.said[-1], reply, real)
            code = reply.split()[0]
            if code in ("OOM", "READONLY", "WRONGTYPE"):
                words = {"OOM": "OutOfMemory", "READONLY": "ReadOnly"}.get(code, code)
                assert words in real or code in real, (self.said[-1], reply, real)
        else:
            assert reply == real, (self.said[-1], reply, real)
        pairs = zip(messages[::2], messages[1::2], strict=True)
        assert [pair for pair in pairs if pair[0] in self.listened] == self.real.heard(), self.said[-1]
        self.compare()
        return reply

    def compare(self):
        assert self.model.dump(self.now_us) == self.real.dump(self.now_us), self.said[-5:]

    def pass_time(self, us):
        self.demote(demoted=False)  # scripts on a replica of Redis 6.2 see expired keys
        self.now_us += us
        self.said.append(("time", us))
        self.real.set_clock(self.now_us)
        self.compare()

    def listen(self, channel, *, listens):
        if listens != (channel in self.listened):
            (self.listened.add if listens else self.listened.discard)(channel)
            self.model.model[b"listen"](channel, int(listens), MAIN)
            self.real.listen(channel, int(listens))

    def starve(self, *, starving):
        self.model.model[b"set_memory"](starving)
        self.real.client.config_set("maxmemory", 1 if starving else 0)

    def demote(self, *, demoted):
        self.model.model[b"set_refusal"](b"READONLY You can't write against a read only replica." if demoted else False)
        self.real.client.replicaof(*(("127.0.0.1", "1") if demoted else ("NO", "ONE")))


class Scripts(Pair):
    """The scripts, with a few tokens that are used repeatedly."""

    names = ("a", "b", "c")

    def step(self):
        chance = self.random
        roll = chance.random()
        if roll < 0.14:
            self.pass_time(
                chance.choice((1, 16, 999, 20_000, 700_000, 2_000_001, 21_000_000, 90_000_000, 5_000_000_000))
            )
        elif roll < 0.2:
            self.listen(b"inbox%d" % chance.randrange(4), listens=chance.random() < 0.7)
        elif roll < 0.23:
            self.starve(starving=chance.random() < 0.4)
        elif roll < 0.25:
            self.demote(demoted=chance.random() < 0.3)
        else:
            self.script()

    def script(self):
        chance = self.random
        name = chance.choice(
            ["permit_acquire"] * 8
            + ["multi_acquire"] * 3
            + ["permit_release", "permit_cancel", "permit_renew", "permit_release", "permit_cancel", "permit_renew"] * 2
            + ["permit_lower", "permit_resize", "permit_revoke", "permit_inspect"]
        )
        script = load(name)
        if script.header.more_keys:
            some = chance.sample(self.names, chance.randint(1, 3))
            keys = [key for one in some for key in self.keys(one, PARTS)]
        else:
            keys = self.keys(chance.choice(self.names), script.header.keys)
        args = [self.argument(word) for word in script.header.args]
        if "options" in script.header.args:
            args[-1:] = self.random.choice(([], ["copies"], ["", 5_000_000], ["copies", 5_000_000]))
        self.run(name, keys, args)

    @staticmethod
    def keys(name, parts):
        return [f"{{hf:lock:{name}}}:{part}" for part in parts]

    def argument(self, word):
        chance = self.random
        token = f"t{chance.randrange(8)}"
        return {
            "token": token,
            "request": self.request(),
            "wants": self.wants(),
            "options": "",
            "limit": chance.choice((0, 1, 2, 5)),
            "weight": chance.choice((1, 1, 1, 2, 3, 1_000_000_000)),
            "ttl_ms": chance.choice(TTLS_MS),
            "by": "me:1",
            "up_to_fence": self.now_us - chance.choice((-1000, 0, 5_000_000)),
            "least_fence": chance.choice((0, 0, self.now_us - 1000)),
            "reason": "be cause",
            "from": chance.choice((0, self.now_us)),
            "max_shown": chance.choice((0, 1, 100)),
        }[word]

    def request(self):
        choice = self.random.choice
        waits = [choice((0, 1, 60_000, 60_000)), choice((0, 1, 3, 1000)), choice((0, 0, 0, self.now_us - 900_000))]
        return doubles(choice(TTLS_MS), *waits)

    def wants(self):
        choice, some = self.random.choice, (1, 1, 1, 1, 1, 2, 3, 5, 1_000_000_000)
        numbers = doubles(choice(some), choice(some), choice((0, 1, 30, 2_000)), choice((0, 4711)))
        return numbers + f"inbox{choice(range(5))} control{choice(range(3))} me:1".encode()


class Limits(Scripts):
    """The scripts of limiters, whose callers disagree about the rates."""

    rates = (((1, 5),), ((3, 30), (5, 3_000)), ((2, 30), (6, 90_000)))

    def script(self):
        choice = self.random.choice
        rates = choice(self.rates[1:] if self.random.random() < 0.8 else self.rates)
        packed = b"".join(doubles(*rate) for rate in rates)
        keys = self.keys(choice(self.names[:2]), ("queue", "waiting", "tombstones", "settings"))
        windows = [keys[0].replace("queue", f"window:{per_ms}") for _, per_ms in rates]
        token = f"t{self.random.randrange(12)}"
        what = choice(
            ["limit_acquire"] * 6
            + ["limit_settle"] * 3
            + ["limit_pause", "limit_resize", "limit_reset", "limit_inspect"]
        )
        if what == "limit_acquire":
            waits = choice((1, 60_000, 60_000)), choice((-1, 0, 20_000, float("inf"))), choice((1, 1000, 1000))
            request = doubles(*waits, choice((0, 0, 0, self.now_us - 900_000)), choice((0, 1)))
            text = f"inbox{choice(range(5))} control{choice(range(3))} me:1".encode()
            wants = doubles(choice((1, 1, 1, 2))) + b"%c%b" % (len(packed), packed) + text
            self.run(what, [*keys, *windows], [token, request, wants])
        elif what == "limit_settle":
            costs = doubles(choice((1, 1, 2)), choice((0, 0, 1, 2, 9)), choice((0, 1)))
            self.run(what, [*keys, *windows], [token, costs, packed])
        elif what == "limit_pause":
            self.run(what, [*keys, *windows], [doubles(choice((0, 1, 20, 400))), "me", packed])
        elif what == "limit_reset":
            self.run(what, [*keys, *windows], [doubles(self.now_us - choice((0, 20_000, 2_000_000))), packed])
        elif what == "limit_resize":
            self.run(what, [*keys, *windows], [choice((0, 0, 1)), "me", "rates", packed])
        else:
            periods = doubles(*(per_ms for _, per_ms in rates))
            self.run(what, [keys[0], keys[1], keys[3], *windows], [periods])


class Bursts(Scripts):
    """The scripts of debounced names."""

    ends = ()

    def script(self):
        choice = self.random.choice
        keys = self.keys(choice(self.names[:2]), ("burst", "tombstones"))
        what, token = (
            choice(["enter"] * 7 + ["cancel", "inspect"] + ["put", "take"] * 3 + ["done"] * 2),
            f"t{self.random.randrange(12)}",
        )
        if what in ("put", "take", "done"):
            self.item(what, token)
            return
        if what == "inspect":
            self.run("debounce_inspect", [keys[0], keys[0].replace("burst", "items")], [])
            return
        left_us, ticket = choice(((20_000, 0), (700_000, 0), (-1, self.now_us - 900_000), (9_000, self.now_us)))
        times = doubles(choice((1, 20, 700)), choice((20, 700, float("inf"))), left_us, ticket)
        more = [times, f"inbox{choice(range(5))} control{choice(range(3))} me"] if what == "enter" else []
        self.run(f"debounce_{what}", keys, [token, *more])

    def item(self, what, token):
        choice = self.random.choice
        keys = self.keys(choice(self.names[:2]), ("items", "queue", "tombstones"))
        if what == "put":
            self.run("debounce_put", keys, [token, f"item {self.random.randrange(1000)}"])
        elif what == "take":
            numbers = (
                choice((1, 2, 1000)),
                choice((20_000, 5_000_000)),
                choice((0, 0, 0, *self.ends)),
                choice((0, 0, 1)),
            )
            reply = self.run("debounce_take", keys, [token, doubles(*numbers)])
            if isinstance(reply, list):
                self.ends = [*self.ends[-3:], reply[2]]
        else:
            self.run("debounce_done", keys, [token, doubles(choice((0, *self.ends)), choice((0, 1)))])


class Outcomes(Scripts):
    """The scripts of keys of `once`, whose callers disagree about what is old and about fingerprints."""

    def script(self):
        choice = self.random.choice
        keys = self.keys(choice(self.names[:2]), (*PARTS, "result"))
        name = choice(
            ["once_acquire"] * 6 + ["once_record"] * 4 + ["permit_release", "permit_cancel", "permit_renew", "DEL"]
        )
        token, fingerprint = f"t{self.random.randrange(8)}", choice(("", "", "one", "other"))
        if name == "once_acquire":
            waits = (
                choice((0, 60_000, 60_000)),
                choice((1, 1000)),
                choice((-1, 0, 700)),
                choice((0, 900)),
                choice((0, 0, self.now_us - 900_000)),
            )
            text = f"inbox{choice(range(5))} control{choice(range(3))} me:1".encode()
            wants = doubles(1, 1, choice((30, 2_000)), 4711) + text
            self.run(name, keys, [token, doubles(choice(TTLS_MS), *waits), fingerprint, wants])
        elif name == "once_record":
            outcome, numbers = (
                choice(("begun", "done", "done", "failed", "unstored", "dropped")),
                (choice((1, 900, 90_000)), choice((0, 1)), choice((0, 900))),
            )
            self.run(name, keys, [token, outcome, doubles(*numbers), fingerprint, choice((b"", b"\0\xff{}"))])
        elif name == "DEL":
            self.run("command", keys[2:], [name, keys[2]])
        else:
            self.run(name, keys[:2], [token, *([choice(TTLS_MS)] if name == "permit_renew" else [])])


NO_KEY = "TIME", "PUBLISH", "PUBSUB"


class Commands(Pair):
    """The commands, on keys of every type."""

    def step(self):
        chance = self.random
        if chance.random() < 0.1:
            self.pass_time(chance.choice((1, 999, 1_000, 2_000, 50_000, 900_000, 2_000_000)))
        elif chance.random() < 0.03:
            self.starve(starving=chance.random() < 0.4)
        elif chance.random() < 0.03:
            self.demote(demoted=chance.random() < 0.3)
        else:
            words = self.words()
            kind = words[0][0] if chance.random() < 0.9 else chance.choice("ZHS")  # mostly of the matching type
            key = f"{kind}{chance.randrange(2)}"
            self.run("command", [key], [words[0], *([] if words[0] in NO_KEY else [key]), *words[1:]])

    def words(self):
        chance = self.random
        scores = "0", "1", "-1", "1.5", "inf", "-inf", "1e3", "1790000000123456", "0.25", "x", "nan"
        edges = "-inf", "+inf", "0", "(0", "1", "(1", "-1", "(-1", "1000", "(1790000000123456", "(x"
        member = partial(chance.choice, ("m0", "m1", "m2", "m3", "m4", "m5"))
        score, edge = partial(chance.choice, scores), partial(chance.choice, edges)
        index = partial(chance.choice, ("0", "1", "-1", "-2", "5", "-9", "2", "x"))
        pairs = [word for _ in range(chance.randint(1, 3)) for word in (score(), member())]
        return chance.choice(
            [
                ["TIME"],
                ["EXISTS"],
                ["DEL"],
                ["PTTL"],
                ["PEXPIRE", chance.choice(("0", "-5", "1", "2", "2", "50", "900", "100000", "1.5", "x", "05", "-0"))],
                ["GET"],
                ["SET", "plain"],
                ["SETEX", chance.choice(("1", "100", "0", "-1", "x")), "value"],
                ["SET", "value", "PX", chance.choice(("1", "900", "50000", "0", "-1", "x"))],
                ["SET", "value", "PX"],
                ["HSET", member(), "v1", member(), "v2"],
                ["HSET", member(), str(chance.random())],
                ["HSET", member(), "v", member()],
                ["HGET", member()],
                ["HMGET", member(), member(), member()],
                ["HDEL", member(), member()],
                ["ZADD", *pairs],
                ["ZADD", *pairs],
                ["ZADD", *pairs],
                ["ZADD", "NX", *pairs],
                ["ZADD", "XX", *pairs],
                ["ZADD", "GT", *pairs],
                ["ZADD", "NX", *pairs, "+inf", ""],
                ["ZPOPMIN"],
                ["ZADD", score()],
                ["ZREM", member(), member()],
                ["ZREM", ""],
                ["ZREMRANGEBYSCORE", edge(), edge()],
                ["ZREMRANGEBYRANK", index(), index()],
                ["ZSCORE", member()],
                ["ZMSCORE", member(), member()],
                ["ZRANK", member()],
                ["ZCARD"],
                ["ZCOUNT", edge(), edge()],
                ["ZRANGE", index(), index()],
                ["ZRANGE", index(), index(), "WITHSCORES"],
                ["ZRANGEBYSCORE", edge(), edge()],
                ["ZRANGEBYSCORE", edge(), edge(), "WITHSCORES", "LIMIT", index(), index()],
                ["PUBLISH", "unheard", "word"],
                ["PUBSUB", "NUMSUB", "unheard", "there"],
                ["HGET"],
                ["ZSCORE", "a", "b"],
                ["ZMSCORE"],
            ]
        )


@pytest.mark.parametrize("kind", [Scripts, Limits, Bursts, Outcomes, Commands])
def test_the_model_agrees_with_the_server(model, standing, kind):
    for seed in range(2):
        pair = kind(model, standing, seed)
        for _ in range(STEPS):
            pair.step()


def test_numbers_are_packed_as_the_server_does(model, standing):
    pair = Pair(model, standing, 0)
    chance = random.Random(3)
    odd = ["0", "1", "-1", "255", "256", "1e9", str(2**52), str(2**53 - 1), str(-(2**52)), str(START_US), "inf", "-inf"]
    for _ in range(100):
        numbers = [chance.choice([*odd, str(chance.randrange(2**53)), str(chance.random())]) for _ in range(6)]
        pair.run("packing", ["k"], numbers)
    assert isinstance(pair.run("packing", ["k"], ["1"]), ErrorReply)


def test_a_key_expires_at_the_same_moment(model, standing):
    pair = Pair(model, standing, 0)
    pair.run("command", ["k"], ["SETEX", "k", "1", "v"])
    found = []
    for us in (999_000, 999, 1, 400, 599, 1, 1):
        pair.pass_time(us)
        found.append(pair.run("command", ["k"], ["EXISTS", "k"]))
    assert found == sorted(found, reverse=True)
    assert set(found) == {0, 1}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", [Scripts, Limits, Bursts, Outcomes, Commands])
@pytest.mark.parametrize("seed", range(100, 103))
def test_the_model_agrees_with_the_server_over_long_runs(model, standing, kind, seed):
    pair = kind(model, standing, seed)
    for _ in range(1000):
        pair.step()
