# Generated from _api/aio/once.py by tools/unasync.py: edit that file and run the tool.
"""Once: a single caller does the work, the others get the result."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Never, ParamSpec, Self, TypeVar

from handfast._api import foreign
from handfast._api.blocks import Blocks
from handfast._api.decorators import CallKey, calling, check_parameterless, plain_function, replacing
from handfast._api.foreign import unknown_options
from handfast._api.results import Codec
from handfast._api.sync.inspectable import Revocable
from handfast._api.sync.run import Run
from handfast._api.sync.scope import PrimitiveScope
from handfast._drivers import log
from handfast._drivers.clock import monotonic
from handfast._drivers.failures import OWN_ERRORS
from handfast._drivers.sync.driver import SyncDriver
from handfast._engine.effects import Found
from handfast._engine.once import NEVER, OnceRequest
from handfast._engine.records import printable
from handfast._engine.validate import fingerprint_bytes, key_parts, reply_seconds, wait_seconds
from handfast._naming import name_publicly
from handfast._objects import BlockOnly
from handfast._protocol import once
from handfast._protocol.acquire import Attempt
from handfast._protocol.lease import LeaseState
from handfast.arguments import Duration, KeyPart
from handfast.errors import AcquireTimeout, AlreadyRunning, NotCompleted

if TYPE_CHECKING:
    from handfast.records import OnceStatus

__all__ = ["Once"]

P = ParamSpec("P")
R = TypeVar("R")


class OnceOptions(NamedTuple):
    """The options of a client's ``once()``, apart from the request."""

    codec: Codec
    keep_failure_ms: int | None
    reruns: bool
    waits: bool
    by: tuple[str, ...] | None = None
    """The parameters that make the key; None if none were named, and an empty tuple if that is meant."""


class Once(BlockOnly, Revocable, PrimitiveScope[Run]):
    """Work to be done once: a single caller runs it, the others get the result.

    Made by the client's ``once()``.

    At most one result is recorded for a key until the record ends. The work itself runs at least once: where a process
    dies or loses the lease in the middle, the next caller runs it again; with ``rerun=False`` it runs at most once, and
    may remain undone. No service can do better by itself: for effects that happen exactly once, pass `Run.fence` to the
    system in which they happen.

    A run is a lease: it has a fence and is renewed, and those who wait for it are served first come, first served. It
    has nothing to do with a lock of the same name. The object holds nothing itself, so threads or tasks may share it.

    Network errors come from redis-py, as `Handfast` lists them.

    Example:
        invoices = hf.once("invoice", keep=86400)
        body = invoices.keyed(order.id).run(lambda: render(order), timeout=10)
    """

    _elsewhere = foreign.RUNS

    _request: OnceRequest

    def __init__(self, driver: SyncDriver, request: OnceRequest, options: OnceOptions) -> None:
        self._driver = driver
        self._blocks = Blocks(driver)
        self._request = request
        self._options = options

    def keyed(self, *parts: KeyPart) -> Self:
        """Return the object of a key, independent of other keys. No I/O.

        Example:
            hf.once("invoice").keyed(order.id).run(render)

        Args:
            parts: The parts of the key, at least one; see `handfast.arguments.KeyPart`. 1 and "1" are the same.

        Raises:
            TypeError: A part is of another type, or there is none.
            ValueError: A part is out of range.
        """
        return type(self)(self._driver, self._request.keyed(key_parts(parts)), self._options)

    def run(
        self,
        function: Callable[[], R],
        *_args: Never,
        timeout: Duration | None = None,
        fingerprint: str | bytes | None = None,
        **_options: Never,
    ) -> R:
        """Return the recorded result; or call the function, record the result, and return it.

        While another caller runs it, waits for the result. If that run fails or its process dies, this caller may be
        the next to run it.

        Example:
            body = hf.once("invoice").keyed(order.id).run(lambda: render(order))

        Args:
            function: Does the work, without arguments. The result is read back from its stored form, as all others get
                it: with JSON, a tuple becomes a list.
            timeout: Seconds to wait for another run at most: a number or a timedelta. 0 or less does not wait; more
                than 366 days (`math.inf`) waits indefinitely. None takes the timeout of the object.
            fingerprint: Identifies the request, such as the digest of the body. A key with the record of another
                fingerprint raises KeyReused; a record or a call without a fingerprint fits any.

        Returns:
            The result.

        Raises:
            AlreadyRunning: Another caller runs it, with ``on_running="raise"``.
            AcquireTimeout: Others ran it for the whole ``timeout``.
            NotCompleted: An earlier run failed or did not end, and is not repeated; or its result could not be stored.
            KeyReused: The key was used with another fingerprint.
            LeaseLost: The run was lost. The result was not recorded.
            QueueFull: ``max_waiters`` wait for it already.
            WouldDeadlock: The caller runs it in an enclosing block, and would wait for itself.
            TypeError: An argument has the wrong type; or the result can't be stored, see `Run.finish`.
            ValueError: An argument is out of range; or the result can't be stored.
            ServerRefused: The server is out of memory, read-only, or lacks replicas or permissions.
        """
        if _args or _options:
            raise unknown_options(self.run, _args, _options)
        function = calling(function)
        request, begins = self._for_call(timeout, fingerprint), False
        try:
            with self if request is self._request else type(self)(self._driver, request, self._options) as run:
                if not run.done:
                    begins = True
                    made = function()
                    run.finish(made)
            result: R = run.result
        except Exception as error:
            if not begins or request.refresh_ms == NEVER:
                raise
            result = self._kept(request, error)
        return result

    def acquire(
        self,
        *_args: Never,
        timeout: Duration | None = None,
        fingerprint: str | bytes | None = None,
        **_options: Never,
    ) -> Run:
        """Find the result, or become the caller that runs it; wait while another caller does.

        Args:
            timeout: As in `run`.
            fingerprint: As in `run`.

        Returns:
            The run. Enter it with ``with``; where it is not `done`, call `Run.finish` in the block.

        Raises:
            AlreadyRunning: Another caller runs it, with ``on_running="raise"``.
            AcquireTimeout: Others ran it for the whole ``timeout``.
            NotCompleted: An earlier run failed or did not end, and is not repeated; or its result could not be stored.
            KeyReused: The key was used with another fingerprint.
            LeaseLost: With ``rerun=False``: the run was lost before its beginning was recorded.
            QueueFull: ``max_waiters`` wait for it already.
            WouldDeadlock: The caller runs it in an enclosing block, and would wait for itself.
            TypeError: An argument has the wrong type.
            ValueError: An argument is out of range, or ``loads`` can't read the result.
            ServerRefused: The server is out of memory, read-only, or lacks replicas or permissions.
        """
        if _args or _options:
            raise unknown_options(self.acquire, _args, _options)
        request = self._for_call(timeout, fingerprint)
        attempt = self._driver.attempt(request)
        try:
            return self._found_or_begun(attempt, request)
        except BaseException as error:
            self._driver.undo(attempt, error)
            raise

    def try_acquire(
        self,
        *_args: Never,
        fingerprint: str | bytes | None = None,
        timeout: Duration | None = None,
        **_options: Never,
    ) -> Run | None:
        """Find the result, or become the caller that runs it, without waiting.

        Takes one round trip; two with ``rerun=False``.

        Args:
            fingerprint: As in `run`.
            timeout: Seconds (a number or a timedelta), from 0.001 s to 366 days, for which the server is waited for, until
                it gives a result or a lease; it has a quarter of a second at least. None takes the ``socket_timeout`` of
                the client's settings, 5 s by default.

        Returns:
            The run; None if another caller runs it, or others wait for it.

        Raises:
            NotCompleted: An earlier run failed or did not end, and is not repeated; or its result could not be stored.
            KeyReused: The key was used with another fingerprint.
            LeaseLost: With ``rerun=False``: the run was lost before its beginning was recorded.
            TypeError: ``fingerprint`` is neither a str nor bytes, or ``timeout`` neither a number nor a timedelta.
            ValueError: ``fingerprint`` is empty, ``timeout`` is out of range, or ``loads`` can't read the result.
            ServerRefused: The server is out of memory, read-only, or lacks replicas or permissions.
        """
        if _args or _options:
            raise unknown_options(self.try_acquire, _args, _options)
        seconds = reply_seconds(timeout)
        attempt = self._driver.attempt(self._for_call(None, fingerprint))
        try:
            state = self._driver.try_acquire(attempt, seconds)
            return None if state is None else self._run_of(attempt, state)
        except BaseException as error:
            self._driver.undo(attempt, error)
            raise

    def status(self, *, timeout: Duration | None = None) -> OnceStatus:
        """Return how far it has come, who runs it and how many wait.

        Takes two round trips, runs nothing and changes nothing.

        Args:
            timeout: Seconds (a number or a timedelta), from 0.001 s to 366 days, for which the server is waited for; it
                has a quarter of a second at least. None takes the ``socket_timeout`` of the client's settings, 5 s by
                default.

        Raises:
            ServerRefused: The server refused, for example for lack of permissions.
            TypeError: ``timeout`` is neither a number nor a timedelta.
            ValueError: ``timeout`` is out of range.
        """
        return self._driver.look(once.status(self._request), self.name, reply_seconds(timeout))

    def forget(self) -> bool:
        """Delete the record, so that the next caller runs it again.

        A run in progress records the result all the same.

        Returns:
            True if there was a record.

        Raises:
            ServerRefused: The server refused, for example because it is read-only.
        """
        return self._driver.run(once.forget(self._request), self.name)

    def __enter__(self) -> Run:
        frame = sys._getframe(1)  # noqa: SLF001 -- documented, and nothing else tells blocks apart
        attempt, run = self._driver.attempt(self._request), None
        try:
            run = self._found_or_begun(attempt, self._request)
            return self._blocks.enter(frame, run)
        except BaseException as error:
            if run is not None:
                self._blocks.forget(self._driver.caller(), run)
            self._driver.undo(attempt, error)
            raise

    def __call__(self, function: Callable[P, R], /) -> Callable[P, R]:
        """Decorate a function: a call returns the recorded result, or runs the function and records the result.

        With the ``by`` of the client's ``once()``, calls are for the key made of their arguments. Without it, the
        function may have no parameters: each call would get the result of the first call, whatever the arguments are.
        ``by=()`` says that this is meant.

        Example:
            @hf.once("report", by=("user", "day"), keep=3600)
            def report(user, day): ...

        Args:
            function: The function to decorate.

        Raises:
            TypeError: The function is of a kind that cannot be decorated.
            ValueError: A name in ``by`` is no parameter of the function, or ``by`` is missing for a function with
                parameters; or the name has braces, which stand for arguments in the names of locks: use ``by``.
        """
        function = plain_function(function)
        by = self._options.by or ()
        key = CallKey(by, function, self.name)
        if self._options.by is None:
            check_parameterless(function)

        @replacing(function)
        def running(*args: P.args, **kwargs: P.kwargs) -> R:
            keyed = self.keyed(*key.parts(args, kwargs)) if by else self
            return keyed.run(functools.partial(function, *args, **kwargs))

        return running

    def _for_call(self, timeout: Duration | None, fingerprint: str | bytes | None) -> OnceRequest:
        seconds = self._request.timeout if timeout is None else wait_seconds(timeout)
        return self._request.for_call(seconds, fingerprint_bytes(fingerprint))

    def _found_or_begun(self, attempt: Attempt, request: OnceRequest) -> Run:
        try:
            state = self._driver.acquire_in_turns(attempt, request.timeout, request.question)
        except AcquireTimeout as error:
            if self._options.waits:
                raise
            holders = error.status.holders if error.status else ()
            raise AlreadyRunning(self.name, holders[0] if holders else None) from None
        return self._run_of(attempt, state)

    def _kept(self, request: OnceRequest, error: Exception) -> Any:
        """Return the old result if it still counts. Raises the error of the refresh if there is none."""
        record = None
        with suppress(*OWN_ERRORS):
            record = self._driver.run(once.read(request), self.name)
        if record is None or record.outcome != "done":
            raise error
        log.refresh_failed(self.name, error, request.pause_ms / 1000)
        return self._options.codec.decode(record.value)

    def _run_of(self, attempt: Attempt, state: LeaseState | Found) -> Run:
        """Return the run of a lease, or of a record. With ``rerun=False`` the beginning of the run is recorded first."""
        if isinstance(state, Found):
            if attempt.may_be_there:
                self._driver.undo(attempt)
            if (dispatcher := self._driver.events.dispatcher) is not None:
                dispatcher.found(attempt, state.outcome)
            return self._found(attempt, state)
        if not self._options.reruns:
            self._driver.run(once.begin(state), self.name, attempt)
        return Run(self._driver, state, self._options.codec, self._options.keep_failure_ms)

    def _found(self, attempt: Attempt, recorded: Found) -> Run:
        """Return the run of a record. Raises NotCompleted for a record without a result."""
        if recorded.outcome != "done":
            reason = printable(recorded.value.decode(errors="replace"))
            raise NotCompleted(self.name, recorded.outcome, reason)
        state = once.found(attempt, recorded, monotonic())
        run = Run(self._driver, state, self._options.codec, None)
        return run._find(recorded)  # noqa: SLF001 -- of a run that was just made


name_publicly(globals(), "handfast")
