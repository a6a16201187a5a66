"""``handfast acquire`` as a shell runs it: what happens to the name if the token reaches no one."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests._support.helpers import eventually

COMMAND = f"{sys.executable} -m handfast acquire a --ttl 10m"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("> /dev/full", "could not be written, so 'a' is released: No space left on device"),
        (">&-", "standard output is closed"),
        ("| (exec <&-; cat /dev/null)", ""),
    ],
    ids=["full", "closed", "without a reader"],
)
def test_a_token_that_is_not_written_leaves_nothing_held(server, hf, raw, words, said):
    script = f"set -o pipefail; {COMMAND} --url {server.url} {words}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout) == (74, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not hf.lock("a").status().holders


def test_a_signal_ends_the_wait(server, hf, raw):
    with hf.lock("a"):
        waiting = subprocess.Popen(f"exec {COMMAND} --url {server.url}", shell=True, stdout=subprocess.PIPE, text=True)
        eventually(lambda: hf.lock("a").status().waiting)
        waiting.send_signal(signal.SIGTERM)
        assert waiting.communicate(timeout=30)[0] == ""
        assert waiting.returncode == 128 + signal.SIGTERM
        assert not hf.lock("a").status().waiting


def test_the_script_of_the_page_runs(server, hf, raw, tmp_path):
    page = (Path(__file__).parents[3] / "docs/how-to/pipelines.md").read_text()
    [script] = re.findall(r"```bash\n(.*?)```", page, re.DOTALL)
    for step in ("migrate", "roll-out"):
        (tmp_path / step).write_text("#!/bin/sh\nhandfast ls\n")
        (tmp_path / step).chmod(0o700)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/handfast").write_text(f'#!/bin/sh\nexec {sys.executable} -m handfast "$@"\n')
    (tmp_path / "bin/handfast").chmod(0o700)
    environment = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "HANDFAST_URL": server.url}
    done = subprocess.run(
        ["bash", "-ec", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("build 42") == 2
    assert not hf.lock("deploy").status().holders
