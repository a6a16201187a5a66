"""The autocomplete index through both APIs: what it finds, in which order, and how concurrent changes behave.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

import asyncio
import itertools

import pytest

from tests.gate.api import test_autocomplete as gate
from tests.gate.api.test_autocomplete import Model, commands, every_kind

names = gate.names
ranked = gate.ranked


# --- against a model


@pytest.mark.parametrize("fold_case", [False, True], ids=["exact", "folded"])
@pytest.mark.parametrize("worse", ["a", "b", "z"])
async def test_thousands_of_ranked_names_are_completed_as_the_model_completes_them(here, raw, fold_case, worse):
    """The prefixes match few or many names, high or low in the ranking, so that both read strategies are used."""
    options = {"fold_case": fold_case, "ranked": True}
    names, model = here.autocomplete("a", **options), Model(**options)
    spread = {"a": 150, "b": 1000, "c": 2000, "d": 2001, "Z": 2700, "z": 300}
    many = {
        f"{letter}{number * 7919 % 10_007:05}": (number * 31 % 50) - (100 if letter.lower() == worse else 0)
        for letter, count in spread.items()
        for number in range(count)
    }
    await names.add(many)
    model.add(many)
    calls = set()
    for prefix in ("a", "b", "b0", "c", "d", "d1", "z", "Z", "", "nothing"):
        for limit in (1, 10, 200, 2500, 10_000):
            raw.config_resetstat()
            assert await names.complete(prefix, limit=limit) == model.complete(prefix, limit=limit)
            calls.add(commands(raw)["evalsha"])
    assert 1 in calls
    assert max(calls) > 2, "one call at least walks the ranking in several batches"


# --- concurrent clients


@every_kind
async def test_concurrent_changes_never_make_complete_invent_or_repeat_a_name(here, there, options):
    """With ranks, completing `a` takes several reads, while names before and after it are added and removed."""
    mine, yours = here.autocomplete("a", **options), there.autocomplete("a", **options)
    staying = {f"z{number:04}": 10 for number in range(4500)} | {f"a{number:04}": 1 for number in range(2200)}
    guests = {f"{letter}guest{number:03}": number % 12 for letter in "az" for number in range(100)}
    await yours.add(staying if options["ranked"] else list(staying))
    looks, seen = [], set()

    async def come_and_go():
        for turn in itertools.count():
            some = dict(list(guests.items())[turn % 2 :: 2])
            await yours.add(some if options["ranked"] else list(some))
            if len(looks) > 40 and seen & guests.keys():
                break
            await yours.remove(list(some)[turn % 3 :])
        await yours.remove(list(guests))

    async def look(come):
        while not come.done():
            for prefix, limit in (("a", 5), ("a", 3000), ("z", 30), ("aguest", 50)):
                looks.append((prefix, limit, await mine.complete(prefix, limit=limit)))
                seen.update(looks[-1][2])

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(look(tasks.create_task(come_and_go())))
    assert seen <= staying.keys() | guests.keys()
    for prefix, limit, found in looks:
        assert len(found) <= limit
        assert len(set(found)) == len(found)
        assert all(name.startswith(prefix) for name in found)
    assert await mine.size() == len(staying)
    assert await mine.complete("a", limit=3) == ("a0000", "a0001", "a0002")
