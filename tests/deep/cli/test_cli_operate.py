"""``handfast ls``, ``show`` and ``release``: what is listed, how it looks, and which leases are taken.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

import os
import pty
import struct
import sys
import termios
from fcntl import ioctl

import pytest

from tests._support.running import BOUND
from tests.gate.cli import test_cli_operate as gate

start = gate.start
labelled = gate.labelled


# --- how it looks


def test_on_a_terminal_of_80_columns_no_line_is_wrapped(start, server, hf):
    with hf.lock("order:" + "x" * 200), hf.lock("a"):
        shown, code = terminal(start, "ls", "--url", server.url)
        assert code == 0
        assert max(map(len, shown.splitlines())) <= 80
        assert "2 of 2 names known, 0 waiting" in shown
        assert "order:xxx" in shown


def terminal(start, *words, answer=None, when=lambda: None):
    """Run a command on a terminal of 80 columns; answer its question. Return what it wrote, and its exit code."""
    mine, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
    process = start(sys.executable, "-m", "handfast", *words, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    written = b""
    while True:
        try:
            data = os.read(mine, 4096)
        except OSError:  # the terminal was closed
            break
        if not data:
            break
        written += data
        if answer and written.endswith(b"[y/N]: "):
            when()
            os.write(mine, answer)
            answer = None
    os.close(mine)
    return written.decode(), process.wait(BOUND)


# --- release


@pytest.mark.parametrize(("answer", "code"), [(b"y\n", 0), (b"n\n", 1), (b"\n", 1)])
def test_release_shows_the_holder_and_asks_on_a_terminal(start, server, labelled, answer, code):
    lease = labelled.lock("a").acquire()
    shown, done = terminal(start, "release", "a", "--reason", "stuck", "--url", server.url, answer=answer)
    assert "web-3:4711;task=bill" in shown.partition("[y/N]")[0]
    assert "Take 1 lease away? [y/N]" in shown
    assert done == code
    assert lease.release() is (code == 1)


@pytest.mark.parametrize("reached", [1, 0])
def test_release_up_to_a_fence_asks_only_for_what_it_would_take(start, server, hf, reached):
    leases = [hf.semaphore("a", 2).acquire() for _ in range(2)]
    words = ["release", "a", "--reason", "stuck", "--url", server.url]
    shown, code = terminal(start, *words, "--if-fence", str(leases[0].fence - 1 + reached), answer=b"y\n")
    assert ("Take 1 lease away? [y/N]" in shown) is (reached == 1)
    assert ("nothing was taken" in shown) is (reached == 0)
    assert code == 1 - reached
    assert [lease.release() for lease in leases] == [reached == 0, True]


def test_release_does_not_take_a_lease_that_was_granted_after_it_asked(start, server, labelled, hf):
    leases = [labelled.lock("a").acquire()]

    def change_hands():
        leases[0].release()
        leases.append(hf.lock("a").acquire())

    words = ["release", "a", "--reason", "stuck", "--url", server.url]
    shown, code = terminal(start, *words, answer=b"y\n", when=change_hands)
    assert code == 1
    assert "nothing was taken" in shown
    assert leases[1].release() is True
