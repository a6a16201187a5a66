"""A proxy between client and server that loses, delays and cuts what it is told to."""

from __future__ import annotations

import contextlib
import shutil
import socket
import tempfile
import threading


class Proxy:
    """Listens on a unix socket of its own and forwards to the server's.

    ``rules`` are asked for every piece that a client sends: a rule gets the piece and answers None (not mine),
    ``"lose reply"`` (the server executes it, the client is cut off), or ``"lose request"`` (cut off before that).
    """

    def __init__(self, target):
        self._target = target
        self._folder = tempfile.mkdtemp(prefix="hf-proxy-")
        self.path = f"{self._folder}/s"
        self.rules = []
        self.deaf = threading.Event()
        self.dribbling = threading.Event()
        """While set, replies arrive byte by byte."""
        self.seen = []
        self._pairs = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen(128)
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self):
        return f"unix://{self.path}"

    @property
    def connections(self):
        """How many were made so far."""
        return len(self._pairs)

    def lose(self, needle, what="lose reply", *, times=1):
        """Lose the reply (or the request) of the next pieces that contain these bytes."""
        left = [times]

        def rule(piece):
            if left[0] and needle in piece:
                left[0] -= 1
                return what
            return None

        self.rules.append(rule)
        return lambda: left[0] == 0

    def cut(self):
        """Cut every connection now."""
        for pair in self._pairs:
            cut_off(*pair)

    def close(self):
        # A thread sits in accept: shutting down wakes it, closing alone would not.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        shutil.rmtree(self._folder)

    def _accept(self):
        while True:
            try:
                client = self._listener.accept()[0]
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._target)
            self._pairs.append((client, server))
            muted = threading.Event()
            threading.Thread(target=self._forward, args=(client, server, muted), daemon=True).start()
            threading.Thread(target=self._backward, args=(server, client, muted), daemon=True).start()

    def _forward(self, client, server, muted):
        with client, server, ended(client, server), contextlib.suppress(OSError):
            while piece := client.recv(65536):
                self.seen.append(piece)
                verdict = next(filter(None, (rule(piece) for rule in self.rules)), None)
                if verdict == "lose request":
                    return
                if verdict == "lose reply":
                    muted.set()
                if self.deaf.is_set():
                    continue
                server.sendall(piece)

    def _backward(self, server, client, muted):
        with contextlib.suppress(OSError):
            while piece := server.recv(65536):
                if muted.is_set():
                    break
                step = 1 if self.dribbling.is_set() else len(piece)
                for start in range(0, len(piece), step):
                    client.sendall(piece[start : start + step])
        cut_off(client, server)


@contextlib.contextmanager
def ended(*ends):
    """Closing a socket while another thread receives from it would leave the connection open: it is cut off before."""
    try:
        yield
    finally:
        cut_off(*ends)


def cut_off(*ends):
    for end in ends:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
