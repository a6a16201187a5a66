"""A base of management commands that run in one place at a time."""

from __future__ import annotations

import logging
from typing import Any, ClassVar, Literal

from django.core.management.base import BaseCommand, CommandError, OutputWrapper

from handfast import AcquireTimeout, Lease
from handfast._engine.defaults import DEFAULT_TTL_S
from handfast.arguments import Duration
from handfast.contrib._common import Holding
from handfast.contrib.django.clients import DEFAULT, client

__all__ = ["SingleRunCommand"]

LOG = logging.getLogger("handfast.django")


class SingleRunCommand(BaseCommand):  # type: ignore[misc]
    """A management command that runs once at a time, on all machines.

    Example:
        class Command(SingleRunCommand):
            busy = "skip"

            def handle(self, *args, **options):
                close_month(fence=self.lease.fence)

    Attributes:
        lock_name: The name of the lock; by default the module of the command, such as "shop.management.commands.close_month".
        busy: The behaviour while another process runs it: "fail" (the default) with CommandError, "skip" with a line and exit code 0, or
            "wait".
        timeout: Seconds that "wait" waits at most, a number or a timedelta; then it fails. None waits indefinitely.
        ttl: Seconds after which the lock is free if the process dies. It is renewed meanwhile.
        alias: The alias of the client, see `client`.
        lease: The lease of the run: the fence, and `Lease.check`.
    """

    lock_name: ClassVar[str | None] = None
    busy: ClassVar[Literal["fail", "skip", "wait"]] = "fail"
    timeout: ClassVar[Duration | None] = None
    ttl: ClassVar[Duration] = DEFAULT_TTL_S
    alias: ClassVar[str] = DEFAULT

    def execute(self, *args: Any, **options: Any) -> Any:
        """Run the command, when no other process runs it."""
        if self.busy not in ("fail", "skip", "wait"):
            raise CommandError(f"busy must be 'fail', 'skip' or 'wait', not {self.busy!r}")
        lock = client(self.alias).lock(self.lock_name or type(self).__module__, ttl=self.ttl)
        try:
            self.lease: Lease = lock.acquire(timeout=self.timeout if self.busy == "wait" else 0)
        except AcquireTimeout as error:
            if self.busy == "skip":
                out = OutputWrapper(options["stdout"]) if options.get("stdout") else self.stdout
                out.write(f"It is skipped: {error}")
                return None
            raise CommandError(f"It does not run: {error}") from error
        with Holding(self.lease, LOG):
            return super().execute(*args, **options)
