"""The client is made at import, before the pool of worker processes forks."""

from __future__ import annotations

import time

from celery import Celery

from handfast import Handfast
from tests.deep.frameworks.protected import URL, conn, counted

app = Celery("frameworks", broker=URL.replace("unix://", "redis+socket://"))
app.conf.update(broker_connection_retry_on_startup=False, worker_prefetch_multiplier=1)
hf = Handfast(URL)
with hf.lock("before the fork"):
    pass  # so that the worker processes inherit a client that has a connection


@app.task
@hf.lock("account:{account}", ttl=3600)
def waits(account):
    with counted(f"account {account}"):
        pass


@app.task
@hf.lock("once", ttl=3600)(on_busy="skip")
def skips():
    conn.incr("celery:ran")
    while not conn.exists("celery:go on"):
        time.sleep(0.01)


@app.task
@hf.lock("terminated", ttl=3600)
def hangs():
    conn.incr("celery:hangs")
    time.sleep(3600)
