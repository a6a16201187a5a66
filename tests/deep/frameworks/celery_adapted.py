"""The adapter in Celery: the client is made at import, before the pool of worker processes forks."""

from __future__ import annotations

import os
import signal
import time

from celery import Celery

from handfast import Preempted
from handfast.contrib.celery import Exclusive, Once, configure
from tests.deep.frameworks.protected import URL, conn, counted

app = Celery("adapted", broker=URL.replace("unix://", "redis+socket://"))
app.conf.update(
    broker_connection_retry_on_startup=False,
    worker_prefetch_multiplier=1,
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_ignore_result=True,
    beat_schedule={"tick": {"task": "tick", "schedule": 3.0}},
    handfast_beat={"name": "beat", "ttl": 2},
)
hf = configure(app, URL)


class Told(Exclusive):
    """Notes how its tasks fail."""

    abstract = True

    def on_failure(self, error, *_):
        conn.rpush(f"failed:{self.name}", type(error).__name__)


class ToldOnce(Once):
    abstract = True
    on_failure = Told.on_failure


@app.task(name="retries", base=Told, bind=True, exclusive={"name": "account:{account}", "countdown": 0.1, "ttl": 60})
def retries(self, account):
    with counted(f"account {account}"):
        self.lease.check()
    conn.sadd("retries", self.request.retries)


@app.task(name="skips", base=Told, exclusive={"busy": "skip", "ttl": 60})
def skips():
    conn.incr("skips")
    while not conn.exists("go on"):
        time.sleep(0.01)


@app.task(name="waits", base=Told, exclusive={"name": "taken", "busy": "wait", "timeout": 0.2})
def waits():
    conn.incr("waits")


@app.task(name="preempts", base=Told, bind=True, exclusive={"busy": "preempt", "grace": 20, "ttl": 60})
def preempts(self, number):
    conn.rpush("preempts", f"{number} began")
    try:
        while number == 1:
            self.lease.check()
            time.sleep(0.01)
    except Preempted:
        conn.rpush("preempts", f"{number} ended")
        raise


@app.task(name="dies", base=Told, bind=True, exclusive={"name": "dies", "ttl": 2, "countdown": 0.1})
def dies(self):
    conn.rpush("dies", self.lease.fence)
    if conn.llen("dies") == 1:
        os.kill(os.getpid(), signal.SIGKILL)


@app.task(name="soft", base=Told, soft_time_limit=1, exclusive={"name": "soft", "ttl": 3600})
def soft():
    time.sleep(3600)


@app.task(name="hard", base=Told, time_limit=1, exclusive={"name": "hard", "ttl": 2}, acks_late=False)
def hard():
    conn.incr("hard")
    time.sleep(3600)


@app.task(name="report", base=ToldOnce, once={"by": ["day"], "keep": 3600, "countdown": 0.1, "ttl": 60})
def report(day, by="cron"):
    conn.rpush(f"report:{day}", by)
    time.sleep(0.1)
    return {"day": day}


@app.task(name="pay", base=ToldOnce, bind=True, once={"by": "order", "rerun": False, "ttl": 2, "countdown": 0.1})
def pay(self, order):
    number = conn.incr(f"pay:{order}")
    if order == "asks" and number == 1:
        raise self.retry(countdown=0.1)
    if order == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    return number


@app.task(name="tick")
def tick():
    pass
