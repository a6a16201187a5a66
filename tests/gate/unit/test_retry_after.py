"""The header Retry-After, as servers send it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handfast._engine.retry_after import UNKNOWN_S, retry_after

NOW = datetime(2026, 11, 27, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("120", 120),
        (" 120\r\n", 120),
        ("0", 0),
        ("-1", 0),
        ("1.5", 1.5),
        (".5", 0.5),
        ("120, 120", 120),
        ("30,60", 60),
        ("Fri, 27 Nov 2026 12:05:00 GMT", 300),
        ("Fri, 27 Nov 2026 11:59:00 GMT", 0),
        ("Friday, 27-Nov-26 12:05:00 GMT", 300),
        ("Fri Nov 27 12:05:00 2026", 300),
        (format_datetime((NOW + timedelta(minutes=1)).astimezone(timezone(timedelta(hours=9)))), 60),
        ("Fri, 31 Dec 9999 23:59:59 GMT", (datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC) - NOW).total_seconds()),
        *(
            (text, UNKNOWN_S)
            for text in (None, "", "  ", "soon", "1e3", "inf", "nan", "1h", ",", ".", "12:30", "Fri, 99 Nov 2026")
        ),
    ],
)
def test_a_header_is_read_as_seconds(header, seconds):
    assert retry_after(header, NOW) == seconds


@given(st.text())
def test_no_header_raises(header):
    assert retry_after(header, NOW) >= 0
