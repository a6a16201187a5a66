"""One client of each API for a worker process; leases and admissions by sync and by asyncio dependencies."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from math import ceil
from typing import Annotated

from fastapi import Depends, FastAPI, Header, HTTPException, Request
from fastapi.responses import StreamingResponse

from handfast import AcquireTimeout, AlreadyRunning, AsyncHandfast, AsyncLease, Handfast, KeyReused, Lease
from tests._support.helpers import forever
from tests.deep.frameworks.protected import URL, conn, counted

hf = Handfast(URL)
ahf = AsyncHandfast(URL)
shared_lock = hf.lock("sync", ttl=3600)
shared_semaphore = hf.semaphore("slots", 3, ttl=3600)
shared_rwlock = hf.rwlock("reads", ttl=3600)


@asynccontextmanager
async def lifespan(_):
    yield
    await ahf.close()
    hf.close()


app = FastAPI(lifespan=lifespan)


def locked():
    """Starlette may run the halves of a sync dependency in different threads."""
    with shared_lock as lease:
        yield lease


def slot():
    with shared_semaphore as lease:
        yield lease


def reading():
    with shared_rwlock.read() as lease:
        yield lease


async def locked_soon():
    async with ahf.lock("asyncio", ttl=3600) as lease:
        yield lease


@app.get("/sync")
def in_a_thread(lease: Annotated[Lease, Depends(locked)]):
    with counted("sync"):
        lease.check()
    return lease.fence


@app.get("/slots")
def in_a_slot(lease: Annotated[Lease, Depends(slot)]):
    lease.check()  # of this request, though all requests share the semaphore
    return lease.fence


@app.get("/reads")
def among_readers(lease: Annotated[Lease, Depends(reading)]):
    lease.check()
    return lease.fence


@app.get("/asyncio")
async def on_the_loop(lease: Annotated[AsyncLease, Depends(locked_soon)]):
    with counted("asyncio"):
        lease.check()
    return lease.fence


@app.get("/busy")
async def busy():
    try:
        async with ahf.lock("taken").acquire(timeout=0):
            return 0
    except AcquireTimeout:
        raise HTTPException(423, "taken") from None


searches = ahf.limiter("search", "5/h; 6/d")


async def limited(user: str):
    admission = await searches.keyed(user).try_acquire()
    if not admission:
        raise HTTPException(429, headers={"Retry-After": str(ceil(admission.retry_after))})


@app.get("/search", dependencies=[Depends(limited)])
async def search():
    return 0


waiting_charges = ahf.once("charge", keep=3600)
charges = ahf.once("charge", keep=3600, on_running="raise")


@app.post("/charges")
async def charge(request: Request, idempotency_key: Annotated[str, Header(min_length=1)], *, waits: bool = True):
    """Charge what the body says. Those who wait for another request with the key get its answer; the others 409."""
    body = await request.body()

    async def pay():
        number = conn.incr(f"charges:{idempotency_key}")
        await asyncio.sleep(0.3)
        return {"number": number, "charged": body.decode()}

    once = (waiting_charges if waits else charges).keyed(idempotency_key)
    try:
        return await once.run(pay, timeout=20 if waits else None, fingerprint=body)
    except AlreadyRunning:
        raise HTTPException(409, "this request is being processed") from None
    except KeyReused:
        raise HTTPException(422, "this key was used for another request") from None


async def lines():
    async with ahf.lock("stream", ttl=3600):
        conn.incr("stream:entered")
        await forever()
        yield "never"


@app.get("/stream")
async def stream():
    """Starlette cancels a response that streams when its client goes; an endpoint runs on."""
    return StreamingResponse(lines())


@app.get("/fails")
def fails(lease: Annotated[Lease, Depends(locked)]):
    raise HTTPException(500, str(lease.fence))
