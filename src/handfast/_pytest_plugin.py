"""Fixtures for users of pytest, which loads this module by itself. Nothing is imported, and no server runs, before a test uses one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from handfast import AsyncHandfast, Handfast
    from handfast.testing import ServerController

__all__ = ["async_handfast_client", "handfast_client", "handfast_deactivated", "handfast_server"]


@pytest.fixture
def handfast_deactivated() -> Iterator[None]:
    """Grant every request of every Handfast client at once, without a server; see `handfast.testing.deactivate`."""
    from handfast.testing.off import deactivate

    with deactivate():
        yield


@pytest.fixture(scope="session")
def handfast_server() -> Iterator[ServerController]:
    """A private server, for all tests of a session; with pytest-xdist each worker has its own.

    ``$HANDFAST_URL`` names it from then on, so ``Handfast()`` in the code under test is a client of it.
    """
    from handfast._engine.defaults import VARIABLES
    from handfast.testing.servers import ServerController

    with ServerController() as server, pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, VARIABLES[0], server.url)
        yield server


@pytest.fixture
def handfast_client(handfast_server: ServerController) -> Iterator[Handfast]:
    """A client of the sync API with a namespace of its own. Leases held at the end of the test are released."""
    from handfast import Handfast

    client = Handfast(handfast_server.url, namespace=_namespace())
    yield client
    client.close(release=True)


@pytest.fixture
def async_handfast_client(handfast_server: ServerController) -> AsyncHandfast:
    """A client of the asyncio API with a namespace of its own. It ends with the event loop of the test."""
    from handfast import AsyncHandfast

    return AsyncHandfast(handfast_server.url, namespace=_namespace(), release_at_exit=True)


def _namespace() -> str:
    """Return a namespace of this test only."""
    return f"test-{os.urandom(4).hex()}"
