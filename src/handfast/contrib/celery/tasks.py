"""Base classes of tasks: `Exclusive` runs one at a time, `Once` runs once.

Both take the lease in ``Task.__call__``, which is a single block around the run: a task that ends by an exception, a soft time limit
or a retry leaves the block. Celery's other hooks are a pair, and a lease of the first hook leaks when the process dies before the
second.

With ``acks_late`` a broker delivers a message again when it is not acknowledged for long: while the task runs, too. The second
delivery then finds the name taken by the first run. It must not be dropped, since the first run may still die. It must not run
afterwards either, since each run may take as long, and have a second delivery. So a long run records its end on the server, and
each later delivery looks for the record when it has the lease. So does the run of a message with a countdown: the worker does not
acknowledge the message until then, so a countdown beyond the ``visibility_timeout`` makes several deliveries.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple, NoReturn, TypeAlias, TypeVar

from celery import Task
from celery.exceptions import Ignore, Reject, Retry
from redis.exceptions import RedisError

from handfast import AcquireTimeout, Handfast, HandfastError, Lease, NotCompleted, Preempted
from handfast import Once as OnceObject
from handfast._api.decorators import CallKey, NameTemplate, check_parameterless
from handfast._engine.validate import check_choice, parameter_names
from handfast.contrib._common import CHECKS, OUTAGES, Holding, MadeFor
from handfast.contrib.celery.client import client

__all__ = ["Busy", "Exclusive", "Once"]

Busy: TypeAlias = Literal["retry", "wait", "skip", "preempt"]
"""How a task goes on that finds the name taken."""

Running: TypeAlias = Literal["retry", "wait", "skip"]
"""How a task goes on while another task runs the key."""

COUNTDOWN_S = 10.0
"""After how many seconds a task that found its name taken comes again, on average."""

SPREAD = 0.5
"""The part of the countdown by which a task comes earlier or later, so that tasks do not come all at once."""

AGAIN = "handfast_again"
"""The header of a message that was sent again because its name was taken."""

ENDED = "celery.ended"
"""The name under which runs that took long note their ends."""

VISIBILITY_S = 1800.0
"""After how many seconds a broker delivers a message again, if it is not known: as SQS and RabbitMQ do; Redis waits for twice as
long."""

LONG = 0.1
"""The part of that time from which a run takes long: the message may have waited in the worker before."""

DAY_S = 86_400.0

LOG = logging.getLogger("handfast.celery")

T = TypeVar("T")

_LEASE: ContextVar[Lease] = ContextVar("lease")
"""The lease of the task that this thread or greenlet runs."""


class _Options(NamedTuple):
    """The options of a task, beside those of the lock."""

    name: str
    busy: Busy
    timeout: Any
    countdown: float
    rest: dict[str, Any]

    @classmethod
    def of(cls, given: Mapping[str, Any], default: str, choices: object) -> _Options:
        rest = dict(given)
        busy = check_choice(rest.pop("busy", "retry"), "busy", choices)
        found = cls(
            rest.pop("name", default), busy, rest.pop("timeout", None), rest.pop("countdown", COUNTDOWN_S), rest
        )
        if not isinstance(found.countdown, int | float) or found.countdown < 0:
            raise ValueError(f"countdown must be seconds, at least 0, not {found.countdown!r}")
        return found


@contextmanager
def _naming(task: Task) -> Iterator[None]:
    """Have errors of options name the task, and the task's own options."""
    try:
        yield
    except (TypeError, ValueError) as error:
        error.add_note(
            f"of the task {task.name!r}; options of a task are also name, busy, countdown, limit, grace and by"
        )
        raise


class _Guarded(Task):  # type: ignore[misc]
    """A task with a lease while it runs."""

    abstract = True
    throws: tuple[type[Exception], ...] = (AcquireTimeout, NotCompleted, Preempted)
    """These are no faults of the program: Celery logs them without a traceback."""

    @property
    def lease(self) -> Lease:
        """The lease of the run: the fence, `Lease.check` and `Lease.wanted`. Raises RuntimeError outside of a run."""
        try:
            return _LEASE.get()
        except LookupError:
            raise RuntimeError(f"the task {self.name!r} does not run here, so it has no lease") from None

    def _inside(self, lease: Lease, args: tuple[Any, ...], kwargs: dict[str, Any], options: _Options) -> Any:
        """Run the function of the task with the lease, unless an earlier delivery of the message has run."""
        if self._is_delivered_again and self._answered(self._ended().status, options).state == "done":
            self._leave_out("an earlier delivery of its message has run")
        token, began = _LEASE.set(lease), time.monotonic()
        try:
            result = super().__call__(*args, **kwargs)
        except Reject:  # the message is to come again
            raise
        except Exception:
            self._note_end(began)
            raise
        finally:
            _LEASE.reset(token)
        self._note_end(began)
        return result

    @property
    def _is_delivered_again(self) -> bool:
        """Whether an earlier delivery of the message may have run, or may run now."""
        request = self.request
        return AGAIN in (request.headers or {}) or bool((request.delivery_info or {}).get("redelivered"))

    def _busy(self, chosen: str) -> str:
        """Return how the task goes on if the name is taken. The task's first delivery may be the holder: it neither skips nor preempts."""
        return "retry" if chosen in ("skip", "preempt") and self._is_delivered_again else chosen

    def _ended(self) -> Any:
        """Return the record of the end of this run. Each retry of the task has a separate record."""
        request = self.request
        keep = max(DAY_S, 2 * self._visibility())
        return client(self.app).once(ENDED, keep=keep).keyed(request.id, str(request.retries))

    def _visibility(self) -> float:
        return float((self.app.conf.broker_transport_options or {}).get("visibility_timeout") or VISIBILITY_S)

    def _note_end(self, began: float) -> None:
        """Record the end of a run if the broker may have delivered the message again meanwhile.

        A message is unacknowledged until the run ends, with ``acks_late``, and until the run begins, with an ``eta``.
        """
        request = self.request
        if not self._has_message:
            return
        is_long = self.acks_late and time.monotonic() - began >= LONG * self._visibility()
        if not is_long and request.eta is None:
            return
        try:
            self._ended().run(lambda: None)
        except (HandfastError, RedisError, OSError) as error:
            LOG.warning("the end of %r can't be noted, so it may run again: %s", self.name, error)

    def _leave_out(self, why: str) -> NoReturn:
        """End the run, which leaves the task's state as it is. Celery does not log why."""
        LOG.info("%s[%s] is left out: %s", self.name, self.request.id, why)
        raise Ignore(why)

    def _answered(self, call: Callable[[], T], options: _Options) -> T:
        """Make a call before the task begins: take the lease, look for a record. In an outage the message comes again.

        Celery would acknowledge the message of a failed task, also with ``acks_late``, and ``autoretry_for`` covers the run
        alone.
        """
        try:
            return call()
        except OUTAGES as error:
            if self._has_message:
                LOG.warning(
                    "%s[%s] comes again, since the server of %r does not answer: %s",
                    self.name,
                    self.request.id,
                    options.name,
                    error,
                )
                self._come_again(options)
            raise

    @property
    def _has_message(self) -> bool:
        return not (self.request.called_directly or self.request.is_eager)

    def _come_again(self, options: _Options) -> NoReturn:
        """Send the message again, for later. It does not count as a retry of the task: retries are for failures."""
        request = self.request
        if not self._has_message:
            raise AcquireTimeout(options.name, 0)
        seconds = options.countdown * random.uniform(1 - SPREAD, 1 + SPREAD)  # noqa: S311 -- no secret
        headers = {**(request.headers or {}), AGAIN: True}
        again = self.signature_from_request(request, countdown=seconds, retries=request.retries, headers=headers)
        again.apply_async()
        raise Retry(f"{options.name!r} is taken", when=seconds, sig=again)


class Exclusive(_Guarded):
    """A task that runs one at a time for each name, on however many workers and machines.

    Example:
        waiting = {"name": "bill:{account}", "busy": "wait", "timeout": 60}

        @app.task(base=Exclusive, bind=True, exclusive=waiting)
        def bill(self, account, month):
            charge(account, fence=self.lease.fence)

    The option ``exclusive`` is a mapping of:

    - ``name``: the name of the lock, in which fields in braces stand for arguments of the task. By default the task's name.
    - ``limit``: how many run at once, 1 by default. With more it is a semaphore.
    - ``busy``: how a task goes on if the name is taken. "retry" (the default) sends the message again, and leaves the worker
      free; "wait" waits in the worker, first come, first served; "skip" ends the task, whose state stays as it was; "preempt"
      asks the running task to end, and takes the lease after ``grace`` seconds.
    - ``countdown``: after how many seconds it comes again, on average; 10 by default.
    - ``timeout``: seconds that "wait" and "preempt" wait at most; then the task fails with AcquireTimeout. None waits
      indefinitely.
    - ``grace``: seconds that "preempt" leaves to the running task; 5 by default.
    - ``ttl``, ``max_hold``, ``max_waiters`` and so on, as `Handfast.lock` takes them.

    A task whose lease was lost fails with LeaseLost; in between ``self.lease.check()`` raises it.

    The broker may deliver the message again while the task runs, with ``acks_late``, or waits for the end of a ``countdown``.
    Such a delivery comes again whatever ``busy`` says, and is left out if the first run has ended.

    A task that begins in an outage comes again after ``countdown`` seconds: Celery would lose the message of a failed task.
    """

    abstract = True
    exclusive: ClassVar[Mapping[str, Any]] = {}

    def __init__(self) -> None:
        self._options = _Options.of(self.exclusive, self.name, Busy)
        rest = self._options.rest
        self._limit, self._grace = rest.pop("limit", 1), rest.pop("grace", 5.0)
        if self._limit != 1 and self._options.busy == "preempt":
            raise ValueError("busy='preempt' takes the place of the running task, so it needs limit=1")
        with _naming(self):
            self._primitive(CHECKS, self._options.name)
        self._template = NameTemplate.of([self._options.name], self.run)

    def _primitive(self, hf: Handfast, name: str) -> Any:
        options = {**self._options.rest, "timeout": self._options.timeout}
        return hf.lock(name, **options) if self._limit == 1 else hf.semaphore(name, self._limit, **options)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the task, when the name is free."""
        options = self._options
        if self._template is not None:
            options = options._replace(name=self._template.filled(args, kwargs)(options.name))
        primitive, busy = self._primitive(client(self.app), options.name), self._busy(options.busy)
        take = {
            "wait": primitive.acquire,
            "preempt": lambda: primitive.preempt(grace=self._grace, timeout=options.timeout),
        }
        lease = self._answered(take.get(busy, primitive.try_acquire), options)
        if lease is None and busy == "skip":
            self._leave_out(f"{options.name!r} is taken")
        if lease is None:
            self._come_again(options)
        with Holding(lease, LOG):
            return self._inside(lease, args, kwargs, options)


class Once(_Guarded):
    """A task that runs once for each key: sent again, or delivered again, it has the result of the first run.

    Example:
        @app.task(base=Once, once={"by": ["day"], "keep": 86400}, acks_late=True)
        def report(day):
            return make(day)

    The option ``once`` is a mapping of:

    - ``name``: the name of the keys; by default the task's name.
    - ``by``: the arguments for the key: a single name, or several. A task with parameters needs it.
    - ``keep``: seconds for which the result counts; a day by default.
    - ``rerun``: whether a run that began and did not end is repeated. With False it fails with NotCompleted then: the task runs at
      most once, and may remain undone. After ``self.retry()`` a run counts as not begun.
    - ``busy``: how a task goes on while another task runs the key: "retry" (the default), "wait" or "skip", as in `Exclusive`.
    - ``countdown`` and ``timeout``, as in `Exclusive`; ``ttl``, ``max_hold``, ``keep_failure`` and so on, as `Handfast.once` takes
      them.

    The result of the task is stored as JSON, of 1 MiB at most.
    """

    abstract = True
    once: ClassVar[Mapping[str, Any]] = {}

    def __init__(self) -> None:
        self._options = _Options.of(self.once, self.name, Running)
        by = self._options.rest.pop("by", None)
        self._by, self._reruns = parameter_names(by), self._options.rest.get("rerun", True)
        self._once = MadeFor[Handfast, OnceObject](lambda hf: hf.once(self._options.name, **self._options.rest))
        with _naming(self):
            self._once(CHECKS)
        if by is None:
            check_parameterless(self.run)
        self._key = CallKey(self._by, self.run, self._options.name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the result of the first run, or run the task."""
        options, once, busy = self._options, self._once(client(self.app)), self._busy(self._options.busy)
        if self._by:
            once = once.keyed(*self._key.parts(args, kwargs))
            options = options._replace(name=once.name)
        take = partial(once.acquire, timeout=options.timeout) if busy == "wait" else once.try_acquire
        run = self._answered(take, options)
        if run is None and busy == "skip":
            self._leave_out(f"{options.name!r} is running")
        if run is None:
            self._come_again(options)
        # Outside of the block, whose end may fail after the work is done.
        results: list[Any] = []
        try:
            with run:
                if run.done:
                    LOG.info("%s[%s] has the result of an earlier run of %r", self.name, self.request.id, options.name)
                    return run.result
                results.append(self._inside(run, args, kwargs, options))
                run.finish(results[0])
        except (Retry, Ignore, Reject):
            if not self._reruns:
                once.forget()  # it says of itself that it has not been done
            raise
        except OUTAGES as error:
            if not results:
                raise
            LOG.warning("the result of %r was not recorded, so another delivery runs it again: %s", options.name, error)
            return results[0]  # the work is done
        return run.result
