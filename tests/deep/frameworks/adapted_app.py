"""The adapter in FastAPI: a lock, a limiter, charges that are made once, and a leader."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import asynccontextmanager
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, FastAPI, HTTPException, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import AfterValidator, BaseModel

from handfast import AsyncHandfast, AsyncLease
from handfast.contrib.starlette import (
    client,
    handfast_lifespan,
    idempotent,
    install_errors,
    leading,
    limited,
    locked,
)
from tests._support.helpers import forever
from tests.deep.frameworks.protected import URL, conn, counted


async def lead(term):
    conn.rpush("leaders", os.getpid())
    await forever()


@asynccontextmanager
async def workers(app):
    async with leading(app.state.handfast, "scheduler", lead, ttl=2):
        yield


app = FastAPI(lifespan=handfast_lifespan(URL, inner=workers))
install_errors(app)


def user_of(request: Request) -> str:
    if (user := request.headers.get("user")) is None:
        raise HTTPException(401)
    return user


charges = APIRouter(route_class=idempotent(scope=user_of, ttl=2).route_class)
once_at_most = APIRouter(
    prefix="/strict", route_class=idempotent(scope=user_of, ttl=2, rerun=False, name="strict").route_class
)


@app.get("/orders/{order_id}")
async def order(order_id: int, lease: Annotated[AsyncLease, Depends(locked("order:{order_id}", timeout=0))]):
    return lease.fence


def the_order(order_id: int) -> int:
    return order_id


@app.get("/through/{order_id}")
async def through_a_dependency(
    number: Annotated[int, Depends(the_order)],
    lease: Annotated[AsyncLease, Depends(locked("order:{order_id}", timeout=0))],
):
    return number


@app.get("/codes/{code}")
async def code(
    code: Annotated[str, AfterValidator(str.lower)],
    lease: Annotated[AsyncLease, Depends(locked("code:{code}", timeout=0))],
):
    return code


@app.get("/wrong")
async def wrong(order: Annotated[str, Depends(user_of)], lease: Annotated[AsyncLease, Depends(locked("a:{order}"))]):
    return order


@once_at_most.post("/busy", dependencies=[Depends(locked("taken", timeout=0))])
async def behind_a_lock():
    return conn.incr("behind")


@app.get("/parts/{part}")
async def part(
    part: UUID,
    lease: Annotated[AsyncLease, Depends(locked("part:{part}:{shop}:{size}", timeout=0))],
    shop: Annotated[str, Query(alias="in")],
    size: int = Query(3, alias="of"),  # noqa: FAST002 -- the older way
):
    return [part, shop, size]


@app.get("/threads")
def in_a_thread(lease: Annotated[AsyncLease, Depends(locked("threads", timeout=60))]):
    with counted("threads"):
        pass
    return lease.fence


@app.get("/loses/{how}")
async def loses(
    how: str, lease: Annotated[AsyncLease, Depends(locked("lost"))], hf: Annotated[AsyncHandfast, Depends(client)]
):
    conn.set("lost", "inside")
    await hf.lock("lost").force_release(reason="INC-1")
    await forever()


@app.get("/login", dependencies=[Depends(limited("login", "2/min", by="user"))])
async def login(user: str):
    return user


class Charge(BaseModel):
    cents: int


@charges.post("/charges", status_code=201)
@once_at_most.post("/charges", status_code=201)
async def charge(body: Charge, response: Response, *, dies: bool = False, takes: float = 0.0):
    number = conn.incr("charges")
    await asyncio.sleep(takes)
    if dies and number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    response.headers["Location"] = f"/charges/{number}"
    response.set_cookie("session", "secret")
    return {"number": number, "cents": body.cents}


@charges.post("/threads/charges")
def charge_in_a_thread(body: Charge):
    time.sleep(0.01)
    return {"number": conn.incr("charges"), "cents": body.cents}


@charges.post("/streams")
async def stream():
    return StreamingResponse(iter([b"x"]))


app.include_router(charges)
app.include_router(once_at_most)
