"""Ask each question of every row of the table, in both APIs.

A question that does not apply is deselected; ``python -m tests.gate.questions`` prints the reasons. What is known to be
wrong is listed in ``failing.txt``; a pair that becomes right must leave the list.
"""

from __future__ import annotations

import gc
import sys
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest

import handfast._drivers.aio.shared_waits
import handfast._drivers.sync.own_waits  # noqa: F401 -- Python 3.11 may fail to parse a module within a deep stack
from handfast import Handfast
from handfast._api.sync import operations
from handfast._protocol import loops
from handfast.testing import FaultProxy
from tests._support import kinds
from tests._support.helpers import settled
from tests._support.kinds import POLL_S, ROWS, Visit, until

HERE = Path(__file__).parent

SHORT_S = 0.01
"""Seconds of each pause of a loop."""

KNOWN_WRONG_S = 2.0
"""Seconds to wait for an answer that is known not to come."""

LEFT_BEHIND = (
    "ResourceWarning",
    "RuntimeWarning",
    "pytest.PytestUnhandledThreadExceptionWarning",
    "pytest.PytestUnraisableExceptionWarning",
)
"""Warnings of what a wrong answer leaves behind."""


def failing():
    """Return the kind of the fault of each pair that is known to be wrong, by question, row and API."""
    lines = (HERE / "failing.txt").read_text(encoding="utf-8").splitlines()
    known = [[word.strip() for word in line.split("|")] for line in lines if line and not line.startswith("#")]
    return {(question, row, api): kind for question, row, api, kind in known}


def pair_of(item):
    """Return the question, the row and the API of a test; None for another test."""
    params = getattr(item, "callspec", None) and item.callspec.params
    if not params or "row" not in params:
        return None
    variants = [str(value) for name, value in params.items() if name not in {"row", "api"}]
    return " ".join([item.originalname.removeprefix("test_"), *variants]), params["row"], params["api"].name


def why_not(item):
    """Return why the question of a test does not apply to its row; None if it does."""
    row = ROWS[item.callspec.params["row"]]
    return row.refusal(item.path.stem.removeprefix("test_")) or item.module.applies(row, item.callspec.params["api"])


def is_known_wrong(item):
    """Return whether a test is listed as failing."""
    return item.get_closest_marker("xfail") is not None


def pytest_generate_tests(metafunc):
    if "row" in metafunc.fixturenames:
        metafunc.parametrize("row", ROWS, indirect=True)


@pytest.hookimpl(trylast=True)  # of what the command line has left
def pytest_collection_modifyitems(config, items):
    known, selected, deselected = failing(), [], []
    for item in items:
        pair = pair_of(item) if item.path.parent == HERE else None
        if pair and (why := why_not(item)):
            item.add_marker(pytest.mark.skip(reason=why))
            deselected.append(item)
            continue
        selected.append(item)
        if pair in known:
            item.add_marker(pytest.mark.xfail(reason=known[pair], strict=True))
            for warning in LEFT_BEHIND:
                item.add_marker(pytest.mark.filterwarnings(f"ignore::{warning}"))
    items[:] = selected
    if deselected:
        config.hook.pytest_deselected(items=deselected)


@pytest.fixture
def row(request, api):
    """Each row in turn."""
    return ROWS[request.param]


@pytest.fixture(autouse=True)
def quick(request, monkeypatch):
    """Keep the pauses of loops short. What is known to be wrong is not waited for, and leaves nothing to the next test."""
    for pause in ("FIRST_PAUSE_S", "LONGEST_PAUSE_S"):
        monkeypatch.setattr(loops, pause, SHORT_S)
    if is_known_wrong(request.node):
        monkeypatch.setattr(kinds, "bound_s", KNOWN_WRONG_S)
    yield
    if is_known_wrong(request.node):
        sys.last_value = sys.last_traceback = sys.last_exc = None  # their frames keep leases alive
        gc.collect()


@pytest.fixture(scope="module")
def operator(server):
    """A client of the sync API: an operator, who sees and does what another process would."""
    with Handfast(server.url) as client:
        yield client


@pytest.fixture
def wait_for_others():
    """Wait for no connections: the operator keeps its own, and the clients of each test are closed."""
    return lambda _raw: None


@pytest.fixture
def there(operator, raw):
    """The operator, with a server that is empty."""
    return operator


@pytest.fixture
async def client(api, server, raw):
    """A client of either API, as users have it: only the asyncio one is awaited."""
    made = api.handfast(server.url)
    yield made
    await settled(made.close())


@pytest.fixture
async def other(api, server, raw):
    """Another client, as another process has one."""
    made = api.handfast(server.url)
    yield made
    await settled(made.close())


@pytest.fixture
async def visit(request, api, row, client, other):
    """A function that has a caller begin, by default of `client`. At the end no caller is left, whatever it waits for."""
    visits = []

    def begin(made=None, *, by=client, **options):
        visits.append(Visit(row, api, row.make(by) if made is None else made, **options))
        return visits[-1]

    yield begin
    for one in visits:
        one.cancel()
    for used in (client, other):
        await settled(used.close())
    with suppress(AssertionError) if is_known_wrong(request.node) else nullcontext():
        await until(lambda: all(one.ended for one in visits))


@pytest.fixture
def asks_often(monkeypatch):
    """Let the operator look whether all are gone more than once a second."""
    monkeypatch.setattr(operations, "ASK_AGAIN_S", POLL_S)


@pytest.fixture
def proxy(server):
    """A proxy before the server, which loses replies and cuts connections."""
    with FaultProxy(server.url) as proxy:
        yield proxy
