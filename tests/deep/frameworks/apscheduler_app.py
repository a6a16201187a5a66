"""Every process schedules all jobs; each fire of a job runs in one of them, however late another one is."""

from __future__ import annotations

import sys
from datetime import datetime, timedelta

from apscheduler.schedulers.background import BackgroundScheduler

from handfast import Handfast
from tests.deep.frameworks.protected import URL, conn, counted

FIRES = 5
hf = Handfast(URL)


@hf.lock("fire:{number}", at_least=600)(on_busy="skip")
def job(number):
    """Runs for an instant: without ``at_least`` the other process would find its lock free and run it again."""
    with counted("apscheduler"):
        conn.incr(f"fire:{number}")


def tried(event):
    conn.incr("apscheduler:tried")


begin = datetime.fromisoformat(sys.argv[1])
scheduler = BackgroundScheduler(executors={"default": {"type": "threadpool", "max_workers": 1}})
for number in range(FIRES):
    scheduler.add_job(
        job, "date", run_date=begin + timedelta(seconds=0.2 * number), args=[number], misfire_grace_time=None
    )
scheduler.add_listener(tried, 1 << 12)  # EVENT_JOB_EXECUTED
scheduler.start()
sys.stdin.readline()
scheduler.shutdown()
hf.close()
