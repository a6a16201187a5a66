"""A process of its own that does with locks what a test tells it to, line by line.

As a module it is the handle that tests use; run as a program it is the process itself.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from queue import Queue


class Actor:
    """One process. Orders are done in turn; each is answered by one line."""

    def __init__(self, url):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests._support.actor", url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answers = Queue()
        threading.Thread(target=self._read, daemon=True).start()
        assert self.answer() == "ready"

    @property
    def pid(self):
        return self._process.pid

    def tell(self, order, **options):
        """Give an order without waiting for its end."""
        self._process.stdin.write(json.dumps([order, options]) + "\n")
        self._process.stdin.flush()

    def answer(self, within=15):
        """The next answer."""
        return self._answers.get(timeout=within)

    def ask(self, order, **options):
        self.tell(order, **options)
        return self.answer()

    def send_signal(self, number):
        os.kill(self.pid, number)

    def kill(self):
        """SIGKILL, and wait until it is gone."""
        self._process.kill()
        self._process.wait()

    def close(self):
        self.kill()
        self._process.stdin.close()
        self._process.stdout.close()

    def _read(self):
        with self._process.stdout as lines:
            for line in lines:
                self._answers.put(json.loads(line))


def play(url):
    """What the process does."""
    from handfast import Handfast, HandfastError

    signal.signal(signal.SIGINT, signal.default_int_handler)
    leases = {}
    with Handfast(url) as hf:
        print(json.dumps("ready"), flush=True)
        for line in sys.stdin:
            order, options = json.loads(line)
            name = options.pop("name", "a")
            timeout = options.pop("timeout", 30)  # no test waits for ever
            try:
                if order == "acquire":
                    leases[name] = hf.lock(name, **options).acquire(timeout=timeout)
                    answer = leases[name].fence
                elif order == "release":
                    answer = leases.pop(name).release()
                elif order == "lost":
                    answer = leases[name].lost
                else:
                    answer = "what?"
            except HandfastError as error:
                answer = type(error).__name__
            except KeyboardInterrupt:
                answer = "interrupted"
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    play(sys.argv[1])
