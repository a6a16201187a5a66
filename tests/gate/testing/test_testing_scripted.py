"""The scripted driver and the fake clock: protocols against prepared replies, and failures if a reply does not fit."""

from __future__ import annotations

import pytest

from handfast._engine.calls import PermitRequest
from handfast._engine.effects import PROBE, Answer, GrantMessage, Park, Waking
from handfast._engine.keys import KeySet
from handfast._protocol.acquire import Attempt, acquire
from handfast.testing import FakeClock, ScriptedDriver


def asking(*effects):
    """A protocol that yields these effects and returns the answers."""
    heard = []
    for effect in effects:
        answer = yield effect
        heard.append(answer)
    return heard


PARK = Park(b"t", 110.0)


def test_replies_are_answers_at_the_time_of_the_clock():
    driver = ScriptedDriver([b"x", 1], None, Answer(107.0, b"y"), b"z")
    assert driver.perform(asking(PROBE, PROBE, PROBE, PROBE)) == [
        Answer(100.0, [b"x", 1]),
        Answer(100.0, None),
        Answer(107.0, b"y"),
        Answer(107.0, b"z"),
    ]
    assert driver.effects == [PROBE] * 4


def test_wait_ends_with_a_message_or_at_its_timeout():
    message = GrantMessage(1, 2, 3)
    driver = ScriptedDriver(message, None, Waking(115.0, message), b"x")
    assert driver.perform(asking(PARK, PARK, PARK, PROBE)) == [
        Waking(100.0, message),
        Waking(110.0, None),
        Waking(115.0, message),
        Answer(115.0, b"x"),
    ]


def test_exception_of_the_script_is_raised_in_the_protocol():
    def careful():
        try:
            yield PROBE
        except KeyError:
            return (yield PROBE).reply
        pytest.fail("it was not raised")

    assert ScriptedDriver(KeyError(), b"x").perform(careful()) == b"x"
    with pytest.raises(KeyError):
        ScriptedDriver(KeyError()).perform(asking(PROBE))


def test_acquire_protocol_runs_without_a_server():
    attempt = Attempt(PermitRequest(KeySet("hf", "lock", "a"), ttl_ms=30_000, renew=True), b"t" * 32)
    clock = FakeClock(50.0)
    driver = ScriptedDriver(
        [b"queued", 0, 0, 10**9, 0],
        None,
        [b"queued", 0, 0, 10**9, 0],
        GrantMessage(7, 1_000_000, 5_000_000),
        clock=clock,
    )
    grant = driver.perform(acquire(attempt, until=1e9))
    assert (grant.fence, grant.lease) == (7, 5.0)
    assert 50 < clock() < grant.deadline


@pytest.mark.parametrize(
    ("script", "effects", "message"),
    [
        ([b"x"], [PROBE, PROBE], "only 1 items.*yields another effect: a call of PUBSUB"),
        ([], [PARK], "only 0 items.*a wait until 110"),
        ([b"x", b"y", b"z"], [PROBE], "item 2 of the script is left: b'y'; it yielded: a call of PUBSUB"),
        ([b"x"], [], "item 1 of the script is left: b'x'; it yielded: nothing"),
        ([b"x"], [PARK], "item 1 of the script is b'x', which does not answer a wait until 110"),
        (
            [b"x", GrantMessage(1, 2, 3)],
            [PROBE, PROBE],
            "item 2 of the script is GrantMessage.*, which does not answer a call of PUBSUB",
        ),
    ],
)
def test_script_that_does_not_fit_fails_the_test(script, effects, message):
    with pytest.raises(AssertionError, match=message):
        ScriptedDriver(*script).perform(asking(*effects))
