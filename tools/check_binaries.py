"""Find tracked files that are no text. Exits 1 with one line per find: ``file: reason``.

Packages, archives and compiled files belong to the package index or to a release: a change to them cannot be
reviewed, and every clone carries each of their versions. Pictures are in the folders that ``PICTURES`` names.

Git decides what is tracked, so without Git, or outside a checkout, as in an unpacked sdist, the check says so and exits 0.

``python tools/check_binaries.py`` checks the folder it is run in.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

PICTURES = {
    "docs/assets": {".png", ".svg"},
    "docs/assets/objects": {".svg"},
    "src/handfast/page/static": {".svg"},
}
"""The suffixes of pictures that a folder may have."""

REFUSED = {
    "an archive": {".7z", ".bz2", ".deb", ".egg", ".gz", ".jar", ".rpm", ".tar", ".tgz", ".whl", ".xz", ".zip", ".zst"},
    "compiled": {".a", ".class", ".dll", ".dylib", ".exe", ".o", ".pyc", ".pyd", ".so"},
    "a picture": {".avif", ".bmp", ".gif", ".ico", ".jpeg", ".jpg", ".pdf", ".png", ".svg", ".tiff", ".webp"},
}
"""Suffixes, whatever the file contains. A picture is accepted in the folders of ``PICTURES``."""

HEAD_BYTES = 8192
"""A file with a NUL byte this near to its start is no text; Git and grep judge by the same sign."""


def main(root: Path) -> int:
    """Check all tracked files and print each find."""
    if not (root / ".git").exists() or shutil.which("git") is None:
        print("not checked: without Git and a checkout, nothing tells which files are tracked")
        return 0
    faults = [f"{path}: {reason}" for path in tracked(root) if (reason := judge(root, path))]
    print("\n".join(faults) or "no tracked file is binary")
    return 1 if faults else 0


def tracked(root: Path) -> Iterator[str]:
    """Yield the path of each tracked file that is in the working tree."""
    command = ["git", "ls-files", "-z"]
    listed = subprocess.run(command, cwd=root, capture_output=True, check=True).stdout
    for path in listed.decode().split("\0"):
        if path and (root / path).is_file():
            yield path


def judge(root: Path, path: str) -> str:
    """Return why a file is refused; an empty string for a file that is right."""
    place = PurePosixPath(path)
    suffix = place.suffix.lower()
    if suffix in PICTURES.get(str(place.parent), ()):
        return ""
    for kind, suffixes in REFUSED.items():
        if suffix in suffixes:
            return f"{kind} ({suffix})"
    with (root / path).open("rb") as file:
        return "binary: it has a NUL byte" if b"\0" in file.read(HEAD_BYTES) else ""


if __name__ == "__main__":
    raise SystemExit(main(Path.cwd()))
