"""The client of an application while the application runs, and the election of the leading worker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeAlias

from starlette.requests import HTTPConnection

from handfast import AsyncHandfast, AsyncLeadership
from handfast.contrib._common import client_for

__all__ = ["Lifespan", "client", "handfast_lifespan", "leading"]

Lifespan: TypeAlias = Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any] | None]]
"""Called with the application; the block lasts as long as the application runs."""

LOG = logging.getLogger("handfast.starlette")


def handfast_lifespan(
    server: AsyncHandfast | str | None = None, *, inner: Lifespan | None = None, **options: Any
) -> Lifespan:
    """Return a lifespan that opens a client when the application starts, and closes it when the application ends.

    The client is ``app.state.handfast``, and the result of `client` in a request. The application may start again in the same
    process, as it does for each ``with TestClient(app)``. No I/O before the first request: an application starts while the
    server is away.

    Example:
        app = FastAPI(lifespan=handfast_lifespan("redis://localhost:6379/0", namespace="a"))

    Args:
        server: A URL as `handfast.AsyncHandfast` takes it; None takes it from ``$HANDFAST_URL``, else ``$REDIS_URL``. Or a
            client, for decorators that need a client when the module is imported.
        inner: The application's own lifespan. It begins when the client is there, and ends before it is closed.
        options: Of the new client: ``namespace``, ``label``, ``retry_for``, and so on.

    Raises:
        NoServer: ``server`` is None and no variable is set.
        TypeError: ``options`` beside a client.
        ValueError: The URL is none, or an option is out of range.
    """
    hf = client_for(AsyncHandfast, server, options)

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[Mapping[str, Any] | None]:
        async with hf:
            app.state.handfast = hf
            if inner is None:
                yield None
            else:
                async with inner(app) as state:
                    yield state

    return lifespan


def client(request: HTTPConnection) -> AsyncHandfast:
    """Return the client of the application that answers a request. A dependency, too: ``Depends(client)``.

    Raises:
        RuntimeError: The application has none. An application mounted into another has a separate ``state``.
    """
    found = getattr(request.app.state, "handfast", None)
    if not isinstance(found, AsyncHandfast):
        raise RuntimeError(  # noqa: TRY004 -- it is missing
            "this application has no client; make it with lifespan=handfast_lifespan(…), and let it start: `with "
            "TestClient(app)` does, TestClient(app) alone does not. If it is mounted into another one, set its state.handfast "
            "to the client of that one"
        )
    return found


@asynccontextmanager
async def leading(
    hf: AsyncHandfast, name: str, lead: Callable[[AsyncLeadership], Awaitable[Any]], **options: Any
) -> AsyncIterator[None]:
    """Campaign in the background, and call a function while this process leads: for the work of a single worker of several.

    After a loss, a hold or an outage it campaigns again, as `Election.run` does. At the end of the block the function is
    cancelled, and the next candidate leads.

    Example:
        @asynccontextmanager
        async def workers(app):
            async with leading(app.state.handfast, "scheduler", run_scheduler):
                yield

        app = FastAPI(lifespan=handfast_lifespan(url, inner=workers))

    Args:
        hf: The client.
        name: The name of the election.
        lead: Called with the lease of each term. If it returns or raises, this process campaigns no more, and
            ``handfast.starlette`` logs it: as a WARNING, or an ERROR. The end of the block waits for it.
        options: As `AsyncHandfast.election` takes them, such as ``value`` and ``ttl``.

    Raises:
        TypeError: ``lead`` is no coroutine function, or an option has the wrong type.
        ValueError: The name or an option is out of range.
    """
    task = asyncio.ensure_future(hf.election(name, **options).run(lead))
    await asyncio.sleep(0)  # a function of the other API is refused in its first step
    if task.done():
        await task

    def note(ended: asyncio.Future[Any]) -> None:
        error = None if ended.cancelled() else ended.exception()
        if error is not None:
            LOG.error("this process does not campaign for %r any more: %r", name, error, exc_info=error)
        elif not ended.cancelled():
            LOG.warning("this process does not campaign for %r any more: its function has returned", name)

    task.add_done_callback(note)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])  # what it has raised is logged; a cancellation of this block is not swallowed
