"""What is made shows its class, which is public, and its name; a lease of it also its fence, and later that it is over."""

from __future__ import annotations

import handfast
from handfast._kinds import KINDS
from tests._support.apis import SYNC

NAME = "a b"


def applies(row, api):
    return "it is made of items" if row.like == "partition.run" else None


async def test_shown(api, client, row, visit):
    made, prefix = row.make(client, NAME), "" if api is SYNC else "Async"
    shown = type(made).__name__
    assert getattr(handfast, shown) is type(made)
    assert shown in {prefix + name for names in KINDS[row.of].modules.values() for name in names}
    assert repr(made) in {f"<{shown} {NAME!r}>", f"<{shown} {NAME!r}, 'b'>", f"<{shown} '{NAME}, b, c'>"}
    if row.shape != "block":
        return
    one = visit(made)
    assert await one.enters()
    lease = one.leases[0]
    if lease is not None:
        its = type(lease).__name__
        assert getattr(handfast, its) is type(lease)
        assert repr(lease).startswith(f"<{its} of {lease.name!r}, fence {lease.fence}, ")
        assert lease.name.startswith(NAME)
        assert await one.leaves() is None
        assert repr(lease).endswith((", released>", ", done>"))
