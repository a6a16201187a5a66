"""The tool that keeps packages, programs and other binaries out of the repository."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture
def tool():
    spec = importlib.util.spec_from_file_location("check_binaries", ROOT / "tools/check_binaries.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def checkout(tmp_path):
    """Return a function that makes a checkout of files, tracked all but those that are named ``untracked``."""
    if shutil.which("git") is None:
        pytest.skip("needs Git")

    def make(files):
        subprocess.run(["git", "init", "--quiet", tmp_path], timeout=60, check=True)
        for path, content in files.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_bytes(content)
        added = [path for path in files if not path.startswith("untracked")]
        subprocess.run(["git", "-C", tmp_path, "add", "--force", *added], timeout=60, check=True)
        return tmp_path

    return make


@pytest.mark.parametrize(
    ("path", "content", "reason"),
    [
        ("redis-8.1.0-py3-none-any.whl", b"PK\3\4", "an archive (.whl)"),
        ("data.tar.gz", b"", "an archive (.gz)"),
        ("src/Cached.PYC", b"text", "compiled (.pyc)"),
        ("docs/how-to/page.png", b"\x89PNG", "a picture (.png)"),
        ("docs/assets/deeper/page.png", b"\x89PNG", "a picture (.png)"),
        ("docs/assets/photo.jpg", b"\xff\xd8", "a picture (.jpg)"),
        ("src/server", b"\x7fELF\2\1\1\0", "binary: it has a NUL byte"),
        ("late.txt", b"a" * 8191 + b"\0", "binary: it has a NUL byte"),
        ("line\nbreak.bin", b"\0", "binary: it has a NUL byte"),
    ],
)
def test_a_binary_is_refused(tool, checkout, path, content, reason):
    root = checkout({path: content, "README.md": b"text\n"})
    assert {path: tool.judge(root, path) for path in tool.tracked(root)} == {path: reason, "README.md": ""}
    assert tool.main(root) == 1


def test_text_and_the_pictures_of_the_docs_are_accepted(tool, checkout):
    files = {
        "README.md": "text 文\n".encode(),
        "latin.txt": b"\xe9\n",
        "py.typed": b"",
        "docs/assets/page.png": b"\x89PNG\0",
        "docs/assets/queue.svg": b"<svg/>",
        "src/handfast/page/static/icon.svg": b"<svg/>",
        "untracked.whl": b"PK\0",
    }
    assert tool.main(checkout(files)) == 0


def test_a_find_is_a_line(tool, checkout, capsys):
    assert tool.main(checkout({"a.whl": b"PK\0"})) == 1
    assert capsys.readouterr().out == "a.whl: an archive (.whl)\n"


def test_a_file_that_is_deleted_and_still_tracked_is_no_find(tool, checkout):
    root = checkout({"old.whl": b"PK\0", "README.md": b"text"})
    (root / "old.whl").unlink()
    assert tool.main(root) == 0


def test_without_a_checkout_it_says_that_nothing_was_checked(tool, tmp_path, capsys):
    (tmp_path / "a.whl").write_bytes(b"PK\0")
    assert tool.main(tmp_path) == 0
    assert "not checked" in capsys.readouterr().out


def test_this_repository_has_no_binary(tool, capsys):
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("needs a Git checkout")
    assert tool.main(ROOT) == 0, capsys.readouterr().out
