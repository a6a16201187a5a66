"""The fault proxy: a fault hits exactly one command, the server executes it or not, and nothing remains at the end."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as some
from redis.backoff import NoBackoff
from redis.retry import Retry

from handfast import Handfast, Script
from handfast._engine.resp import INCOMPLETE, Reader
from handfast.testing import Command, FaultProxy, anything, command, containing, script
from handfast.testing.commands import Splitter, read_command
from tests._support.helpers import eventually, until_alone


@pytest.fixture(params=[False, True], ids=["unix", "tcp"])
def proxy(request, server):
    with FaultProxy(server.url, tcp=request.param) as proxy:
        yield proxy


END = object()


class RawClient:
    """A client that sends given bytes and reads frames until it is cut off."""

    def __init__(self, proxy, *, resp3=False):
        if proxy.path:
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.connect(proxy.path)
        else:
            self.socket = socket.create_connection(("127.0.0.1", proxy.port))
        self.socket.settimeout(10)
        self.reader = Reader()
        if resp3:
            self.send("HELLO 3")
            self.receive()

    def send(self, *commands):
        """Send these commands in one piece."""
        self.socket.sendall(b"".join(packed(command) for command in commands))

    def receive(self):
        """Return the next frame, or END if the connection has ended."""
        while (frame := self.reader.frame()) is INCOMPLETE:
            try:
                data = self.socket.recv(65536)
            except ConnectionResetError:
                data = b""
            if not data:
                return END
            self.reader.feed(data)
        return frame

    def receive_all(self):
        """Return all frames until the connection ends."""
        return list(iter(self.receive, END))

    def is_silent(self, seconds=0.05):
        self.socket.settimeout(seconds)
        try:
            self.socket.recv(1)
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(10)
        return False


def packed(command):
    words = command.encode().split()
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


@pytest.fixture
def peer(proxy, raw):
    peer = RawClient(proxy)
    yield peer
    peer.socket.close()


def insistent(proxy, times=3):
    """Return a redis-py client that retries that many times."""
    return redis.Redis.from_url(
        proxy.url, retry=Retry(NoBackoff(), times), retry_on_error=[redis.ConnectionError], decode_responses=True
    )


# --- one command of several


def test_proxy_forwards_commands_and_replies(proxy, raw):
    with insistent(proxy) as client:
        assert client.set("k", b"\r\n$5\r\n\x00") is True
        assert client.get("k") == "\r\n$5\r\n\x00"
        assert client.pipeline().incr("n").lrange("l", 0, -1).execute() == [1, []]
        big = "x" * 300_000
        client.set("big", big)
        assert client.get("big") == big
    assert [asked.name for asked in proxy.commands if asked.name in {"GET", "EXEC"}] == ["GET", "EXEC", "GET"]
    assert Command("INCRBY", (b"n", b"1"), 1) in proxy.commands
    assert proxy.connections == 1


def test_lose_reply_hits_one_command_that_the_server_has_executed(proxy, peer, raw):
    fault = proxy.lose_reply(containing("mine"))
    peer.send("SET a 1", "GET a", "INCR mine", "SET b 1", "INCR mine")
    assert peer.receive_all() == [b"OK", b"1"]
    assert (raw.get("a"), raw.get("mine"), raw.get("b")) == ("1", "1", None)
    assert fault.happened == 1
    assert fault.spent


def test_lose_request_hits_one_command_and_earlier_ones_are_answered(proxy, peer, raw):
    fault = proxy.lose_request(command("incr"))
    peer.send("SET a 1", "GET a", "INCR mine", "SET b 1")
    assert peer.receive_all() == [b"OK", b"1"]
    assert (raw.get("a"), raw.get("mine"), raw.get("b")) == ("1", None, None)
    assert fault.happened == 1


def test_fault_waits_for_its_match_skips_and_counts(proxy, raw):
    fault = proxy.lose_reply(command("INCRBY"), after=1, times=2)
    with insistent(proxy) as client:
        assert client.get("n") is None
        assert client.incr("n") == 1
        assert fault.happened == 0
        assert client.incr("n") == 4, "two replies were lost"
        assert client.incr("n") == 5
    assert (fault.happened, fault.spent) == (2, True)


def test_first_matching_fault_applies(proxy, raw):
    first, second = proxy.lose_request(command("INCRBY")), proxy.lose_reply(command("INCRBY"))
    with insistent(proxy) as client:
        assert client.incr("n") == 2
    assert (first.happened, second.happened) == (1, 1)


def test_cleared_fault_hits_nothing(proxy, raw):
    fault = proxy.lose_request(command("INCRBY"), times=None)
    with insistent(proxy) as client:
        with pytest.raises(redis.ConnectionError):
            client.incr("n")
        fault.clear()
        assert client.incr("n") == 1
    assert fault.happened == 4
    assert not fault.spent


def test_noscript_reply_is_not_lost(proxy, raw):
    raw.script_flush()
    ours = Script("return redis.call('INCR', KEYS[1])")
    asked = ["EVALSHA", "EVAL", "EVAL"]  # the client is cut off by the second, which it sends again
    fault = proxy.lose_reply(script(ours))
    with insistent(proxy) as client:
        assert ours(client, keys=["n"], args=[]) == 2, "executed by its source, and once more"
    assert fault.happened == 1
    assert [one.name for one in proxy.commands if one.name.startswith("EVAL")] == asked


def test_fault_in_a_transaction_hits_exec(proxy, peer, raw):
    fault = proxy.lose_reply(command("EXEC"))
    peer.send("MULTI", "INCR n", "EXEC", "INCR n")
    assert peer.receive_all() == [b"OK", b"QUEUED"]
    assert raw.get("n") == "1"
    assert fault.happened == 1


def test_error_and_nil_are_replies(proxy, raw):
    for what in (
        "EVAL nonsense 0",
        "GET nothing",
        "LRANGE nothing 0 -1",
        "HGETALL nothing",
        "EVAL return{1,{2,{3}},'x'} 0",
    ):
        peer = RawClient(proxy, resp3=True)
        fault = proxy.lose_reply(command("PING"))
        peer.send(what, "PING")
        assert len(peer.receive_all()) == 1
        assert fault.wait()
        peer.socket.close()


def test_inline_commands_match_too(proxy, peer, raw):
    fault = proxy.lose_request(command("INCR"))
    peer.socket.sendall(b"PING\r\n\r\nset a 1\r\nINCR n\r\n")
    assert peer.receive_all() == [b"PONG", b"OK"]
    assert fault.happened == 1
    assert proxy.commands[:2] == [Command("PING", (), 1), Command("SET", (b"a", b"1"), 1)]


def test_client_that_does_not_speak_resp_is_cut(proxy, peer):
    peer.socket.sendall(b"*1\r\n:5\r\n")
    assert peer.receive_all() == []


# --- pushes and subscriptions


@pytest.mark.parametrize("resp3", [False, True], ids=["resp2", "resp3"])
def test_confirmations_answer_a_subscription(proxy, raw, resp3):
    peer = RawClient(proxy, resp3=resp3)
    fault = proxy.lose_reply(command("SUBSCRIBE"), after=1)
    peer.send("SUBSCRIBE a b")
    assert [peer.receive()[1] for _ in "ab"] == [b"a", b"b"]
    peer.send("UNSUBSCRIBE a", "PING", "SUBSCRIBE c d", "PING")
    received = peer.receive_all()
    assert received[0][:2] == [b"unsubscribe", b"a"]
    assert received[1] in (b"PONG", [b"pong", b""])
    assert len(received) == 3, "the first of two confirmations does not complete the reply"
    assert fault.happened == 1
    peer.socket.close()


def test_pushes_do_not_count_as_replies(proxy, raw):
    peer = RawClient(proxy, resp3=True)
    peer.send("SUBSCRIBE a")
    assert peer.receive()[0] == b"subscribe"
    fault = proxy.lose_reply(command("INCR"))
    peer.send(*["PUBLISH a hey"] * 20, "INCR n")
    received = peer.receive_all()
    assert received.count(1) == 20, "every PUBLISH was answered"
    assert raw.get("n") == "1"
    assert fault.happened == 1
    peer.socket.close()


def test_messages_of_a_resp2_subscriber_do_not_count_as_replies(proxy, raw):
    peer = RawClient(proxy)
    peer.send("SUBSCRIBE a", "PSUBSCRIBE b*")
    assert [peer.receive()[0] for _ in "ab"] == [b"subscribe", b"psubscribe"]
    for _ in range(10):
        raw.publish("a", "hey")
        raw.publish("bb", "ho")
    fault = proxy.lose_reply(command("UNSUBSCRIBE"))
    peer.send("PING", "UNSUBSCRIBE a")
    received = [frame[0] for frame in peer.receive_all()]
    assert sorted(received) == [b"message"] * 10 + [b"pmessage"] * 10 + [b"pong"]
    assert fault.happened == 1
    peer.socket.close()


@pytest.mark.parametrize("resp3", [False, True], ids=["resp2", "resp3"])
def test_lose_pushes_discards_messages_only(proxy, raw, resp3):
    peer = RawClient(proxy, resp3=resp3)
    peer.send("SUBSCRIBE a b")
    assert [peer.receive()[0] for _ in "ab"] == [b"subscribe"] * 2
    fault = proxy.lose_pushes(containing("secret"), times=3, after=1)
    for number in range(5):
        assert raw.publish("a", f"secret {number}") == 1
        assert raw.publish("b", f"plain {number}") == 1
    peer.send("PING")
    received = [peer.receive() for _ in range(8)]
    assert received[-1] in (b"PONG", [b"pong", b""])
    said = [frame[2].decode() for frame in received[:-1]]
    assert said == ["secret 0", "plain 0", "plain 1", "plain 2", "plain 3", "secret 4", "plain 4"]
    assert (fault.happened, fault.spent) == (3, True)
    peer.socket.close()


def test_monitor_output_does_not_count_as_replies(proxy, peer, raw):
    peer.send("MONITOR")
    assert peer.receive() == b"OK"
    raw.get("k")
    assert b"k" in peer.receive()


# --- late, held back, meddled with


def test_duplicate_is_executed_late_although_all_connections_are_cut(proxy, raw):
    fault = proxy.duplicate(command("INCRBY"), after=600)
    with insistent(proxy) as client:
        assert client.incr("n") == 1
        assert (fault.happened, raw.get("n")) == (0, "1")
        proxy.cut()
        fault.clear()
        assert fault.wait()
        assert raw.get("n") == "2"
        assert client.incr("n") == 3


def test_commands_before_a_duplicate_are_answered_and_later_ones_lost(proxy, peer, raw):
    fault = proxy.duplicate(command("INCR"), after=0)
    peer.send("SET a 1", "INCR n", "SET b 1")
    assert peer.receive_all() == [b"OK"]
    assert fault.wait()
    assert (raw.get("a"), raw.get("n"), raw.get("b")) == ("1", "1", None)


def test_duplicate_uses_the_database_of_its_connection(server, raw):
    with FaultProxy(f"{server.url}?db=3") as proxy, insistent(proxy) as client:
        fault = proxy.duplicate(command("INCRBY"), after=0)
        client.incr("n")
        assert fault.wait()
        assert client.get("n") == "2"
        assert not raw.exists("n")


def test_delayed_commands_continue_in_order_when_cleared(proxy, peer, raw):
    fault = proxy.delay(command("INCR"), seconds=60)
    peer.send("SET a 1", "INCR n", "SET b 1")
    assert peer.receive() == b"OK"
    assert fault.wait()
    assert peer.is_silent()
    assert raw.exists("n", "b") == 0
    with contextlib.closing(RawClient(proxy).socket) as another:  # others are not held
        another.sendall(b"PING\r\n")
        assert another.recv(7) == b"+PONG\r\n"
    fault.clear()
    assert [peer.receive(), peer.receive()] == [1, b"OK"]


def test_delay_ends_after_its_seconds(proxy, peer, raw):
    proxy.delay(command("INCR"), seconds=0.05)
    began = monotonic()
    peer.send("INCR n")
    assert peer.receive() == 1
    assert monotonic() - began >= 0.05


def test_delayed_command_of_a_gone_client_is_executed(proxy, raw):
    peer = RawClient(proxy)
    fault = proxy.delay(command("INCR"), seconds=60)
    peer.send("INCR n")
    assert fault.wait()
    peer.socket.close()
    fault.clear()
    assert eventually(lambda: raw.get("n")) == "1"


def test_action_runs_before_its_command_and_before_faults(proxy, peer, raw):
    seen = []

    def look(asked):
        seen.append((asked.args, raw.get("n")))

    proxy.before(command("INCR"), look, times=2)
    fault = proxy.lose_reply(command("INCR"), after=2)
    peer.send("INCR n", "INCR n", "INCR n")
    assert peer.receive_all() == [1, 2]
    assert fault.happened == 1
    assert [args for args, _ in seen] == [(b"n",), (b"n",)]
    assert seen[0][1] is None


@pytest.mark.parametrize("order", ["lose_reply", "before"])
def test_error_of_an_action_cuts_the_connection_and_is_raised_by_close(server, raw, order):
    def wrong(_):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"), FaultProxy(server.url) as proxy:
        if order == "before":
            proxy.before(anything, wrong)
        else:
            proxy.lose_reply(wrong)
        peer = RawClient(proxy)
        peer.send("PING")
        assert peer.receive_all() == []
        peer.socket.close()


def test_error_of_the_block_wins_over_the_error_of_an_action(server, caplog):
    with pytest.raises(ZeroDivisionError), FaultProxy(server.url) as proxy:
        proxy.before(anything, lambda _: [].pop())
        peer = RawClient(proxy)
        peer.send("PING")
        assert peer.receive_all() == []
        peer.socket.close()
        raise ZeroDivisionError
    assert "pop from empty list" in caplog.text


# --- bytes and connections


@pytest.mark.parametrize("count", [0, 1, 5, 7, 12])
def test_cut_after_cuts_within_a_reply(proxy, peer, raw, count):
    fault = proxy.cut_after(count)
    peer.send("PING", "SET a 1", "SET b 1")
    data = b"".join(iter(lambda: peer.socket.recv(100), b""))
    assert data == b"+PONG\r\n+OK\r\n+OK\r\n"[:count]
    assert fault.happened == 1
    peer.socket.close()
    assert RawClient(proxy, resp3=True).socket.close() is None, "only once"


def test_cut_after_cuts_within_a_request(proxy, peer, raw):
    first = packed("SET a 1")
    fault = proxy.cut_after(len(first) + 5, "to server")
    peer.send("SET a 1", "SET b 1")
    assert peer.receive_all() in ([], [b"OK"])
    assert fault.wait()
    assert eventually(lambda: raw.get("a")) == "1"
    assert not raw.exists("b")


@pytest.mark.parametrize("direction", ["to server", "to client", "both"])
def test_black_hole_silences_connections_that_used_it(proxy, peer, raw, direction):
    peer.send("PING")
    assert peer.receive() == b"PONG"
    with proxy.black_hole(direction):
        peer.send("INCR n")
        eventually(lambda: any(asked.name == "INCR" for asked in proxy.commands))
        if direction == "to client":
            assert eventually(lambda: raw.get("n")) == "1"
        assert peer.is_silent()
    peer.send("PING")
    assert peer.is_silent(), "the rest of a stream with a gap cannot be parsed"
    fresh = RawClient(proxy)
    fresh.send("INCR n")
    assert fresh.receive() == (2 if direction == "to client" else 1)
    fresh.socket.close()


def test_cut_ends_all_connections(proxy, raw):
    lines = [RawClient(proxy) for _ in range(5)]
    for peer in lines:
        peer.send("PING")
        assert peer.receive() == b"PONG"
    proxy.cut()
    for peer in lines:
        assert peer.receive_all() == []
        peer.socket.close()
    assert proxy.connections == 5


def test_unreachable_server_ends_the_connection(server):
    with FaultProxy(f"{server.url}-not") as proxy:
        peer = RawClient(proxy)
        assert peer.receive_all() == []
        peer.socket.close()


# --- where it stands


def test_url_keeps_everything_but_the_address():
    with FaultProxy("redis://user:pw%40@example.org:1234/5?protocol=3") as proxy:
        assert proxy.url == f"unix://user:pw%40@{proxy.path}?protocol=3&db=5"
    with FaultProxy("redis://example.org/2?protocol=3", tcp=True) as proxy:
        assert proxy.url == f"redis://127.0.0.1:{proxy.port}/2?protocol=3"
    with FaultProxy("unix:///tmp/s?db=4", tcp=True) as proxy:
        assert proxy.url == f"redis://127.0.0.1:{proxy.port}?db=4"


def test_database_of_the_url_is_used(server, raw):
    with FaultProxy(f"{server.url}?db=7") as proxy, insistent(proxy) as client:
        client.set("k", "v")
        assert not raw.exists("k")
        assert raw.execute_command("MOVE", "k", 1) == 0
        assert client.get("k") == "v"
        client.flushdb()


def test_server_on_a_port_is_supported(server, raw):
    with FaultProxy(server.url, tcp=True) as inner, FaultProxy(inner.url) as outer, insistent(outer) as client:
        fault = outer.lose_reply(command("INCRBY"))
        assert client.incr("n") == 2
        assert fault.spent
        assert inner.connections == outer.connections == 2


@pytest.mark.parametrize("url", ["rediss://example.org", "example.org:6379", "unix://", "http://example.org"])
def test_unsupported_urls_are_refused(url):
    with pytest.raises(ValueError, match="a proxy connects to"):
        FaultProxy(url)


@pytest.mark.parametrize(
    "order",
    [
        lambda proxy: proxy.lose_reply(times=0),
        lambda proxy: proxy.lose_request(after=-1),
        lambda proxy: proxy.delay(seconds=-1),
        lambda proxy: proxy.delay(seconds=float("nan")),
        lambda proxy: proxy.duplicate(after=float("inf")),
        lambda proxy: proxy.cut_after(-1),
        lambda proxy: proxy.cut_after(1, "sideways"),
        lambda proxy: proxy.black_hole("sideways").__enter__(),
        lambda proxy: proxy.dribbling(pause=-1).__enter__(),
        lambda _: command(),
        lambda _: script("no_such_script"),
    ],
)
def test_invalid_arguments_are_refused(server, order):
    with FaultProxy(server.url) as proxy, pytest.raises(ValueError, match=r"must|not|name|no script"):
        order(proxy)


def test_script_refuses_other_types():
    with pytest.raises(TypeError, match="not int"):
        script(5)


def test_script_matches_every_kind_of_script(raw, hf):
    source = "return 1"
    theirs, own = raw.register_script(source), Script(source)
    evalsha, eval_source = Command("EVALSHA", (own.digest.encode(), b"0")), Command("EVAL", (source.encode(), b"0"))
    for match in (script(theirs), script(own), script(), script("permit_acquire", own)):
        assert match(evalsha)
        assert match(eval_source)
        assert not match(Command("SET", (own.digest.encode(),)))
    assert not script("permit_acquire")(evalsha)


def test_proxy_without_record_keeps_no_commands(server, raw):
    with FaultProxy(server.url, record=False) as proxy:
        with insistent(proxy) as client:
            client.get("k")
        with pytest.raises(RuntimeError, match="record"):
            _ = proxy.commands


# --- its end


def left():
    """Return the threads and file descriptors of this process."""
    return threading.active_count(), len(list(Path("/dev/fd").iterdir()))


def test_close_leaves_no_thread_socket_or_folder(server, raw):
    with Handfast(server.url) as hf, hf.lock("warm"):
        pass
    until_alone(raw)
    before = left()
    proxy = FaultProxy(server.url)
    folder = Path(proxy.path).parent
    lines = [RawClient(proxy) for _ in range(6)]
    held = proxy.delay(containing("held"), seconds=600)
    late = proxy.duplicate(containing("late"), after=600)
    lines[0].send("GET held")
    lines[1].send("GET late")
    lines[2].send("BLPOP nothing 0")
    lines[3].send("SUBSCRIBE a")
    lines[4].socket.sendall(b"*2\r\n$3\r\nGE")
    proxy.lose_reply(command("BRPOP"))
    lines[5].send("BRPOP nothing 0")
    assert held.wait()
    assert lines[1].receive_all() == []
    assert lines[3].receive()[0] == b"subscribe"
    proxy.close()
    proxy.close()
    assert late.happened == 0
    for peer in lines:
        assert peer.receive_all() == []
        peer.socket.close()
    assert left() == before
    assert not folder.exists()
    until_alone(raw)
    with pytest.raises(RuntimeError, match="closed"):
        proxy.lose_reply()


def test_ended_connections_leave_nothing_in_a_running_proxy(server, raw):
    with FaultProxy(server.url) as proxy:
        before = left()
        for _ in range(30):
            peer = RawClient(proxy)
            peer.send("PING")
            assert peer.receive() == b"PONG"
            peer.socket.close()
        eventually(lambda: left() == before)
        assert proxy.connections == 30


def test_concurrent_clients_and_faults(server, raw):
    def work(number):
        with insistent(proxy, times=100) as client:
            for _ in range(40):
                client.incr(f"n{number}")

    with FaultProxy(server.url) as proxy:
        faults = [proxy.lose_reply(command("INCRBY"), after=5 * step) for step in range(40)]
        faults += [proxy.lose_request(command("INCRBY"), after=7 * step) for step in range(30)]
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(work, range(4)))
        executed = sum(int(raw.get(f"n{number}")) for number in range(4))
        lost = sum(fault.happened for fault in faults[:40])
        assert sum(fault.happened for fault in faults) >= 40
        assert executed == 160 + lost, "commands with lost replies were executed, those with lost requests were not"


# --- frames


TEXTS = some.binary(max_size=12)

VALUES = some.recursive(
    some.one_of(
        some.binary(max_size=8).map(lambda data: b"$%d\r\n%b\r\n" % (len(data), data)),
        some.integers(-9, 9**9).map(lambda number: b":%d\r\n" % number),
        some.sampled_from(
            [b"+OK\r\n", b"-ERR no\r\n", b"$-1\r\n", b"*-1\r\n", b"_\r\n", b"#t\r\n", b",1.5\r\n", b"=5\r\ntxt:a\r\n"]
        ),
    ),
    lambda inner: some.one_of(
        some.tuples(some.sampled_from(b"*~>"), some.lists(inner, max_size=3)).map(
            lambda group: b"%c%d\r\n" % (group[0], len(group[1])) + b"".join(group[1])
        ),
        some.lists(some.tuples(inner, inner), max_size=2).map(
            lambda pairs: b"%%%d\r\n" % len(pairs) + b"".join(map(b"".join, pairs))
        ),
        some.tuples(inner, inner).map(lambda pair: b"|1\r\n+key\r\n" + b"".join(pair)),
    ),
    max_leaves=8,
)


@given(frames=some.lists(VALUES, max_size=6), cuts=some.lists(some.integers(0, 200), max_size=6))
def test_splitter_returns_whole_frames_for_any_pieces(frames, cuts):
    data, splitter, found = b"".join(frames), Splitter(), []
    marks = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    for start, end in itertools.pairwise(marks):
        found += splitter.feed(data[start:end])
    assert found == frames
    assert splitter.rest() == b""


@given(words=some.lists(TEXTS, min_size=1, max_size=5), size=some.integers(1, 9))
def test_splitter_returns_whole_requests_for_any_pieces(words, size):
    frame = b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)
    splitter, found = Splitter(inline=True), []
    data = frame + b"ping  now\r\n" + frame + frame[:-1]
    for start in range(0, len(data), size):
        found += splitter.feed(data[start : start + size])
    assert found == [frame, b"ping  now\r\n", frame]
    assert splitter.rest() == frame[:-1]
    assert read_command(frame).args == tuple(words[1:])
    assert read_command(b"ping  now\r\n") == Command("PING", (b"now",))
    assert read_command(b"*0\r\n") is read_command(b"\r\n") is None
