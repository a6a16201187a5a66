"""Charges that are made once for each caller and key, and a file with the steps of each run."""

from __future__ import annotations

import asyncio
import os
import random
import time
import uuid
from typing import Annotated

from fastapi import APIRouter, Body, FastAPI, Header, Response

from handfast.contrib.starlette import handfast_lifespan, idempotent, install_errors

STEPS = os.open(os.environ["STEPS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


OPTIONS = {"scope": lambda request: request.headers["user"], "keep": 600, "ttl": 2}

app = FastAPI(lifespan=handfast_lifespan(os.environ["HANDFAST_URL"]))
install_errors(app)
charges = APIRouter(route_class=idempotent(**OPTIONS).route_class)
once_at_most = APIRouter(prefix="/strict", route_class=idempotent(**OPTIONS, rerun=False, name="strict").route_class)


@charges.post("/charges", status_code=201)
@once_at_most.post("/charges", status_code=201)
async def charge(
    cents: Annotated[int, Body(embed=True)],
    user: Annotated[str, Header()],
    idempotency_key: Annotated[str, Header()],
    response: Response,
):
    run = uuid.uuid4().hex

    def note(step):
        os.write(STEPS, f"{step} {user} {idempotency_key} {run} {os.getpid()} {time.monotonic()}\n".encode())

    note("begin")
    await asyncio.sleep(random.uniform(0.05, 0.2))
    note("effect")
    await asyncio.sleep(random.uniform(0.05, 0.2))
    note("end")
    response.headers["Location"] = f"/charges/{run}"
    return {"run": run, "user": user, "cents": cents}


app.include_router(charges)
app.include_router(once_at_most)
