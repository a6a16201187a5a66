"""A run of a key: the result, or the lease under which the caller does the work."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

from handfast._api.aio.lease import AsyncLease
from handfast._api.decorators import check_finished
from handfast._api.results import Codec, describe
from handfast._drivers.aio.driver import AsyncDriver
from handfast._engine.effects import Found
from handfast._engine.once import DROPPED, NEVER, OnceRequest, Outcome
from handfast._naming import name_publicly
from handfast._protocol.lease import LeaseState
from handfast.errors import NotHeld, Preempted

__all__ = ["AsyncRun"]


class AsyncRun(AsyncLease):
    """The reply to a call for a key: an existing result (`done`), or a lease to do the work.

    A run which is not done is a `Lease` with all that belongs to it: a fence, renewal, `lost`, `check`. It ends in one
    of three ways. `finish` records the result; a block left without it, and without an exception, records None. An
    exception ends it as failed, and the next caller runs, unless failures are remembered, or an old result counts
    still, which all others get then. Where the run was lost, the result is refused with LeaseLost.

    Network errors come from redis-py, as `Handfast` lists them.

    Example:
        async with hf.once("invoice").keyed(order.id) as run:
            if not run.done:
                await run.finish(await charge(order, fence=run.fence))
            return run.result
    """

    __slots__ = ("_age", "_codec", "_done", "_keep_failure_ms", "_result")

    _instead = "its result is found by all who ask for it"

    _stays: ClassVar[str] = "its result belongs to the process that runs it"

    def __init__(self, driver: AsyncDriver, state: LeaseState, codec: Codec, keep_failure_ms: int | None) -> None:
        super().__init__(driver, state, "raise")
        self._codec = codec
        self._keep_failure_ms = keep_failure_ms
        self._age = 0.0
        self._done = False
        self._result: Any = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.name!r}, done>" if self._done else super().__repr__()

    @property
    def done(self) -> bool:
        """True if there is a result: it was there already, or `finish` has recorded it."""
        return self._done

    @property
    def result(self) -> Any:
        """The result, as every caller gets it: read by `loads` from the stored bytes.

        Raises:
            RuntimeError: The run is not done.
        """
        if not self._done:
            raise RuntimeError(f"the run of {self.name!r} has no result: it is not done; call finish() in its block")
        return self._result

    @property
    def age(self) -> float:
        """Seconds for which the result had been there when the caller asked, by the server's clock; 0.0 if the caller made it."""
        return self._age

    def check(self) -> None:
        """Raise an error unless the caller runs it. Takes no I/O.

        Call it between the steps of long work. It can't see a loss which the server has not reported yet, such as a
        revocation on its way; only the fence protects against that.

        Raises:
            LeaseLost: The run was lost. The result will be refused.
            NotHeld: It is done, or was released.
        """
        if self._done:
            raise NotHeld(self.name)
        super().check()

    async def finish(self, value: Any = None) -> None:
        """Record the result, and give it to all who wait for it.

        Takes one round trip; another for each 100 waiters.

        After an error of the connection it is repeated in the background, and may be called again.

        Args:
            value: The result. By default, a value that JSON can hold; else a value that ``dumps`` takes. At most 1 MiB
                as it is stored.

        Raises:
            LeaseLost: The run was lost, and another run may have begun. Nothing was recorded; or the reply was lost,
                and the record was replaced or deleted before it was sent again.
            NotHeld: It is done, or was released.
            TypeError: The value can't be stored. Errors of ``dumps`` and ``loads`` are raised as they are. In both
                cases the run is recorded as done, without a result: it is not run again, and others get NotCompleted.
            ValueError: The value is too large, or can't be stored. The same holds.
            ServerRefused: The server refused, for example because it is read-only.
        """
        self.check()
        check_finished(value, self.name)
        unstorable = self._end_with(value)
        if not await self._driver.release(self._state):
            self.check()
        self._done = unstorable is None
        if unstorable is not None:
            raise unstorable

    def _check_entry(self) -> None:
        if not self._done:
            super()._check_entry()

    def _find(self, recorded: Found) -> Self:
        """Take an existing result."""
        self._result, self._age, self._done = self._codec.decode(recorded.value), recorded.age, True
        return self

    async def _leave(self, error: BaseException | None) -> bool:
        unstorable = None
        # An end that the block has recorded itself stays, whatever happens behind it.
        if self._request.ending is None:
            if error is None:
                unstorable = self._end_with(None)
            elif isinstance(error, Preempted):
                # The run was interrupted and has not failed: the
                # next caller runs it, also where failures are kept.
                self._drop()
            elif self._keep_failure_ms is not None and isinstance(error, Exception):
                self._end_as("failed", describe(error), self._keep_failure_ms)
            else:
                self._drop()
        left = await self._driver.leave(self._state, error)
        ending = self._request.ending
        self._done = left and error is None and ending is not None and ending.outcome == "done"
        # Only now: the run has to be recorded as done first, so that it
        # is not repeated. After a loss the caller gets LeaseLost instead.
        if unstorable is not None and left:
            raise unstorable
        return left

    async def _leave_cancelled(self) -> bool:  # asyncio only
        if self._request.ending is None:  # asyncio only
            self._drop()  # asyncio only
        return await self._driver.leave(self._state, None)  # asyncio only

    def _drop(self) -> None:
        """End without a result: the next caller runs, unless an old result counts still."""
        if self._request.refresh_ms != NEVER:
            self._end_as(DROPPED, b"")

    @property
    def _request(self) -> OnceRequest:
        request: OnceRequest = self._state.request  # type: ignore[assignment]  # all runs have one
        return request

    def _end_with(self, value: Any) -> Exception | None:
        """Let the release record this result.

        Return the error of a result that can't be stored: then the run is recorded as done.
        """
        try:
            data, self._result = self._codec.encode(value)
        except Exception as error:  # noqa: BLE001 -- what dumps and loads raise
            self._end_as("unstored", describe(error))
            error.add_note(
                f"The work of {self.name!r} is done, and recorded without a result: others get NotCompleted. Give once() dumps= and "
                "loads= for such results, or let it run again with forget()."
            )
            return error
        self._end_as("done", data)
        return None

    def _end_as(self, outcome: Outcome | Literal["dropped"], value: bytes, keep_ms: int | None = None) -> None:
        """Let the release record this.

        A run lost by the clock of this process records nothing, though the server may still have the lease.
        """
        if not self.lost:
            self._state.request = self._request.ending_as(outcome, value, keep_ms)


name_publicly(globals(), "handfast")
