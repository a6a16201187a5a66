"""The end of a lease, at a moment chosen by a test."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, cast, overload

from handfast import AsyncLease, Lease
from handfast._protocol import admin

if TYPE_CHECKING:
    from handfast._engine.calls import PermitRequest

__all__ = ["expire_now"]

REASON = "it was ended by expire_now() of a test"


@overload
def expire_now(lease: Lease) -> None: ...


@overload
def expire_now(lease: AsyncLease) -> Awaitable[None]: ...


def expire_now(lease: Any) -> Any:
    """End a lease on the server, as its ttl would without a renewal. Others may have the name at once.

    The holder learns of it as of every loss: by `Lease.lost`, `Lease.lost_event`, LeaseLost at the end of its block; in the asyncio
    API the block is cancelled. It learns by a message, so wait for ``lease.lost_event``.

    Example:
        def test_a_worker_stops_when_it_loses_its_lock(handfast_client):
            with pytest.raises(LeaseLost), handfast_client.lock("a") as lease:
                expire_now(lease)
                assert lease.lost_event.wait(5)

    Args:
        lease: The lease, of a single name. Of the asyncio API it returns a coroutine, to be awaited.

    Raises:
        TypeError: It is no lease, or the lease of a `lock_all`: end one of its names with `Lock.force_release`.
        redis.exceptions.ConnectionError: The server can't be reached.
    """
    if not isinstance(lease, Lease | AsyncLease) or len(lease._state.request.names) > 1:  # noqa: SLF001 -- for tests
        raise TypeError(f"expire_now needs a lease of one name, not {lease!r}")
    driver, request = lease._driver, cast("PermitRequest", lease._state.request)  # noqa: SLF001 -- for tests
    steps = admin.force_release(request, REASON, driver.label, lease.fence, least_fence=lease.fence)
    return driver.run(steps, lease.name)
