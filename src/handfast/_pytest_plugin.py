"""A fixture for users of pytest, which loads this module by itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

__all__ = ["handfast_deactivated"]


@pytest.fixture
def handfast_deactivated() -> Iterator[None]:
    """Grant every request of every Handfast client at once, without a server; see `handfast.testing.deactivate`."""
    from handfast.testing.off import deactivate

    with deactivate():
        yield
