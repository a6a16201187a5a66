"""What the trials of cancellations and interrupts share: an operation is stopped, and nothing of it may remain."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count as counting
from typing import Any

import redis

from handfast.testing.injection import Run
from handfast_lab.chaos.apis import api_of, settled
from handfast_lab.chaos.operations import RETRY_FOR, Call, OperationKind, second
from handfast_lab.chaos.trials import Progress
from handfast_lab.rivals import is_left
from handfast_lab.rivals.contender import Contender

__all__ = ["StopTest"]


@dataclass
class StopTest:
    """Runs operations of a contender, each on a name of its own, and stops them."""

    contender: Contender
    admin: redis.Redis
    progress: Progress
    struck: int = 0
    """How often an operation was stopped before its end."""

    def __post_init__(self) -> None:
        self.api = api_of(self.contender)
        self._numbers = counting()

    def new_name(self) -> str:
        """Return a name that nothing has used."""
        return f"stopped-{next(self._numbers)}"

    async def stop(
        self, operation: OperationKind, stop: Callable[[Callable[[], Any]], Any]
    ) -> tuple[str, Call, Run[Any]]:
        """Run an operation, stop it by `stop`, and undo what it has done. Return its name, the call and the outcome."""
        name = self.new_name()
        call = await operation.prepare(name)
        run: Run[Any] = await settled(stop(call.make))
        with contextlib.suppress(Exception):  # a contender may raise anything; only leftovers count
            await self.api.within(call.undo(run.result), RETRY_FOR)
        self.struck += bool(run.struck)
        for _ in range(2):  # requests sent before are executed by the time of the second reply
            self.admin.ping()
        return name, call, run

    def is_left(self, name: str) -> bool:
        """Return whether the name, or the one locked together with it, has a holder or a waiter."""
        return any(is_left(self.contender, self.admin, each) for each in (name, second(name)))
