"""The assignment of items to members: balanced, stable, and the same for all."""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handfast._protocol.assigning import assigned, check_items

MEMBERS = st.sets(st.integers(1, 2**53), max_size=12)
ITEMS = st.sets(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5), max_size=60)


@given(MEMBERS, ITEMS)
def test_each_item_has_a_member_and_none_has_more_than_its_share(members, items):
    found = assigned(members, items)
    assert found.keys() == (items if members else set())
    assert set(found.values()) <= members
    share = ceil(len(items) / len(members)) if members else 0
    assert all(count <= share for count in Counter(found.values()).values())


@given(MEMBERS, ITEMS)
def test_all_compute_the_same_in_whichever_order_they_know_it(members, items):
    one = assigned(sorted(members), sorted(items))
    assert assigned(sorted(members, reverse=True), sorted(items, reverse=True)) == one


@given(MEMBERS, ITEMS, st.integers(1, 9))
def test_no_member_has_more_than_the_most(members, items, most):
    found = assigned(members, items, most)
    assert all(count <= most for count in Counter(found.values()).values())
    assert len(found) == min(len(items), most * len(members), len(items) * bool(members))


@given(MEMBERS, ITEMS)
def test_no_item_and_member_would_both_rather_have_each_other(members, items):
    """This is what makes the assignment stable, and the only one."""
    found = assigned(members, items)
    held = {member: [item for item, one in found.items() if one == member] for member in members}
    share = ceil(len(items) / len(members)) if members else 0
    for item, member in found.items():
        for other in members:
            if digest(other, item) < digest(member, item):
                assert len(held[other]) == share
                assert all(digest(other, one) < digest(other, item) for one in held[other])


def digest(member, item):
    return blake2b(member.to_bytes(8, "big") + item.encode(), digest_size=8).digest()


@pytest.mark.parametrize(("count", "workers", "most"), [(1000, 10, 1.4), (100, 7, 1.6), (60, 4, 1.4), (200, 20, 2.6)])
def test_few_items_move_when_a_member_comes_or_goes(count, workers, most):
    items = [f"item-{number}" for number in range(count)]
    joined = left = 0
    for seed in range(10):
        members = [seed * 1_000_003 + 7919 * number for number in range(workers)]
        before = assigned(members, items)
        after = assigned([*members, seed + 500_009], items)
        without = assigned(members[1:], items)
        joined += sum(before[one] != after[one] for one in items)
        left += sum(before[one] != without[one] for one in items)
    assert joined <= 10 * most * count / (workers + 1)
    assert left <= 10 * most * count / workers


def test_many_items_are_spread_evenly():
    loads = Counter(assigned(range(1, 11), [f"item-{number}" for number in range(1000)]).values())
    assert set(loads.values()) == {100}


@pytest.mark.parametrize(
    ("items", "error", "words"),
    [
        ("abc", TypeError, "not the str"),
        (["a", 1], TypeError, "an item must be a str, not 1"),
        (["a", ""], ValueError, "an item must not be empty"),
        (["a", "\ud800"], ValueError, "valid Unicode"),
        (["a", "x" * 16385], ValueError, "at most 16384 bytes"),
        (["a", "b", "a"], ValueError, "stands twice: 'a'"),
        (map(str, range(10_001)), ValueError, r"at most 10,000 items, not 10,001; let an item stand"),
        (5, TypeError, "iterable"),
    ],
)
def test_bad_items_are_refused(items, error, words):
    with pytest.raises(error, match=words):
        check_items(items)


def test_good_items_may_come_from_any_iterable():
    assert check_items(name for name in ("a", "b|c", "x" * 16384)) == {"a", "b|c", "x" * 16384}
    assert check_items(map(str, range(10_000))) >= {"0", "9999"}
    assert check_items([]) == frozenset()
