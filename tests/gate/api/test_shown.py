"""What users see of clients, leases and lost blocks: reprs, and the lines that warnings point to."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from handfast import Handfast
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
    assert str(hf.lock("a").status()) == "not held; 0 waiting"
    with Handfast(server.url, label="web-1\n") as client, ThreadPoolExecutor(1) as threads:
        permits = [client.semaphore("a", 5).acquire() for _ in range(5)]
        waiter = threads.submit(hf.semaphore("a", 5).acquire)
        status = eventually(lambda: (found := hf.semaphore("a", 5).status()).waiting and found)
        one = r"web-1\\n for \d\.\d s"
        assert re.fullmatch(f"held by {one}, {one}, {one}, 2 more; 1 waiting", str(status))
        for permit in permits:
            permit.release()
        waiter.result(10).release()


def test_a_script_that_does_not_exist_is_answered_with_those_that_do():
    with pytest.raises(ValueError, match=r"no script 'acquire' but .*permit_acquire, .*permit_release"):
        script("acquire")
