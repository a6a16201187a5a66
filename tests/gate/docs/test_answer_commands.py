"""The shell lines of the answers run as they stand there. Programs that are not installed are small scripts here."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ANSWERS = Path(__file__).parents[3] / "docs" / "answers"
WORK = """#!/bin/sh
echo "$@" >> done
test ! -e broken
"""
"""Stands for alembic and for the job of a crontab."""


def lines_of(page):
    """Return the only block of shell lines on a page."""
    (lines,) = re.findall(r"^```sh\n(.*?)^```$", (ANSWERS / page).read_text(), re.MULTILINE | re.DOTALL)
    return lines


@pytest.fixture
def run(server, raw, tmp_path):
    """Return a function that runs a script in an empty folder, and returns its exit code and output."""
    programs = {"handfast": f'#!/bin/sh\nexec {sys.executable} -m handfast "$@"\n', "alembic": WORK, "nightly.sh": WORK}
    (tmp_path / "bin").mkdir()
    for name, text in programs.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    path = os.pathsep.join([str(tmp_path / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])

    def run(script, *words, **variables):
        (tmp_path / "script.sh").write_text(script)
        environment = {**os.environ, "PATH": path, "HANDFAST_URL": server.url, **variables}
        done = subprocess.run(
            ["sh", "script.sh", *words],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stdout

    return run


def test_replicas_migrate_once_and_serve_after_a_success_only(run, tmp_path):
    entry = lines_of("migrations-once.md")
    (tmp_path / "broken").touch()
    assert run(entry, "echo", "serves", SHA="abc") == (1, "")
    (tmp_path / "broken").unlink()
    for _ in range(2):
        assert run(entry, "echo", "serves", SHA="abc") == (0, "serves\n")
    assert (tmp_path / "done").read_text() == "upgrade head\n" * 2, "the failed one, and the first that succeeded"
    assert run(entry, "echo", "serves", SHA="")[1] == ""


def test_a_command_gets_the_number_of_a_free_device(run, hf, tmp_path):
    (tmp_path / "train.py").write_text("import os\nprint(os.environ['CUDA_VISIBLE_DEVICES'])\n")
    host = os.uname().nodename
    with hf.semaphore(f"gpus:{host}", limit=4) as first:
        assert first.slot() == 0
        assert run(lines_of("gpu-per-process.md")) == (0, "1\n")


def cron_line(verb):
    """Return the command of a line of the crontab, which cron runs with `sh -c`."""
    table = (ANSWERS / "cron-on-several-servers.md").read_text()
    (command,) = re.findall(rf"^0 3 \* \* \*  (handfast {verb} .*)$", table, re.MULTILINE)
    return command


def test_a_job_of_cron_that_failed_runs_on_no_other_server(run, tmp_path):
    (tmp_path / "broken").touch()
    assert run(cron_line("run"))[0] == 1
    assert run(cron_line("run")) == (0, ""), "a server whose clock is late"
    assert (tmp_path / "done").read_text() == "\n"


def test_a_job_of_cron_that_is_done_once_runs_on_the_next_server_if_it_fails(run, tmp_path):
    (tmp_path / "broken").touch()
    assert run(cron_line("once"))[0] == 1
    (tmp_path / "broken").unlink()
    assert [run(cron_line("once"))[0] for _ in range(2)] == [0, 0]
    assert (tmp_path / "done").read_text() == "\n\n", "the failed one, and one"


def test_a_job_of_cron_does_not_run_without_a_server(run, tmp_path):
    assert run(cron_line("run"), HANDFAST_URL=f"unix://{tmp_path}/nowhere") == (69, "")
    assert not (tmp_path / "done").exists()
