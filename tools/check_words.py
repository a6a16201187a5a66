"""Find words that this project does not use. Exits 1 with one line per find: ``file:line: word``.

Each word is a metaphor or a vague subject for which the field has a noun, or the former name of the project.
``_`` and the humps of CamelCase count as word boundaries, and a phrase may run over the end of a line.
``words: allow WORD`` in a comment on the same line permits the rare good use; a permission that nothing needs is a
fault.

Over all docstrings of ``src``, pronouns that a reader has to resolve are bounded as well, by their share of the words.

``python tools/check_words.py`` checks the folder it is run in.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

BANNED = (
    "afresh",
    "are told",
    "bell",
    "bells",
    "buried",
    "bury",
    "colour",
    "colours",
    "doorbell",
    "ears",
    "errand",
    "errands",
    "for ever",
    "holdfast",
    "in vain",
    "is told",
    "keeper",
    "keepers",
    "nobody",
    "somebody",
    "tenure",
    "what became of",
    "what becomes of",
    "what came of",
    "what comes of",
    "whatever becomes",
    "whoever",
)
PER_1000 = {"what": 2, "one": 6, "its": 4, "that": 16}
"""The largest numbers of these words among 1,000 of the docstrings; trio has about half of them."""

CHECKED = ("src", "lint", "lab", "docs", "tests", "tools", "examples", ".ci", ".github")
"""Folders. The files beside them are checked too; ``results`` holds what programs wrote."""

LEFT_OUT = {"tools/check_words.py", "uv.lock"}
CACHES = {"__pycache__", "node_modules", "site"}

HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
GAP = r"[\s#>*_-]+"
"""What may stand between the words of a phrase: also the start of the next line of a comment."""
PATTERN = re.compile(
    rf"\b(?:{'|'.join(word.replace(' ', GAP) for word in sorted(BANNED, key=len, reverse=True))})\b", re.IGNORECASE
)
ALLOWED = re.compile(r"words: allow ([a-z][a-z ,]*[a-z])")


def main(root: Path) -> int:
    """Check all files and print each find."""
    faults = [
        f"{path.relative_to(root).as_posix()}:{line}: {word}"
        for path in files_of(root)
        for line, word in check(path.read_text())
    ]
    faults += pronouns(root / "src")
    print("\n".join(faults) or "no banned word")
    return 1 if faults else 0


def pronouns(folder: Path) -> Iterator[str]:
    """Yield each pronoun of ``PER_1000`` that is too frequent, with the files that have most of them."""
    found = {path.relative_to(folder).as_posix(): docstring_words(path) for path in sorted(folder.rglob("*.py"))}
    total = sum((words for words in found.values()), Counter[str]())
    for word, bound in PER_1000.items():
        share = 1000 * total[word] / max(1, total.total())
        if share > bound:
            most = sorted(found, key=lambda name: -found[name][word])[:5]
            yield f"src: {share:.1f} times {word!r} in 1,000 words of docstrings, above {bound}; most in {', '.join(most)}"


def docstring_words(path: Path) -> Counter[str]:
    """Count the words of all docstrings of a module. What is generated has those of the source."""
    text = path.read_text()
    if text.startswith("# Generated from"):
        return Counter()
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = (node for node in ast.walk(ast.parse(text)) if isinstance(node, documented))
    return Counter(re.findall(r"[a-z']+", " ".join(ast.get_docstring(node) or "" for node in nodes).lower()))


def files_of(root: Path) -> Iterator[Path]:
    """Yield every text file that is checked."""
    paths = [path for path in root.iterdir() if path.is_file()]
    paths += [path for folder in CHECKED for path in (root / folder).rglob("*") if path.is_file()]
    for path in sorted(paths):
        parts = path.relative_to(root).parts
        if CACHES.isdisjoint(parts) and "/".join(parts) not in LEFT_OUT and is_text(path):
            yield path


def is_text(path: Path) -> bool:
    """Return False for pictures, databases and their like."""
    try:
        return "\0" not in path.read_text()
    except UnicodeDecodeError:
        return False


def check(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line number and the word of each find, and of each permission that nothing needs."""
    allowed: dict[int, set[str]] = {}
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        if match := ALLOWED.search(line):
            allowed[number] = {word.strip() for word in match[1].split(",")}
            lines[number - 1] = line[: match.start()]
    needed: set[tuple[int, str]] = set()
    words = HUMP.sub(" ", "\n".join(lines).replace("_", " "))
    for match in PATTERN.finditer(words):
        number = words.count("\n", 0, match.start()) + 1
        word = " ".join(re.split(GAP, match[0])).lower()
        if word in allowed.get(number, ()):
            needed.add((number, word))
        else:
            yield number, word
    for number, permitted in allowed.items():
        for word in sorted(permitted):
            if (number, word) not in needed:
                yield number, f"{word} is allowed here, and is not used"


if __name__ == "__main__":
    raise SystemExit(main(Path.cwd()))
