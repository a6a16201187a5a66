"""The callers of a key of `once`: each order finds what is recorded, or runs and ends in one of several ways."""

from __future__ import annotations

import contextlib
from typing import Any

from handfast_lab.simulator.client import leaves_nothing, state_of
from handfast_lab.simulator.lease_callers import ENDS, Leased
from handfast_lab.simulator.once_watch import OnceWatch
from handfast_lab.simulator.orders import Recording, Target

__all__ = ["Running"]

NOTHING = "nothing"
"""Stands in histories for the result of a scope that ends without one."""


class Running(Leased):
    """The execution of one order."""

    _watch: OnceWatch

    async def run(self) -> None:
        """Do it."""
        order = self._order
        if order.verb == "forget":
            await self._plain("forget", order.target, self._primitive(order.target).forget())
        else:
            await super().run()

    @property
    def _recording(self) -> Recording:
        recording = self._order.target.recording
        assert recording is not None  # noqa: S101 -- each order of `once` has one
        return recording

    def _primitive(self, target: Target) -> Any:
        recording = self._recording
        return self._client.api.once(
            target.name,
            keep=recording.keep_ms / 1000,
            ttl=target.ttl_ms / 1000,
            refresh=recording.refresh_ms / 1000 or None,
            keep_failure=recording.keep_failure_ms / 1000 or None,
            rerun=recording.reruns,
            on_running="wait" if recording.waits else "raise",
            max_waiters=target.max_waiters,
            head_start=self._order.head_start,
        )

    def _options(self) -> dict[str, Any]:
        return {"fingerprint": self._recording.fingerprint or None}

    def _got(self, lease: Any) -> Any:
        watch, state, target = self._watch, state_of(lease), self._order.target
        if not lease.done:
            super()._got(lease)
            watch.runs(target, state)
            return lease
        assert self._attempt is not None  # noqa: S101 -- there is no run without one
        watch.ended(self._client, state.token, certain=leaves_nothing(self._attempt))
        watch.found(target, state.token, state.fence, lease.result)
        watch.noted(self._note, "found", value=lease.result or NOTHING)
        return None

    async def _have(self, lease: Any) -> None:
        order, state = self._order, state_of(lease)
        if order.end not in ("finish", "unstorable"):
            self._watch.records(order.target, state.fence, None)  # what a scope does that ends without a result
            await super()._have(lease)
            return
        if order.in_scope:
            await lease.__aenter__()
        error: BaseException | None = None
        finishes = False
        try:
            await self._use(lease)
            finishes = True
            await self._leave(lease, self._finish(lease), failed=False)
        except ENDS as ended:
            error = ended
        leaving = lease.__aexit__(error and type(error), error, None) if order.in_scope else lease.release()
        if finishes:
            with contextlib.suppress(*ENDS):
                await leaving
        else:
            await self._leave(lease, leaving, failed=error is not None)

    async def _finish(self, run: Any) -> None:
        if self._order.end == "unstorable":
            with contextlib.suppress(TypeError):
                await run.finish(object())
            return
        value = state_of(run).token.decode()
        self._watch.records(self._order.target, run.fence, value)
        await run.finish(value)
        self._watch.found(self._order.target, state_of(run).token, run.fence, run.result)

    def _value(self) -> str | None:
        """Return what the order records, if it does."""
        assert self._attempt is not None  # noqa: S101 -- there is no run without one
        ends_empty = self._order.end == "release" and self._order.in_scope
        return self._attempt.token.decode() if self._order.end == "finish" else NOTHING if ends_empty else None
