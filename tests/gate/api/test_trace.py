"""The trace of the wire: each call and each reply, with tokens and results masked."""

from __future__ import annotations

import asyncio
import logging
import re

import pytest

from handfast._drivers import trace
from handfast._drivers.trace import new_exchange
from handfast._engine.exchange import Exchange
from handfast._engine.resp import ErrorReply
from tests._support.connector import ScriptedConnector
from tests._support.engine import Engine
from tests._support.helpers import awaited, eventually_async


@pytest.fixture
def traced(caplog):
    """Return a function that returns the trace, without the numbers of the connections."""
    caplog.set_level(logging.DEBUG, "handfast.wire")
    return lambda: [re.sub(r"^#\d+ ", "", text) for name, _, text in caplog.record_tuples if name == "handfast.wire"]


async def test_calls_and_replies_are_shown_and_tokens_and_results_masked(api, server, raw, traced):
    raw.flushall()
    async with api.client(server.url) as client:
        lease = await client.lock("a").acquire()
        await lease.release()
        for _ in range(2):
            assert await client.once("k").run(api.function(lambda: {"secret": "found"})) == {"secret": "found"}
    lines = traced()
    text = "\n".join(lines)
    assert lines[0].startswith(f"is a connection to {server.url}")
    keys = "{hf:lock:a}:state {hf:lock:a}:tokens"
    at = max(n for n, line in enumerate(lines) if line.startswith(f"-> permit_acquire {keys} and 3 arguments"))
    assert lines[at + 1] == f"<- {lease.fence}"
    assert f"-> permit_release {keys} and 1 argument" in text
    assert "<- released 0" in lines
    assert "<- recorded 0" in lines
    assert re.search(r"^<- done done \d+ \d+ \(18 bytes\)$", text, re.MULTILINE)
    assert lease.token not in text
    assert "secret" not in text
    assert "found" not in text


async def test_messages_are_shown(api, here, server, raw, traced):
    lease = await here.lock("a").acquire()
    async with api.client(server.url) as client:
        waiting = asyncio.create_task(awaited(client.lock("a").acquire()))
        await eventually_async(Engine(raw).queue)
        await lease.release()
        await (await waiting).release()
    assert re.search(r"<- queued \d+ 0 \d+ \d+\n(.*\n)*<- message granted \d+ \d+ \d+\n", "\n".join(traced()))


def test_the_arguments_that_an_error_quotes_are_masked():
    error = ErrorReply("ERR unknown command 'EVALSHA', with args beginning with: 'digest' '2' 'token'")
    assert trace._frame_shown(error) == "error ERR unknown command 'EVALSHA'"


def test_without_debug_nothing_is_traced():
    assert type(new_exchange(ScriptedConnector(None))) is Exchange


@pytest.mark.parametrize(("value", "shows"), [("1", True), ("0", False), ("", False), (None, False)])
def test_the_variable_has_all_printed(capsys, value, shows):
    log = logging.getLogger("handfast.wire")
    try:
        trace.configure({"HANDFAST_TRACE": value} if value is not None else {})
        log.debug("#1 -> here")
        assert ("#1 -> here" in capsys.readouterr().err) is shows
    finally:
        log.handlers, log.propagate = [], True
        log.setLevel(logging.NOTSET)
