"""Dependencies of FastAPI: a lock held by a request, and a rate for counting requests.

They wait on the event loop, and take no thread of the pool: a request with the lock always finds a thread for its endpoint.
FastAPI finds the parameters of a dependency in the signature, so the types of these functions are imported, and not only for
type checkers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from math import ceil
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from handfast import AsyncAdmission, AsyncHandfast, AsyncLease, AsyncLimiter, Rate, RateLimited
from handfast._engine.rates import read_rates
from handfast._engine.validate import check_int, parameter_names
from handfast.arguments import Duration
from handfast.contrib._common import CHECKS, WAIT_S, Holding, MadeFor
from handfast.contrib.starlette.answers import LOG, answer_to
from handfast.contrib.starlette.fields import check_field, filler, value_of
from handfast.contrib.starlette.lifespan import client
from handfast.errors import AcquireTimeout, QueueFull

__all__ = ["limited", "locked"]


def locked(
    name: str, *, timeout: Duration = WAIT_S, **options: Any
) -> Callable[[HTTPConnection], AsyncIterator[AsyncLease]]:
    """Return a dependency that holds a lock while the endpoint runs.

    A waiting request takes no thread, for ``def`` endpoints neither. If the lease is lost, an ``async def`` endpoint is
    cancelled, and the answer is 503. A ``def`` endpoint gets the same answer, and the thread runs on: it has to look,
    ``lease.check()``.

    Example:
        @app.post("/orders/{order_id}/pay")
        async def pay(
            order_id: int,
            lease: Annotated[AsyncLease, Depends(locked("order:{order_id}"))],
        ): ...

    Args:
        name: The name of the lock. Fields in braces stand for parameters of the path or the query, by their names in the
            endpoint or a dependency, and read with their types; or for ``client.host``, ``user.…``, ``state.…``, ``headers.…``
            and ``cookies.…`` of the request.
        timeout: Seconds to wait at most, a number or a timedelta; then the answer is 423 with ``Retry-After``. 0
            does not wait.
        options: As `AsyncHandfast.lock` takes them, such as ``ttl`` and ``max_waiters``.

    Raises:
        TypeError: ``timeout`` is neither a number nor a timedelta.
        ValueError: The name is no template, or has a field that no request has; or ``timeout`` is out of range.
    """
    fill, options = filler(name), {**options, "timeout": timeout}
    CHECKS.lock(name, **options)

    async def dependency(request: HTTPConnection) -> AsyncIterator[AsyncLease]:
        text = fill(request)
        try:
            lock = client(request).lock(text, **options)
        except ValueError as error:  # all but the name was checked before
            raise HTTPException(422, str(error)) from error
        try:
            lease = await lock.acquire()
        except (AcquireTimeout, QueueFull) as error:
            raise answer_to(error) from error
        async with Holding(lease, LOG):
            yield lease

    return dependency


def limited(
    name: str, rates: str | Rate | Iterable[str | Rate], *, by: str | Iterable[str] | None = None, cost: int = 1
) -> Callable[[Request, Response], Awaitable[AsyncAdmission]]:
    """Return a dependency that counts a request under a rate limiter, and refuses requests beyond the rate.

    The answer is 429 then, with ``Retry-After``. It has the headers ``RateLimit-Policy`` and, under a single rate, ``RateLimit`` of
    the IETF draft `draft-ietf-httpapi-ratelimit-headers`; so have answers of endpoints without a Response of their own.

    Example:
        by_host = Depends(limited("login", "5/min", by="client.host"))

        @app.post("/login", dependencies=[by_host])
        async def login(): ...

    Args:
        name: The name of the limiter.
        rates: As `AsyncHandfast.limiter` takes them.
        by: Fields of the request, as in `locked`, whose values make the key: each key has separate rates. None counts
            all requests together.
        cost: The cost of a request, from 1 to the smallest limit.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: ``rates`` are none, or ``by`` has a field that no request has.
    """
    fields, limits = parameter_names(by), read_rates(rates)
    for field in fields:
        check_field(field)
    CHECKS.limiter(name, rates)
    limiter_of = MadeFor[AsyncHandfast, AsyncLimiter](lambda hf: hf.limiter(name, rates))
    check_int(cost, "cost", min(rate.limit for rate in limits))
    # The label is a quoted string of a header, which cannot have every name.
    label = name if name.isascii() and name.isprintable() and not set(name) & set('"\\') else "limit"
    # The draft knows whole seconds alone.
    whole = [(rate.limit, rate.per_ms // 1000) for rate in limits if rate.per_ms % 1000 == 0]
    names = [label] if len(limits) == 1 else [f"{label}-{per_s}s" for _, per_s in whole]
    policy = ", ".join(f'"{each}";q={limit};w={per_s}' for each, (limit, per_s) in zip(names, whole, strict=False))

    async def dependency(request: Request, response: Response) -> AsyncAdmission:
        limiter = limiter_of(client(request))
        if fields:
            parts = [str(value_of(request, field)) for field in fields]
            try:
                limiter = limiter.keyed(*parts)
            except ValueError as error:
                raise HTTPException(422, str(error)) from error
        admission = await limiter.try_acquire(cost=cost)
        headers = {"RateLimit-Policy": policy} if policy else {}
        if len(limits) == 1 and policy:
            left = "" if admission else f";t={ceil(admission.retry_after)}"
            headers["RateLimit"] = f'"{label}";r={admission.remaining if admission else 0}{left}'
        if not admission:
            refusal = answer_to(RateLimited(name, 0, admission.retry_after))
            refusal.headers = {**(refusal.headers or {}), **headers}
            raise refusal
        for header, value in headers.items():
            response.headers.append(header, value)  # another limiter of the request may have set it
        return admission

    return dependency
