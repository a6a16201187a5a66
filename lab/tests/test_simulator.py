"""The simulator: equal seeds give equal runs everywhere, the library has no finding, and planted mistakes are detected."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from itertools import pairwise

import pytest

pytest.importorskip("lupa")

from handfast._engine.calls import ACQUIRE, PARTS, MultiRequest, PermitRequest
from handfast._engine.keys import KeySet
from handfast._engine.options import LeaseOptions
from handfast._engine.resp import INCOMPLETE, ErrorReply, Reader
from handfast._engine.slots import SLOTS, slot_of_key
from handfast_lab.simulator import __main__ as command
from handfast_lab.simulator import planted
from handfast_lab.simulator.cluster import PRIMARIES, Cluster
from handfast_lab.simulator.faults import SETTINGS
from handfast_lab.simulator.hunt import hunt, replay, reproducer
from handfast_lab.simulator.links import Command, Link
from handfast_lab.simulator.network import Network, encode, is_torn
from handfast_lab.simulator.orders import ClientPlan, Order, Plan, Target, tag
from handfast_lab.simulator.plans import draw
from handfast_lab.simulator.planted import PLANTED, broken, catch
from handfast_lab.simulator.replication import Replication
from handfast_lab.simulator.server import ENGINE_SCRIPTS, SimulatedServer
from handfast_lab.simulator.simulation import Simulation
from handfast_lab.simulator.world import Process, World

SEEDS = 250


# --- the server


def test_a_call_arrives_as_it_was_packed():
    keys = [KeySet("hf", "lock", name) for name in ("a", "{b}:c", "d e")]
    link = Link(1, Process(World(1), "A", 0.0), None)
    for request in (
        PermitRequest(keys[1], LeaseOptions(5, renew=False)),
        MultiRequest(keys, LeaseOptions(5, max_waiters=9)),
    ):
        call = request.release(b"token")
        for start in (call.prefix.evalsha, call.prefix.eval_source):
            reader = Reader()
            reader.feed(start + call.args)
            command = Command(link, reader.frame())
            parts = request.parts if isinstance(request, MultiRequest) else (request,)
            assert command.name.decode() == call.prefix.name
            assert command.source == (start is call.prefix.eval_source)
            assert command.words[command.key_count :] == [b"token"]
            assert command.words[: command.key_count] == [
                part.place.key(key).encode() for part in parts for key in PARTS
            ]


def test_a_reply_is_read_as_it_was_encoded():
    for value in (7, b"x", [b"granted", 5, 6], [1, [2, b"x"], None], ErrorReply("ERR no")):
        reader = Reader()
        reader.feed(encode(value))
        assert reader.frame() == value
        assert reader.frame() is INCOMPLETE


def test_a_script_that_makes_a_global_or_uses_another_key_fails():
    server = SimulatedServer(
        {"a": "x = 1", "b": "return redis.call('GET', 'other')", "c": "return {1, {2, 'x'}, false}"}
    )
    for name, words in ((b"a", "readonly"), (b"b", "declared")):
        reply, _ = server.run(name, 1, 1, [b"key"])
        assert words in reply
    assert server.run(b"c", 1, 0, [])[0] == [1, [2, b"x"], None]
    with pytest.raises(ValueError, match="'d'"):
        server.define("d", "return (")


class Replicated:
    """A primary with replicas, and a connection to it that writes and waits."""

    def __init__(self, replicas):
        source = "redis.call('SETEX', KEYS[1], 99, ARGV[1])"
        self.network = network = Network(World(3), SimulatedServer({"a": source}), 0.001)
        network.replication = self.replication = Replication(network, replicas)
        self.link = Link(1, Process(network.world, "A", 0.0), None)
        self.link.there = True
        self.counts = []
        network._reply = lambda _link, data: self.counts.append(int(data[1:]))

    def write(self, value):
        self.network.server.run(b"a", 1, 1, [b"key", value])
        self.replication.wrote(self.link)

    def wait(self, replicas):
        count = self.replication.wait(self.link, replicas, 200)
        if count is not None:
            self.counts.append(count)

    def run(self, seconds):
        self.network.world.run(self.network.world.now + seconds)

    @property
    def stored(self):
        found = self.network.server.model[b"peek"](b"key", 1)
        return found and found.value


def test_a_wait_ends_when_the_replicas_have_what_was_written_or_when_its_time_is_over():
    one = Replicated(2)
    one.wait(2)
    assert one.counts == [2], "nothing was written"
    one.write(b"1")
    one.wait(2)
    assert one.counts == [2]
    one.run(0.1)
    assert one.counts == [2, 2]
    one.replication.lag = 90.0
    one.write(b"2")
    one.wait(1)
    one.run(0.19)
    assert one.counts == [2, 2]
    one.run(0.02)
    assert one.counts == [2, 2, 0]


def test_a_replica_that_becomes_the_primary_lacks_what_had_not_reached_it():
    one = Replicated(2)
    one.write(b"1")
    one.run(0.1)
    one.replication.lag = 90.0
    one.write(b"2")
    assert one.replication.promote(goes_on=True)
    assert one.stored == b"1"
    one.wait(1)
    assert one.counts == [], "the old primary has what no replica has"
    one.run(0.21)
    assert one.counts == [0]
    one.link.server = one.network.primary
    one.link.wrote = 0
    one.wait(1)
    assert one.counts == [0, 1], "the other one is its replica"
    assert not one.replication.promote(goes_on=False), "but has not caught up with it"
    one.replication.lag = 0.0
    one.run(100)
    assert one.replication.promote(goes_on=False)
    assert not one.replication.promote(goes_on=False), "none is left"
    one.replication.rejoin()
    one.run(0.1)
    assert one.replication.promote(goes_on=False)
    assert one.stored == b"1"


class Clustered:
    """A cluster, and what its nodes reply to a script that empties a key, comes back to it, and then would make it again."""

    KEYS = (b"{hf:lock:a}:state", b"{hf:lock:a}:tokens")
    SOURCE = """
        redis.call('SETEX', KEYS[1], 99, 2)
        redis.call('DEL', KEYS[2])
        redis.call('EXISTS', KEYS[2])
        redis.call('SETEX', KEYS[2], 99, 2)
        return 7
    """

    def __init__(self):
        self.world = World(1)
        self.network = Network(self.world, SimulatedServer({"a": self.SOURCE}), 0.001)
        self.network.cluster = self.cluster = Cluster(self.network, ("{hf:lock:a}", "{hf:lock:b}"), PARTS)
        self.slot = slot_of_key(self.KEYS[0])
        self.frame = None
        self.network.on_executed = lambda _command, frame, _now: setattr(self, "frame", frame)

    def run(self, node, *, asking=False, keys=KEYS):
        link = Link(1, Process(self.world, "A", 0.0), None, node)
        link.here, link.server, link.asking = False, node, asking
        command = Command(link, [b"EVAL", ACQUIRE.source.encode(), b"%d" % len(keys), *keys, b"token"])
        command.name = b"a"
        self.network._run(command)
        return self.frame if isinstance(self.frame, int) else " ".join(self.frame.split()[:3])

    def stored(self, node):
        self.network.server.model[b"use"](node)
        return self.network.server.dump(self.network.now_us())

    def count(self, node):
        return self.network.server.model[b"count"](node, self.network.now_us(), *self.KEYS)


def test_a_slot_that_moves_is_served_where_all_keys_are_and_a_script_that_empties_one_is_cut_off():
    one = Clustered()
    source, target = (int(one.run(0) != 7), int(one.run(0) == 7))
    moved = f"MOVED {one.slot} node:700"
    assert (one.run(source), one.run(target)) == (7, f"{moved}{source}")
    assert one.run(source, keys=(*one.KEYS, b"{hf:lock:b}:state")).startswith("CROSSSLOT")
    one.cluster.move(one.slot, 9.0)
    assert one.run(source) == "ERR Script attempted"
    assert is_torn(one.frame)
    assert one.count(source) == 1, "what it wrote stays"
    assert one.run(source).startswith("TRYAGAIN")
    assert one.run(target) == f"{moved}{source}"
    assert one.run(target, asking=True).startswith("TRYAGAIN")
    while one.count(source):
        one.world.run(one.world.now + 0.1)
    assert one.run(source) == f"ASK {one.slot} node:700{target}"
    assert one.run(target) == f"{moved}{source}"
    one.cluster.settle()
    assert (one.run(source), one.count(target)) == (f"{moved}{target}", 1)
    assert one.run(target) == 7
    assert (one.count(source), one.count(target)) == (0, 2)
    one.cluster.move(one.slot, 0.0)
    assert (one.run(source), one.run(target)) == (7, f"{moved}{source}")


def test_a_replica_takes_over_from_a_primary_which_sends_calls_there_or_is_gone():
    one = Clustered()
    owner = int(one.run(0) != 7)
    other = 1 - owner
    one.run(owner)
    rows = one.cluster.shares(other)
    assert [rows[0][0], rows[-1][1]] == [0, SLOTS - 1]
    assert all(before[1] + 1 == after[0] for before, after in pairwise(rows))
    one.cluster.replace(owner, is_gone=True)
    assert one.cluster.gone == {owner} - {0}, "one that clients begin with stays"
    assert one.run(owner) == f"MOVED {one.slot} node:7002"
    assert one.run(other) == f"MOVED {one.slot} node:700{owner}", "it has not heard of that yet"
    assert one.run(2) == 7
    one.world.run(1)
    assert one.run(other) == f"MOVED {one.slot} node:7002"
    assert {node[1] for _, _, node in one.cluster.shares(other)} == {7000 + other, 7002}


@pytest.mark.parametrize(
    ("calls", "left"),
    [(0, {b"other": b"0"}), (2, {b"other": b"0"}), (3, {b"key": b"1"}), (5, {b"key": b"1", b"other": b"1"})],
)
def test_what_a_script_wrote_before_it_is_cut_off_at_a_key_that_it_has_emptied_stays(calls, left):
    source = """
redis.call('SETEX', KEYS[1], 9, 3)
redis.call('DEL', KEYS[1])
redis.call('SETEX', KEYS[1], 9, 1)
redis.call('DEL', KEYS[2])
redis.pcall('SETEX', KEYS[2], 9, 1)
return redis.pcall('GET', KEYS[3]) or 7
"""
    server = SimulatedServer({"a": source, "fill": "redis.call('SETEX', KEYS[1], 9, 0)"})
    for key in (b"key", b"other"):
        server.run(b"fill", 1, 1, [key])
    server.model[b"cut_off"](calls)
    reply, _ = server.run(b"a", 1, 3, [b"key", b"other", b"missing"])
    assert is_torn(reply) == (calls < 3), "a script that catches the error goes on"
    assert {key: found.value for key in (b"key", b"other") if (found := server.model[b"peek"](key, 1))} == left
    assert server.run(b"a", 1, 3, [b"key", b"other", b"missing"])[0] == 7


# --- seeds


def course(seed, engine, setting):
    lines = []
    result = Simulation(seed, SimulatedServer(engine=engine), setting=setting, log=lines.append, every=1).run()
    return lines, result


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_seed_gives_the_same_run_in_each_lua_and_in_any_process(setting):
    lines, digest = [], hashlib.sha1(usedforsecurity=False)
    for seed in range(8):
        mine, result = course(seed, "lua51", setting)
        other, _ = course(seed, "luajit21", setting)
        assert mine == other
        assert result.calls or not any(" server " in line for line in mine)
        lines += mine
    digest.update("\n".join(lines).encode())
    program = (
        "import hashlib; from handfast_lab.simulator.hunt import replay; lines = []\n"
        f"for seed in range(8): replay(seed, log=lines.append, setting={setting!r})\n"
        "print(hashlib.sha1('\\n'.join(lines).encode()).hexdigest())"
    )
    environment = os.environ | {"PYTHONHASHSEED": "77"}
    output = subprocess.run(
        [sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True
    )
    assert output.stdout.strip() == digest.hexdigest()
    assert len(lines) > 100


def test_a_waiter_whose_event_loop_is_blocked_takes_what_is_free_later():
    def order(name, pause, **more):
        return Order("acquire", Target("lock", (name,), 30_000, False, "warn"), pause, **more)

    ends_at_35_s = order("a", 5.0, end="drop")
    waits_for_it = order("a", 30.5)
    blocks_the_loop = order("b", 31.0, block=15.0)
    clients = [
        ClientPlan(1.0, 0.0, 0.0, [[ends_at_35_s]]),
        ClientPlan(1.0, 0.0, 0.0, [[waits_for_it], [blocks_the_loop]]),
    ]
    tags = tag("lock", "a"), tag("lock", "b")
    plan = Plan("lock", ("a", "b"), tags, clients, 0.001, (), 0.0, 0, 0.0, True, True)
    result = Simulation(1, SimulatedServer(), plan=plan, every=1).run()
    assert result.findings == []
    assert [(one.client, one.names, one.outcome) for one in result.history if one.kind == "acquire"] == [
        ("A", ("a",), "granted"),
        ("B", ("b",), "granted"),
        ("B", ("a",), "granted"),
    ]


def test_a_client_whose_nodes_are_all_gone_rests_when_nothing_is_to_be_sent():
    def order(pause, cancel_after=None):
        return Order("acquire", Target("lock", ("a",), 1_000, True, "warn"), pause, cancel_after=cancel_after)

    tags = (tag("lock", "a"),)
    clients = [ClientPlan(0.3, 0.0, 0.0, [[order(0.0), order(1.0, 1.0), order(1.0, 1.0)]])]
    plan = Plan("lock", ("a",), tags, clients, 0.001, (), 0.0, 0, 0.0, True, True, setting="cluster")
    simulation = Simulation(1, SimulatedServer(), plan=plan, every=1)
    for node in range(PRIMARIES):
        simulation.world.at(0.5, simulation._network.cluster.lose, node)
    result = simulation.run()
    assert result.findings == []
    assert [one.outcome for one in result.history if one.kind == "acquire"] == ["granted", "failed", "failed"]


@pytest.fixture(scope="module", params=SETTINGS)
def tally(request):
    """Run the first seeds of a setting; return their outcome."""
    return hunt(0, SEEDS, setting=request.param)


def test_some_hundreds_of_schedules_have_no_finding(tally):
    assert tally.findings == {}, "\n".join(tally.lines())
    assert tally.schedules == SEEDS
    assert tally.calls > 10 * SEEDS
    assert tally.histories >= SEEDS // 10


@pytest.mark.timeout(300)
@pytest.mark.parametrize("setting", SETTINGS)
def test_many_schedules_have_no_finding(setting):
    tally = hunt(1_000_000, 1_003_000 if setting == "server" else 1_000_400, setting=setting)
    assert tally.findings == {}, "\n".join(tally.lines())
    assert set(tally.faults) == set(SETTINGS[setting])


def test_every_kind_of_fault_and_operation_occurs(tally):
    verbs, kinds = set(), set()
    for seed in range(SEEDS):
        plan = draw(World(seed).chance, tally.setting, seed)
        kinds.add(plan.kind)
        for client in plan.clients:
            verbs.update(order.verb for orders in client.callers for order in orders)
        assert all(before != after for before, after in pairwise(sorted(plan.names)))
    kinds_of_fault = set(SETTINGS[tally.setting])
    own = kinds_of_fault - SETTINGS["server"].keys() or kinds_of_fault
    assert own <= set(tally.faults) <= kinds_of_fault
    assert verbs == {
        "acquire",
        "try",
        "preempt",
        "replace",
        "revoke",
        "hold",
        "unhold",
        "resize",
        "pause",
        "status",
        "forget",
        "wait",
        "collect",
        "done",
        "observe",
        "work",
        "reserve",
        "limit",
        "spent",
        "close",
    }
    assert kinds == {
        "lock",
        "semaphore",
        "rwlock",
        "limiter",
        "once",
        "debounce",
        "budget",
        "latch",
        "election",
        "group",
        "partition",
    } | ({"lock_all"} if tally.setting != "cluster" else set())


# --- planted mistakes


def test_every_planted_mistake_still_applies_to_the_source():
    for one in PLANTED:
        with planted.planting(one) as scripts:
            assert (scripts == ENGINE_SCRIPTS) == (one.change is not None)
    assert len({one.name for one in PLANTED}) == len(PLANTED) >= 50
    with pytest.raises(LookupError):
        broken(PLANTED[0]._replace(name="permit_cancel: this change: is no mutant"))


@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # callers that never end have no loop
@pytest.mark.parametrize("one", PLANTED, ids=lambda one: one.name)
def test_a_planted_mistake_is_detected(one):
    assert catch(one, most=12_000).schedules, f"not caught: {one.why}"


# --- reports


def test_a_finding_includes_the_command_that_reproduces_it(capsys):
    (one,) = (one for one in PLANTED if one.where == "multi_acquire")
    found = []
    scripts = broken(one)
    tally = hunt(0, 40, scripts=scripts, found=found.append)
    seed = min(tally.findings)
    assert found[0].startswith(f"python -m handfast_lab.simulator {seed}  # ")
    lines = []
    assert replay(seed, log=lines.append, scripts=scripts) == tally.findings[seed]
    assert any("FOUND" in line and tally.findings[seed][0] in line for line in lines)
    assert command.main([str(seed)]) == 0
    assert "no findings" in capsys.readouterr().out
    assert command.main(["0..20", "--every", "4", "--setting", "cluster"]) == 0
    assert "20 schedules" in capsys.readouterr().out
    assert reproducer(7, "text", "cut off") == "python -m handfast_lab.simulator 7 --setting 'cut off'  # text"
