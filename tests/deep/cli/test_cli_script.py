"""``handfast script`` as a command: files in, findings or a reply out, and an exit code.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

import os
import pty
import subprocess
import sys

from tests.gate.cli import test_cli_script as gate
from tests.gate.cli.test_cli_script import WRONG

files = gate.files


def test_check_prints_escape_sequences_on_a_terminal_only(files):
    files(get=WRONG)
    words = [sys.executable, "-m", "handfast", "script", "check", "get.lua"]
    outer, inner = pty.openpty()
    try:
        process = subprocess.run(words, stdout=inner, stderr=subprocess.PIPE, text=True, check=False, timeout=30)
        shown = os.read(outer, 10_000).decode()
    finally:
        os.close(inner)
        os.close(outer)
    assert process.returncode == 1
    assert "\x1b[31m" in shown
    assert "error" in shown
    piped = subprocess.run(words, capture_output=True, text=True, check=False, timeout=30)
    assert piped.returncode == 1
    assert "\x1b" not in piped.stdout
