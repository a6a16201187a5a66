"""The raw results, as they lie in ``reliability/``: what the report is made from, and nothing else is.

    histories.json   the campaign: what was played, by primitive, API and fault
    schedules.json   the simulator: how many schedules, with which seeds
    planted.json     the mistakes planted in scripts and clients, and how soon each was found
    trials.json      the trials, by contender
    mutants.json     the mutants of every script
    record.json      the bugs that all this has found; written by hand

Each says with which command it was made, where and when.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

from handfast_lab.chaos.figures import Figure

__all__ = ["Results"]

Machine = dict[str, Any]


class Results:
    """A folder of raw results."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, part: str) -> Any:
        """A part, or None where it was never made."""
        path = self._folder / f"{part}.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def write(self, part: str, command: str, machine: Machine, **result: Any) -> None:
        """Put a part in the place of what was there."""
        self._save(part, {"command": command, "machine": machine, **result})

    def add_trial(self, trial: str, command: str, machine: Machine, figures: Iterable[Figure], **settings: Any) -> None:
        """Put the figures of a trial in the place of those that there were of the same trial and contender."""
        new = [figure.as_dict() for figure in figures]
        contenders = {figure["contender"] for figure in new}
        kept = [
            entry
            for entry in self.read("trials") or ()
            if entry["trial"] != trial or not contenders & {figure["contender"] for figure in entry["figures"]}
        ]
        entry = {"trial": trial, "command": command, "machine": machine, **settings, "figures": new}
        self._save("trials", sorted([*kept, entry], key=_place))

    def figures(self) -> list[dict[str, Any]]:
        """Of all trials, each with what it was made by."""
        return [
            figure | {"trial": entry["trial"], "command": entry["command"]}
            for entry in self.read("trials") or ()
            for figure in entry["figures"]
        ]

    def kept(self, name: str) -> IO[str]:
        """A file for what somebody may want to look at: the history of a finding. It is not part of the results."""
        folder = self._folder / "found"
        folder.mkdir(parents=True, exist_ok=True)
        return (folder / name).open("w", encoding="utf-8")

    def _save(self, part: str, result: Any) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(result, indent=1, ensure_ascii=False)
        # A row of numbers takes a line and not a column.
        text = re.sub(r"\[[-\d.,\s]*\]", lambda numbers: " ".join(numbers[0].split()), text)
        (self._folder / f"{part}.json").write_text(text + "\n", encoding="utf-8")


def _place(entry: dict[str, Any]) -> tuple[Any, ...]:
    first = entry["figures"][0]
    return (
        int(first["id"].lstrip("R")),
        entry["trial"],
        not first["contender"].startswith("handfast"),
        first["contender"],
    )
