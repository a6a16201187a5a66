"""Change the Lua scripts in every small way that somebody might get wrong, and see that the tests notice.

    python -m handfast_lab.mutants                     # all of it, on two cores: about half an hour
    python -m handfast_lab.mutants --only permit_renew # mutants whose names have that in them
    python -m handfast_lab.mutants --list              # what they are called
    python -m handfast_lab.mutants --show NAME         # what one of them changes
    python -m handfast_lab.mutants --sample 20 --seed 1
    python -m handfast_lab.mutants --json FILE         # the figures, also to a file
    python -m handfast_lab.mutants --again FILE        # those that nobody killed then

Every mutant is to be killed by a test, or justified by its name in ``handfast_lab/mutants/justified.toml``, with the reason why no test
could or should notice. Exits 1 where one is neither, where one that is justified was killed after all, or where a name is
justified that no mutant has.
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
from handfast_lab.mutants.running import Chamber, SuiteFails, Verdict

JUSTIFIED = Path(__file__).parent / "justified.toml"


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line asks."""
    asked = options(arguments)
    everything = make()
    reasons = justified(JUSTIFIED.read_text(encoding="utf-8"))
    if asked.show:
        found = [mutant for mutant in everything if mutant.name == asked.show]
        print("\n\n".join(mutant.diff() for mutant in found) or "no mutant has that name")
        return 0 if found else 1
    mutants = [mutant for mutant in everything if asked.only in mutant.name]
    if asked.again:
        before = json.loads(asked.again.read_text(encoding="utf-8"))
        mutants = [mutant for mutant in mutants if mutant.name in (*before["survived"], *before["justified"])]
    if asked.sample:
        mutants = random.Random(asked.seed).sample(mutants, min(asked.sample, len(mutants)))  # noqa: S311 -- a sample
    if asked.list:
        print("\n".join(f"{'justified ' if mutant.name in reasons else ''}{mutant.name}" for mutant in mutants))
        return 0
    started = time.monotonic()
    try:
        verdicts = judge(mutants, asked.workers)
    except SuiteFails as error:
        print(error, file=sys.stderr)
        return 2
    figures = figures_of(mutants, verdicts, reasons, time.monotonic() - started)
    if asked.json:
        asked.json.write_text(json.dumps(made_here() | figures, indent=1) + "\n", encoding="utf-8")
    faults = faults_of(verdicts, reasons, {mutant.name for mutant in everything})
    print(told(figures))
    print("\n".join(faults))
    return 1 if faults else 0


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description="Mutants of the Lua scripts, and the tests that kill them.")
    parser.add_argument("--only", default="", metavar="PATTERN", help="those whose names have this in them")
    parser.add_argument("--list", action="store_true", help="their names")
    parser.add_argument("--show", metavar="NAME", help="what that one changes")
    parser.add_argument("--sample", type=int, default=0, metavar="COUNT", help="so many of them, by chance")
    parser.add_argument("--seed", type=int, default=0, help="which chance (default 0)")
    parser.add_argument("--workers", type=int, default=2, help="how many at a time (default 2)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write the figures")
    parser.add_argument("--again", type=Path, metavar="FILE", help="those that nobody killed when that was written")
    return parser.parse_args(arguments)


def justified(text: str) -> dict[str, str]:
    """The mutants that may live, and why. Raises ValueError where one is named twice."""
    found: dict[str, str] = {}
    for group in tomllib.loads(text).get("justified", ()):
        for name in group["mutants"]:
            if name in found:
                raise ValueError(f"justified twice: {name}")
            found[name] = group["reason"]
    return found


def judge(mutants: Sequence[Mutant], workers: int) -> list[Verdict]:
    """What becomes of each. Raises SuiteFails."""
    count = 0

    def done(verdict: Verdict) -> None:
        nonlocal count
        count += 1
        say(f"{count}/{len(mutants)} {verdict.outcome}: {verdict.name}{f' by {verdict.by}' if verdict.by else ''}")

    with Chamber(workers, say) as chamber:
        return chamber.judge(mutants, done)


def say(words: str) -> None:
    """How far it is."""
    print(words, file=sys.stderr, flush=True)


def made_here() -> dict[str, Any]:
    """With which command, where and when."""
    with PrivateServer() as server:
        return {"command": shlex.join(["python", *sys.argv]), "machine": describe(server.url)}


def figures_of(
    mutants: Sequence[Mutant], verdicts: Iterable[Verdict], reasons: dict[str, str], seconds: float
) -> dict[str, Any]:
    """What is published: in all, for each script and for each kind."""
    pairs = [(mutant, verdict) for mutant, verdict in zip(mutants, verdicts, strict=True)]
    return {
        "seconds": round(seconds, 1),
        "all": _counts(pairs, reasons),
        "scripts": {
            script: _counts([pair for pair in pairs if pair[0].script == script], reasons)
            for script in dict.fromkeys(mutant.script for mutant in mutants)
        },
        "kinds": {
            kind: _counts([pair for pair in pairs if pair[0].kind == kind], reasons)
            for kind in sorted({mutant.kind for mutant in mutants})
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
    lived = [verdict for verdict in verdicts if verdict.outcome == "survived"]
    killers = Counter(verdict.by.partition("::")[0] for verdict in verdicts if verdict.outcome == "killed")
    return {
        "mutants": len(verdicts),
        "killed": killers.total(),
        "killed by": dict(killers.most_common()),
        "timed out": sum(verdict.outcome == "timed out" for verdict in verdicts),
        "justified": sum(verdict.name in reasons for verdict in lived),
        "survived": sum(verdict.name not in reasons for verdict in lived),
        "seconds": round(sum(verdict.seconds for verdict in verdicts), 1),
    }


def faults_of(verdicts: Iterable[Verdict], reasons: dict[str, str], names: set[str]) -> list[str]:
    """What is wrong: mutants that live for no reason, and reasons for nothing."""
    outcomes = {verdict.name: verdict for verdict in verdicts}
    faults = [
        f"survived: {name}"
        for name, verdict in outcomes.items()
        if verdict.outcome == "survived" and name not in reasons
    ]
    faults += [f"justified, and no mutant is called that: {name}" for name in reasons if name not in names]
    faults += [
        f"justified, and killed by {outcomes[name].by}: {name}"
        for name in reasons
        if name in outcomes and outcomes[name].outcome != "survived"
    ]
    return faults


def told(figures: dict[str, Any]) -> str:
    """A table for a terminal."""
    columns = ("mutants", "killed", "timed out", "justified", "survived", "seconds")
    rows: list[tuple[str, ...]] = [("", *columns)]
    for part in ("scripts", "kinds"):
        rows += [(name, *(str(counts[column]) for column in columns)) for name, counts in figures[part].items()]
    rows.append(("all", *(str(figures["all"][column]) for column in columns)))
    return "\n".join(f"{row[0]:28}" + "".join(f"{cell:>11}" for cell in row[1:]) for row in rows)


if __name__ == "__main__":
    sys.exit(main())
