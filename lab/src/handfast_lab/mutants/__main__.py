"""Mutation testing of the Lua scripts: make one small mistake at a time, and check that a test fails.

    python -m handfast_lab.mutants                     # all mutants, on two cores: some 80 minutes
    python -m handfast_lab.mutants --only permit_renew # mutants whose names contain this
    python -m handfast_lab.mutants --list              # the names of the mutants
    python -m handfast_lab.mutants --show NAME         # the change of one mutant
    python -m handfast_lab.mutants --sample 20 --seed 1
    python -m handfast_lab.mutants --json FILE         # also write the figures to a file
    python -m handfast_lab.mutants --matrix --only limit_  # the files of tests that kill each mutant

Every mutant must be killed by a test, or justified by its name in ``handfast_lab/mutants/justified.toml``, with the
reason why no test can or should kill it. The exit status is 1 if a mutant is neither, if a justified mutant was killed,
or if a justified name belongs to no mutant.
"""

from __future__ import annotations

import argparse
import json
import random
import shlex
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from handfast.embedded import PrivateServer
from handfast_lab.bench.machine import describe
from handfast_lab.mutants.making import Mutant, make
from handfast_lab.mutants.running import MutationRun, SuiteFails, Verdict

JUSTIFIED = Path(__file__).parent / "justified.toml"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    args = options(arguments)
    everything = make()
    reasons = justified(JUSTIFIED.read_text(encoding="utf-8"))
    if args.show:
        found = [mutant for mutant in everything if mutant.name == args.show]
        print("\n\n".join(mutant.diff() for mutant in found) or "no mutant has that name")
        return 0 if found else 1
    mutants = [mutant for mutant in everything if args.only in mutant.name]
    if args.sample:
        mutants = random.Random(args.seed).sample(mutants, min(args.sample, len(mutants)))  # noqa: S311 -- a sample
    if args.list:
        print("\n".join(f"{'justified ' if mutant.name in reasons else ''}{mutant.name}" for mutant in mutants))
        return 0
    if args.matrix:
        print(matrix_table(matrix(mutants, args.workers)))
        return 0
    started = time.monotonic()
    try:
        verdicts = judge(mutants, args.workers)
    except SuiteFails as error:
        print(error, file=sys.stderr)
        return 2
    figures = figures_of(mutants, verdicts, reasons, time.monotonic() - started)
    if args.json:
        args.json.write_text(json.dumps(made_here() | figures, indent=1) + "\n", encoding="utf-8")
    faults = faults_of(verdicts, reasons, {mutant.name for mutant in everything})
    print(table(figures))
    print("\n".join(faults))
    return 1 if faults else 0


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="Mutation testing of the Lua scripts.")
    parser.add_argument("--only", default="", metavar="PATTERN", help="only mutants whose names contain this")
    parser.add_argument("--list", action="store_true", help="print the names of the mutants")
    parser.add_argument("--show", metavar="NAME", help="print the change of this mutant")
    parser.add_argument("--sample", type=int, default=0, metavar="COUNT", help="a random sample of this size")
    parser.add_argument("--seed", type=int, default=0, help="seed of the sample (default 0)")
    parser.add_argument("--workers", type=int, default=2, help="number of worker processes (default 2)")
    parser.add_argument("--matrix", action="store_true", help="ask all files of tests, and count what each one kills")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file")
    return parser.parse_args(arguments)


def justified(text: str) -> dict[str, str]:
    """Return the reasons by the names of the justified mutants. Raises ValueError if a name occurs twice."""
    found: dict[str, str] = {}
    for group in tomllib.loads(text).get("justified", ()):
        for name in group["mutants"]:
            if name in found:
                raise ValueError(f"justified twice: {name}")
            found[name] = group["reason"]
    return found


def judge(mutants: Sequence[Mutant], workers: int) -> list[Verdict]:
    """Return a verdict for each mutant. Raises SuiteFails."""
    count = 0

    def done(verdict: Verdict) -> None:
        nonlocal count
        count += 1
        say(f"{count}/{len(mutants)} {verdict.outcome}: {verdict.name}{f' by {verdict.by}' if verdict.by else ''}")

    with MutationRun(workers, say) as run:
        return run.judge(mutants, done)


def matrix(mutants: Sequence[Mutant], workers: int) -> dict[str, list[str]]:
    """Return for each mutant the test files which kill it."""
    with MutationRun(workers, say) as run:
        return run.matrix(mutants, lambda name, files: say(f"{name}: {' '.join(map(_stem, files)) or 'survived'}"))


def matrix_table(killers: dict[str, list[str]]) -> str:
    """Return how many mutants each file of tests kills, and how many no other file kills, as a table."""
    kills = Counter(file for files in killers.values() for file in files)
    alone = Counter(files[0] for files in killers.values() if len(files) == 1)
    rows = [f"{_stem(file):40}{count:>8}{alone[file]:>8}" for file, count in kills.most_common()]
    survived = sum(not files for files in killers.values())
    return "\n".join([f"{len(killers)} mutants, {survived} survived{'kills':>20}{'alone':>8}", *rows])


def _stem(file: str) -> str:
    return Path(file).stem.removeprefix("test_")


def say(text: str) -> None:
    """Print the progress."""
    print(text, file=sys.stderr, flush=True)


def made_here() -> dict[str, Any]:
    """Return the command, the machine, the versions and the date."""
    with PrivateServer() as server:
        return {"command": shlex.join(["python", "-m", __package__, *sys.argv[1:]]), "machine": describe(server.url)}


def figures_of(
    mutants: Sequence[Mutant], verdicts: Iterable[Verdict], reasons: dict[str, str], seconds: float
) -> dict[str, Any]:
    """Return the published figures: in total, and for each script."""
    pairs = [(mutant, verdict) for mutant, verdict in zip(mutants, verdicts, strict=True)]
    return {
        "seconds": round(seconds, 1),
        "all": _counts(pairs, reasons),
        "scripts": {
            script: _counts([pair for pair in pairs if pair[0].script == script], reasons)
            for script in dict.fromkeys(mutant.script for mutant in mutants)
        },
        "justified": {
            verdict.name: reasons[verdict.name]
            for _, verdict in pairs
            if verdict.outcome == "survived" and verdict.name in reasons
        },
        "survived": [
            verdict.name for _, verdict in pairs if verdict.outcome == "survived" and verdict.name not in reasons
        ],
    }


def _counts(pairs: list[tuple[Mutant, Verdict]], reasons: dict[str, str]) -> dict[str, Any]:
    verdicts = [verdict for _, verdict in pairs]
    survivors = [verdict for verdict in verdicts if verdict.outcome == "survived"]
    killers = Counter(verdict.by.partition("::")[0] for verdict in verdicts if verdict.outcome == "killed")
    return {
        "mutants": len(verdicts),
        "killed": killers.total(),
        "killed by": dict(killers.most_common()),
        "timed out": sum(verdict.outcome == "timed out" for verdict in verdicts),
        "justified": sum(verdict.name in reasons for verdict in survivors),
        "survived": sum(verdict.name not in reasons for verdict in survivors),
        "seconds": round(sum(verdict.seconds for verdict in verdicts), 1),
    }


def faults_of(verdicts: Iterable[Verdict], reasons: dict[str, str], names: set[str]) -> list[str]:
    """Return the survivors without a reason, and the reasons that do not apply."""
    outcomes = {verdict.name: verdict for verdict in verdicts}
    faults = [
        f"survived: {name}"
        for name, verdict in outcomes.items()
        if verdict.outcome == "survived" and name not in reasons
    ]
    faults += [f"justified, but there is no such mutant: {name}" for name in reasons if name not in names]
    faults += [
        f"justified, but killed by {outcomes[name].by}: {name}"
        for name in reasons
        if name in outcomes and outcomes[name].outcome != "survived"
    ]
    return faults


def table(figures: dict[str, Any]) -> str:
    """Return the figures as a table for the terminal."""
    columns = ("mutants", "killed", "timed out", "justified", "survived", "seconds")
    rows: list[tuple[str, ...]] = [("", *columns)]
    for name, counts in (*figures["scripts"].items(), ("all", figures["all"])):
        rows.append((name, *(str(counts[column]) for column in columns)))
    return "\n".join(f"{row[0]:28}" + "".join(f"{cell:>11}" for cell in row[1:]) for row in rows)


if __name__ == "__main__":
    sys.exit(main())
