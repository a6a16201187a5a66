"""Processes of several versions: the source of an earlier commit, and a process that runs a version."""

from __future__ import annotations

import ast
import io
import shutil
import subprocess
import sys
import tarfile
import threading
from concurrent.futures import Future
from itertools import count
from pathlib import Path

from tests._support.helpers import BOUND_S

ROOT = Path(__file__).parents[2]


def source_of(commit, folder):
    """Write the source of a commit to a folder and return ``src``; None in a clone without history."""
    if shutil.which("git") is None:
        return None
    archive = _git("archive", commit, "src")
    if archive.returncode:
        whole = _git("rev-parse", "--is-shallow-repository").stdout == b"false\n"
        assert not whole, f"{archive.stderr.decode()} in a clone with all history"
        return None
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    return str(folder / "src")


def _git(*words):
    return subprocess.run(["git", "-C", ROOT, *words], capture_output=True, timeout=60, check=False)


class Peer:
    """A process that runs a version; see ``peer.py``."""

    def __init__(self, url, api, source):
        command = [sys.executable, "-I", ROOT / "tests/_support/peer.py", url, api, source]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._asked, self._numbers = {}, count()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def start(self, expression):
        """Start an expression; return the future of the result."""
        number, self._asked[str(number)] = (number := next(self._numbers)), Future()
        self._process.stdin.write(f"{number} {expression}\n")
        self._process.stdin.flush()
        return self._asked[str(number)]

    def __call__(self, expression):
        return self.start(expression).result(BOUND_S)

    def close(self):
        self._process.kill()
        self._process.wait(BOUND_S)
        self._reader.join(BOUND_S)
        self._process.stdin.close()
        self._process.stdout.close()

    def _read(self):
        for line in self._process.stdout:
            number, said = line.rstrip("\n").split(" ", 1)
            if said.startswith("!"):
                self._asked[number].set_exception(RuntimeError(said[1:]))
            else:
                self._asked[number].set_result(ast.literal_eval(said))
