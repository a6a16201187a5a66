"""The records of tokens, as Python reads them. What the scripts read of them is in their sessions."""

from __future__ import annotations

import pytest

from handfast._engine.packing import doubles
from handfast._engine.records import Record, owner_text, read_record

RECORDS = [
    Record(1_700_000_000_123_456, 1, 1, 2000, 4711, "hf:inbox:a:1", "hf:control:a", "host:42"),
    Record(2**53 - 1, 3, 10**9, 0, 2**47, "i", "c", "a label of several words"),
    Record(1, 2, 3, 4, 0, "i", "c", "web-3:1;task=a%20b"),
    Record(1, 2, 3, 4, 5, "i", "c", " two  spaces"),
]


@pytest.mark.parametrize("record", RECORDS)
def test_a_record_is_read_as_it_was_written(record):
    text = doubles(*record[:5]) + owner_text(record.inbox, record.control, record.label).encode()
    assert read_record(text) == record


def test_a_label_that_would_move_a_cursor_is_read_escaped():
    text = doubles(1, 2, 3, 4, 5) + owner_text("i", "c", "a\x1b[2J\nb \u202e\x9b").encode()
    assert read_record(text).label == r"a\x1b[2J\nb \u202e\x9b"


def test_a_record_that_was_evicted_is_none():
    assert read_record(b"") is None


def test_the_records_of_a_client_share_their_texts():
    first, second = (read_record(doubles(mark, 1, 1, 4, 5) + b"i hf:control:a host:1") for mark in (1, 2))
    assert first.label is second.label
    assert first.owner is second.owner
    assert first.mark != second.mark
