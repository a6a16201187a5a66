"""The user's code raises: the caller gets that error, or it is logged and the function is called again; nothing is left."""

from __future__ import annotations

import asyncio

from handfast import ClientClosed, Handfast
from tests._support.apis import ASYNCIO
from tests._support.kinds import until


def applies(row, api):
    if row.loop == "watches":
        return "the code is in the user's own loop"
    return None if row.shape != "calls" else "no code of the user runs in it"


async def cancelled():
    """Await a task that was cancelled, while its caller is not cancelled."""
    inner = asyncio.ensure_future(asyncio.sleep(0))
    inner.cancel()
    await inner


def closed():
    """Use another client that is closed."""
    other = Handfast("null:")
    other.close()
    other.lock("b").acquire()


def raising(error):
    """Return what raises an error of that class."""

    def act():
        raise error("of the user")

    return act


ACTS = {
    ValueError: raising(ValueError),
    asyncio.CancelledError: raising(asyncio.CancelledError),
    ClientClosed: closed,
    SystemExit: raising(SystemExit),
    KeyboardInterrupt: raising(KeyboardInterrupt),
}
"""By the error: what the user's code does."""

ENDS_THE_LOOP = (SystemExit, KeyboardInterrupt)
"""Errors with which a task ends its event loop, as asyncio has it."""

OF_OTHERS = (asyncio.CancelledError, ClientClosed)
"""Errors that belong to something else than the user's code: they end no loop."""


async def test_user_error(api, there, row, visit, caplog):
    acts = ACTS | ({asyncio.CancelledError: cancelled} if api is ASYNCIO else {})
    again = ()
    if row.loop == "serves":
        again = [error for error in acts if api is not ASYNCIO or error not in ENDS_THE_LOOP]
    elif row.loop == "leads":
        again = OF_OTHERS
    if again:
        await is_called_again(visit, {error: acts[error] for error in again}, caplog)
    if row.loop != "serves":
        await is_raised(there, row, visit, {error: act for error, act in acts.items() if error not in again})


async def is_raised(there, row, visit, acts):
    """Check that the caller gets each error, that its code was run once, and that nothing is held then."""
    wrong = {}
    for error, act in acts.items():
        one = visit(act=act)
        await one.until(lambda: one.begun > 1)  # noqa: B023 -- it is called in this round only
        if type(one.error) is not error or one.begun != 1:
            wrong[error.__name__] = f"called {one.begun} times, and raised {one.error!r}"
        else:
            await until(lambda: row.is_free(there))
        row.forget(there)
    assert not wrong


async def is_called_again(visit, acts, caplog):
    """Check that each error is logged, and that the function is called again."""
    left = list(acts.values())

    def act():
        return left.pop(0)() if left else None

    one = visit(act=act)
    assert await one.enters(len(acts) + 1), f"{len(left)} of {[*acts]} are left, and it ended with {one.error!r}"
    unlogged = [error.__name__ for error in acts if not any(said(error, record) for record in caplog.records)]
    assert not unlogged
    one.may_leave = True


def said(error, record):
    """Return whether a log record tells of that error."""
    return error.__name__ in record.getMessage() or (record.exc_info and record.exc_info[0] is error)
