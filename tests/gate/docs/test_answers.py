"""The crontab of an answer runs as cron runs it: by sh, with the variables of the crontab and few others."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

CRON = Path(__file__).parents[3] / "docs" / "answers" / "cron-on-several-servers.md"
JOB = """#!/bin/sh
echo ran >> ran
test ! -e broken
"""


@pytest.fixture
def cron(server, raw, tmp_path):
    """Return a function that starts a line of the page, whose verb it gets, on so many servers at once.

    It returns the exit code, the output and the errors of each.
    """
    for name, text in {"handfast": f'#!/bin/sh\nexec {sys.executable} -m handfast "$@"\n', "nightly.sh": JOB}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)

    def start(verb, count=1, url=server.url):
        text = "".join(re.findall(r"^```text\n(.*?)^```$", CRON.read_text(), re.MULTILINE | re.DOTALL))
        settings = dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))
        (command,) = re.findall(rf"^0 3 \* \* \*  (handfast {verb} .*)$", text, re.MULTILINE)
        assert settings["HANDFAST_URL"].startswith("redis://")
        path = os.pathsep.join([str(tmp_path), settings["PATH"]])
        environment = {"HOME": str(tmp_path), "PATH": path, "HANDFAST_URL": url}
        options = {"cwd": tmp_path, "env": environment, "text": True, "stdout": subprocess.PIPE}
        jobs = [subprocess.Popen(["/bin/sh", "-c", command], **options, stderr=subprocess.PIPE) for _ in range(count)]
        outputs = [job.communicate(timeout=60) for job in jobs]
        return [(job.returncode, *output) for job, output in zip(jobs, outputs, strict=True)]

    return start


def ran(folder):
    return len((folder / "ran").read_text().split())


def test_a_job_that_is_taken_runs_on_the_first_server_alone(cron, tmp_path):
    (tmp_path / "broken").touch()
    assert sorted(cron("run", 3)) == [(0, "", ""), (0, "", ""), (1, "", "")]
    assert cron("run") == [(0, "", "")], "its clock is late"
    assert ran(tmp_path) == 1, "nor does another server run a job that has failed"


def test_a_job_that_is_done_once_runs_on_the_next_server_if_it_fails(cron, tmp_path):
    (tmp_path / "broken").touch()
    assert [code for code, *_ in cron("once", 2)] == [1, 1]
    (tmp_path / "broken").unlink()
    assert cron("once", 3) == [(0, "", "")] * 3
    assert ran(tmp_path) == 3, "the two that failed, and one"


@pytest.mark.parametrize("verb", ["run", "once"])
def test_a_job_does_not_run_without_a_server(cron, tmp_path, verb):
    ((code, output, error),) = cron(verb, url=f"unix://{tmp_path}/nowhere")
    assert (code, output) == (69, "")
    assert "nowhere" in error
    assert not (tmp_path / "ran").exists()
