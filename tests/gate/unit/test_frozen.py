"""Programs that are frozen, or that have Python in them: what PyInstaller collects, and no copy of the program is started."""

from __future__ import annotations

import runpy
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from types import SimpleNamespace

import pytest

from handfast import NoServer, embedded


def test_pyinstaller_collects_the_scripts_and_the_modules_that_are_imported_by_name(monkeypatch):
    (found,) = [one for one in entry_points(group="pyinstaller40") if one.module == "handfast._pyinstaller"]
    (folder,) = found.load()()
    asked = []

    def collected(package, **options):
        asked.append(package)
        return [options["filter"]("handfast.lock"), options["filter"]("handfast.cli.run")] if options else ["a file"]

    hooks = SimpleNamespace(collect_data_files=collected, collect_submodules=collected)
    for name in ("PyInstaller", "PyInstaller.utils", "PyInstaller.utils.hooks"):
        monkeypatch.setitem(sys.modules, name, hooks)
    told = runpy.run_path(str(Path(folder, "hook-handfast.py")))
    assert (told["datas"], told["hiddenimports"], asked) == (["a file"], [True, False], ["handfast"] * 2)


@pytest.fixture
def started(monkeypatch):
    """The processes that were started, of which none is."""
    calls = []
    monkeypatch.setattr(subprocess, "run", lambda *args, **_: calls.append(args))
    monkeypatch.setattr(embedded.supervisor, "answers", lambda *_: False)
    return calls


def test_a_frozen_program_is_not_started_by_its_embedded_server(started, monkeypatch):
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    with pytest.raises(NoServer, match="this program is frozen, so nothing can watch over the shared embedded server"):
        embedded.shared_url()
    assert not started


def test_a_program_with_python_in_it_has_the_python_beside_it_start(monkeypatch, tmp_path):
    program = tmp_path / "uwsgi"
    program.touch()
    monkeypatch.setattr(sys, "executable", str(program))
    assert Path(embedded._interpreter()).name.startswith("python")


def test_a_program_with_no_python_beside_it_is_not_started(started, monkeypatch, tmp_path):
    program = tmp_path / "uwsgi"
    program.touch()
    for name in ("executable", "_base_executable"):
        monkeypatch.setattr(sys, name, str(program))
    monkeypatch.setattr(sys, "exec_prefix", str(tmp_path))
    with pytest.raises(NoServer, match=r"this program runs in .*uwsgi', which is no Python"):
        embedded.shared_url()
    assert not started
