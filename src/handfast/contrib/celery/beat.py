"""A scheduler of beat for several machines, of which a single machine sends.

Each process of beat has a separate file with the last sending of each entry: a new leader would send entries of
the former leader again. So each sending is noted on the server, in scores that only grow, and the scores are read at
the beginning of a term.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any

from celery.beat import PersistentScheduler
from redis.exceptions import RedisError

from handfast import HandfastError, Leadership
from handfast.contrib.celery.client import client

__all__ = ["LeaderMixin", "LeaderScheduler"]

FOLLOW_S = 1.0
"""How often a process that does not lead tries to."""

LOOK_S = 5.0
"""How often a leader looks whether it still leads, at least."""

MAX_ENTRIES = 10_000
"""How many entries are read at the beginning of a term."""

LOG = logging.getLogger("handfast.celery")


class LeaderMixin:
    """Makes a scheduler of beat send only while the process leads.

    It is for schedulers other than Celery's own: ``class Scheduler(LeaderMixin, DatabaseScheduler): ...``. The election may be
    set in ``app.conf.handfast_beat``: ``name`` ("celery-beat" by default), ``ttl`` and so on, as `Handfast.election` takes them.
    Failures of the server are logged, and never end beat: an outage ends the term with the lease, and the process goes on trying.
    """

    app: Any
    schedule: Any
    _term: Leadership | None = None
    _next: Any = None
    """The entry that takes the place of the entry that is being sent: it knows the time of that."""
    _stands_by = False
    """Whether it was logged that this process does not lead."""
    _is_away = False
    """Whether the latest try has failed, and was logged."""

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Send the due entries, if this process leads. Return the seconds until the next tick."""
        if not self._leads():
            return FOLLOW_S
        delay: float = super().tick(*args, **kwargs)  # type: ignore[misc]
        return min(delay, LOOK_S)

    def reserve(self, entry: Any) -> Any:
        """Return the entry to take the place of a due entry."""
        self._next = super().reserve(entry)  # type: ignore[misc]
        return self._next

    def apply_entry(self, entry: Any, producer: Any = None) -> None:
        """Send an entry, and note when."""
        super().apply_entry(entry, producer)  # type: ignore[misc]
        sent = self._next.last_run_at.timestamp()
        self._try("note a sending", lambda: self._sent().advance({entry.name: sent}))

    def close(self) -> None:
        """Let the next candidate lead."""
        try:
            super().close()  # type: ignore[misc]
        finally:
            if (term := self._term) is not None:
                self._term = None
                self._try("release the lease", term.release)

    def _leads(self) -> bool:
        term = self._term
        if term is not None and not term.lost and term.wanted is None:
            return True
        if term is not None:
            self._term = None
            LOG.warning("beat does not lead any more: %s", "its lease was lost" if term.lost else term.wanted)
            if not term.lost:
                self._try("release the lease", term.release)
        self._try("campaign", self._campaign)
        return self._term is not None

    def _campaign(self) -> None:
        term = client(self.app).election(**self._options()).try_acquire()
        if term is None:
            if not self._stands_by:
                LOG.info("beat stands by: another process leads")
            self._stands_by = True
            return
        try:
            self._catch_up()
        except BaseException:
            term.release()
            raise
        self._term, self._stands_by = term, False
        LOG.info("beat leads, with fence %s", term.fence)

    def _catch_up(self) -> None:
        """Learn when former leaders have sent each entry."""
        sent = {one.member: one.score for one in self._sent().newest(limit=MAX_ENTRIES)}
        for name, entry in self.schedule.items():
            latest = datetime.fromtimestamp(sent.get(name, 0.0), UTC)
            if entry.last_run_at is None or entry.last_run_at < latest:
                entry.last_run_at = latest.astimezone(self.app.timezone)
        self._heap = None  # it is made anew

    def _sent(self) -> Any:
        return client(self.app).scores(self._options()["name"])

    def _options(self) -> dict[str, Any]:
        return {"name": "celery-beat", **self.app.conf.get("handfast_beat", {})}

    def _try(self, what: str, do: Any) -> None:
        """Log why something fails: once, until something succeeds."""
        try:
            do()
        except (HandfastError, RedisError, OSError) as error:
            if not self._is_away:
                LOG.warning("beat can't %s: %s", what, error)
            self._is_away = True
        else:
            self._is_away = False


class LeaderScheduler(LeaderMixin, PersistentScheduler):  # type: ignore[misc]
    """Celery's own scheduler, of which a single process sends.

    Example:
        celery -A tasks beat --scheduler handfast.contrib.celery:LeaderScheduler
    """
