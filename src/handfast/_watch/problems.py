"""Problems in sentences, for a person: a table of rules, and the order of their findings.

A rule is a function of a row, or of the facts of the server, and says how bad it is and in which words. Names come before
results, and these before the server: a setting of the server was there yesterday, and a name that is stuck was not. A
sentence about a lease that ends soon needs a row of the same step: nothing old raises an alarm.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias, get_args

from handfast._watch.facts import Facts, Label, Moment, Sentence, count_of
from handfast._watch.live import View
from handfast._watch.results import Result, State
from handfast._watch.rows import Key, Level, Row, is_full
from handfast._watch.thresholds import (
    FRESH_S,
    FULL_SHARE,
    GROWN,
    GROWN_FROM,
    LATE_SHARE,
    LOW_SHARE,
    RENEWED,
    WAITED_LONG_S,
)
from handfast.records import Holder, ServerFinding

__all__ = ["SEVERITIES", "Group", "Problem", "Verdict", "find_problems", "sentences_of", "verdict_of"]

Group: TypeAlias = Literal["names", "results", "server"]

SEVERITIES: dict[str, Level | None] = {"failure": "urgent", "warning": "warning", "info": None, "ok": None}
"""How bad a finding about the server is, in every view; None where it is no problem."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A sentence and the explanation."""

    level: Level
    group: Group
    harm: float
    """Sorts the problems of a level and a group, the largest first: of a name, how many wait times for how long."""
    id: str
    """The rule and the name: constant while the problem lasts."""
    says: Sentence
    means: Sentence
    where: Key | None = None
    """The name that it is about; None if it is about the server."""
    command: str = ""
    """The command to the server that ends it; empty if there is none."""

    @property
    def is_stuck(self) -> bool:
        """Whether it says that a name is stuck."""
        return self.group == "names" and self.level == "urgent"


class Finding(NamedTuple):
    """The finding of a rule."""

    level: Level
    harm: float
    says: Sentence
    means: Sentence


Rule: TypeAlias = Callable[[Row, float], Finding | None]
"""Gets a row, and the moment of the view."""


class Verdict(NamedTuple):
    """All problems in one sentence."""

    level: Level | None
    text: str
    means: Sentence = ()
    """The conclusion for a reader."""
    urgent: int = 0
    """How many names, results and settings of the server are urgent, each counted once."""
    warnings: int = 0


LEVELS: tuple[Level, ...] = get_args(Level)

GROUPS: tuple[Group, ...] = get_args(Group)


def find_problems(view: View) -> list[Problem]:
    """Return the problems, the worst first. Their order is stable."""
    found = [*_of_results(view.results.found), *_of_server(view.findings)]
    for row in view.rows:
        if _is_quiet(row.facts, view.at):
            continue
        for rule, find in RULES.items():
            if (one := find(row, view.at)) is not None:
                found.append(Problem(one.level, "names", one.harm, f"{rule} {row.kind} {row.name}", *one[2:], row.key))
    if view.passed_over:
        found.append(_of_keys(view.passed_over))
    return sorted(found, key=lambda one: (LEVELS.index(one.level), GROUPS.index(one.group), -one.harm, one.id))


def verdict_of(view: View, problems: list[Problem]) -> Verdict:
    """Return the first sentence of a view."""
    about = {level: {one.where or one.id for one in problems if one.level == level} for level in LEVELS}
    urgent, warnings = len(about["urgent"]), len(about["warning"] - about["urgent"])
    verdict = _verdict(view, problems, urgent, warnings)
    return verdict._replace(urgent=urgent, warnings=warnings)


def _verdict(view: View, problems: list[Problem], urgent: int, warnings: int) -> Verdict:
    if stuck := {one.where for one in problems if one.is_stuck}:
        return _of_stuck([row for row in view.rows if row.key in stuck], view.at)
    now = f"{count_of(view.held, 'lease')} held; {_waiting(view.waiting)}."
    if urgent:
        settings = "1 setting of the server breaks" if urgent == 1 else f"{urgent:,} settings of the server break"
        return Verdict("urgent", f"Nothing is stuck; {settings} what the locks promise", (now,))
    if warnings:
        return Verdict("warning", f"Nothing is stuck; {count_of(warnings, 'thing')} to know about", (now,))
    if not view.rows:
        return Verdict(None, "No one holds anything yet")
    return Verdict(None, "Nothing is wrong", (now,))


def _of_stuck(rows: list[Row], now: float) -> Verdict:
    """Say how many names are stuck, since when the longest is, and whether the processes of their holders live."""
    names = "1 name is" if len(rows) == 1 else f"{len(rows):,} names are"
    waiting = sum(row.facts.waiting for row in rows)
    wait = "1 request waits" if waiting == 1 else f"{waiting:,} requests wait"
    moments = [row.facts.waits_since for row in rows]
    first = min((one for one in moments if one is not None), default=now)
    since: Sentence = "The longest has waited for ", Moment(first), ". "
    ended = sum(not _lives(row.facts.holders[0]) for row in rows if row.facts.holders)
    held = sum(bool(row.facts.holders) for row in rows)
    if not held:
        lives = "None of them is held."
    elif ended:
        lives = f"{ended:,} of {count_of(held, 'holder')} {'has' if ended == 1 else 'have'} missed renewals: the process may have ended."
    else:
        they = (
            "The holder renews its lease, so its process lives"
            if held == 1
            else "All holders renew, so their processes live"
        )
        lives = f"{they}."
    return Verdict("urgent", f"{names} stuck, and {wait} for {'it' if len(rows) == 1 else 'them'}", (*since, lives))


# --- rules of names. Each is silent where a rule above it says the same in worse words.


def _is_quiet(facts: Facts, now: float) -> bool:
    """Whether no rule can find anything: most names are held in peace."""
    if facts.waiting or facts.stop is not None or (facts.share or 0.0) >= FULL_SHARE:
        return False
    return facts.doubtful_at is None or now < facts.doubtful_at


def _stuck(row: Row, now: float) -> Finding | None:
    facts = row.facts
    if facts.stop is not None or facts.held_since is None or row.held_level(now) is None:
        return None
    says = Label(row.name), " has been held for ", Moment(facts.held_since), f", and {_waiting(facts.waiting)}"
    means: Sentence = _of_holder(facts.holders[0], row.at)
    if facts.waits_since is not None:
        means = (*means, " The first waits for ", Moment(facts.waits_since), _silence(facts.silent))
    return Finding("urgent", _harm(facts, now), says, means)


def _waits(row: Row, now: float) -> Finding | None:
    facts, level = row.facts, row.wait_level(now)
    if level is None or facts.stop is not None or facts.rates or facts.waits_since is None or _stuck(row, now):
        return None
    if facts.granted_at is not None and now - facts.granted_at <= WAITED_LONG_S / 2:  # the queue moves
        return None
    first = ", the first" if facts.waiting > 1 else ""
    says = Label(row.name), f" keeps {facts.waiting:,} waiting{first} for ", Moment(facts.waits_since)
    means: Sentence = ("It is free.",)
    if facts.holders and facts.held_since is not None:
        others = f" and {facts.holding - 1:,} more" if facts.holding > 1 else ""
        means = "It is held by ", Label(facts.holders[0].label), f"{others} for ", Moment(facts.held_since), "."
    return Finding(level, _harm(facts, now), says, means)


def _stopped(row: Row, _now: float) -> Finding | None:
    facts = row.facts
    if (stop := facts.stop) is None:
        return None
    says = Label(row.name), f" is {stop.what} for ", Moment(stop.until), " more"
    why: Sentence = (": ", Label(stop.why)) if stop.why else ()
    said: Sentence = ("By ", Label(stop.by), *why, ". ") if stop.by else ()
    return Finding("warning" if facts.waiting else "note", facts.waiting, says, (*said, f"{_sentence(facts.waiting)}."))


def _silent(row: Row, now: float) -> Finding | None:
    facts = row.facts
    if not facts.silent or _stuck(row, now):
        return None
    says = Label(row.name), f" has {facts.silent:,} silent of {facts.waiting:,} waiters"
    means = ("Their processes have ended or are frozen. They are passed over when their turn comes.",)
    return Finding("warning", facts.silent, says, means)


def _unrenewed(row: Row, now: float) -> Finding | None:
    if now >= row.at + FRESH_S:
        return None
    for one in row.facts.holders:
        # A lease that is older than its ttl was renewed, three times in each ttl.
        is_late = one.held_for > one.ttl and one.remaining < one.ttl * LOW_SHARE
        if is_late and one.wanted is None and not one.released:
            says = (
                "The lease of ",
                Label(row.name),
                " ends in ",
                Moment(row.at + one.remaining),
                " unless it is renewed",
            )
            return Finding("warning", 1, says, (Label(one.label), " has missed at least one renewal."))
    return None


def _grows(row: Row, _now: float) -> Finding | None:
    facts = row.facts
    if not row.is_awaited or row.before is None or facts.waiting < max(GROWN_FROM, row.before + GROWN):
        return None
    says = "The queue of ", Label(row.name), f" grows: {row.before:,} a minute ago, {facts.waiting:,} now"
    mean = "" if row.mean is None else f", after a mean wait of {row.mean:.1f} s"
    return Finding("warning", facts.waiting, says, (f"{row.rate:.1f} grants a second{mean}.",))


def _full(row: Row, now: float) -> Finding | None:
    facts = row.facts
    full = max(filter(is_full, facts.rates), key=lambda rate: rate.used / rate.limit, default=None)
    if full is None or not facts.waiting or facts.stop is not None:
        return None
    what = f" {full.metric}" if full.metric else ""
    says = Label(row.name), f" has used {full.used:,} of {full.limit:,}{what} in {full.per:g} s"
    return Finding("warning", _harm(facts, now), says, (f"{_sentence(facts.waiting)}.",))


def _spent(row: Row, _now: float) -> Finding | None:
    share = row.facts.share
    if share is None or share < FULL_SHARE:
        return None
    says = Label(row.name), f" has used {share:.0%} of its budget: ", *row.who
    means = "Calls are refused." if share >= 1 else "Calls that need more than is left are refused."
    resets: Sentence = (
        () if row.facts.ends_at is None else (" The next period begins in ", Moment(row.facts.ends_at), ".")
    )
    return Finding("warning" if share >= 1 else "note", share, says, (means, *resets))


RULES: dict[str, Rule] = {
    "stuck": _stuck,
    "waits": _waits,
    "stopped": _stopped,
    "silent": _silent,
    "unrenewed": _unrenewed,
    "grows": _grows,
    "full": _full,
    "spent": _spent,
}
"""By their words, which begin the id of a problem."""


def _harm(facts: Facts, now: float) -> float:
    """Return for how long requests have waited, all together, as if each had waited as long as the first."""
    return facts.waiting * (now - (facts.waits_since or now))


def _of_holder(one: Holder, at: float) -> Sentence:
    """Return whether the process of a holder lives, by the lease: a lease never renewed ends a ttl after the grant."""
    if one.released:
        ends = Moment(at + one.remaining)
        return Label(one.label), " has released it, and it stays taken for ", ends, " more: at_least."
    if not _is_renewed(one):
        says = " has not renewed its lease since the grant, so its process may have ended. The lease ends in "
        return Label(one.label), says, Moment(at + one.remaining), "."
    if _is_late(one):
        says = " has missed a renewal, so its process may have ended. The lease ends in "
        return Label(one.label), says, Moment(at + one.remaining), "."
    return Label(one.label), " renews its lease, so its process lives: it hangs, or its work is long."


def _is_renewed(one: Holder) -> bool:
    return one.held_for + one.remaining >= one.ttl * RENEWED


def _is_late(one: Holder) -> bool:
    return one.wanted is None and one.remaining < one.ttl * LATE_SHARE


def _lives(one: Holder) -> bool:
    """Whether the process of a holder is known to live."""
    return not one.released and _is_renewed(one) and not _is_late(one)


# --- results, and the server


def _of_results(results: tuple[Result, ...]) -> Iterator[Problem]:
    groups: defaultdict[tuple[str, State], list[Result]] = defaultdict(list)
    for one in results:
        if one.state in ("left", "failed"):
            groups[one.name, one.state].append(one)
    for (name, state), some in groups.items():
        latest = max(some, key=lambda one: one.recorded_at)
        keys = f"{len(some):,} {'key' if len(some) == 1 else 'keys'} of "
        if state == "left":
            says: Sentence = keys, Label(name), " began and did not end"
            means: Sentence = "The latest, ", Label(latest.key), ", began ", Moment(latest.recorded_at), " ago."
        else:
            says = keys, Label(name), " failed"
            means = "The latest, ", Label(latest.key), ", ", Moment(latest.recorded_at), " ago: ", Label(latest.why)
        # A run that may have ended in the middle needs a look before one that is known to have failed.
        yield Problem("warning", "results", state == "left", f"{state} {name}", says, means, ("once", name))


def _of_server(findings: tuple[ServerFinding, ...]) -> Iterator[Problem]:
    times = Counter[str]()
    for one in findings:
        times[one.topic] += 1
        again = f" {times[one.topic]}" if times[one.topic] > 1 else ""  # each replica, and each primary, may have one
        if (level := SEVERITIES[one.severity]) is not None:
            says, means = sentences_of(one)
            yield Problem(level, "server", 1, f"server {one.topic}{again}", (says,), (means,), command=one.command)


def sentences_of(finding: ServerFinding) -> tuple[str, str]:
    """Return the harm of a finding about the server; and the cause and the advice, in sentences."""
    harm, _, cause = finding.text.partition(": ")
    return _capital(harm), " ".join(f"{_capital(text)}." for text in (cause, finding.advice) if text)


def _of_keys(count: int) -> Problem:
    says = (f"{count:,} {'key' if count == 1 else 'keys'} of this namespace can't be read",)
    means = ("Another program has written there, or the name is too long. All other names are shown.",)
    return Problem("note", "server", 0, "passed over", says, means)


def _capital(text: str) -> str:
    """Begin a sentence with a capital; the name of a setting stays as it is."""
    return text if "-" in text.partition(" ")[0] else text[:1].upper() + text[1:]


def _waiting(count: int) -> str:
    return "no one waits" if count == 0 else "1 is waiting" if count == 1 else f"{count:,} are waiting"


def _sentence(count: int) -> str:
    text = _waiting(count)
    return text[:1].upper() + text[1:]


def _silence(count: int) -> str:
    return f"; {count:,} of them {'is' if count == 1 else 'are'} silent." if count else "."
