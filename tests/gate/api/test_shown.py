"""What users see of clients, leases and lost blocks: reprs, and the lines that warnings point to."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from handfast import Handfast, OnceStatus
from handfast.testing import script
from tests._support.helpers import eventually


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("redis://user:secret@example.org:6390/2", "redis://user@example.org:6390/2"),
        ("redis://secret@example.org", "redis://example.org:6379/0"),
        ("valkeys://:secret@example.org", "rediss://example.org:6379/0"),
        ("unix:///run/redis.sock?password=secret&db=3", "unix:///run/redis.sock?db=3"),
        ("redis+sentinel://:secret@one.example.org,two.example.org/primary/1", "redis+sentinel://…/primary/1"),
    ],
)
def test_a_client_shows_its_server_without_secrets(api, given, shown):
    client = api.handfast(given, namespace="shop", label="web-1")
    assert repr(client) == f"<{api.handfast.__name__} of {shown}, namespace 'shop', label 'web-1'>"


def test_a_status_as_text_says_who_holds_and_how_many_wait(hf, server):
    assert str(hf.lock("a").status()) == str(hf.rwlock("a").status()) == "not held; 0 waiting"
    assert str(hf.semaphore("a", 2).status()) == "0 of 2 permits held; 0 waiting"
    with Handfast(server.url, label="web-1\n") as client, ThreadPoolExecutor(1) as threads:
        permits = [client.semaphore("a", 5).acquire() for _ in range(5)]
        waiter = threads.submit(hf.semaphore("a", 5).acquire)
        status = eventually(lambda: (found := hf.semaphore("a", 5).status()).waiting and found)
        one = r"web-1\\n for \d\.\d s"
        assert re.fullmatch(f"5 of 5 permits held, by {one}, {one}, {one}, 2 more; 1 waiting", str(status))
        for permit in permits:
            permit.release()
        waiter.result(10).release()


def test_a_limiter_and_a_key_of_once_as_text_say_how_far_they_are(hf):
    limiter = hf.limiter("a", "5/min; 1000/d")
    limiter.acquire(cost=3)
    assert str(limiter.status()) == "3 of 5 used in 60 s, 3 of 1,000 used in 86,400 s; 0 waiting"
    limiter.pause(50)
    label = re.escape(hf._driver.label)
    assert re.fullmatch(rf".*; 0 waiting; paused for (50\.0|49\.\d) s by {label}", str(limiter.status()))
    once = hf.once("a", keep_failure=60)
    assert str(once.status()) == "not recorded; 0 waiting"
    with once as run:
        assert re.fullmatch(rf"run by {label} for \d\.\d s; 0 waiting", str(once.status()))
        run.finish(1)
    assert re.fullmatch(r"done \d\.\d s ago; 0 waiting", str(once.status()))
    with pytest.raises(ZeroDivisionError):
        once.keyed(1).run(lambda: 1 / 0)
    assert re.fullmatch(r"failed \d\.\d s ago; 0 waiting", str(once.keyed(1).status()))
    names = {str(found) for found in hf.names("a")}
    assert "once 'a': not held; 0 waiting" in names


def test_what_began_or_could_not_be_stored_says_so(hf):
    assert str(OnceStatus("begun", 3.0, None, 2)) == "began 3.0 s ago and did not end; 2 waiting"
    assert str(OnceStatus("unstored", 1234.0, None, 0)).startswith("done 1,234.0 s ago, and its result could not be")


def test_a_script_that_does_not_exist_is_answered_with_those_that_do():
    with pytest.raises(ValueError, match=r"no script 'acquire' but .*permit_acquire, .*permit_release"):
        script("acquire")
