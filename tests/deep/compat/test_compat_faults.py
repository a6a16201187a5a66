"""The drop-in locks under faults: no state is left, results are correct, and other holders keep their locks."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import re
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import LockNotOwnedError, ResponseError

from handfast.compat import AsyncRedisLock, RedisLock
from handfast.compat import _shared as shared
from handfast.compat._shared import Token
from handfast.testing import FaultProxy, Stepper, anything, script
from tests._support.apis import ASYNCIO, SYNC
from tests._support.cancelling import barrier
from tests._support.engine import runs_through
from tests._support.helpers import eventually_async, settled, without_coverage

OURS = {SYNC: RedisLock, ASYNCIO: AsyncRedisLock}
NEVER = 3000
CALLS = {verb: script(getattr(shared, verb.upper())) for verb in ("acquire", "cancel", "release", "extend")}


@pytest.fixture
def raw(raw):
    """Yield the client. Afterwards, only locks may lack a TTL."""
    yield raw
    for key in raw.scan_iter(count=1000):
        assert ":handfast:" not in key or raw.pttl(key) > 0, key


@pytest.fixture
def proxy(server):
    with FaultProxy(server.url) as proxy:
        yield proxy


def retrying(api, times):
    """Return the options of a client that retries that many times, for old and new versions of redis-py."""
    return {
        "retry": (redis.retry if api is SYNC else redis.asyncio.retry).Retry(NoBackoff(), times),
        "retry_on_error": [RedisConnectionError] * bool(times),
    }


@pytest.fixture
async def far(api, proxy, raw):
    """Yield a client behind the proxy that retries; all scripts are loaded on the server."""
    learn(raw)
    async with api.users_client(unix_socket_path=proxy.path, **retrying(api, 3)) as client:
        await settled(client.ping())
        yield client
    gc.collect()


@pytest.fixture
async def faint(api, proxy, raw):
    """Yield such a client without retries."""
    learn(raw)
    async with api.users_client(unix_socket_path=proxy.path, **retrying(api, 0)) as client:
        await settled(client.ping())
        yield client
    gc.collect()


def learn(raw):
    """Load all scripts, since otherwise a fault hits the harmless NOSCRIPT reply."""
    for verb in CALLS:
        raw.script_load(getattr(shared, verb.upper()).source)


def locks(api, client, **options):
    return OURS[api](client, "a", **options)


# --- lost requests and replies


@pytest.mark.parametrize(("what", "token"), [("lose_reply", None), ("lose_reply", "given"), ("lose_request", None)])
async def test_a_lost_acquire_takes_effect_once(api, far, proxy, raw, what, token):  # noqa: PLR0917 -- fixtures are arguments
    for timeout in (None, 100):
        lock = locks(api, far, timeout=timeout)
        fault = getattr(proxy, what)(CALLS["acquire"])
        assert await settled(lock.acquire(blocking=False, token=token)) is True
        assert fault.spent
        assert raw.get("a").encode() == lock.local.token
        assert raw.pttl("a") > 90_000 if timeout else raw.pttl("a") == -1
        await settled(lock.release())
        assert not raw.exists("a")


@pytest.mark.parametrize("what", ["lose_reply", "lose_request"])
async def test_a_lost_acquire_does_not_take_the_lock_of_another_with_the_same_token(api, far, proxy, raw, what):
    raw.set("a", "given")
    lock = locks(api, far)
    fault = getattr(proxy, what)(CALLS["acquire"])
    assert await settled(lock.acquire(token="given", blocking=False)) is False
    assert fault.spent
    assert raw.get("a") == "given"


async def test_a_retried_acquire_restores_the_full_ttl(api, far, proxy, raw):
    lock = locks(api, far, timeout=100)

    def age(_):
        raw.pexpire("a", 5000)  # as if a long time passed before the retry

    proxy.before(anything, age)
    fault = proxy.lose_reply(CALLS["acquire"])
    assert await settled(lock.acquire()) is True
    assert fault.spent
    assert raw.pttl("a") > 90_000


@pytest.mark.parametrize("what", ["lose_reply", "lose_request"])
async def test_a_lost_release_succeeds_on_the_retry(api, far, proxy, raw, what):
    lock = locks(api, far, timeout=100)
    for _ in range(5):
        assert await settled(lock.acquire()) is True
        fault = getattr(proxy, what)(CALLS["release"])
        assert await settled(lock.release()) is None
        assert fault.spent
        assert lock.local.token is None
        assert not raw.exists("a")


async def test_a_retried_release_does_not_release_the_next_holder(api, far, proxy, raw):
    lock = locks(api, far, timeout=100)
    assert await settled(lock.acquire(token="given")) is True
    lost = proxy.lose_reply(CALLS["release"])

    def come_in_between(_):
        if lost.spent:
            raw.set("a", "given", nx=True)

    proxy.before(anything, come_in_between)
    assert await settled(lock.release()) is None
    assert raw.get("a") == "given"


async def test_a_retried_extension_does_not_extend_twice(api, far, proxy, raw):
    lock = locks(api, far, timeout=100)
    assert await settled(lock.acquire()) is True
    for before in (100, 200, 300):
        fault = proxy.lose_reply(CALLS["extend"])
        assert await settled(lock.extend(100)) is True
        assert fault.spent
        assert (before + 95) * 1000 < raw.pttl("a") <= (before + 100) * 1000
    await settled(lock.release())


async def test_a_loss_is_still_reported_after_a_lost_reply(api, far, proxy, raw):
    lock = locks(api, far, timeout=100)
    assert await settled(lock.acquire()) is True
    raw.set("a", "another")
    proxy.lose_reply(CALLS["release"])
    with pytest.raises(LockNotOwnedError):
        await settled(lock.release())
    assert raw.get("a") == "another"


# --- errors


@pytest.mark.parametrize("token", [None, "given"])
async def test_a_failed_acquire_leaves_no_state(api, faint, proxy, raw, token):
    for what in ("lose_reply", "lose_request"):
        lock = locks(api, faint)
        fault = getattr(proxy, what)(CALLS["acquire"])
        with pytest.raises(RedisConnectionError):
            await settled(lock.acquire(token=token))
        assert fault.spent
        assert lock.local.token is None
        await eventually_async(lambda: not raw.exists("a"))


@pytest.mark.parametrize("token", [None, "given"])
async def test_a_failed_acquire_leaves_the_lock_to_its_holder(api, faint, proxy, raw, token):
    raw.set("a", "given")
    fault = proxy.lose_reply(CALLS["acquire"])
    undone = sum(map(CALLS["cancel"], proxy.commands))
    with pytest.raises(RedisConnectionError):
        await settled(locks(api, faint).acquire(token=token))
    assert fault.spent
    await eventually_async(lambda: sum(map(CALLS["cancel"], proxy.commands)) > undone)
    barrier(raw)
    assert raw.get("a") == "given"


async def test_the_undo_of_a_failed_acquire_is_retried(api, faint, proxy, raw):
    proxy.lose_reply(CALLS["acquire"])
    fault = proxy.lose_request(CALLS["cancel"], times=3)
    with pytest.raises(RedisConnectionError):
        await settled(locks(api, faint).acquire())
    await eventually_async(lambda: fault.spent and not raw.exists("a"))


async def test_an_acquire_that_fails_while_it_waits_leaves_no_state(api, faint, proxy, raw):
    raw.set("a", "another", px=100)
    proxy.lose_reply(CALLS["acquire"], after=1)
    with pytest.raises(RedisConnectionError):
        await settled(locks(api, faint, sleep=NEVER).acquire())
    await eventually_async(lambda: not raw.exists("a"))


async def test_a_failed_undo_is_logged_and_the_original_error_raised(api, tmp_path, caplog, monkeypatch):
    for module in ("_sync", "_aio"):
        monkeypatch.setattr(f"handfast.compat.{module}.CLEANUP_FOR", 0.01)
    async with api.users_client(unix_socket_path=f"{tmp_path}/missing", **retrying(api, 0)) as client:
        with pytest.raises(RedisConnectionError), caplog.at_level(logging.WARNING, "handfast"):
            await settled(locks(api, client).acquire())
    assert "could not release 'a'" in caplog.text


async def test_a_failed_release_is_completed_and_may_be_called_again(api, faint, proxy, raw):
    for what in ("lose_reply", "lose_request"):
        lock = locks(api, faint, timeout=1000)
        assert await settled(lock.acquire()) is True
        fault = getattr(proxy, what)(CALLS["release"])
        with pytest.raises(RedisConnectionError):
            await settled(lock.release())
        assert fault.spent
        assert lock.local.token is not None
        await eventually_async(lambda: not raw.exists("a"))
        assert await settled(lock.release()) is None
        assert lock.local.token is None


async def test_a_release_refused_by_the_server_keeps_the_token(api, server, raw):
    async with api.users_client(unix_socket_path=server.socket) as client:
        lock = locks(api, client, timeout=100)
        assert await settled(lock.acquire()) is True
        raw.rename("a", "b")
        raw.rpush("a", "no text")
        with pytest.raises(ResponseError, match="WRONGTYPE"):
            await settled(lock.release())
        raw.rename("b", "a")
        assert await settled(lock.release()) is None
        assert not raw.exists("a")


# --- late and misordered requests


@pytest.mark.parametrize("given", [None, b"given"])
@pytest.mark.parametrize("end", [shared.cancel, shared.release])
def test_an_acquire_that_arrives_late_has_no_effect(server, raw, given, end):
    with redis.Redis(unix_socket_path=server.socket) as client:
        token = Token(given)
        ask(client, shared.acquire(client, "a", token, 100))
        ask(client, end(client, "a", token))
        assert ask(client, shared.acquire(client, "a", token, 100)).tag == "over"
        assert not raw.exists("a")
        raw.set("a", bytes(token))
        assert ask(client, shared.acquire(client, "a", token, 100)).tag == "over"
        assert raw.pttl("a") == -1


def test_an_acquire_that_arrives_after_its_cancel_is_refused(server, raw):
    with redis.Redis(unix_socket_path=server.socket) as client:
        token = Token()
        assert ask(client, shared.cancel(client, "a", token)).tag == "cancelled"
        assert ask(client, shared.acquire(client, "a", token, 100)).tag == "over"
        assert not raw.exists("a")


def test_a_given_token_is_recognised_only_for_the_ttl_of_the_lock(server, raw):
    with redis.Redis(unix_socket_path=server.socket) as client:
        for timeout, most in ((0.5, 500), (100, 100_000), (10_000, 600_000), (None, 600_000)):
            raw.delete("a")
            token = Token(b"given")
            call = shared.acquire(client, "a", token, timeout)
            assert ask(client, call).tag == "granted"
            assert 0 < raw.pttl(call[1]["past"]) <= most


@pytest.mark.parametrize("given", [None, b"given"])
def test_every_script_is_idempotent(server, raw, given):
    with redis.Redis(unix_socket_path=server.socket) as client:
        token = Token(given)

        def state():
            return {key: raw.get(key) for key in raw.scan_iter()}

        for call in (
            shared.acquire(client, "a", token, 100),
            shared.extend(client, "a", token, 100),
            shared.renew(client, "a", token, 50, "ttl", even_endless=False),
            shared.release(client, "a", token),
        ):
            first, kept = ask(client, call), state()
            assert ask(client, call) == first
            assert state() == kept
            assert first.tag in ("granted", "extended", "renewed", "released")
        assert not raw.exists("a")
        call = shared.cancel(client, "a", token)
        assert ask(client, call) == ask(client, call)


def ask(client, call):
    script, names = call
    return script(client, **names)


async def test_at_maxmemory_acquire_is_refused_and_the_other_calls_work(api, server, raw):
    async with api.users_client(unix_socket_path=server.socket) as client:
        lock, other = locks(api, client, timeout=100), OURS[api](client, "b", timeout=100)
        assert await settled(lock.acquire()) is True
        raw.config_set("maxmemory", 1)
        for token in (None, "given"):
            with pytest.raises(ResponseError, match="command not allowed when used memory"):
                await settled(other.acquire(token=token))
        assert raw.keys("b") == []
        assert await settled(other.owned()) is False
        assert await settled(lock.extend(100)) is await settled(lock.reacquire()) is True
        assert await settled(lock.release()) is None
        raw.config_set("maxmemory", 0)
        assert await settled(other.acquire(blocking=False)) is True
        await settled(other.release())


def test_at_maxmemory_an_acquire_can_be_undone(server, raw):
    with redis.Redis(unix_socket_path=server.socket) as client:
        held, free = Token(), Token()
        assert ask(client, shared.acquire(client, "a", held, 100)).tag == "granted"
        raw.config_set("maxmemory", 1)
        for token in (held, free):
            assert ask(client, shared.cancel(client, "a", token)).tag == "cancelled"
        raw.config_set("maxmemory", 0)
        assert not raw.exists("a")
        assert ask(client, shared.acquire(client, "a", free, 100)).tag == "over"


# --- partly executed scripts


@pytest.mark.parametrize("given", [None, b"given"], ids=["own token", "given token"])
@pytest.mark.parametrize("timeout", [None, 100], ids=["endless", "with a TTL"])
@pytest.mark.parametrize("verb", ["acquire", "cancel", "release", "extend", "renew"])
def test_a_script_stopped_at_any_command_leaves_the_lock_releasable_and_exclusive(server, raw, verb, timeout, given):
    """Invariant 12: every prefix of a script leaves a safe state, and running the script again completes it."""
    with redis.Redis(unix_socket_path=server.socket) as client:
        token = Token(given)
        calls = {
            "acquire": shared.acquire(client, "a", token, timeout),
            "cancel": shared.cancel(client, "a", token),
            "release": shared.release(client, "a", token),
            "extend": shared.extend(client, "a", token, 50),
            "renew": shared.renew(client, "a", token, 150, "ttl", even_endless=True),
        }
        ends = {"acquire": "granted", "cancel": "cancelled", "release": "released", "renew": "renewed"}
        ends["extend"] = "extended" if timeout else "lost"
        script, names = calls[verb]
        keys, argv = [names[name] for name in script.keys], [names[name] for name in script.args]
        is_given_up = verb in ("cancel", "release")
        done, cut = False, 0
        while not done:
            raw.flushdb()
            raw.set("a", "another's")
            runs_through(client, script.source, keys, argv, cut)
            assert (raw.get("a"), raw.pttl("a")) == ("another's", -1)
            raw.flushdb()
            assert verb == "acquire" or ask(client, calls["acquire"]).tag == "granted"
            done = runs_through(client, script.source, keys, argv, cut)
            assert client.get("a") in {None, bytes(token)}
            beside_it_all_ends(raw)
            again = ask(client, calls[verb]).tag
            # A release that was stopped after its DEL finds no key; the lock is released all the same.
            assert again == ends[verb] or (verb, again, done) == ("release", "lost", False)
            assert client.get("a") == (None if is_given_up else bytes(token))
            assert (raw.pttl("a") > 0) is (not is_given_up and (timeout is not None or verb == "renew"))
            assert raw.pttl("a") <= 200_000  # an extension is added twice at most
            assert ask(client, calls["cancel"]).tag == "cancelled"
            assert not raw.exists("a")
            assert ask(client, calls["acquire"]).tag == "over"
            beside_it_all_ends(raw)
            cut += 1
        assert cut > (2 if verb != "extend" or timeout else 1)


def beside_it_all_ends(raw):
    assert all(raw.pttl(key) > 0 for key in raw.scan_iter() if key != "a")


# --- rights


async def test_the_documented_acl_rights_are_sufficient(api, server, raw):
    page = (Path(__file__).parents[3] / "docs/how-to/migrate-from-redis-py.md").read_text()
    rights = re.search(r"ACL SETUSER (worker .*?)```", page, re.DOTALL)[1].replace("report", "a").split()
    raw.execute_command("ACL", "SETUSER", *rights)
    try:
        options = {"unix_socket_path": server.socket, "username": "worker", "password": "secret"}
        async with api.users_client(**options) as client:
            lock = locks(api, client, timeout=1000)
            assert await settled(lock.acquire()) is True
            assert (
                await settled(lock.extend(5)) is await settled(lock.reacquire()) is await settled(lock.owned()) is True
            )
            other = locks(api, client, blocking_timeout=0.05, sleep=0.01)
            assert await settled(other.acquire()) is False
            await settled(lock.release())
            raw.script_flush()
            assert await settled(lock.acquire(token="given")) is True
            await settled(lock.release())
    finally:
        raw.acl_deluser("worker")
        raw.acl_log_reset()


# --- cancellation


class Ring:
    """Locks of one client, and a check for what they leave behind."""

    def __init__(self, client, raw):
        self.client = client
        self.raw = raw

    def lock(self, **options):
        return AsyncRedisLock(self.client, "a", **options)

    async def complaints(self, lock):
        found = []
        with contextlib.suppress(AssertionError):
            await eventually_async(lambda: not self.raw.exists("a"), within=5)
            await eventually_async(lambda: len(asyncio.all_tasks()) == 1, within=5)
        found += [f"the key is there: {self.raw.get('a')}"] * self.raw.exists("a")
        found += [f"a task goes on: {task}" for task in asyncio.all_tasks() - {asyncio.current_task()}]
        if lock is not None and not (await lock.acquire(blocking=False) and await lock.release() is None):
            found.append("it is not free")
        if await self.client.echo("mine") != b"mine":
            found.append("a connection is dirty")
        return found


@pytest.fixture
async def ring(server, raw):
    learn(raw)
    async with redis.asyncio.Redis(unix_socket_path=server.socket) as client:
        yield Ring(client, raw)
    gc.collect()


async def cancelled_at(coroutine, strikes, raw, states):
    """Run the coroutine and cancel it at these suspensions; return whether that took effect, and otherwise the result.

    ``"executed"`` cancels after the server has executed the request, ``"sent"`` at once.
    """
    struck = []

    def at(number, _):
        if number in strikes:
            struck.append(number)
            if states[len(struck) - 1] == "executed":
                barrier(raw)
            task.cancel()

    async def drive():
        return await Stepper(coroutine, at=at)

    task = asyncio.create_task(drive())
    async with asyncio.timeout(20):
        await asyncio.wait((task,))
    return bool(struck), None if task.cancelled() else task.result()


@pytest.mark.parametrize("again", [False, True], ids=["once", "twice"])
@pytest.mark.parametrize("state", ["sent", "executed"])
@pytest.mark.parametrize(("held", "options"), [(False, {}), (True, {}), (True, {"token": "given"})])
async def test_an_acquire_cancelled_at_any_suspension_leaves_no_state(  # noqa: PLR0917 -- fixtures are arguments
    ring, raw, held, options, state, again
):
    points = 0
    for number in range(1, 100):
        if held:
            raw.set("a", "another", px=30)
        lock = ring.lock(sleep=NEVER)
        strikes = {number, number + 1} if again else {number}
        struck, given = await cancelled_at(lock.acquire(**options), strikes, raw, (state, "sent"))
        if not struck:
            assert given is True
            await lock.release()
            break
        points += 1
        if given:
            await lock.release()
        else:
            assert lock.local.token is None
        assert await ring.complaints(lock) == []
    assert points >= (3 if held else 1)


@pytest.mark.parametrize("state", ["sent", "executed"])
async def test_a_block_cancelled_on_entry_leaves_no_state(ring, raw, state):
    async def block(lock):
        async with lock:
            return True

    for number in range(1, 100):
        lock = ring.lock()
        struck, _ = await cancelled_at(block(lock), {number}, raw, (state,))
        if not struck:
            break
        assert await ring.complaints(None) == []
    assert number > 2


@pytest.mark.parametrize("again", [False, True], ids=["once", "twice"])
@pytest.mark.parametrize("state", ["sent", "executed"])
async def test_a_cancelled_release_still_takes_effect(ring, raw, state, again):
    for number in range(1, 100):
        lock = ring.lock()
        assert await lock.acquire()
        strikes = {number, number + 1} if again else {number}
        struck, _ = await cancelled_at(lock.release(), strikes, raw, (state, "sent"))
        assert await ring.complaints(None) == []
        if not struck:
            break
        if lock.local.token is not None:
            assert await lock.release() is None
    assert number > 1


async def test_an_acquire_that_races_its_timeout_is_granted_or_undone(ring, raw):
    came = set()
    for round_ in range(60):
        lock = ring.lock()
        try:
            async with asyncio.timeout(round_ * 2e-5):
                came.add(await lock.acquire())
        except TimeoutError:
            came.add("late")
            assert lock.local.token is None
        else:
            await lock.release()
        assert await ring.complaints(lock) == []
    assert came == {True, "late"}


async def test_an_acquire_whose_coroutine_is_closed_leaves_no_state(ring, raw):
    lock = ring.lock()
    coroutine = lock.acquire()
    coroutine.send(None)
    barrier(raw)
    coroutine.close()
    assert await ring.complaints(lock) == []


def test_without_an_event_loop_no_cleanup_is_started(server):
    client = redis.asyncio.Redis(unix_socket_path=server.socket)
    lock, token = AsyncRedisLock(client, "a"), Token()
    token.asked = True
    with pytest.raises(StopIteration):  # it ends without a suspension
        lock._undo(token, GeneratorExit()).send(None)
    gc.collect()


async def test_a_cancelled_acquire_does_not_wait_long_for_an_unresponsive_server(proxy, raw):
    learn(raw)
    async with redis.asyncio.Redis(unix_socket_path=proxy.path) as client:
        await client.ping()
        lock = AsyncRedisLock(client, "a")
        with proxy.black_hole("to server"):
            acquire = asyncio.create_task(lock.acquire())
            await eventually_async(lambda: any(map(CALLS["acquire"], proxy.commands)))
            acquire.cancel()
            await asyncio.wait((acquire,), timeout=30)
            assert acquire.cancelled()
        proxy.cut()
        await eventually_async(lambda: len(asyncio.all_tasks()) == 1)
    assert not raw.exists("a")


# --- interrupts

INTERRUPTED = """
import random, sys, time
import redis
from handfast.compat import RedisLock
from handfast.testing import interrupt_after

client, raw = redis.Redis.from_url(sys.argv[1]), redis.Redis.from_url(sys.argv[1])
random.seed(int(sys.argv[2]))
lock = RedisLock(client, "a")
with lock: pass
struck = 0
for round in range(int(sys.argv[3])):
    if round % 3 == 0:
        raw.set("a", "another", px=2)
    token = "given" if round % 2 else None
    seconds = random.uniform(1e-5, 2e-3 if round % 3 == 0 else 4e-4)
    run = interrupt_after(lambda: lock.acquire(token=token), seconds)
    struck += run.how == "stopped"
    if run.how == "failed":
        raise run.error
    if lock.local.token is not None:
        lock.release()  # the interrupt came too late
    until = time.monotonic() + 5
    while raw.get("a") not in (None, b"another") and time.monotonic() < until:
        time.sleep(0.001)
    if raw.get("a") not in (None, b"another"):
        print("left behind in round", round, raw.get("a"))
        sys.exit(1)
    time.sleep(0.003 if raw.exists("a") else 0)
    if client.echo("mine") != b"mine":
        client.connection_pool.disconnect()  # redis-py's own affair
print("struck", struck)
"""


@pytest.mark.parametrize("seed", [1, 2])
def test_an_interrupt_at_any_point_of_acquire_leaves_no_state(server, raw, seed):
    command = [sys.executable, "-W", "ignore::ResourceWarning", "-c", INTERRUPTED, server.url, str(seed), "400"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False, env=without_coverage())
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split()[-1]) > 50


@pytest.mark.parametrize("what", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_while_waiting_is_raised_to_the_caller(server, raw, what, monkeypatch):
    raw.set("a", "another")

    def wait(seconds):
        if threading.current_thread() is not threading.main_thread():
            return  # the cleanup's pause
        raw.delete("a")  # frees the lock
        raise what

    monkeypatch.setattr("handfast.compat._sync.time", SimpleNamespace(sleep=wait))
    with redis.Redis(unix_socket_path=server.socket) as client:
        lock = RedisLock(client, "a", sleep=NEVER)
        with pytest.raises(what):
            lock.acquire()
        assert lock.acquire(blocking=False)
        lock.release()


@pytest.mark.parametrize("enter", [RedisLock.acquire, RedisLock.__enter__])
def test_an_interrupt_does_not_release_the_lock_of_another_thread(server, raw, enter, monkeypatch):
    raw.set("a", "another")

    def wait(seconds):
        if threading.current_thread() is not threading.main_thread():
            return  # the cleanup's pause
        raw.delete("a")
        other = threading.Thread(target=lock.acquire)  # another thread acquires the shared lock
        other.start()
        other.join()
        raise KeyboardInterrupt

    monkeypatch.setattr("handfast.compat._sync.time", SimpleNamespace(sleep=wait))
    with redis.Redis(unix_socket_path=server.socket) as client:
        lock = RedisLock(client, "a", timeout=100, thread_local=False)
        with pytest.raises(KeyboardInterrupt):
            enter(lock)
        assert lock.owned()
        lock.release()


class Nudged(RedisLock):
    """Interrupt the caller just after the server has executed the request."""

    when = ""

    def do_acquire(self, token):
        done = super().do_acquire(token)
        if self.when == "acquire":
            raise KeyboardInterrupt
        return done

    def do_release(self, expected_token):
        if self.when == "before release":
            raise KeyboardInterrupt
        super().do_release(expected_token)
        if self.when == "release":
            raise KeyboardInterrupt


@pytest.mark.parametrize("token", [None, "given"])
def test_an_interrupt_just_after_the_grant_releases_the_lock(server, raw, token):
    with redis.Redis(unix_socket_path=server.socket) as client:
        lock = Nudged(client, "a")
        lock.when = "acquire"
        with pytest.raises(KeyboardInterrupt):
            lock.acquire(token=token)
        assert lock.local.token is None
        assert not raw.exists("a")
        with pytest.raises(KeyboardInterrupt):
            lock.__enter__()
        assert not raw.exists("a")


def test_an_interrupt_after_an_acquire_in_a_block_releases_the_lock(server, raw):
    class Late(RedisLock):
        def acquire(self):
            assert super().acquire()
            raise KeyboardInterrupt

    with redis.Redis(unix_socket_path=server.socket) as client:
        lock = Late(client, "a")
        with pytest.raises(KeyboardInterrupt):
            lock.__enter__()
        assert lock.local.token is None
        assert not raw.exists("a")


@pytest.mark.parametrize("when", ["before release", "release"])
def test_an_interrupted_release_still_takes_effect(server, raw, when):
    with redis.Redis(unix_socket_path=server.socket) as client:
        lock = Nudged(client, "a")
        assert lock.acquire()
        lock.when = when
        with pytest.raises(KeyboardInterrupt):
            lock.release()
        assert not raw.exists("a")
        lock.when = ""
        assert lock.release() is None


def test_an_acquire_is_undone_when_no_thread_can_be_started(server, raw, monkeypatch):
    def start(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    with redis.Redis(unix_socket_path=server.socket) as client:
        lock = Nudged(client, "a")
        lock.when = "acquire"
        with pytest.raises(KeyboardInterrupt):
            lock.acquire()
        assert not raw.exists("a")


async def test_many_rounds_leak_nothing(api, server, raw):
    """Leave no connection, thread or task, and only keys that expire."""
    async with api.users_client(unix_socket_path=server.socket) as client:
        await settled(client.ping())
        connections, threads = len(raw.client_list()), threading.active_count()
        for _ in range(100):
            lock = locks(api, client, timeout=100, blocking_timeout=0.002, sleep=0.001)
            assert await settled(lock.acquire()) is True
            other = locks(api, client, blocking_timeout=0.002)
            assert await settled(other.acquire()) is False
            await settled(lock.release())
        await eventually_async(lambda: len(raw.client_list()) <= connections + 1)
        assert threading.active_count() <= threads
        assert len(asyncio.all_tasks()) == 1
        assert all(raw.pttl(key) > 0 for key in raw.scan_iter())
    gc.collect()
