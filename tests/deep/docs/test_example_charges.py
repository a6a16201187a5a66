"""The example of charges, run as its reader runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_each_order_is_charged_once_within_the_limits_of_the_bank(raw, server):
    command = [sys.executable, "-m", "examples.charges", "--url", server.url]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done
    assert done.stdout.splitlines()[-1] == "and the same receipts in all processes: yes"
