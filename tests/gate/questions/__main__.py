"""Ask all questions and print the matrix: ``python -m tests.gate.questions``, followed by options of pytest.

One line per row, one column per question. The two signs of a cell are the sync API and the asyncio API:

    +  right
    K  known to be wrong, see ``failing.txt``
    !  wrong, or right although it is listed
    .  does not apply; the reasons follow the matrix
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections import Counter
from pathlib import Path

import pytest

APIS = ("sync", "asyncio")


class Matrix:
    """A plugin of pytest that notes the sign of each pair."""

    def __init__(self):
        self.signs, self.reasons = {}, {}
        self._pairs = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items):
        from tests.gate.questions.conftest import pair_of  # pytest is to import handfast itself

        self._pairs = {item.nodeid: pair for item in items if (pair := pair_of(item))}

    def pytest_deselected(self, items):
        for item in items:
            if (mark := item.get_closest_marker("skip")) and (pair := self._pairs.get(item.nodeid)):
                self.signs[pair], self.reasons[pair] = ".", mark.kwargs["reason"]

    def pytest_runtest_logreport(self, report):
        if (pair := self._pairs.get(report.nodeid)) is None:
            return
        if report.failed:
            self.signs[pair] = "!"
        elif report.skipped and hasattr(report, "wasxfail"):
            self.signs.setdefault(pair, "K")
        elif report.skipped:
            self.signs[pair] = "."
            self.reasons[pair] = report.longrepr[2].removeprefix("Skipped: ")
        elif report.when == "call":
            self.signs.setdefault(pair, "+")

    def lines(self):
        """Yield the lines of the matrix, of what is wrong, and of the reasons."""
        pairs = [pair for pair in self._pairs.values() if pair in self.signs]
        questions = list(dict.fromkeys(question for question, _, _ in pairs))
        rows = list(dict.fromkeys(row for _, row, _ in pairs))
        width = max(map(len, rows)) + 2
        yield from (f"{'':{width}}{'|  ' * number}{question}" for number, question in enumerate(questions))
        for row in rows:
            cells = ["".join(self.signs.get((question, row, api), " ") for api in APIS) for question in questions]
            yield f"{row:{width}}{' '.join(cells)}"
        yield ""
        yield from (" | ".join([sign, *pair]) for pair, sign in sorted(self.signs.items()) if sign in "!K")
        yield ""
        why = Counter((question, reason) for (question, _, _), reason in self.reasons.items())
        yield from (f".{count:4} {question}: {reason}" for (question, reason), count in sorted(why.items()))
        counts = Counter(self.signs.values())
        yield f"{counts['+']} right, {counts['K']} known to be wrong, {counts['!']} wrong, {counts['.']} do not apply"


def main():
    matrix, said = Matrix(), io.StringIO()
    with contextlib.redirect_stdout(said):
        status = pytest.main(
            ["-n", "0", "-q", "--maxfail=1000", str(Path(__file__).parent), *sys.argv[1:]], plugins=[matrix]
        )
    print(*([said.getvalue()] if status else []), *matrix.lines(), sep="\n")
    return status


if __name__ == "__main__":
    raise SystemExit(main())
