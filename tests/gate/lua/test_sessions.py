"""The sessions of each object's scripts answer as their files say, and keep the laws at every step.

``HANDFAST_REWRITE=1`` writes the answers into the files; `docs/design/sessions.md` says how to read them. With
``HANDFAST_LAWS=0`` only the answers are asked: most mutants die without a law.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import redis

from tests._support.sessions import SessionFile, Stage

FILES = [SessionFile(path) for path in sorted((Path(__file__).parent / "sessions").glob("*.txt"))]


@pytest.fixture
def stage(server, raw):
    client = redis.Redis.from_url(server.url)
    subscriber = client.pubsub()
    subscriber.subscribe("-")
    subscriber.get_message(timeout=10)
    yield Stage(client, subscriber)
    raw.flushall()
    for unsubscribe in (subscriber.unsubscribe, subscriber.sunsubscribe):
        unsubscribe()
    while subscriber.subscribed:  # else the next session may find them there
        subscriber.get_message(timeout=10)
    subscriber.close()
    client.close()


@pytest.mark.parametrize(
    ("file", "name"),
    [pytest.param(file, name, id=f"{file.path.stem}: {name[2:]}") for file in FILES for name in file.sessions],
)
def test_session(file, name, stage):
    if not stage.is_exact and any(line.startswith("listens {") for line in file.sessions[name]):
        pytest.skip("sharded channels came with Redis 7.0")
    if not stage.is_exact and "exact" in file.sessions[name]:
        pytest.skip("its TTLs are exact where time stands still in a transaction")
    stage.has_laws = stage.is_exact and os.environ.get("HANDFAST_LAWS") != "0"
    answered = file.play(name, stage)
    if os.environ.get("HANDFAST_REWRITE"):
        file.rewrite(name, answered)
    if stage.has_laws:
        assert answered == file.sessions[name]
    elif stage.is_exact:
        assert [*map(without_notes, answered)] == [*map(without_notes, file.sessions[name])]
    else:
        assert [*map(without_times, answered)] == [*map(without_times, file.sessions[name])]


def without_times(line):
    """Leave out TTLs, and how many commands it took."""
    return re.sub(r" [\d.]+ s:", "", re.sub(r"  \[.*\]$", "", line))


def without_notes(line):
    """Leave out the notes of the laws."""
    return re.sub(r"( commands); .*\]$", r"\1]", line)
