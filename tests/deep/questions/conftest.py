"""Each row that has a block or a function, and each API."""

from __future__ import annotations

import pytest

from handfast import Handfast
from tests._support.kinds import ROWS
from tests.deep.questions.visitor import Visitors

ASKED = [name for name, row in ROWS.items() if row.shape != "calls" and row.loop != "watches" and not row.like]


def pytest_generate_tests(metafunc):
    if "row_name" in metafunc.fixturenames:
        metafunc.parametrize("row_name", ASKED)


@pytest.fixture
def visitors(server, raw):
    """A function that starts processes with a caller in a row; they are ended afterwards."""
    with Visitors(server.url) as visitors:
        yield lambda row_name, api: visitors.start((row_name, api))[0]


@pytest.fixture
def there(server, raw):
    """An operator."""
    with Handfast(server.url) as client:
        yield client
