"""Handfast in Starlette and FastAPI: a client for each application, locks, limits, answers sent once, and a leader.

    from typing import Annotated

    from fastapi import Depends, FastAPI
    from handfast import AsyncLease
    from handfast.contrib.starlette import handfast_lifespan, install_errors, locked

    app = FastAPI(lifespan=handfast_lifespan("redis://localhost:6379/0"))
    install_errors(app)

    @app.post("/orders/{order_id}/pay")
    async def pay(
        order_id: int,
        lease: Annotated[AsyncLease, Depends(locked("order:{order_id}"))],
    ):
        return {"fence": lease.fence}

It needs the extra ``handfast[starlette]``. FastAPI is imported by `Idempotent.route_class` alone, and pydantic where an endpoint
has its own types.

`lifespan` has the client and the leader, `dependencies` the lock and the limiter of a request, `idempotency` the answers sent once,
`fields` the values of a request for a name, and `answers` the answer to each error.
"""

from __future__ import annotations

try:
    import starlette as _  # noqa: F401 -- says which extra is missing, before a module that needs it
except ImportError:
    raise ImportError(
        "handfast.contrib.starlette needs Starlette; install it with: pip install 'handfast[starlette]'"
    ) from None

from handfast._naming import name_publicly
from handfast.contrib.starlette.answers import install_errors
from handfast.contrib.starlette.dependencies import limited, locked
from handfast.contrib.starlette.idempotency import Idempotent, idempotent
from handfast.contrib.starlette.lifespan import client, handfast_lifespan, leading

__all__ = ["Idempotent", "client", "handfast_lifespan", "idempotent", "install_errors", "leading", "limited", "locked"]

name_publicly(globals())
