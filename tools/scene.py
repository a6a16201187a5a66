"""A scene for pictures: a real server on which many clients work, and on which some things are wrong.

The frames of ``handfast top`` and the screenshots of the page in the documentation are drawn of it, and the deep tests of the
page look at it in a browser.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from handfast import Handfast, LeaseLost

__all__ = ["ESCAPES", "LONG", "MARKUP", "Scene"]

DEAD = """
import sys, threading
from handfast import Handfast
client = Handfast(sys.argv[1], label="web-7:90")
run = client.once("payout", rerun=False, ttl=3).keyed("2026-11-27").acquire()
for _ in range(2):
    threading.Thread(target=client.lock("catalog").acquire).start()
"""
"""Two waiters, and a run that is not to be repeated, in a process that is killed."""

MARKUP = "<script>alert('name')</script>"

ESCAPES = "evil\x1b[31mred\x07 \u202egnp.exe"

LONG = "tenant/4f1c9a/import/customers-of-the-north-and-of-the-south/2026-11-27/part-000017-of-000256"


class Scene:
    """What goes on on a server. All of it ends with this process, but for what `end` ends."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._kept: list[Any] = []
        self._dead: subprocess.Popen[bytes] | None = None

    def client(self, label: str) -> Handfast:
        """Return a client with this label."""
        return Handfast(self.url, label=label)

    def begin(self) -> None:
        """Let clients hold and work, and let some wait."""
        batch = self.client("batch-2:311")
        self._keep(batch.lock("nightly-export").acquire(), self.client("index-1:7").lock("catalog").acquire())
        self._keep(*(self.client(f"gpu-{number}:12").semaphore("gpu", 4).acquire() for number in range(4)))
        self._keep(*(self.client(f"api-{number}:5").rwlock("config").read().acquire() for number in range(2)))
        for number in range(3):
            start(partial(self._work, f"web-{number}:36", "order:42"))
        self.client("ops@bastion").hold("deploy", 2 * 3600, reason="DB migration")
        mail = self.client("mail-1:9").limiter("mail", "100/min")
        mail.acquire(cost=96)
        for _ in range(6):
            start(mail.acquire)
        self.client("mail-1:9").limiter("vendor", "5/s").pause(600)
        self._dead = subprocess.Popen([sys.executable, "-c", DEAD, self.url])

    def begin_more(self) -> None:
        """Let clients elect, share and record, have odd names, and let an operator act."""
        operator, odd = self.client("ops@bastion"), self.client("<img src=x onerror=alert('label')>")
        for name in (MARKUP, ESCAPES, LONG, "注文:東京🦊"):
            self._keep(odd.lock(name).acquire())
        start(self.client('"><b>bold</b>&amp;').lock(MARKUP).acquire)
        for number in range(2):
            candidate = self.client(f"api-{number}:5").election("scheduler", value=f"http://10.0.0.{number}:8000")
            start(partial(self._hold, candidate))
        self._keep(self.client("worker-1:8").group("workers").join(value="zone=a"))
        self.client("mail-1:9").limiter("geocode", "60/min; 1000/h").acquire(cost=21)
        self._record()
        with contextlib.suppress(LeaseLost), self.client("batch-2:311").lock("report"):
            self.client("ops@bastion").lock("report").force_release(reason="hung after the deploy, INC-4302")
            operator.note("release", "report", kind="lock", reason="hung after the deploy, INC-4302", count=1)
        operator.note("hold", "deploy", kind="lock", reason="DB migration")

    def crowd(self, count: int) -> None:
        """Let clients hold so many names that no one waits for."""
        words = ["visit", "cart", "sync/customer", "thumb", "invoice-pdf", "webhook", "lease/device", "report"]
        clients = [self.client(f"app-{number}:{4000 + number}") for number in range(4)]
        for number in range(count):
            name = f"{words[number % len(words)]}:{number:05}"
            self._keep(clients[number % len(clients)].lock(name, ttl=1200).acquire())

    def wait_for_export(self, number: int) -> None:
        """Let one more client wait for the name that is held long."""
        start(self.client(f"web-{number}:36").lock("nightly-export").acquire)

    def play(self, seconds: float, step: Callable[[], object] = lambda: None) -> None:
        """Let time pass, in which queues grow and waiters die. Calls a function once a second."""
        began = time.monotonic()
        for number in range(int(seconds)):
            if number % 6 == 0 and number // 6 < 12:
                self.wait_for_export(number // 6)
            if number % 20 == 3:
                start(self.client("gpu-9:12").semaphore("gpu", 4).acquire)
            if number == 30:
                self.end()
            if number == 40:
                start(self.client("writer-1:4").rwlock("config").write().acquire)
            step()
            time.sleep(max(0.0, began + number + 1 - time.monotonic()))

    def end(self) -> None:
        """Kill the process that waits."""
        if self._dead is not None:
            self._dead.kill()
            self._dead.wait()

    def _record(self) -> None:
        invoices = self.client("bill-1:21").once("invoice", keep=86400, keep_failure=3600)
        for number in range(46):
            invoices.keyed(str(10300 + number)).run(lambda: "ok")
        for number, text in ((10347, "no address for customer 88"), (10352, "<b>markup</b> \x1b[31min a reason")):
            with contextlib.suppress(ValueError):
                invoices.keyed(str(number)).run(partial(_fail, text))
        start(partial(self._hold, self.client("bill-2:22").once("invoice").keyed("10360")))

    def _keep(self, *leases: object) -> None:
        """Keep leases: one that is dropped is not renewed."""
        self._kept += leases

    def _hold(self, one: Any) -> None:
        with one:
            threading.Event().wait()

    def _work(self, label: str, name: str) -> None:
        client = self.client(label)
        while True:
            with client.lock(name):
                time.sleep(0.2)


def start(work: Callable[[], object]) -> None:
    """Do something in a thread that does not keep the process from ending."""
    threading.Thread(target=work, daemon=True).start()


def _fail(text: str) -> None:
    raise ValueError(text)
