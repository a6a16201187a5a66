"""Processes that are copied or emptied behind Python's back: forks by C code, as uWSGI's, and daemons that close all files.

Each test is a program of its own. Those in which a client has a thread are in the deep suite: a thread that waits for
the interpreter at the moment of such a fork makes the child hang, whatever we do.
"""

from __future__ import annotations

import os
import select
import sys

import pytest

from handfast._drivers.sync.waker import Waker
from tests._support.running import done, starting

SETUP = """
import asyncio, ctypes, os, sys, warnings
from handfast import AsyncHandfast, Handfast
warnings.simplefilter("ignore")
url = sys.argv[1]

def forked(action):
    "Fork without Python's hooks; return what the child says."
    reader, writer = os.pipe()
    if ctypes.PyDLL(None).fork() == 0:
        try:
            said = action()
        except BaseException as error:
            said = repr(error)
        os.write(writer, str(said).encode())
        os.close(writer)
        sys.exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    os.wait()
    return said
"""


@pytest.fixture
def program(server, raw):
    """Return a function that runs a program and returns what it prints, line by line."""
    with starting() as start:

        def run(text):
            code, out, err = done(start(sys.executable, "-c", SETUP + text, server.url))
            assert code == 0, err
            return out.splitlines()

        yield run


def test_an_asyncio_client_starts_anew_too(program):
    said = program("""
hf = AsyncHandfast(url)

async def use(name):
    async with hf.lock(name) as lease:
        return lease.lost

print(asyncio.run(use("a")))
print(forked(lambda: asyncio.run(use("b"))))
print(asyncio.run(use("a")))
""")
    assert said == ["False"] * 3


@pytest.mark.parametrize("forks", [True, False])
def test_a_client_that_was_only_made_has_no_files_that_a_daemon_could_close(program, forks):
    """Their numbers belong to other files soon."""
    said = program(f"""
hf = Handfast(url)
if {forks} and os.fork():
    os.wait()
    sys.exit()
os.closerange(3, 256)
files = [os.open(f"/tmp/handfast-{{os.getpid()}}-{{n}}", os.O_CREAT | os.O_RDWR | os.O_APPEND) for n in range(3)]
with hf.lock("a", ttl=60), hf.lock("b", ttl=0.6), hf.lock("c", ttl=60):
    pass
hf.close()
for n, fd in enumerate(files):
    print(os.fstat(fd).st_size)
    os.unlink(f"/tmp/handfast-{{os.getpid()}}-{{n}}")
""")
    assert said == ["0"] * 3


# --- the pipe that wakes a thread


@pytest.fixture
def lost():
    """A waker whose pipe was closed, and the files that have got its numbers."""
    waker = Waker()
    waker.open()
    reading, writing = waker._mine()
    os.close(reading)
    os.close(writing)
    files = os.pipe()
    assert set(files) == {reading, writing}
    yield waker, files
    for fd in files:
        os.close(fd)


def test_a_number_that_is_another_files_is_neither_written_to_nor_read(lost):
    waker, (reading, writing) = lost
    waker.wake()
    assert select.select([reading], [], [], 0)[0] == []
    os.write(writing, b"theirs")
    waker.clear([reading])
    assert os.read(reading, 10) == b"theirs"


def test_a_number_that_is_another_files_is_not_closed(lost):
    waker, (reading, _) = lost
    waker.close()
    os.fstat(reading)


def test_a_waker_whose_pipe_is_gone_makes_another_one(lost):
    waker, files = lost
    poll = select.poll()
    assert waker.end(poll, 60) == 60
    waker.wake()
    ((fd, _),) = poll.poll(0)
    assert fd not in files
    waker.clear([fd])
    assert poll.poll(0) == []
    waker.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_a_waker_without_a_pipe_has_the_thread_look_often(monkeypatch):
    def refuse():
        raise OSError("too many files")

    monkeypatch.setattr(os, "pipe", refuse)
    waker, poll = Waker(), select.poll()
    assert waker.end(poll, 60) < 1
    waker.wake()
    assert poll.poll(0) == []
