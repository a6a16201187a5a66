"""Handfast in Celery: tasks that run one at a time, tasks that run once, and a single beat of several.

    from celery import Celery
    from handfast.contrib.celery import Exclusive, configure

    app = Celery("tasks", broker="redis://localhost:6379/1")
    configure(app, "redis://localhost:6379/0")

    @app.task(base=Exclusive, bind=True, exclusive={"name": "bill:{account}"})
    def bill(self, account, month):
        charge(account, fence=self.lease.fence)

It needs the extra ``handfast[celery]``. A lock is taken where a task runs, and not where it is sent: so a revoked, expired or lost
message leaves no lock taken.

`tasks` has the base classes of tasks, `beat` the scheduler of beat, and `client` the client of an application.
"""

from __future__ import annotations

try:
    import celery as _  # noqa: F401 -- says which extra is missing, before a module that needs it
except ImportError:
    raise ImportError("handfast.contrib.celery needs Celery; install it with: pip install 'handfast[celery]'") from None

from handfast._naming import name_publicly
from handfast.contrib.celery.beat import LeaderMixin, LeaderScheduler
from handfast.contrib.celery.client import client, configure
from handfast.contrib.celery.tasks import Exclusive, Once

__all__ = ["Exclusive", "LeaderMixin", "LeaderScheduler", "Once", "client", "configure"]

name_publicly(globals())
