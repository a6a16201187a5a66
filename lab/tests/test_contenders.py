"""The adapters of the contenders work as documented, so that the results of a trial are those of the library."""

from __future__ import annotations

import json

import pytest

from handfast.testing.commands import Command
from handfast_lab.rivals import CONTENDERS, OURS, is_left
from handfast_lab.rivals.contender import Wire
from handfast_lab.rivals.loop_thread import OnLoop

TTL = 60.0

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:pottery", "ignore::DeprecationWarning:redis")


@pytest.fixture(params=CONTENDERS.values(), ids=CONTENDERS)
def contender(request):
    if request.param.version is None:
        pytest.skip(f"{request.param.distribution} is not installed")
    return request.param


def test_the_verbs_of_a_contender_acquire_extend_and_release(contender, server, raw):
    with contender.client(server.url) as client:
        lock, other = client.lock("a", TTL), client.lock("a", TTL)
        assert lock.acquire(0) is True
        assert 0.9 * TTL < contender.remaining(raw, "a") / 1000 <= TTL
        assert is_left(contender, raw, "a")
        assert not is_left(contender, raw, "b")
        assert other.acquire(0) is False
        if contender.shortest_wait < 1:
            assert other.acquire(contender.shortest_wait) is False
        if contender.extends:
            lock.extend(100)
            asked = {"to": 100, "by": TTL + 100, "again": TTL}[contender.extends]
            assert asked - 5 < contender.remaining(raw, "a") / 1000 <= asked
        assert lock.release() is True
        assert not contender.left(raw)
        assert contender.remaining(raw, "a") == 0
        assert other.acquire(0) is True
        assert other.release() is True


def test_a_semaphore_contender_has_its_number_of_permits(contender, server, raw):
    if "semaphore" not in contender.has:
        pytest.skip("the contender has no semaphore")
    with contender.client(server.url) as client:
        permits = [client.semaphore("a", 2, TTL) for _ in range(3)]
        assert [permit.acquire(0) for permit in permits] == [True, True, False]
        assert contender.left(raw)
        assert [permit.release() for permit in permits[:2]] == [True, True]
        assert not contender.left(raw)


def test_each_verb_sends_its_known_command(contender, server, raw):
    """Each verb sends one command of its kind, which a fault rule matches."""
    wire, seen = contender.wire(), []
    with contender.client(server.url) as client:
        for _ in range(2):  # the first call may send the source of a script
            lock = client.lock("a", TTL)
            raw.config_resetstat()
            with raw.monitor() as monitor:
                lock.acquire(0)
                if contender.extends:
                    lock.extend(TTL)
                lock.release()
                raw.echo("over")
                seen.clear()
                for line in monitor.listen():
                    words = line["command"].split(" ")
                    if words[0].upper() == "ECHO":
                        break
                    if line["client_type"] != "lua":
                        seen.append(Command(words[0].upper(), tuple(word.encode() for word in words[1:])))
    for words in (wire.takes, wire.gives, wire.extends if contender.extends else ()):
        assert not words or sum(map(Wire.match(words), seen)) == 1


def test_a_script_is_recognised_by_its_source_too():
    wire = OURS.wire()
    is_acquire = Wire.match(wire.takes)
    from handfast._engine.script import load

    script = load("permit_acquire")
    assert is_acquire(Command("EVAL", (script.source.encode(), b"4")))
    assert is_acquire(Command("EVALSHA", (script.digest.encode(), b"4")))
    assert not is_acquire(Command("EVAL", (b"return 1", b"0")))
    assert not is_acquire(Command("EVALSHA"))


def test_importing_the_rivals_does_not_change_json(contender):
    dumps = json.dumps
    contender.wire()
    assert json.dumps is dumps


def test_an_error_on_the_loop_thread_is_raised_in_the_caller(server):
    class Broken:
        async def __aenter__(self):
            raise ZeroDivisionError

        async def __aexit__(self, *error):
            """Do nothing: the context was never entered."""

    with pytest.raises(ZeroDivisionError), OnLoop(Broken()):
        pytest.fail("the context was entered")
