"""Entered by a caller that is in it: the caller is in again, or is refused with WouldDeadlock. It never waits for itself."""

from __future__ import annotations

import asyncio
import threading

from handfast import WouldDeadlock
from tests._support.apis import SYNC
from tests._support.kinds import until


def applies(row, api):
    return None if row.shape == "block" else "it has no block"


class Nested:
    """A caller that enters a block in its block. Both are entered in one function, by which the sync API knows its caller."""

    def __init__(self, row, api, client):
        self.is_in, self.outcome = False, None
        self._row, self._client = row, client
        if api is SYNC:
            self._thread = threading.Thread(target=self._run, name="nested", daemon=True)  # it ends with its client
            self._thread.start()
        else:
            self._task = asyncio.create_task(self._run_async())
        self._is_sync = api is SYNC

    @property
    def ended(self):
        return not self._thread.is_alive() if self._is_sync else self._task.done()

    def cancel(self):
        if not self._is_sync:
            self._task.cancel()

    def _block(self):
        return self._row.block(self._row.make(self._client))

    def _run(self):
        try:
            with self._block():
                self.is_in = True
                with self._block():
                    self.outcome = "in"
        except Exception as error:  # noqa: BLE001 -- the question judges it
            self.outcome = self.outcome or error.with_traceback(None)

    async def _run_async(self):
        try:
            async with self._block():
                self.is_in = True
                async with self._block():
                    self.outcome = "in"
        except Exception as error:  # noqa: BLE001 -- the question judges it
            self.outcome = self.outcome or error.with_traceback(None)


async def test_nested(api, client, there, row):
    caller = Nested(row, api, client)

    try:
        await until(lambda: caller.ended)  # a refused caller waits for a moment, too: only its end tells
    finally:
        caller.cancel()
    if row.reenters:
        assert caller.outcome == "in"
    else:
        assert isinstance(caller.outcome, WouldDeadlock) or (caller.outcome == "in" and row.room > 1), repr(
            caller.outcome
        )
    assert not row.busy(there)
