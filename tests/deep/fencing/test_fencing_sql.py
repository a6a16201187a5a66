"""Fenced updates of rows: on SQLite, with drivers of every paramstyle, and by a writer that was paused.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

import contextlib
import sqlite3

import pytest

from tests._support.actor import Actors, fenced_writer, write_late
from tests.gate.fencing import test_fencing_sql as gate

db = gate.db


# --- model, and paused writers


@pytest.fixture
def stored(tmp_path):
    """The path of a database file for several processes."""
    path = str(tmp_path / "reports.db")
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE reports (id INTEGER PRIMARY KEY, body TEXT, fence BIGINT)")
        db.execute("INSERT INTO reports (id) VALUES (7)")
    return path


@pytest.fixture
def writers(server, raw):
    """Two processes that write."""
    with Actors(fenced_writer, server.url) as actors:
        yield actors(2)


def body_of(path):
    with contextlib.closing(sqlite3.connect(path)) as db:
        return db.execute("SELECT body FROM reports WHERE id = 7").fetchone()[0]


@pytest.mark.parametrize("renew", [False, True], ids=["plain", "renewed"])
def test_paused_writer_is_refused_when_it_resumes(writers, stored, renew):
    firsts, seconds, old, new = write_late(writers, "update", renew, path=stored)
    assert seconds == "written"
    assert firsts == ["stale", old, new]
    assert body_of(stored) == "second"


def test_paused_writer_without_a_fence_overwrites_the_newer_row(writers, stored):
    firsts, seconds, _, _ = write_late(writers, "update unguarded", renew=True, path=stored)
    assert (firsts, seconds) == ("written", "written")
    assert body_of(stored) == "first"
