"""The options of a run, parsed and checked before any server is contacted or started."""

from __future__ import annotations

from typing import Literal, NamedTuple

import click

from handfast._engine.validate import check_int

__all__ = ["Options", "parse_slots"]


class Options(NamedTuple):
    """The command line, parsed. Durations are in seconds."""

    name: str
    command: tuple[str, ...]
    slots: int | None
    shared: bool
    exclusive: bool
    nonblock: bool
    wait: float | None
    conflict_exit_code: int
    skip_ok: bool
    ttl: float
    at_least: float | None
    on_lost: Literal["term", "kill", "ignore"]
    kill_after: float
    url: str
    namespace: str
    label: str | None
    verbose: bool

    @property
    def wait_timeout(self) -> float | None:
        """Seconds to wait in the queue: 0 does not wait, None waits indefinitely."""
        return self.wait if self.wait is not None or not (self.nonblock or self.skip_ok) else 0.0

    @property
    def busy_code(self) -> int:
        """The exit code if the name is taken."""
        return 0 if self.skip_ok else self.conflict_exit_code


def parse_slots(_ctx: click.Context, _param: click.Parameter, value: int | None) -> int | None:
    """Check the limit of a semaphore as the library does."""
    from handfast._engine.calls import MAX_PERMITS

    try:
        return None if value is None else check_int(value, "the number of slots", MAX_PERMITS)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
