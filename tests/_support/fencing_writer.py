"""A process of its own that takes a lock and writes with its fence when a test tells it to. Built as `tests._support.actor` is."""

from __future__ import annotations

import contextlib
import json
import signal
import sqlite3
import subprocess
import sys
import threading
from queue import Queue

import redis

from tests._support.actor import Actor


class Writer(Actor):
    """One such process. It can be paused, and told in the meantime what to do when it goes on."""

    def __init__(self, url):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests._support.fencing_writer", url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answers = Queue()
        threading.Thread(target=self._read, daemon=True).start()
        assert self.answer() == "ready"

    def pause(self):
        self.send_signal(signal.SIGSTOP)

    def resume(self):
        self.send_signal(signal.SIGCONT)


def paused(writers, order, renew, **options):
    """The first takes the lock and is paused; the second takes it over and writes; the first goes on and writes.

    What both were answered, and their fences.
    """
    first, second = writers
    old = first.ask("acquire", ttl=0.2, renew=renew)
    first.pause()
    first.tell(order, body="first", **options)
    new = second.ask("acquire", ttl=30)
    seconds = second.ask(order, body="second", **options)
    first.resume()
    return first.answer(), seconds, old, new


def play(url):
    """What the process does: it takes the lock first, and writes whatever it is told to, with the fence that it got."""
    from handfast import Handfast
    from handfast.fencing import StaleFence, set_if_newer, update_if_newer

    lease = None
    with Handfast(url) as hf, redis.Redis.from_url(url) as conn:
        print(json.dumps("ready"), flush=True)
        for line in sys.stdin:
            order, options = json.loads(line)
            try:
                if order == "acquire":
                    lease = hf.lock("report", **options).acquire(timeout=30)
                    answer = lease.fence
                elif order == "set":
                    set_if_newer(conn, "report", options["body"], lease.fence)
                    answer = "written"
                elif order == "set unguarded":
                    conn.set("report", options["body"])
                    answer = "written"
                elif order == "update":
                    with contextlib.closing(sqlite3.connect(options["path"])) as db, db:
                        update_if_newer(db, "reports", {"body": options["body"]}, lease.fence, where={"id": 7})
                    answer = "written"
                elif order == "update unguarded":
                    with contextlib.closing(sqlite3.connect(options["path"])) as db, db:
                        db.execute("UPDATE reports SET body = ? WHERE id = 7", (options["body"],))
                    answer = "written"
            except StaleFence as stale:
                answer = ["stale", stale.fence, stale.newer]
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    play(sys.argv[1])
