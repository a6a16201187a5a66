"""Faces: each kind has one, each says all that views ask, and all views say the same of a name."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import get_args

import pytest

from handfast import (
    BudgetStatus,
    DebounceStatus,
    Handfast,
    Hold,
    Holder,
    LatchStatus,
    LimiterStatus,
    LockStatus,
    OnceStatus,
    OperatorAction,
    RateStatus,
    Waiter,
)
from handfast._kinds import KINDS
from handfast._watch.exposition import Exposition
from handfast._watch.faces import FACES
from handfast._watch.faces.face import Act
from handfast._watch.facts import Facts, Unreadable
from handfast._watch.live import Live, View
from handfast._watch.looker import Looker
from handfast._watch.problems import find_problems
from handfast._watch.rows import Row, gathered, rows_of
from handfast.arguments import HeldKind, Kind
from handfast.cli.operate import objects, words
from handfast.cli.operate.words import text_of
from handfast.cli.top.cells import drawn
from handfast.cli.top.frames import Screen
from handfast.metrics import Labels
from handfast.page import wire
from tests._support.helpers import eventually_async
from tests._support.objects import OBJECTS
from tests.gate.metrics.test_exporter import values

NOW = 1000.0

RESETS = datetime(2026, 12, 1, tzinfo=UTC)

HOLD = Hold(datetime(2026, 11, 28, tzinfo=UTC), 3600.0, "ops", "migration")

PAUSE = OperatorAction(datetime(2026, 11, 28, tzinfo=UTC), "pause", "ops", "they answer 429")


def leases(holding=1, *, waiting=2, limit=1, hold=None, exclusive=True, value=""):
    holders = tuple(
        Holder(
            "t", 7 + n, 1, 20.0, 50.0 - n, f"web-{n}", exclusive, f"c.{n}", released=False, lock_all=False, value=value
        )
        for n in range(holding)
    )
    waiters = tuple(
        Waiter("w", 1, n, 30.0 - n, f"job-{n}", exclusive, f"d.{n}", lock_all=False) for n in range(waiting)
    )
    free = 0 if hold else max(0, limit - holding)
    return LockStatus(holders, waiters, 7, holding, waiting, limit, free, 5, 2.0, None, 50.0, hold, holding)


LIMITER = LimiterStatus((RateStatus(500, 60.0, 480, 20, 30.0),), 3, 0.0, None, 9.0)

SAMPLES = {
    "lock": leases(),
    "semaphore": leases(3, limit=4, exclusive=False),
    "rwlock": leases(2, limit=10**9, exclusive=False),
    "election": leases(value="http://a"),
    "group": leases(3, waiting=0, limit=10**9, exclusive=False),
    "partition": leases(2, waiting=0, limit=10**9, exclusive=False),
    "once": leases(waiting=0),
    "limiter": LIMITER,
    "budget": BudgetStatus(Decimal("97.2"), Decimal("0.3"), Decimal(100), RESETS, 90_000.0, Decimal(), "month"),
    "debounce": DebounceStatus(1, 40.0, 3.0, 2),
    "latch": LatchStatus(("a", "b"), None, 2, 2, datetime(2026, 11, 28, tzinfo=UTC)),
}
"""A status of each kind in which there is something to say."""

SAYS = {
    "lock": "held by web-0 for 50s; 2 waiting, the first for 30s",
    "semaphore": "3 of 4 permits held, the first for 50s; 2 waiting, the first for 30s",
    "rwlock": "held by 2 readers, the first for 50s; 2 waiting, the first for 30s",
    "election": "led by web-0 for 50s; 2 candidates stand by",
    "group": "3 members, the first for 50s; no one waits",
    "partition": "2 workers, the first for 50s; no one waits",
    "once": "held by web-0 for 50s; no one waits",
    "limiter": "480/500 in 1m used; 3 waiting, the first for 9.0s",
    "budget": "97.20 of 100 spent this month; 0.30 held",
    "debounce": "runs in 3.0s; calls for 40s",
    "latch": "2 parts done; 2 waiting",
}

kinds = pytest.mark.parametrize("kind", SAMPLES)


def row(kind, status=None, **other):
    return Row(kind, "a", SAMPLES[kind] if status is None else status, NOW, **other)


UNSEEN = {"owner", "head_start", "position"}
"""Fields of a holder or a waiter that the page has no place for."""


def changed(person):
    """Yield a copy for each field, with another value there alone."""
    for field in fields(person):
        value = getattr(person, field.name)
        other = not value if isinstance(value, bool) else f"{value}x" if isinstance(value, str) else (value or 0) + 70
        yield field.name, replace(person, **{field.name: other})


def test_every_field_of_a_holder_and_of_a_waiter_is_in_the_json_and_on_the_page():
    """So a new field is sent to the page, or is among the exceptions."""
    status = leases(waiting=1)
    for part in ("holders", "waiters"):
        for name, other in changed(getattr(status, part)[0]):
            pairs = [(row(kind, status), row(kind, replace(status, **{part: (other,)}))) for kind in get_args(HeldKind)]
            assert all(objects.description("hf", old) != objects.description("hf", new) for old, new in pairs), name
            shown = any(wire.details(old)[part] != wire.details(new)[part] for old, new in pairs)
            assert shown == (name not in UNSEEN), (part, name)


def test_each_kind_that_is_listed_has_a_face():
    assert set(FACES) == set(get_args(Kind)) >= set(SAMPLES)
    assert {kind for kind, face in FACES.items() if face.has_leases} == {
        name for name, kind in KINDS.items() if kind.limit is not None
    }
    assert {kind for kind, face in FACES.items() if "hold" in face.acts} == set(get_args(HeldKind))
    assert {act for face in FACES.values() for act in face.acts} == set(get_args(Act))


@kinds
def test_a_face_says_how_far_a_name_is(kind):
    one = row(kind)
    assert text_of(one.face.says(one, one.facts), NOW) == SAYS[kind]


def test_the_face_of_a_limiter_names_its_metrics():
    rates = RateStatus(500, 60.0, 480, 20, 30.0, "requests"), RateStatus(0, 60.0, 9000, 0, 5.0, "tokens")
    one = row("limiter", LimiterStatus(rates, 0))
    assert (
        text_of(one.face.says(one, one.facts), NOW) == "480/500 requests in 1m, 9,000 tokens in 1m used; no one waits"
    )
    assert [rate["metric"] for rate in one.face.summary(one)["rates"]] == ["requests", "tokens"]
    assert [rate["metric"] for rate in row("limiter").face.summary(row("limiter"))["rates"]] == [None]
    assert [rate[5] for rate in wire.fields_of(one, ())["rates"]] == ["requests", "tokens"]


@kinds
def test_a_face_answers_all_that_views_ask(kind):
    assert "waiting" in asked(row(kind))


@pytest.mark.parametrize("kind", [kind for kind in OBJECTS if kind in FACES])
async def test_a_face_answers_all_that_views_ask_of_a_name_on_the_server(hf, kind):
    sample = OBJECTS[kind]
    with ThreadPoolExecutor(1) as threads:
        using = threads.submit(sample.wait or sample.use, hf, "a")
        (one,) = await eventually_async(lambda: [*rows_of(hf.names(kinds=[kind]), NOW)])
        asked(one)
        if sample.let_go is not None:
            sample.let_go(hf, "a")
        using.result(20)


def asked(one):
    """Ask a face all that views ask, and return the object of `handfast show --json`."""
    face, facts = one.face, one.facts
    assert len(face.cells(one, facts)) == len(face.columns)
    assert text_of(one.who, NOW)
    for said in face.notes(one, facts):
        assert text_of(said, NOW).strip()
    for listing in face.listings(one):
        assert listing.title
        assert listing.rows
    for person in (*facts.holders, *facts.queue):
        assert face.role(person)
        assert isinstance(face.is_usual(person), bool)
        assert isinstance(face.is_strong(person), bool)
    shown = objects.description("hf", one)
    assert {"namespace", "kind", "name"} <= shown.keys()
    for sent in (shown, wire.fields_of(one, ()), wire.details(one), wire.kinds()[one.kind]):
        json.dumps(sent)
    assert next(words.described(one, None, whole_queue=False)) == f"{one.kind} {one.name}"
    return shown


@kinds
def test_all_views_say_the_same_of_a_name(kind):
    one = row(kind)
    view = View(NOW, 0.0, (one,), is_whole=True)
    who = text_of(one.who, NOW)
    figures = f"{one.facts.waiting:,}"
    (line,) = [line for line in words.summary([words.entry(one)], None, last_used=False) if line.startswith("a ")]
    shown = [*words.described(one, None, whole_queue=True)]
    screen = Screen("hf", view, shows="limits" if one.face.has_rates else "names")
    top = "\n".join(drawn(cells, 140, color=False, plain=True) for cells in screen.frame(140, 12, NOW))
    page = wire.fields_of(one, ())
    assert who in line or kind in ("budget", "debounce", "latch")
    assert shown[1].strip() == SAYS[kind]
    assert page.get("waiting", 0) == one.facts.waiting
    assert page.get("holding", 0) == one.facts.holding
    if one.facts.waiting:
        assert figures in line.split() or kind == "debounce"
        assert figures in top.split()
    if one.face.has_leases:
        assert who in top
        held = f"{one.facts.out:,} of {one.facts.limit:,}" if one.facts.limit else ""
        assert held in SAYS[kind]
        assert held in str(one.status)
        assert f"{one.facts.waiting:,} waiting" in str(one.status)


def test_a_hold_leaves_the_permits_of_holders_in_every_view():
    one = row("semaphore", leases(1, waiting=0, limit=3, hold=HOLD, exclusive=False))
    assert (one.facts.out, one.facts.limit) == (1, 3)
    assert "1/3" in text_of(one.who, NOW)
    assert "1 of 3 permits held" in text_of(one.face.says(one, one.facts), NOW)
    assert "1 of 3 permits held" in str(one.status)
    assert (wire.fields_of(one, ())["out"], wire.fields_of(one, ())["limit"]) == (1, 3)
    first = next(one.face.notes(one, one.facts))
    assert text_of(first, NOW).startswith("on hold for 1h00m, until 2026")


@pytest.mark.parametrize(("kind", "level"), [("lock", "urgent"), ("election", None)])
def test_candidates_that_stand_by_are_no_alarm_in_any_view(kind, level):
    status = leases()
    old = replace(
        status,
        holders=(replace(status.holders[0], held_for=7200.0),),
        waiters=(replace(status.waiters[0], waited_for=3600.0),),
    )
    one = row(kind, old)
    view = View(NOW, 0.0, (one,), is_whole=True)
    assert (one.held_level(NOW), one.wait_level(NOW)) == (level, level)
    assert bool(find_problems(view)) is (level is not None)
    exposition = Exposition(Labels())
    exposition.take(view)
    found = values(exposition.text(Looker("x", lambda: None, print, every=lambda: 1.0, rests=1)))
    awaited = found["handfast_oldest_awaited_hold_seconds", ("kind", kind), ("name", "a")]
    assert (awaited > 0) is (level is not None)


def test_a_pause_and_a_hold_have_the_same_facts():
    paused = row("limiter", replace(LIMITER, paused_for=60.0, last=PAUSE))
    held = row("lock", leases(0, waiting=0, hold=HOLD))
    assert [(one.facts.stop.by, one.facts.stop.why) for one in (paused, held)] == [
        ("ops", PAUSE.why),
        ("ops", "migration"),
    ]
    assert [one.id.split()[0] for one in find_problems(View(NOW, 0.0, (paused, held), is_whole=True))] == [
        "stopped"
    ] * 2


def test_the_items_of_a_partition_are_in_its_row():
    whole = row("partition")
    items = [Row("partition", f"a|{item}", leases(), NOW) for item in "xyz"]
    items[2] = replace(items[2], status=leases(0, waiting=0))
    other = Row("partition", "b|x", leases(), NOW)
    shown = gathered([whole, *items, other])
    assert [one.name for one in shown] == ["a", "b|x"], "items without their partition stand alone"
    (listing,) = shown[0].face.listings(shown[0])
    lines = [(text_of(said, NOW), [*texts]) for said, texts in listing.rows]
    assert lines == [("web-0, 2 items", ["x", "y"]), ("web-1, 0 items", []), ("no worker, 1 item", ["z"])]
    assert (
        text_of(shown[0].face.says(shown[0], shown[0].facts), NOW)
        == "3 items on 2 workers, the first for 50s; no one waits"
    )


@pytest.mark.parametrize(
    ("state", "cell", "says"),
    [
        ("done", "done", "done 9.0s ago"),
        ("begun", "began, did not end", "began 9.0s ago and did not end; it is not run again"),
        ("unstored", "done, not stored", "done 9.0s ago, and its result could not be stored"),
    ],
)
def test_a_key_of_once_says_what_is_recorded(state, cell, says):
    one = row("once", leases(0, waiting=0), recorded=OnceStatus(state, 9.0, None, 0))
    assert (text_of(one.who, NOW), text_of(one.face.says(one, one.facts), NOW)) == (cell, says)


async def test_what_this_version_cannot_read_has_a_face(hf, raw):
    raw.hset("{hf:barrier:gate}:state", "x", "y")
    raw.hset("{hf:lock:new}:state", "s", "layout 2")
    hf.note("hold", "a", kind="lock", reason="an entry of the audit is no name")
    with hf.lock("old"):
        view = Live(hf).step()
        found = {one.key: one for one in view.rows}
        assert set(found) == {("lock", "old"), ("lock", "new"), ("barrier", "gate")}
        said = {key: text_of(one.face.says(one, one.facts), NOW) for key, one in found.items() if key[1] != "old"}
        assert said == {
            ("lock", "new"): "not read: it is in layout 2, and this version knows layout 1",
            ("barrier", "gate"): "not read: this version knows no kind 'barrier'",
        }
        for key in said:
            one = found[key]
            json.dumps([objects.description("hf", one), wire.fields_of(one, ()), wire.details(one)])
            assert any("upgrade" in line for line in words.described(one, None, whole_queue=False))
        screen = Screen("hf", view)
        lines = "\n".join(drawn(cells, 140, color=False, plain=True) for cells in screen.frame(140, 12, view.at))
        assert re.search(r"gate +barrier +this version", lines)
        assert find_problems(replace(view, findings=())) == []
    raw.delete("{hf:barrier:gate}:state", "{hf:lock:new}:state")


def test_facts_of_an_unknown_kind_are_empty():
    one = Row("barrier", "gate", Unreadable("a newer version wrote it"), NOW)
    assert one.facts == Facts()
    assert {field.name for field in fields(Facts)} >= {"waiting", "holding", "stop"}
    with Handfast("null:") as client, pytest.raises(KeyError):
        one.named.forget(client, reason="x", version="y")
