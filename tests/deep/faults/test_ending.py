"""A client that ends gives up what it holds, if it is asked to: when it is closed, and when its process exits.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from handfast import Handfast
from handfast._drivers.sync.renewer import Renewer
from handfast.embedded import PrivateServer
from tests._support.engine import Engine
from tests._support.helpers import eventually, without_coverage
from tests.gate.faults.test_ending import held

pytestmark = pytest.mark.usefixtures("raw")


# --- close


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
