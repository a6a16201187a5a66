"""The page's scene beside the acts: a queue that moves, one that does not, a waiter that is gone, a full limiter."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

from handfast._api.sync.client import Handfast
from handfast._engine.keys import KeySet
from handfast._engine.script import load
from handfast.errors import HandfastError

__all__ = ["places", "playing"]

STUCK, MOVING, SHARED, LIMITED, HELD, LATCH = "nightly-export", "order:42", "gpu", "mail", "deploy", "import"

RATE = "20/min"


@contextlib.contextmanager
def playing(url: str, namespace: str) -> Iterator[None]:
    """Let clients hold and wait, until the end of the block."""
    over = threading.Event()
    with ExitStack() as stack:

        def client(label: str) -> Handfast:
            return stack.enter_context(Handfast(url, namespace=namespace, label=label))

        stack.callback(over.set)  # before the clients are closed, which ends what waits
        operator = client("ops@bastion")
        operator.hold(HELD, 3600, reason="DB migration")
        kept: list[Any] = [client("batch-2:311").lock(STUCK).acquire()]
        kept += [client(f"gpu-{number}:12").semaphore(SHARED, 3).acquire() for number in range(3)]
        for number in range(5):
            _start(client(f"web-{number}:36").lock(STUCK).acquire)
        _start(client("gpu-9:12").semaphore(SHARED, 3).acquire)
        mail = client("mail-1:9").limiter(LIMITED, RATE)
        mail.acquire(cost=20)
        for _ in range(3):
            _start(mail.acquire)
        latch = client("etl-1:4").latch(LATCH, 3)
        latch.done("customers", "orders")
        _start(latch.wait)
        for number in range(3):
            _start(_working(client(f"shop-{number}:8"), over))
        try:
            yield
        finally:
            over.set()
            del kept


def places(namespace: str) -> Iterator[str]:
    """Yield the keys left behind by the scene."""
    used = {
        "lock": ((STUCK, MOVING, HELD), "permit_acquire"),
        "semaphore": ((SHARED,), "permit_acquire"),
        "latch": ((LATCH,), "latch_done"),
    }
    for kind, (names, script) in used.items():
        for name in names:
            yield from map(KeySet(namespace, kind, name).key, load(script).header.keys)
    limiter = KeySet(namespace, "limiter", LIMITED)
    yield from map(limiter.key, ("queue", "waiting", "tombstones", "settings", "rates", "window:60000"))


def _working(client: Handfast, over: threading.Event) -> Callable[[], None]:
    """Return a function to take a name, work for a moment and hand it on."""

    def work() -> None:
        while not over.is_set():
            with client.lock(MOVING):
                over.wait(0.2)

    return work


def _start(work: Callable[[], object]) -> None:
    """Do something in a thread. When the thread's client is closed, it ends."""

    def until_closed() -> None:
        with contextlib.suppress(HandfastError, OSError):
            work()

    threading.Thread(target=until_closed, name="handfast-demo", daemon=True).start()
