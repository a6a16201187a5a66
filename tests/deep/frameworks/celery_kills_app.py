"""Tasks of Celery whose workers are killed, and a file with the steps of each run.

The broker delivers a message again after two seconds, so a task that takes longer is delivered again while it runs.
"""

from __future__ import annotations

import os
import time
import uuid

from celery import Celery

from handfast.contrib.celery import Exclusive, Once, configure

URL = os.environ["HANDFAST_URL"]
STEPS = os.open(os.environ["STEPS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

VISIBILITY_S = 2

app = Celery("kills", broker=URL.replace("unix://", "redis+socket://"))
app.conf.update(
    broker_connection_retry_on_startup=False,
    # A worker that is killed while it redelivers keeps this mutex, by default for five minutes.
    broker_transport_options={"visibility_timeout": VISIBILITY_S, "unacked_mutex_expire": 2},
    worker_prefetch_multiplier=1,
    task_acks_late=True,
    task_ignore_result=True,
)
configure(app, URL)


def run(task, number, account, seconds):
    """Note the steps of a run, with its fence and the process group that is killed."""
    run_id = uuid.uuid4().hex
    fence = task.lease.fence if isinstance(task, Exclusive | Once) else 0

    def note(step):
        os.write(STEPS, f"{step} {number} {account} {run_id} {fence} {os.getpgrp()} {time.monotonic()}\n".encode())

    note("begin")
    time.sleep(seconds / 2)
    note("effect")
    time.sleep(seconds / 2)
    note("end")
    return run_id


@app.task(name="exclusive", base=Exclusive, bind=True, exclusive={"name": "{account}", "countdown": 0.3, "ttl": 5})
def exclusive(self, number, account, seconds):
    run(self, number, account, seconds)


@app.task(name="once", base=Once, bind=True, once={"by": "number", "keep": 3600, "countdown": 0.3, "ttl": 5})
def once(self, number, account, seconds):
    return run(self, number, account, seconds)


@app.task(name="fails", base=Once, bind=True, once={"by": "number", "countdown": 0.3, "ttl": 5})
def fails(self, number, account, seconds):
    run(self, number, account, seconds)
    raise ValueError("it is not recorded")


def exclusive_with(busy, **options):
    """Return a task that goes on so when its name is taken."""

    @app.task(name=busy, base=Exclusive, bind=True, exclusive={"name": busy, "busy": busy, "countdown": 0.3, **options})
    def task(self, number, account, seconds):
        run(self, number, account, seconds)
        self.lease.check()

    return task


for one in ("retry", "wait", "skip", "preempt"):
    exclusive_with(one, ttl=5, grace=0.2)


@app.task(name="plain", bind=True)
def plain(self, number, account, seconds):
    """Show what Celery does without a base class of Handfast."""
    run(self, number, account, seconds)
