"""SIGTERM with ``release_on_sigterm``: blocks are left, leases are released, and a handler of the program still runs."""

from __future__ import annotations

import signal
import sys
import threading

import pytest

from handfast import AsyncHandfast, Handfast
from tests._support.running import done, ready, starting

HEAD = "import asyncio, os, signal, sys, time\nfrom handfast import AsyncHandfast, Handfast\nurl = sys.argv[1]\n"

BLOCK = """
with Handfast(url, release_on_sigterm=True) as hf, hf.lock("a"):
    print("ready", flush=True)
    time.sleep(60)
"""

BARE = """
hf = Handfast(url, release_on_sigterm=True)
lease = hf.lock("a").acquire()
print("ready", flush=True)
time.sleep(60)
"""

TASK = """
async def main():
    async with AsyncHandfast(url, release_on_sigterm=True) as hf, hf.lock("a"):
        bare = await hf.lock("b").acquire()
        print("ready", flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""

EXITING = (
    """
signal.signal(signal.SIGTERM, lambda *_: (print("mine", flush=True), sys.exit(7)))
"""
    + BARE
)

FLAGGED = """
over = []
signal.signal(signal.SIGTERM, lambda *_: over.append(1))
with Handfast(url, release_on_sigterm=True) as hf, hf.lock("a") as lease:
    print("ready", flush=True)
    while not over:
        time.sleep(0.01)
    lease.check()
    print("mine", flush=True)
"""

FORKED = """
hf = Handfast(url, release_on_sigterm=True)
lease = hf.lock("a").acquire()
reading, writing = os.pipe()
child = os.fork()
if not child:
    os.write(writing, b".")
    time.sleep(60)
os.read(reading, 1)
os.kill(child, signal.SIGTERM)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), hf.lock("a").locked())
lease.release()
"""


@pytest.fixture
def start():
    """Return a function that starts processes, which end with the test."""
    with starting() as start:
        yield start


@pytest.mark.parametrize(
    ("program", "ends"),
    [(BLOCK, (143, "")), (BARE, (143, "")), (TASK, (143, "")), (EXITING, (7, "mine\n")), (FLAGGED, (0, "mine\n"))],
    ids=["block", "bare", "task", "a handler that exits", "a handler that sets a flag"],
)
def test_sigterm_releases_what_is_held(start, server, hf, program, ends):
    process = start(sys.executable, "-c", HEAD + program, server.url)
    ready(process)
    assert hf.lock("a").locked()
    process.send_signal(signal.SIGTERM)
    assert done(process)[:2] == ends
    assert not hf.lock("a").locked()
    assert not hf.lock("b").locked()


def test_a_forked_child_ends_as_before(start, server, raw):
    code, out, _ = done(start(sys.executable, "-c", HEAD + FORKED, server.url))
    assert (code, out) == (0, f"{-signal.SIGTERM} True\n")


@pytest.mark.parametrize("kind", [Handfast, AsyncHandfast])
def test_a_client_of_another_thread_is_refused(kind):
    refused = []

    def make():
        with pytest.raises(ValueError, match=r"needs the main thread, .* make the client there"):
            kind("redis://127.0.0.1:1", release_on_sigterm=True)
        refused.append(kind)

    thread = threading.Thread(target=make)
    thread.start()
    thread.join(10)
    assert refused == [kind]
