"""``handfast top`` in a terminal: keys, a resize, a server that hangs and goes away, and the screen afterwards."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios
import threading

import pyte
import pytest

from handfast import Handfast
from handfast.testing import ServerController
from tests._support.helpers import eventually
from tests._support.running import HANDFAST


class Window:
    """A terminal, and a program in it."""

    def __init__(self, *command, columns=80, lines=24):
        self.screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self.screen)
        self.written = b""
        self._master, slave = pty.openpty()
        self.resize(columns, lines)
        self._before = termios.tcgetattr(slave)
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True, close_fds=True
        )
        self._slave = slave
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        with contextlib.suppress(OSError):
            while data := os.read(self._master, 65536):
                self.written += data
                self._stream.feed(data)

    def resize(self, columns, lines):
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        if hasattr(self, "process"):
            self.screen.resize(lines, columns)
            self.process.send_signal(signal.SIGWINCH)

    def type(self, text):
        os.write(self._master, text.encode())

    def shows(self, *texts):
        eventually(lambda: all(text in "\n".join(self.screen.display) for text in texts))

    def end(self):
        """Wait for the program, and return its exit code. The terminal has to be as it was."""
        code = self.process.wait(20)
        now = termios.tcgetattr(self._slave)
        assert now[:6] == self._before[:6]
        os.close(self._slave)
        self._reader.join()
        os.close(self._master)
        assert self.written.rstrip().endswith(b"\x1b[0m\x1b[?25h\x1b[?1049l"), self.written[-200:]
        return code


@pytest.fixture
def server():
    with ServerController() as server:
        yield server


@pytest.fixture
def window(server):
    window = Window(*HANDFAST[:-1], "top", "--url", server.url)
    try:
        yield window
    finally:
        window.process.kill()


def test_keys_a_resize_and_the_screen_afterwards(server, window):
    with Handfast(server.url, label="web-1:1") as client, client.lock("order:1"):
        window.shows("order:1", "web-1:1", "1 held")
        window.resize(120, 16)
        window.shows("KIND", "a look")
        assert len(window.screen.display) == 16
        window.type("j")
        window.shows("▌order:1")
        window.type("\r")
        window.shows("lock order:1", "no one waits")
        window.type("h")
        window.shows("Hold, for how long")
        window.type("10m a test\r")
        window.shows("on hold for 9m")
        window.type("\x1b")
        window.shows("NAME")
        assert client.lock("order:1").status().hold.reason == "a test"
        before = len(window.written)
        window.type("q")
        assert window.end() == 0
        assert window.written[before:].count(b"\x1b[2J") == 0, "nothing flickers"


def test_a_server_that_hangs_and_goes_away_is_noticed_and_keys_go_on(server, window):
    with Handfast(server.url, label="web-1:1") as client:
        lease = client.lock("order:1").acquire()
        window.shows("order:1")
        server.pause()
        window.shows("no answer", "What you see is old", "order:1")
        window.type("j")
        window.shows("▌order:1")
        window.type("r")
        window.shows("the server does not answer")
        server.resume()
        window.shows("live")
        lease.release()
        server.kill()
        window.shows("no answer")
        server.restart()
        window.shows("live")
        window.process.send_signal(signal.SIGTERM)
        assert window.end() == 143


def test_ls_lists_again_and_again_through_an_outage(server):
    window = Window(*HANDFAST[:-1], "ls", "--watch", "0.2", "--url", server.url)
    try:
        with Handfast(server.url, label="web-1:1") as client:
            lease = client.lock("order:1").acquire()
            window.shows("order:1", "web-1:1")
            lease.release()
            eventually(lambda: "order:1" not in "\n".join(window.screen.display))
            server.kill()
            window.shows("handfast: ")
            server.restart()
            with client.lock("order:2"):
                window.shows("order:2")
        window.process.send_signal(signal.SIGINT)
        assert window.process.wait(20) == 0
    finally:
        window.process.kill()


def test_without_a_server_it_goes_on_and_says_so_at_its_end():
    window = Window(*HANDFAST[:-1], "top", "--url", "redis://127.0.0.1:1/0")
    window.shows("no server", "No answer for")
    window.process.send_signal(signal.SIGINT)
    code = window.process.wait(20)
    assert code == 69
    window._reader.join(0.5)
