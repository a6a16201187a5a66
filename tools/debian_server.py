"""Fetch a server of another Debian release into a folder, with the C library that it was built for, and print its program.

    python tools/debian_server.py trixie redis-server /tmp/redis-8

Nothing is installed: a configuration of apt of its own, with no package installed, downloads the server and all that it depends on;
``dpkg-deb`` unpacks that into the folder, and a script there runs the server with the linker and the libraries beside it. The
mirror and the keys are those of this machine, which has to run Debian.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

CONFIG = """
Dir "{folder}/apt";
Dir::State::status "{folder}/apt/status";
Dir::Etc::sourcelist "{folder}/apt/sources.list";
Dir::Etc::sourceparts "-";
APT::Architecture "{architecture}";
APT::Install-Recommends "false";
APT::Get::List-Cleanup "false";
Debug::NoLocking "true";
"""

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


def main() -> int:
    """Fetch the server that the arguments name, unless it is there, and print the path of its program."""
    release, package, folder = sys.argv[1:]
    print(fetch(release, package, Path(folder).absolute()))
    return 0


def fetch(release: str, package: str, folder: Path) -> Path:
    """Return the program of a server of a release, which is fetched into the folder if it is not there yet."""
    program = folder / package
    if not program.exists():
        download(release, package, folder)
        for archive in (folder / "apt/archives").glob("*.deb"):
            run("dpkg-deb", "--extract", str(archive), str(folder / "root"))
        write_program(program, folder / "root")
    return program


def download(release: str, package: str, folder: Path) -> None:
    """Download a package and all that it depends on."""
    for part in ("lists/partial", "archives/partial", "apt.conf.d", "preferences.d"):
        (folder / "apt" / part).mkdir(parents=True, exist_ok=True)
    (folder / "apt/status").touch()
    (folder / "apt/sources.list").write_text(f"deb [signed-by={KEYRING}] {mirror()} {release} main\n")
    config = folder / "apt/apt.conf"
    architecture = run("dpkg", "--print-architecture").strip()
    text = CONFIG.format(folder=folder, architecture=architecture)
    config.write_text(text + f'Dir::State::lists "{folder}/apt/lists"; Dir::Cache::archives "{folder}/apt/archives";\n')
    apt = ("env", f"APT_CONFIG={config}", "apt-get", "--quiet=2", "--option", "APT::Sandbox::User=root")
    run(*apt, "update")
    run(*apt, "--download-only", "--yes", "install", package)


def write_program(program: Path, root: Path) -> None:
    """Write a script that runs the server of the unpacked packages with their linker and their libraries."""
    linker = next(root.glob("**/ld-linux-*.so.*"))
    server = next(
        path
        for name in ("valkey-server", "redis-server", "*-check-rdb", "prometheus")
        for path in root.glob(f"usr/bin/{name}")
    )
    libraries = sorted({str(library.parent) for library in root.glob("**/*.so*")})
    words = [str(linker), "--library-path", ":".join(libraries), str(server)]
    program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    program.chmod(0o755)


def mirror() -> str:
    """Return the mirror that this machine's own apt uses for Debian."""
    for file in (Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*")):
        found = re.search(
            r"^(?:URIs: *|deb (?:\[.*\] )?)(\S+/debian)/?(?: |$)",
            file.read_text() if file.exists() else "",
            re.MULTILINE,
        )
        if found:
            return found[1]
    raise SystemExit("this machine has no mirror of Debian")


def run(*words: str) -> str:
    """Run a command and return what it prints."""
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    sys.exit(main())
