"""The answer of an application to each error of Handfast and of the server.

No answer says who holds a name, or where: such details are for operators.
"""

from __future__ import annotations

import logging
from math import ceil
from typing import Any, NamedTuple

import redis.exceptions
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse

from handfast.contrib._common import BUSY_TEXT
from handfast.errors import (
    AcquireTimeout,
    AlreadyRunning,
    ClientClosed,
    KeyReused,
    LeaseLost,
    LimitExceeded,
    NotCompleted,
    QueueFull,
    RateLimited,
    ServerRefused,
    Superseded,
)

__all__ = ["answer_to", "install_errors"]

LOG = logging.getLogger("handfast.starlette")

OUTAGE_S = 5
"""After how many seconds a client is to come again in an outage: as long as a call waits for a server that hangs."""


MOST_S = 366 * 86_400
"""The longest ``Retry-After``."""


class Answer(NamedTuple):
    """The answer to a kind of error."""

    status: int
    detail: str
    retry_after: int | None = None
    """In seconds; None where a second try is of no use."""


BUSY = Answer(423, BUSY_TEXT, 1)
AWAY = Answer(503, "A server that this needs is not available. Try again later.", OUTAGE_S)

ANSWERS: dict[type[Exception], Answer] = {
    AcquireTimeout: BUSY,
    QueueFull: BUSY,
    Superseded: Answer(409, "A later request took the place of this one."),
    RateLimited: Answer(429, "There were too many requests. Try again later."),
    AlreadyRunning: Answer(409, "A request with this key is being processed. Try again later.", 1),
    KeyReused: Answer(422, "This key was used for another request."),
    NotCompleted: Answer(
        500, "An earlier request with this key began, and its result is not known. It is not repeated."
    ),
    LeaseLost: Answer(503, "This request lost its lock. It may have had an effect, and may still run.", 1),
    LimitExceeded: Answer(429, "This is more than is ever admitted."),
    ServerRefused: AWAY,
    ClientClosed: AWAY,
    redis.exceptions.ConnectionError: AWAY,
    redis.exceptions.TimeoutError: AWAY,
}


def answer_to(error: Exception) -> HTTPException:
    """Return the answer to an error of the table, or of a class derived from it."""
    answer = next(ANSWERS[kind] for kind in type(error).__mro__ if kind in ANSWERS)
    after = ceil(min(error.retry_after, MOST_S)) if isinstance(error, RateLimited) else answer.retry_after
    headers = {} if after is None else {"Retry-After": str(max(1, after))}
    return HTTPException(answer.status, answer.detail, headers)


def install_errors(app: Any) -> None:
    """Have an application answer the errors of Handfast, and of the server, with statuses that clients understand.

    | error | status | ``Retry-After`` |
    |---|---|---|
    | `AcquireTimeout`, `QueueFull` | 423 | 1 |
    | `RateLimited` | 429 | the limiter's ``retry_after`` |
    | `LimitExceeded` | 429 | |
    | `AlreadyRunning` | 409 | 1 |
    | `Superseded` | 409 | |
    | `KeyReused` | 422 | |
    | `NotCompleted` | 500 | |
    | `LeaseLost` | 503 | 1 |
    | `ServerRefused`, `ClientClosed`, redis-py's ConnectionError and TimeoutError | 503 | 5 |

    The body is ``{"detail": "…"}``, without names and holders. Answers from 500 on are logged by ``handfast.starlette`` as
    WARNING. Errors of redis-py are answered wherever they come from, also from another client of the application.

    Args:
        app: A Starlette or FastAPI application. It must not have started yet.
    """
    for kind in ANSWERS:
        app.add_exception_handler(kind, _handle)


async def _handle(request: Request, error: Exception) -> JSONResponse:
    answer = answer_to(error)
    if answer.status_code >= 500:
        LOG.warning("answered %s to %s %s: %s", answer.status_code, request.method, request.url.path, error)
    return JSONResponse({"detail": answer.detail}, answer.status_code, answer.headers)
