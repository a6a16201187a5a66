"""A process of its own that does with the relatives of the lock what a test tells it to; `actor.py` is for the lock.

Its clocks may be off: ``ahead`` seconds are added to what it believes the time is, before anything of ours is imported.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from queue import Queue

from tests._support.actor import Actor


class FamilyActor(Actor):
    """One process, with clocks that are ``ahead`` by so many seconds."""

    def __init__(self, url, ahead=0):
        command = [sys.executable, "-m", "tests._support.family_actor", url, str(ahead)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._answers = Queue()
        threading.Thread(target=self._read, daemon=True).start()


class Crew:
    """Makes such processes, side by side, and ends them."""

    def __init__(self, url):
        self._url = url
        self._made = []

    def __call__(self, *ahead):
        """One process for each number of seconds."""
        new = [FamilyActor(self._url, seconds) for seconds in ahead]
        self._made.extend(new)
        assert [actor.answer() for actor in new] == ["ready"] * len(new)
        return new

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for actor in self._made:
            actor.close()


def shift(ahead):
    """Set this process's clocks forward, or back."""

    def shifted(read, by):
        return lambda: read() + by

    for name, unit in (("time", 1), ("monotonic", 1), ("time_ns", 10**9), ("monotonic_ns", 10**9)):
        setattr(time, name, shifted(getattr(time, name), ahead * unit))


def play(url, ahead):
    """What the process does."""
    shift(ahead)
    from handfast import Handfast, HandfastError

    def thing(kind, limit, ttl):
        if kind == "semaphore":
            return hf.semaphore("a", limit, ttl=ttl)
        return getattr(hf.rwlock("a", ttl=ttl), kind)()

    leases = {}
    with Handfast(url) as hf:
        print(json.dumps("ready"), flush=True)
        for line in sys.stdin:
            order, options = json.loads(line)
            key = options.pop("key", "lease")
            try:
                if order == "acquire":
                    wanted = thing(options.pop("kind"), options.pop("limit", 1), options.pop("ttl", 30))
                    leases[key] = wanted.acquire(timeout=30, **options)  # no test waits for ever
                    answer = leases[key].fence
                elif order == "release":
                    answer = leases.pop(key).release()
                elif order == "remaining":
                    answer = leases[key].remaining()
                elif order == "time":
                    answer = time.time()
                else:
                    answer = "what?"
            except HandfastError as error:
                answer = type(error).__name__
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    play(sys.argv[1], int(sys.argv[2]))
