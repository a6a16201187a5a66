"""What another client wrote reaches no terminal, no log and no exception as it is: names, labels, reasons, values."""

from __future__ import annotations

import logging

import pytest
from click.testing import CliRunner

from handfast import AcquireTimeout, AlreadyRunning, Handfast, LeaseLost, NotCompleted, RateLimited
from handfast.cli.acquire import command as acquire
from handfast.cli.limit import command as limit
from handfast.cli.once import command as once
from handfast.cli.operate.ls import command as ls
from handfast.cli.operate.release import command as release
from handfast.cli.operate.show import command as show
from handfast.cli.run import command as run
from tests._support.helpers import eventually

EVIL = "x\x1b[2J\x07\x9b31m\u202e\x7f\r\nforged"
"""Escapes of both kinds, a beep, an override of the direction, and a line of its own."""


def is_harmless(text):
    """Whether each character moves the cursor no further than its own line, and no line is the stranger's."""
    return all(one.isprintable() or one == "\n" for one in text) and "\nforged" not in text


@pytest.fixture
def evil(server, raw):
    """A client whose label is hostile."""
    with Handfast(server.url, label=EVIL) as client:
        yield client


@pytest.fixture
def said(caplog):
    """Return a function that asserts that texts, and all records of the log, are harmless, and that the stranger is in them."""
    caplog.set_level(logging.DEBUG, "handfast")

    def check(*texts, named=True):
        for text in texts:
            assert is_harmless(text), repr(text)
            assert not named or "forged" in text, text
        assert all(map(is_harmless, map(logging.LogRecord.getMessage, caplog.records)))

    return check


def fails(error, call, *args, **options):
    with pytest.raises(error) as caught:
        call(*args, **options)
    return f"{caught.value} {caught.value!r}"


def boom():
    raise LookupError(EVIL)


def test_exceptions_statuses_and_records_show_no_text_of_a_stranger_as_it_is(evil, hf, raw, said):
    with evil.lock(EVIL):
        lock = hf.lock(EVIL)
        said(fails(AcquireTimeout, lock.acquire, timeout=0), str(lock.status()), repr(lock), repr(lock.status()))
    with evil.semaphore(EVIL, 1):
        said(fails(AcquireTimeout, hf.semaphore(EVIL, 1).acquire, timeout=0), str(hf.semaphore(EVIL, 1).status()))
    with evil.rwlock(EVIL).write():
        said(fails(AcquireTimeout, hf.rwlock(EVIL).read().acquire, timeout=0))
    with evil.once("busy"):
        said(fails(AlreadyRunning, hf.once("busy", on_running="raise").run, boom))
    with pytest.raises(LookupError):
        evil.once("failed", keep_failure=60).run(boom)
    said(fails(NotCompleted, hf.once("failed").run, boom))
    limiter = evil.limiter(EVIL, "1/h")
    limiter.acquire()
    limiter.pause(30)
    said(fails(RateLimited, hf.limiter(EVIL, "1/h").acquire, timeout=0), repr(hf.limiter(EVIL, "1/h").status()))


def test_a_reason_of_a_stranger_is_not_shown_as_it_is(evil, hf, raw, said):
    lease = hf.lock("a").acquire()
    assert evil.lock("a").force_release(reason=EVIL) == 1
    eventually(lambda: lease.lost)
    said(fails(LeaseLost, lease.check), named=False)
    status = hf.lock("a").status()
    said(repr(status), status.last.by, status.last.why)
    assert lease.release() is False


@pytest.mark.parametrize(
    "words",
    [
        (ls,),
        (ls, "--all"),
        (ls, "--json"),
        (show, EVIL),
        (show, EVIL, "--json"),
        (release, EVIL, "--reason", "why"),
        (acquire, EVIL, "--ttl", "9", "--timeout", "0"),
        (run, EVIL, "--timeout", "0", "--", "true"),
        (run, EVIL, "--slots", "2", "--timeout", "0", "--", "true"),
        (run, EVIL, "-s", "--timeout", "0", "--", "true"),
        (once, "failed", "--keep", "9", "--", "true"),
        (limit, EVIL, "1/h", "--timeout", "0"),
    ],
    ids=lambda words: " ".join(word for word in words[1:] if word != EVIL) or "ls",
)
def test_no_command_shows_a_text_of_a_stranger_as_it_is(evil, server, said, words):
    with pytest.raises(LookupError):
        evil.once("failed", keep_failure=60).run(boom)
    evil.limiter(EVIL, "1/h").acquire()
    with evil.lock(EVIL), evil.semaphore(EVIL, 1), evil.rwlock(EVIL).write():
        evil.semaphore(EVIL, 1).resize(1)
        done = CliRunner().invoke(words[0], ["--url", server.url, *words[1:]], input="n\n")
    said(done.output, named=False)
    assert done.output
    assert not isinstance(done.exception, Exception) or isinstance(done.exception, SystemExit), done.exception
