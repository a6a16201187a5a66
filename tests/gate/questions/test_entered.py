"""Entered by two callers at once, and again after its end: each is in, waits for the other, or is refused. Nothing is left."""

from __future__ import annotations

from handfast import HandfastError
from tests._support.kinds import until


def applies(row, api):
    return (
        None
        if row.shape != "calls" and not row.endless
        else "only its task or its client ends it"
        if row.run
        else "it has no block"
    )


async def test_entered_by_two_at_once(api, client, there, row, visit):
    made = row.make(client)
    block = row.block(made) if row.single else None
    both = [visit(made, block=block) for _ in range(2)]
    for one in both:
        one.may_leave = row.room == 1 and not row.takes_over  # then one is in after the other
    await until(lambda: all(one.begun or one.ended for one in both))
    entered = [one for one in both if one.begun]
    if row.single:
        assert len(entered) == 1, f"{len(entered)} callers have entered one block"
        (refused,) = (one for one in both if not one.begun)
        assert isinstance(refused.error, RuntimeError)
        assert entered[0].inside, "the caller that was in is no longer"
    else:
        assert sum(one.inside for one in both) <= row.room
    for one in both:
        error = await one.leaves()
        assert error is None or isinstance(error, HandfastError | RuntimeError), repr(error)
    await until(lambda: not row.busy(there))


async def test_entered_again(api, client, there, row, visit):
    made = row.make(client)
    block = row.block(made) if row.single else None
    for is_second in (False, True):
        row.forget(there)
        one = visit(made, block=block)
        entered = await one.enters()
        error = await one.leaves()
        if row.single and is_second:
            assert isinstance(error, RuntimeError), f"the second time: {error!r}"
            assert not entered
        else:
            assert entered, repr(error)
            assert error is None
    await until(lambda: not row.busy(there))
