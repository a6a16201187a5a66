"""A client that ends gives up what it holds, if it is asked to: when it is closed, and when its process exits."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from handfast import AsyncHandfast, Handfast, LeaseLost
from handfast._drivers.sync.renewer import Renewer
from handfast.embedded import PrivateServer
from handfast.testing import FaultProxy, script
from tests._support.apis import until_queued
from tests._support.engine import Engine
from tests._support.helpers import eventually, without_coverage

pytestmark = pytest.mark.usefixtures("raw")


def held(raw):
    return [name for name in "abcde" if Engine(raw, name).holders()]


# --- close


async def test_a_client_that_is_closed_may_release_what_it_holds(api, server, raw, there, caplog):
    client = api.client(server.url)
    leases = [await client.lock(name).acquire() for name in "abc"]
    leases.append(await client.lock("d", renew=False).acquire())
    waiter = asyncio.create_task(_acquire(there.lock("a")))
    await until_queued(there.lock("a"))
    await client.close(release=True)
    await (await asyncio.wait_for(waiter, 10)).release()
    assert held(raw) == []
    for lease in leases:
        assert lease.lost
        with pytest.raises(LeaseLost, match="its client was closed, which released it"):
            lease.check()
        assert await lease.release() is False
    assert not caplog.records


async def _acquire(lock):
    return await lock.acquire(timeout=20)


@pytest.mark.parametrize("how", ["close", "release=False", "with"])
async def test_a_client_that_is_closed_releases_nothing_unasked(api, server, raw, how):
    client = api.client(server.url)
    lease = await client.lock("a").acquire()
    if how == "with":
        await client.__aenter__()
        await client.__aexit__(None, None, None)
    else:
        await client.close(**({"release": False} if how == "release=False" else {}))
    assert held(raw) == ["a"]
    assert not lease.lost


@pytest.mark.parametrize("how", ["close", "release=False", "with"])
async def test_a_client_that_releases_at_exit_does_so_when_it_is_closed_unless_told_otherwise(api, server, raw, how):
    client = api.client(server.url, release_at_exit=True)
    lease = await client.lock("a").acquire()
    if how == "with":
        await client.__aenter__()
        await client.__aexit__(None, None, None)
    else:
        await client.close(**({"release": False} if how == "release=False" else {}))
    assert held(raw) == (["a"] if how == "release=False" else [])
    assert lease.lost is (how != "release=False")


def test_a_block_of_another_thread_learns_that_its_client_was_closed(server, raw):
    client, inside, go = Handfast(server.url), threading.Event(), threading.Event()
    lost = threading.Event()

    def work():
        with client.lock("a") as lease:
            lease.add_lost_callback(lost.set)
            inside.set()
            assert go.wait(10)

    with ThreadPoolExecutor(1) as threads:
        working = threads.submit(work)
        assert inside.wait(10)
        client.close(release=True)
        assert lost.wait(10)
        assert held(raw) == []
        go.set()
        with pytest.raises(LeaseLost, match="its client was closed"):
            working.result(10)


async def test_a_block_of_another_task_ends_when_its_client_is_closed(server, raw):
    client, inside = AsyncHandfast(server.url), asyncio.Event()

    async def work():
        async with client.lock("a"):
            inside.set()
            await asyncio.sleep(60)

    working = asyncio.create_task(work())
    await inside.wait()
    await client.close(release=True)
    assert held(raw) == []
    with pytest.raises(LeaseLost, match="its client was closed"):
        await asyncio.wait_for(working, 10)


async def test_a_block_that_closes_its_own_client_learns_it_at_its_end(api, server, raw, caplog):
    client = api.client(server.url)
    with pytest.raises(LeaseLost, match="its client was closed"):
        async with client.lock("a"):
            await client.close(release=True)
    assert held(raw) == []
    assert not caplog.records


async def test_a_reentrant_lock_is_released_with_its_client(api, server, raw):
    client = api.client(server.url)
    first, second = await client.rlock("a").acquire(), await client.rlock("a").acquire()
    await client.close(release=True)
    assert held(raw) == []
    assert first.lost
    assert second.lost
    assert [await second.release(), await first.release()] == [False, False]


@pytest.mark.slow
async def test_closing_without_a_server_logs_what_could_not_be_released(api, caplog):
    with PrivateServer() as server:
        client = api.client(server.url)
        lease = await client.lock("a").acquire()
    await client.close(release=True)
    assert lease.lost
    assert [record.getMessage() for record in caplog.records if record.levelname != "DEBUG"] == [
        "could not release the lease of 'a' before its client was closed; it may stay held until its ttl ends"
    ]
    assert caplog.records[-1].lock == "a"


async def test_a_release_whose_reply_is_lost_at_the_close_is_sent_again(api, server, raw, caplog):
    with FaultProxy(server.url) as proxy:
        client = api.client(proxy.url)
        lease = await client.lock("a").acquire()
        fault = proxy.lose_reply(script("permit_release"))
        await client.close(release=True)
        assert fault.happened
        assert lease.lost
    assert held(raw) == []
    assert not caplog.records


def test_no_renewal_is_sent_for_a_lease_once_its_client_has_given_it_up(server, raw, monkeypatch):
    """The close comes while the thread sends renewals: it waits for that, as a release does."""
    sent = []
    real = Renewer._send

    def sending(self, session, calls, settle, *, sources):
        sent.extend(call.prefix.name for _, call in calls)
        return real(self, session, calls, settle, sources=sources)

    monkeypatch.setattr(Renewer, "_send", sending)
    for _ in range(20):
        client = Handfast(server.url)
        lease = client.lock("a", ttl=0.3).acquire()
        eventually(lambda: "permit_renew" in sent)
        client.close(release=True)
        assert sent[-1] == "permit_release"
        assert lease.lost
        sent.clear()
    assert held(raw) == []


# --- exit

START = """
import asyncio, contextlib, os, signal, sys, threading, time
from handfast import AsyncHandfast, ClientClosed, Handfast
url = sys.argv[1]
"""

ENDS = {
    "at its end": "",
    "with sys.exit": "sys.exit(3)",
    "with an exception": "raise ValueError",
    "by Ctrl-C": "signal.raise_signal(signal.SIGINT)",
    "by SIGTERM that raises SystemExit": (
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\nos.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(60)"
    ),
}


def play(server, program, *arguments):
    command = [sys.executable, "-X", "dev", "-W", "ignore::ResourceWarning", "-c", START + program]
    return subprocess.run(
        [*command, server.url, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=without_coverage(),
    )


@pytest.mark.slow
@pytest.mark.parametrize("end", ENDS)
def test_a_process_releases_what_it_holds_when_it_ends(server, raw, end):
    done = play(
        server,
        f"""
hf, late = Handfast(url, release_at_exit=True), Handfast(url)
kept = [hf.lock("a").acquire(), hf.semaphore("s", 2).acquire(), late.lock("b").acquire()]
{ENDS[end]}
""",
    )
    assert held(raw) == ["b"], done.stderr
    assert not Engine(raw, "s").holders()
    assert "handfast" not in done.stderr.replace("<string>", ""), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("kind", ["asyncio", "uvloop"])
def test_a_process_of_asyncio_releases_what_it_holds_when_its_loop_ends(server, raw, end, kind):
    if kind == "uvloop":
        pytest.importorskip("uvloop")
    body = "".join(f"    {line}\n" for line in ENDS[end].splitlines())
    done = play(
        server,
        f"""
hf, late = AsyncHandfast(url, release_at_exit=True), AsyncHandfast(url)
kept = []
async def main():
    kept.extend([await hf.lock("a").acquire(), await late.lock("b").acquire()])
{body}
if "{kind}" == "uvloop":
    import uvloop
    uvloop.run(main())
else:
    asyncio.run(main())
""",
    )
    assert held(raw) == ["b"], done.stderr


@pytest.mark.slow
def test_a_forked_child_that_exits_releases_its_own_leases_and_not_those_of_its_parent(server, raw):
    done = play(
        server,
        """
hf = Handfast(url, release_at_exit=True)
kept = [hf.lock("a").acquire()]
child = os.fork()
if not child:
    kept.append(hf.lock("b").acquire())
    sys.exit(0)
os.waitpid(child, 0)
print([name for name in "ab" if hf.lock(name).status().holders], kept[0].lost, flush=True)
os._exit(0)
""",
    )
    assert done.stdout == "['a'] False\n", done.stderr
    assert held(raw) == ["a"]


@pytest.mark.slow
def test_daemon_threads_do_not_keep_a_process_from_releasing(server, raw):
    done = play(
        server,
        """
hf = Handfast(url, release_at_exit=True)
inside = threading.Event()
def hold(name):
    with hf.lock(name):
        inside.set()
        time.sleep(60)
def wait():
    with contextlib.suppress(ClientClosed):
        hf.lock("a").acquire()
for target, args in ((hold, ("a",)), (wait, ())):
    threading.Thread(target=target, args=args, daemon=True).start()
    inside.wait()
while not hf.lock("a").status().waiting:
    time.sleep(0.001)
""",
    )
    assert (done.returncode, done.stderr) == (0, "")
    eventually(lambda: held(raw) == [] == Engine(raw, "a").queue())


@pytest.mark.slow
@pytest.mark.parametrize("api", ["sync", "asyncio"])
def test_a_process_that_exits_without_its_server_ends_soon_and_says_so(api):
    program = """
hf = Handfast(url, release_at_exit=True) if sys.argv[2] == "sync" else AsyncHandfast(url, release_at_exit=True)
async def main():
    lease = hf.lock("a").acquire()
    kept.append(lease if sys.argv[2] == "sync" else await lease)
    os.kill(int(sys.argv[3]), signal.SIGKILL)
kept = []
asyncio.run(main())
"""
    with PrivateServer() as server:
        done = play(server, program, api, str(server.pid))
    assert done.returncode == 0
    if api == "sync":
        assert done.stderr.startswith("could not release the lease of 'a'")
