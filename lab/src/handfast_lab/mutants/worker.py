"""A worker: collects some files of tests once, and forks a child for each mutant.

It is a program with pytest's arguments. For each run it reads a line of JSON from its input and writes one with the
reports. The package and the tests keep sources and digests of scripts from their import: the worker finds them once,
and the child replaces them. Reads of a changed file return the mutant in the child. No file on the disk changes. The
child leads a process group, which is killed with it; the server of its tests ends then.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Container, Iterator
from hashlib import sha1
from pathlib import Path
from types import CellType
from typing import Any, NoReturn, TextIO

import pytest
from hypothesis import Phase, settings
from hypothesis.configuration import set_hypothesis_home_dir

from handfast_lab.mutants.making import scripts

__all__ = ["NEUTRAL", "LoadedScripts", "main"]

NEUTRAL = "\t\n"
"""Appended to every script: it changes the digest, and nothing else that a test may observe."""

COLLECTIONS = (frozenset, list, set, tuple)
"""Types of collections that are searched for sources and digests."""

TEXT_LIMIT = 300
"""Number of characters of a failure that are reported."""


class LoadedScripts:
    """The objects of this process that contain a script: `LuaScript`, and copies of sources and digests elsewhere."""

    def __init__(self, sources: dict[str, str]) -> None:
        from handfast._engine.script import LuaScript

        forms = {form for source in sources.values() for form in _forms(source)}
        gc.unfreeze()  # the fixtures of the tests freeze what was there after the collection, which hides it below
        things = [thing for thing in gc.get_objects() if thing is not sources]
        self._scripts = [thing for thing in things if type(thing) is LuaScript]
        self._holders = [thing for thing in things if any(_has(value, forms) for value in _contents(thing))]

    def change(self, old: str, new: str) -> int:
        """Replace a source and its digest by another everywhere. Return the number of objects changed."""
        from handfast._engine.script import LuaScript

        count = 0
        for script in self._scripts:
            if script.source == old:
                LuaScript.__init__(script, script.name, new, script.header)
                count += 1
        forms = dict(zip(_forms(old), _forms(new), strict=True))
        for holder in self._holders:
            if any(_has(value, forms) for value in _contents(holder)):
                count += 1
                if isinstance(holder, CellType):
                    holder.cell_contents = _renewed(holder.cell_contents, forms)
                else:
                    entries = [(_renewed(key, forms), _renewed(value, forms)) for key, value in holder.items()]
                    holder.clear()
                    holder.update(entries)
        return count


def _forms(source: str) -> list[str | bytes]:
    digest = sha1(source.encode(), usedforsecurity=False).hexdigest()
    return [source, source.encode(), digest, digest.encode()]


def _contents(thing: Any) -> Iterator[Any]:
    """Yield what a dict or the cell of a closure contains."""
    if type(thing) is dict:
        yield from (part for item in list(thing.items()) for part in item)
    elif type(thing) is CellType:
        with contextlib.suppress(ValueError):  # an empty one
            yield thing.cell_contents


def _has(value: Any, forms: Container[str | bytes]) -> bool:
    """Return whether the value is one of the forms, or a collection that contains one."""
    if type(value) in (str, bytes):
        return value in forms
    return type(value) in COLLECTIONS and any(type(one) in (str, bytes) and one in forms for one in value)


def _renewed(value: Any, forms: dict[str | bytes, str | bytes]) -> Any:
    """Return the value with its forms replaced."""
    if not _has(value, forms):
        return value
    if type(value) in COLLECTIONS:
        return type(value)(_renewed(one, forms) for one in value)
    return forms[value]


class ForkingLoop:
    """A plugin that runs tests only in children, each with its own scripts."""

    def __init__(self, requests: TextIO, answers: TextIO, folder: str) -> None:
        self._requests = requests
        self._answers = answers
        self._reports = Path(folder, "reports")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Serve one request after the other until the input ends."""
        overlay({os.path.realpath(path): path.read_text(encoding="utf-8") for path in scripts().values()})
        before = shipped()  # from here on, changes of the files have no effect
        loaded = LoadedScripts(before)
        gc.collect()
        gc.freeze()
        for line in self._requests:
            request = json.loads(line)
            with self._reports.open("w") as out:
                pid = os.fork()
                if pid == 0:
                    child(request, session.items, loaded, before, Reporter(out))
            wait(pid, request["longest"])
            reports = [json.loads(line) for line in self._reports.read_text().splitlines()]
            self._answers.write(json.dumps(reports) + "\n")
            self._answers.flush()
        return True


def shipped() -> dict[str, str]:
    """Return the sources of all scripts as they are sent to a server."""
    from handfast._engine.script import load, lua_texts

    lua_texts.cache_clear()
    engine = {name: load.__wrapped__(name).source for name in scripts() if "/" not in name}
    return engine | {
        name: path.read_text(encoding="utf-8-sig")
        for name, path in scripts().items()
        if "/" in name and not name.startswith("lib/")
    }


def neutral() -> dict[str, str]:
    """Return the text of every script with the neutral change."""
    return {
        os.path.realpath(path): path.read_text(encoding="utf-8") + NEUTRAL
        for name, path in scripts().items()
        if not name.startswith("lib/")
    }


class Reporter:
    """A plugin that reports each test, and ends the process at the first failure, without cleanup."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def report(self, **fields: Any) -> None:
        """Write one report."""
        self._out.write(json.dumps(fields) + "\n")
        self._out.flush()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Report the start of a test, which may hang."""
        self.report(began=nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Report a failure in any phase, or a pass after the last phase."""
        self._seconds[report.nodeid] += report.duration
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            self.report(failed=report.nodeid, text=str(crash or report.longrepr)[-TEXT_LIMIT:])
            os._exit(0)
        if report.when == "teardown":
            self.report(passed=report.nodeid, seconds=self._seconds[report.nodeid])


def child(
    request: dict[str, Any], items: list[pytest.Item], loaded: LoadedScripts, before: dict[str, str], reporter: Reporter
) -> NoReturn:
    """Run the tests, and end this process."""
    try:
        os.setsid()
        with open(os.devnull, "w") as nothing:
            os.dup2(nothing.fileno(), 2)
        os.environ["HANDFAST_LAWS"] = "1" if request["laws"] else "0"  # `tests/gate/lua/test_sessions.py` reads it
        overlay(request["changed"] or neutral())
        for name, source in shipped().items():
            if source != before[name] and not loaded.change(before[name], source) and request["changed"]:
                raise RuntimeError(f"no object of this process contains {name}")
        chosen = [item for test in request["tests"] for item in items if is_among(item.nodeid, test)]
        for item in chosen:
            if limit := request["limits"].get(item.nodeid):
                item.add_marker(pytest.mark.timeout(limit), append=False)
        if chosen:
            chosen[0].config.pluginmanager.register(reporter)
        for item, following in zip(chosen, [*chosen[1:], None], strict=False):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        reporter.report(finished=len(chosen))
    except BaseException as error:  # noqa: BLE001 -- it is reported, and this process ends in any case
        reporter.report(broken=repr(error))
    finally:
        os._exit(0)


def is_among(test: str, tests: str) -> bool:
    """Return whether a test is this one, of this file, or one of those that begin like this up to their parameters."""
    return test == tests or test.partition("::")[0] == tests or ("[" in tests and test.startswith(tests))


def overlay(changed: dict[str, str]) -> None:
    """Make `Path.read_text` return these texts for these files."""
    real = Path.read_text

    def read_text(path: Path, *args: Any, **options: Any) -> str:
        text = changed.get(os.path.realpath(path)) if path.suffix == ".lua" else None
        return real(path, *args, **options) if text is None else text

    Path.read_text = read_text  # type: ignore[method-assign, assignment]  # this process exists for it


def wait(pid: int, longest: float) -> None:
    """Wait until the child has ended; kill it after ``longest`` seconds."""
    until = time.monotonic() + longest
    try:
        while os.waitpid(pid, os.WNOHANG) == (0, 0):
            if time.monotonic() > until:
                raise TimeoutError
            time.sleep(0.003)
    except TimeoutError:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)  # processes that its tests left


def main(arguments: list[str]) -> None:
    """Collect the tests, and serve requests."""
    with os.fdopen(os.dup(0)) as requests, os.fdopen(os.dup(1), "w") as answers, open(os.devnull, "r+") as nothing:
        os.dup2(nothing.fileno(), 0)
        os.dup2(nothing.fileno(), 1)
        with tempfile.TemporaryDirectory() as folder:
            set_hypothesis_home_dir(folder)  # examples found with mutants stay here
            phases = [phase for phase in Phase if phase is not Phase.shrink]
            settings.register_profile("mutants", database=None, derandomize=True, phases=phases)
            settings.load_profile("mutants")
            options = ["-q", "-n", "0", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
            options += arguments
            status = pytest.main(options, plugins=[ForkingLoop(requests, answers, folder)])
            answers.write(json.dumps([{"broken": f"pytest ended with {status}"}]) + "\n")


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        main(sys.argv[1:])
