"""Leases by their tokens: of `Lease.detach`, or of ``handfast run``, whose HANDFAST_TOKEN does not tell the kind."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from handfast._engine.calls import PermitRequest
from handfast.arguments import Kind

if TYPE_CHECKING:
    from handfast import Handfast, Lease

__all__ = ["held_by", "primitive", "token_option"]


OWN = {"once": "a run of once", "group": "a membership of a group", "partition": "a worker of a partition"}
"""Leases of these kinds end with the process that holds them."""


def token_option(**options: Any) -> Callable[[Any], Any]:
    """Add the option ``--token``."""
    return click.option(
        "--token",
        metavar="TEXT",
        callback=lambda _ctx, _param, value: sys.stdin.read().strip() if value == "-" else value,
        help="The token of a lease; - reads it from standard input, where other users do not see it.",
        **options,
    )


def held_by(client: Handfast, name: str, token: str, kind: Kind | None, ttl: float) -> Lease | None:
    """Return the lease of a token, extended to that many seconds; None if it has ended.

    Raises ValueError for no token.
    """
    from handfast import LeaseLost

    if found := re.fullmatch(r"([0-9a-f]{32})(\.[0-9]+)?", token):
        leader = client.election(name).leader() if kind == "election" else None
        fence = leader.fence if leader else 0  # the announcement to observers has it
        token = f"{kind or 'lock'}.{found[1]}.{fence}.1.0{found[2] or ''}"
    its_kind = kind or token.partition(".")[0]
    if (its_own := OWN.get(its_kind)) is not None:
        raise ValueError(f"{its_own} belongs to its process: no other can extend or release it by its token")
    try:
        lease: Lease = primitive(client, its_kind, name, ttl=ttl, renew=False).adopt(token, label="")
    except LeaseLost:
        return None
    return lease


def primitive(client: Handfast, kind: str, name: str, **options: Any) -> Any:
    """Return the object of a name."""
    match kind:
        case "semaphore":
            return client.semaphore(name, 1, **options)
        case "rwlock":
            return client.rwlock(name, **options).read()
        case "election":
            election = client.election(name, ttl=options["ttl"])
            request = election._request  # noqa: SLF001 -- elections have no option for a term that is not renewed
            permits = PermitRequest(request.place, request.options._replace(renew=options["renew"]))
            return type(election)(client._driver, permits, "raise")  # noqa: SLF001 -- as above
        case _:
            return client.lock(name, **options)
