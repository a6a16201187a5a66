"""The machine, the versions and the commit of a run, without which its figures mean nothing."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import redis

import handfast

__all__ = ["describe"]

PACKAGES = (
    *("redis", "hiredis", "python-redis-lock", "coredis", "redis-fifo-lock", "pottery", "py-redis-semaphore"),
    *("limits", "throttled-py", "pyrate-limiter"),
    *("dogpile.cache", "cashews"),
)
"""Client libraries and rivals whose versions are recorded."""


def describe(url: str) -> dict[str, Any]:
    """Return machine, versions, commit and date for the raw results."""
    with redis.Redis.from_url(url) as client:
        info: dict[str, Any] = client.info("server")
    server = "valkey" if "valkey_version" in info else "redis"
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        **_commit(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "system": platform.platform(),
        "python": platform.python_version(),
        "server": f"{server} {info[f'{server}_version']}",
        "handfast": handfast.__version__,
        **{package: _version(package) for package in PACKAGES},
    }


def _commit() -> dict[str, Any]:
    """Return the commit of the checkout that runs, and whether its sources differ from it; nothing outside of one."""

    def git(*words: str) -> str:
        command = ["git", "-C", str(Path(handfast.__file__).parent), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        git(
            "ls-files", "--error-unmatch", "__init__.py"
        )  # an installed package may lie in the checkout of another project
        changed = git("status", "--porcelain", "--", ":/src", ":/lab/src")
        return {"commit": git("rev-parse", "--short", "HEAD"), "changed": bool(changed)}
    except (OSError, subprocess.CalledProcessError):
        return {}


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
