"""A worker: collects some files of tests once, and forks a child for each mutant that is put to them.

Run as a program, with pytest's arguments, it reads a line of JSON for each run from its input and writes one for what came
of it. Whatever was made of a script when the package and the tests were imported, its source and digest, is looked up
once and changed in the child; and whoever reads a changed file there gets it as it is to be. Nothing on the disk changes.
The child leads a process group, which is ended with it; the server that its tests started ends by itself then.
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

__all__ = ["NEUTRAL", "Places", "main"]

NEUTRAL = "-- nothing else is changed\n"
"""At the end of every script, it gives each a digest of its own and changes nothing that a test may see."""

NO_KILL = ("the_digests_are_these",)
"""Tests that see any change of a script, whatever it does."""

COLLECTIONS = (frozenset, list, set, tuple)
"""What may have sources and digests among other things."""

WORDS = 300
"""How much of a failure's text is told."""


class Places:
    """Where this process keeps what it has read of scripts: the objects, and copies of sources and digests elsewhere."""

    def __init__(self, sources: dict[str, str]) -> None:
        from handfast._engine.script import LuaScript

        forms = {form for source in sources.values() for form in _forms(source)}
        things = [thing for thing in gc.get_objects() if thing is not sources]
        self._scripts = [thing for thing in things if type(thing) is LuaScript]
        self._holders = [thing for thing in things if any(_has(value, forms) for value in _contents(thing))]

    def change(self, old: str, new: str) -> int:
        """Put one source, and its digest, in the place of another; in how many places it was."""
        count = 0
        for script in self._scripts:
            if script.source == old:
                object.__setattr__(script, "source", new)
                script.__post_init__()
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
    """What is kept in a dict or by a closure."""
    if type(thing) is dict:
        yield from (part for item in list(thing.items()) for part in item)
    elif type(thing) is CellType:
        with contextlib.suppress(ValueError):  # an empty one
            yield thing.cell_contents


def _has(value: Any, forms: Container[str | bytes]) -> bool:
    """Whether it is one of those, or has one among its own."""
    if type(value) in (str, bytes):
        return value in forms
    return type(value) in COLLECTIONS and any(type(one) in (str, bytes) and one in forms for one in value)


def _renewed(value: Any, forms: dict[str | bytes, str | bytes]) -> Any:
    """The same with others in their places."""
    if not _has(value, forms):
        return value
    if type(value) in COLLECTIONS:
        return type(value)(_renewed(one, forms) for one in value)
    return forms[value]


class Chamber:
    """A plugin that runs no tests but in children, each with scripts of its own."""

    def __init__(self, asked: TextIO, answers: TextIO, folder: str) -> None:
        self._asked = asked
        self._answers = answers
        self._told = Path(folder, "told")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Do what is asked, one run after the other, until nobody asks any more."""
        items = [item for item in session.items if not any(name in item.name for name in NO_KILL)]
        overlay({os.path.realpath(path): path.read_text(encoding="utf-8") for path in scripts().values()})
        before = shipped()  # from here on it does not matter what becomes of the files
        places = Places(before)
        gc.collect()
        gc.freeze()
        for line in self._asked:
            request = json.loads(line)
            with self._told.open("w") as out:
                pid = os.fork()
                if pid == 0:
                    child(request, items, places, before, Teller(out))
            wait(pid, request["longest"])
            told = [json.loads(line) for line in self._told.read_text().splitlines()]
            self._answers.write(json.dumps(told) + "\n")
            self._answers.flush()
        return True


def shipped() -> dict[str, str]:
    """The sources of all scripts, as a server is given them."""
    from handfast._engine.script import load

    engine = {name: load.__wrapped__(name).source for name in scripts() if "/" not in name}
    return engine | {
        name: path.read_text(encoding="utf-8-sig")
        for name, path in scripts().items()
        if "/" in name and not name.startswith("lib/")
    }


def neutral() -> dict[str, str]:
    """All files, with scripts that do what they did and have another digest."""
    return {
        os.path.realpath(path): path.read_text(encoding="utf-8") + NEUTRAL
        for name, path in scripts().items()
        if not name.startswith("lib/")
    }


class Teller:
    """A plugin that writes down what happens, and ends the process with the first failure, without cleaning up."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def tell(self, **what: Any) -> None:
        """One thing."""
        self._out.write(json.dumps(what) + "\n")
        self._out.flush()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """From here on it may hang."""
        self.tell(began=nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One of three: of its setup, itself, its end."""
        self._seconds[report.nodeid] += report.duration
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            self.tell(failed=report.nodeid, words=str(crash or report.longrepr)[-WORDS:])
            os._exit(0)
        if report.when == "teardown":
            self.tell(passed=report.nodeid, seconds=self._seconds[report.nodeid])


def child(
    request: dict[str, Any], items: list[pytest.Item], places: Places, before: dict[str, str], teller: Teller
) -> NoReturn:
    """Run the tests in this process, and end with it."""
    try:
        os.setsid()
        with open(os.devnull, "w") as nothing:
            os.dup2(nothing.fileno(), 2)
        overlay(request["changed"] or neutral())
        for name, source in shipped().items():
            if source != before[name] and not places.change(before[name], source) and request["changed"]:
                raise RuntimeError(f"nobody here has {name}")
        chosen = [
            item for test in request["tests"] for item in items if test in (item.nodeid, item.nodeid.partition("::")[0])
        ]
        for item in chosen:
            if limit := request["limits"].get(item.nodeid):
                item.add_marker(pytest.mark.timeout(limit), append=False)
        if chosen:
            chosen[0].config.pluginmanager.register(teller)
        for item, following in zip(chosen, [*chosen[1:], None], strict=False):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        teller.tell(finished=len(chosen))
    except BaseException as error:  # noqa: BLE001 -- it is told, and this process ends in any case
        teller.tell(broken=repr(error))
    finally:
        os._exit(0)


def overlay(changed: dict[str, str]) -> None:
    """Let whoever reads one of those files have that text; of the others, what was laid over them before."""
    real = Path.read_text

    def read_text(path: Path, *args: Any, **options: Any) -> str:
        text = changed.get(os.path.realpath(path)) if path.suffix == ".lua" else None
        return real(path, *args, **options) if text is None else text

    Path.read_text = read_text  # type: ignore[method-assign, assignment]  # that is what this process is for


def wait(pid: int, longest: float) -> None:
    """Until that child has ended, by itself or by us."""
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
            os.killpg(pid, signal.SIGKILL)  # whoever its tests left behind


def main(arguments: list[str]) -> None:
    """Collect, and serve."""
    with os.fdopen(os.dup(0)) as asked, os.fdopen(os.dup(1), "w") as answers, open(os.devnull, "r+") as nothing:
        os.dup2(nothing.fileno(), 0)
        os.dup2(nothing.fileno(), 1)
        with tempfile.TemporaryDirectory() as folder:
            set_hypothesis_home_dir(folder)  # what it remembers of mutants is not for others
            phases = [phase for phase in Phase if phase is not Phase.shrink]
            settings.register_profile("mutants", database=None, derandomize=True, phases=phases)
            settings.load_profile("mutants")
            options = ["-q", "-n", "0", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
            options += arguments
            status = pytest.main(options, plugins=[Chamber(asked, answers, folder)])
            answers.write(json.dumps([{"broken": f"pytest ended with {status}"}]) + "\n")


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        main(sys.argv[1:])
