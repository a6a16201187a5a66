"""The raw results in ``reliability/``, the only input of the report.

    histories.json   the campaign: what ran, by primitive, API and fault
    schedules.json   the simulator: the number of schedules and their seeds; schedules_cut_off.json, schedules_replicas.json and
                     schedules_cluster.json the same in its other settings
    planted.json     the bugs planted in scripts and clients, and how soon each was found
    trials.json      the trials, by contender
    mutants.json     the mutants of every script
    record.json      the bugs that these tests have found; written by hand

Each file but the last names the command that made it, the machine, the commit and the date. Histories and schedules may be made in
pieces: a later run goes on with the seeds after those of the earlier ones, and its figures are added to theirs. The
commit is that of the first piece.
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

SEEDS = {"histories": "seed", "schedules": "first_seed"}
"""The parts that may be made in pieces, and the field with their first seed."""

SAME = "seed", "first_seed", "plans", "processes"
"""Numbers that pieces share, and that are not added up."""


COMMIT = "commit", "changed", "older"
"""What a machine says of the sources of a run; ``older`` is written by ``tools/evidence.py``."""


class Results:
    """A directory of raw results."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, part: str) -> Any:
        """Return a part, or None if it was never made."""
        path = self._folder / f"{part}.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def write(self, part: str, command: str, machine: Machine, **result: Any) -> None:
        """Replace a part."""
        self._save(part, {"command": command, "machine": machine, **result})

    def next_seed(self, part: str) -> int:
        """Return the seed that a further piece of a part begins with."""
        before = self.read(part)
        if before is None:
            return 1
        played = before["played"] if part == "histories" else [{"histories": before["schedules"]}]
        return int(before[SEEDS[part.partition("_")[0]]] + sum(entry["histories"] for entry in played))

    def add(self, part: str, command: str, machine: Machine, **result: Any) -> None:
        """Add a further piece to a part. Raises ValueError if their seeds mean different things."""
        before = self.read(part)
        if before is None:
            self.write(part, command, machine, **result)
            return
        if before.get("plans") != result.get("plans"):
            raise ValueError(f"the {part} there are of other plans; begin anew without --add")
        commit = {key: before["machine"][key] for key in COMMIT if key in before["machine"]}
        self.write(
            part,
            f"{before['command']}; {command}",
            {key: value for key, value in machine.items() if key not in COMMIT} | commit,
            **{key: _sum(key, before[key], result[key]) for key in result},
        )

    def add_trial(self, trial: str, command: str, machine: Machine, figures: Iterable[Figure], **settings: Any) -> None:
        """Add the figures of a trial, replacing earlier ones of the same trial and contender."""
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
        """Return the figures of all trials, each with its trial, command and machine."""
        return [
            figure | {key: entry[key] for key in ("trial", "command", "machine")}
            for entry in self.read("trials") or ()
            for figure in entry["figures"]
        ]

    def kept(self, name: str) -> IO[str]:
        """Open a file for the history of a finding. It is not part of the results."""
        folder = self._folder / "found"
        folder.mkdir(parents=True, exist_ok=True)
        return (folder / name).open("w", encoding="utf-8")

    def _save(self, part: str, result: Any) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(result, indent=1, ensure_ascii=False)
        # Write a list of numbers on one line.
        text = re.sub(r"\[[-\d.,\s]*\]", lambda numbers: " ".join(numbers[0].split()), text)
        (self._folder / f"{part}.json").write_text(text + "\n", encoding="utf-8")


def _sum(key: str, one: Any, other: Any) -> Any:
    """Return two figures as one: what is counted is added up, key by key or cell by cell."""
    if key in SAME or isinstance(one, str):
        return one
    if key == "played":
        cells = [{(entry["primitive"], entry["api"], entry["fault"]): entry for entry in some} for some in (one, other)]
        return [entry for _, entry in sorted(_sum("", *cells).items())]
    if isinstance(one, dict):
        both = {known: _sum(known, one[known], other[known]) for known in one.keys() & other.keys()}
        return one | other | both
    return round(one + other, 3) if isinstance(one, float) else one + other


def _place(entry: dict[str, Any]) -> tuple[Any, ...]:
    first = entry["figures"][0]
    return (
        int(first["id"].lstrip("R")),
        entry["trial"],
        not first["contender"].startswith("handfast"),
        first["contender"],
    )
