"""Processes that make calls at random through a proxy that loses replies, and are killed."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

from handfast.embedded import PrivateServer
from handfast.testing import FaultProxy, script


class Crowd:
    """So many workers of a module that share so many calls; a killed worker's missing calls go to its successor.

    A worker is `python -m MODULE work URL CALLS SEED`; after calls, it prints a line of JSON that counts them all.
    """

    def __init__(self, module, scripts, calls, workers, kill_every_s):
        self._command = [sys.executable, "-m", module, "work"]
        self._scripts = scripts
        self._left = calls
        self._share = max(1, calls // workers)
        self._workers = workers
        self._kill_every_s = kill_every_s
        self._chance = random.Random(7)
        self._running = {}
        self.counts = Counter()
        self.kills = self.losses = 0
        self.seconds = 0.0

    @contextmanager
    def server(self):
        """Start the server, the proxy of the workers and a folder for their lines; yield the URL of the server."""
        with (
            PrivateServer() as server,
            FaultProxy(f"unix://{server.socket}") as self._proxy,
            tempfile.TemporaryDirectory() as self._folder,
        ):
            try:
                yield f"unix://{server.socket}"
            finally:
                for process in self._running:
                    process.kill()
                    process.wait()

    def run(self, look):
        """Look again and again until all calls are made.

        The next reply is lost only after the last one was: losses that pile up take each reply of the last workers.
        """
        began = killed_at = lost_at = time.monotonic()
        fault = None
        seed = 0
        while self._left > 0 or self._running:
            while self._left > 0 and len(self._running) < self._workers:
                seed += 1
                self._start(min(self._left, self._share), seed)
            look()
            now = time.monotonic()
            if now - lost_at > 0.05 and (fault is None or fault.spent):
                lost_at, self.losses = now, self.losses + 1
                fault = self._proxy.lose_reply(script(self._chance.choice(self._scripts)))
            if now - killed_at > self._kill_every_s:
                killed_at, self.kills = now, self.kills + 1
                self._chance.choice([*self._running]).send_signal(signal.SIGKILL)
            for process in [one for one in self._running if one.poll() is not None]:
                self._count(process)
            time.sleep(0.005)
        look()
        self.seconds = round(time.monotonic() - began, 1)

    def _start(self, share, seed):
        said = Path(self._folder, str(seed))
        with said.open("w") as output:
            process = subprocess.Popen([*self._command, self._proxy.url, str(share), str(seed)], stdout=output)
        self._running[process] = share, said
        self._left -= share

    def _count(self, process):
        assert process.returncode in (0, -signal.SIGKILL), "a worker has failed"
        share, said = self._running.pop(process)
        whole = [line for line in said.read_text().splitlines(keepends=True) if line.endswith("\n")]
        counted = Counter(json.loads(whole[-1]) if whole else {})
        self.counts += counted
        if process.returncode:
            self._left += max(0, share - counted["calls"])
