"""What attempts and leases note, the retry policy and background cleanup: decisions without a server or a clock."""

from __future__ import annotations

import gc
import weakref

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from handfast import ServerRefused
from handfast._engine.calls import PermitRequest
from handfast._engine.effects import PROBE, Acknowledgement, Answer, Confirmation, widest
from handfast._engine.keys import KeySet
from handfast._engine.messages import Wanted
from handfast._engine.options import LeaseOptions
from handfast._engine.packing import doubles
from handfast._engine.resp import ErrorReply
from handfast._engine.server_errors import refusal
from handfast._protocol.acquire import Attempt, Grant, cancel
from handfast._protocol.lease import LeaseState, LeaseTable, Renewal, release
from handfast._protocol.loss import CLOSED, EXPIRED, revoked
from handfast._protocol.outage import OutageBegins, OutageEnds, OutageWatch
from handfast._protocol.retry import CLEANUP_PAUSE_S, MIN_REPLY_S, PAUSES, UNDO_WAIT, Cleanup, Retry, Verdict, time_left
from tests._support.helpers import performed as perform

TOKEN = b"t" * 32
LOADING = ErrorReply("LOADING Redis is loading the dataset in memory")
READONLY = ErrorReply("READONLY You can't write against a read only replica.")
NOPERM = ErrorReply("NOPERM this user has no permissions to run the 'zadd' command")
NOSCRIPT = ErrorReply("NOSCRIPT No matching script. Please use EVAL.")
CUT_OFF = ErrorReply("ERR Script attempted to access a non local key in a cluster node script: 0, on @user_script:1.")
BROKEN = RedisConnectionError("broken")


def request(limit=1, weight=1, **options):
    return PermitRequest(
        KeySet("hf", "lock", "a"), LeaseOptions(**{"ttl_ms": 30_000} | options), limit=limit, weight=weight
    )


def a_lease(**options):
    return LeaseState(request(**options), TOKEN, Grant(7, 130.0, 30.0))


# --- what an attempt may have left

EVENTS = {
    "send": lambda attempt: setattr(attempt, "may_be_there", True),
    "duplicate": lambda attempt: setattr(attempt, "copies", True),
    "queue": lambda attempt: setattr(attempt, "position", 3),
    "reject": Attempt.rejected,
    "refuse": Attempt.refused,
    "clean_up": lambda attempt: setattr(attempt, "is_left", True),
    "cancel": lambda attempt: list(perform(cancel(attempt), Answer(100.0, [b"cancelled", 0]))),
}


@pytest.mark.parametrize(
    ("events", "needs_undo"),
    [
        ([], False),
        (["refuse"], False),
        (["send"], True),
        (["send", "queue"], True),
        (["send", "reject"], False),
        (["send", "refuse"], False),
        (["send", "queue", "send", "refuse"], True),
        (["send", "queue", "send", "reject"], False),
        (["send", "duplicate", "reject"], True),
        (["send", "duplicate", "refuse"], True),
        (["send", "duplicate", "queue", "reject"], True),
        (["send", "duplicate", "cancel"], False),
        (["send", "reject", "send"], True),
        (["send", "queue", "clean_up"], False),
        (["send", "queue", "clean_up", "cancel"], False),
        (["send", "queue", "cancel"], False),
    ],
)
def test_an_attempt_needs_an_undo_while_the_server_may_have_something_of_it(events, needs_undo):
    attempt = Attempt(request(), TOKEN)
    for event in events:
        EVENTS[event](attempt)
    assert attempt.needs_undo is needs_undo
    assert attempt.may_be_there is (needs_undo or events[-1:] == ["clean_up"])


# --- the end of a lease


@pytest.mark.parametrize(
    ("replies", "result"),
    [([[b"released", 1], [b"released", 0]], True), ([[b"lost"]], False), ([], None)],
)
def test_a_release_lets_go_when_the_server_has_answered(replies, result):
    one = a_lease()
    steps = release(one)
    next(steps)
    returned = None
    try:
        for reply in replies:
            steps.send(Answer(100.0, reply))
    except StopIteration as end:
        returned = end.value
    assert (returned, one.is_released) == (result, result is not None)


def test_background_cleanup_does_not_let_go():
    one = a_lease()
    cleanup = Cleanup(release(one, by_holder=False), 120.0)
    assert not cleanup.settle(Answer(100.0, [b"released", 0]), 100.0)
    assert (cleanup.result, one.is_released) == (True, False)


def test_a_lease_that_expires_while_it_is_released_is_lost_and_one_that_was_released_is_not():
    one = a_lease()
    next(release(one))
    assert not one.lost(129.9)
    assert one.lost(130.0)
    other = a_lease()
    other.let_go(110.0)
    assert not other.lost(130.0)


def test_the_first_reason_of_a_loss_stays():
    one = a_lease()
    one.lose(revoked("INC-4411"), 110.0)
    one.disown(111.0)
    assert (one.loss, one.is_released) == (revoked("INC-4411"), True)


# --- the outcome of a renewal


@pytest.mark.parametrize(
    ("outcome", "verdict"),
    [
        (Answer(110.0, [b"renewed", 30_000_000]), Renewal.SETTLED),
        (Answer(110.0, [b"lost"]), Renewal.LOST),
        (NOSCRIPT, Renewal.SEND_SOURCE),
        (LOADING, Renewal.RETRY),
        (NOPERM, Renewal.RETRY),
        (READONLY, Renewal.RECONNECT),
    ],
)
def test_the_outcome_of_a_renewal_is_judged_and_the_lease_updated(outcome, verdict):
    table, one = LeaseTable(), a_lease()
    table[TOKEN] = one
    one.due_at = 111.0
    assert table.settle(one, outcome, 110.5) is verdict
    assert (one.loss is not None) is (verdict is Renewal.LOST) is (TOKEN not in table)
    assert one.deadline == (140.0 if verdict is Renewal.SETTLED else 130.0)
    assert one.due_at == {Renewal.SETTLED: 120.0, Renewal.SEND_SOURCE: 110.5}.get(verdict, 111.0)


def test_a_renewal_that_finds_a_released_lease_gone_is_not_a_loss():
    table, one = LeaseTable(), a_lease()
    assert table.settle(one, Answer(110.0, [b"lost"]), 110.5) is Renewal.SETTLED
    assert one.loss is None


@pytest.mark.parametrize(("lease_us", "deadline", "ends"), [(30_000_000, 140.0, False), (5_000_000, 115.0, True)])
def test_a_renewal_that_gets_less_than_it_asked_for_tells_that_the_lease_is_to_end(lease_us, deadline, ends):
    """The message that its holder is asked to end was lost."""
    table, one = LeaseTable(), a_lease()
    table[one.token] = one
    assert table.settle(one, Answer(110.0, b"renewed " + doubles(lease_us)), 110.5) is Renewal.SETTLED
    assert one.deadline == deadline
    assert (one.ends_at == deadline) is ends


def test_a_holder_that_has_adopted_its_lease_counts_from_the_grant_when_it_is_asked_to_end():
    one = a_lease()
    one.granted_at = 95.0
    one.want(Wanted(grace=9.0, held=7.0, by="b", reason="r", heard_at=100.0), 100.0)
    assert one.deadline == 102.0


def test_a_table_that_stops_renewing_keeps_the_leases_whose_holders_want_to_be_notified():
    table = LeaseTable()
    quiet, heard = (LeaseState(request(), token, Grant(7, 130.0, 30.0)) for token in (b"1", b"2"))
    heard.callbacks.append(lambda: None)
    table |= {one.token: one for one in (quiet, heard)}
    table.stop_renewing(listened=True)
    assert list(table.values()) == [quiet, heard]
    table.stop_renewing(listened=False)
    assert list(table.values()) == [heard]
    assert table.due(129.0) == []
    assert table.remove_expired(130.0) == [heard]


# --- outages


def test_an_outage_begins_once_and_ends_once():
    table = LeaseTable()
    for number in (1, 2):
        table[b"%d" % number] = LeaseState(request(), b"%d" % number, Grant(number, 130.0 - number, 30.0))
    table[b"planned"] = LeaseState(request(renew=False), b"planned", Grant(3, 130.0, 30.0))
    watch = OutageWatch(table)
    assert watch.review(100.0) is None
    due = table.due(110.0)
    table.note_failure("Connection refused")
    assert watch.review(110.0) == OutageBegins(2, "Connection refused", table[b"2"], 18.0)
    table.note_failure("another reason")
    assert watch.review(111.0) is None
    for one in due:
        assert watch.review(112.0) is None
        one.renewed(112.0, 30_000_000)
    assert watch.review(114.5) == OutageEnds(2, 4.5)
    assert watch.review(115.0) is None


def test_an_outage_that_no_lease_outlives_has_no_end_and_the_next_one_begins_anew():
    table, one = LeaseTable(), a_lease()
    table[TOKEN] = one
    watch = OutageWatch(table)
    table.due(120.0)
    assert isinstance(watch.review(120.0), OutageBegins)
    table.lose(one, revoked("INC-4411"), 121.0)
    assert watch.review(121.0) is None
    table[TOKEN] = a_lease()
    table.due(125.0)
    assert isinstance(watch.review(125.0), OutageBegins)


@pytest.mark.parametrize(
    ("renew", "failure", "reason"),
    [
        (
            True,
            None,
            "its ttl ended before it was renewed or released; the last renewal failed: the server did not answer",
        ),
        (
            True,
            "Connection refused.",
            "its ttl ended before it was renewed or released; the last renewal failed: Connection refused",
        ),
        (False, "Connection refused", "its ttl ended before it was renewed or released"),
    ],
)
def test_the_reason_of_a_loss_names_the_last_failure_of_its_renewal(renew, failure, reason):
    table, one = LeaseTable(), a_lease(renew=renew)
    table[TOKEN] = one
    table.renew_all(110.0)
    table.due(110.0)
    if failure is not None:
        table.note_failure(failure)
    assert table.remove_expired(130.0) == [one]
    assert one.loss_text == reason


def test_a_renewal_that_the_server_has_answered_is_no_part_of_the_reason():
    table, one = LeaseTable(), a_lease()
    table[TOKEN] = one
    table.due(110.0)
    table.note_failure("Connection refused")
    table.settle(one, Answer(112.0, [b"renewed", 30_000_000]), 112.0)
    assert table.remove_expired(142.0) == [one]
    assert one.loss == EXPIRED


def test_a_script_that_the_server_forgot_is_no_failure():
    table, one = LeaseTable(), a_lease()
    table[TOKEN] = one
    table.due(110.0)
    table.settle(one, NOSCRIPT, 110.0)
    assert OutageWatch(table).review(110.0) is None


# --- the time of a lease


@pytest.mark.parametrize(("end", "held_for"), [("let_go", 20.0), ("lose", 20.0), ("expire", 30.0), ("release", 19.5)])
def test_a_lease_is_held_until_its_end(end, held_for):
    one = LeaseState(request(), TOKEN, Grant(7, 130.0, 30.0), asked_at=97.5)
    assert (one.waited, one.held_for(110.0)) == (2.5, 10.0)
    if end == "let_go":
        one.let_go(120.0)
    elif end == "lose":
        one.lose(revoked("INC-4411"), 120.0)
    elif end == "release":
        steps = release(one)
        next(steps)
        with pytest.raises(StopIteration):
            steps.send(Answer(119.5, [b"released", 0]))
    else:
        assert one.lost(150.0)
    one.lose(CLOSED, 160.0)
    assert one.held_for(170.0) == held_for


def test_a_lease_whose_grant_seems_older_than_its_request_did_not_wait():
    assert LeaseState(request(), TOKEN, Grant(7, 130.0, 30.0), asked_at=101.0).waited == 0.0


def test_a_released_lease_is_freed_without_the_garbage_collector_though_its_confirmation_has_no_reply():
    one = LeaseState(request(), TOKEN, Grant(7, 102.0, 2.0, Confirmation()))
    gone = weakref.ref(one)
    steps = release(one)
    next(steps)
    with pytest.raises(StopIteration):
        steps.send(Answer(101.0, [b"released", 0]))
    gc.disable()
    try:
        del one, steps
        assert gone() is None
    finally:
        gc.enable()


# --- retry


def test_a_transient_refusal_is_retried_with_growing_pauses_until_the_time_is_up():
    retry, now, slept = Retry("a", 100.0, 10.0), 100.0, []
    while (verdict := retry.after_refusal(LOADING, now)).error is None:
        slept.append(verdict.pause)
        now += verdict.pause
    assert slept[: len(PAUSES)] == list(PAUSES)
    assert set(slept[len(PAUSES) :]) == {PAUSES[-1]}
    assert 110.0 - PAUSES[-1] <= now < 110.0
    assert isinstance(verdict.error, ServerRefused)
    assert "LOADING" in str(verdict.error)
    assert verdict.error.name == "a"


@pytest.mark.parametrize(
    ("text", "once", "retried", "reconnect"),
    [
        (LOADING, False, True, False),
        (READONLY, False, True, True),
        (NOPERM, False, False, False),
        (LOADING, True, False, False),
        (READONLY, True, False, True),
    ],
)
def test_a_refusal_is_retried_if_it_is_transient_and_the_call_may_run_twice(text, once, retried, reconnect):
    verdict = Retry("a", 100.0, 10.0, once=once).after_refusal(text, 100.0)
    assert (verdict.error is None, verdict.reconnect) == (retried, reconnect)


@pytest.mark.parametrize(
    "text",
    [
        "ERR This Redis command is not allowed from script script: 0123, on @user_script:35.",
        "ERR Error running script (call to f_0123): @user_script:35: @user_script: 35: Unknown Redis command called from script",
    ],
)
def test_a_server_without_a_command_in_its_scripts_is_named_as_the_reason(text):
    error = Retry("a", 100.0, 10.0).after_refusal(text, 100.0).error
    assert isinstance(error, ServerRefused)
    assert "it does not run a command that the script needs, as services without TIME in scripts" in str(error)


@pytest.mark.parametrize(
    ("command", "use"),
    [
        ("scan", " --for names"),
        ("getrange", " --for operate"),
        ("xadd", " --for operate"),
        ("xrange", " --for operate"),
        ("xrevrange", " --for operate"),
        ("config|get", " --for check_server"),
        ("wait", " --for min_replicas"),
        ("zadd", ""),
    ],
)
def test_a_missing_right_is_named_with_the_option_that_prints_it(command, use):
    said = str(refusal(f"NOPERM User app has no permissions to run the '{command}' command", "a"))
    assert f"ACL SETUSER … +{command}, `handfast acl{use}` prints all that it needs" in said


@pytest.mark.parametrize(
    ("may_recover", "once", "now", "retried"),
    [(True, False, 100.0, True), (False, False, 100.0, False), (True, True, 100.0, False), (True, False, 110.0, False)],
)
def test_a_break_is_retried_if_the_server_was_there_before(may_recover, once, now, retried):
    retry = Retry("a", 100.0, 10.0, 110.0, once=once)
    verdict = retry.after_break(BROKEN, now, may_recover=may_recover)
    assert verdict.error is (None if retried else BROKEN)
    assert retry.may_have_run


def test_without_time_for_retries_a_connection_is_replaced_once():
    retry = Retry("a", 100.0, 0.0, 105.0)
    assert retry.after_break(BROKEN, 100.0, may_recover=True) == Verdict(None, 0.0)
    assert retry.time_left(100.0) == 5.0
    assert retry.after_break(BROKEN, 100.1, may_recover=True).error is BROKEN
    assert Retry("a", 100.0, 0.0).after_break(BROKEN, 100.0, may_recover=True, silent=True).error is BROKEN
    assert Retry("a", 100.0, 0.0).after_refusal(READONLY, 100.0) == Verdict(None, 0.0, reconnect=True)
    assert isinstance(Retry("a", 100.0, 0.0).after_refusal(LOADING, 100.0).error, ServerRefused)


def test_a_call_that_was_cut_off_may_have_run():
    retry = Retry("a", 100.0, 10.0)
    assert retry.after_refusal(LOADING, 100.0).error is None
    assert not retry.may_have_run
    assert retry.after_refusal(CUT_OFF, 100.0).error is None
    assert retry.may_have_run
    assert not retry.after_refusal(NOPERM, 100.0).error.changed_nothing
    assert not Retry("a", 100.0, 0.0, once=True).after_refusal(CUT_OFF, 100.0).error.changed_nothing


@pytest.mark.parametrize(("refused", "released"), [(CUT_OFF, True), (LOADING, False)])
def test_a_release_in_the_background_that_was_cut_off_and_is_then_unknown_has_released(refused, released):
    cleanup = Cleanup(release(a_lease(), by_holder=False), 120.0)
    for outcome in (refused, Answer(100.0, [b"unknown"])):
        assert not cleanup.settle(outcome, 100.0)
    assert cleanup.result is released


def test_a_refusal_after_a_break_does_not_say_that_nothing_changed():
    oom = "OOM command not allowed when used memory > 'maxmemory'."
    assert Retry("a", 100.0, 10.0).after_refusal(oom, 100.0).error.changed_nothing
    retry = Retry("a", 100.0, 10.0)
    retry.after_break(BROKEN, 100.0, may_recover=True)
    assert not retry.after_refusal(oom, 100.0).error.changed_nothing


@pytest.mark.parametrize(
    ("text", "changed_nothing"),
    [
        (READONLY, True),
        (LOADING, True),
        ("MISCONF Errors writing to the AOF file: No space left on device", True),
        ("NOREPLICAS Not enough good replicas to write.", True),
        ("MOVED 1234 127.0.0.1:6379", True),
        (NOPERM, False),
        ("NOPERM User app has no permissions to run the 'evalsha' command", True),
        ("NOPERM this user has no permissions to run the 'eval' command or its subcommand", True),
        ("ERR something that this version does not know", False),
    ],
)
def test_a_refusal_that_comes_before_any_write_leaves_nothing_to_undo(text, changed_nothing):
    assert refusal(text, "a").changed_nothing is changed_nothing
    assert not refusal(text, "a", again=True).changed_nothing


def test_past_its_callers_time_an_undo_has_some_time_of_its_own():
    assert time_left(103.0, 100.0, PROBE) == 3.0
    assert time_left(100.01, 100.0, PROBE) == MIN_REPLY_S
    assert time_left(100.0, 100.0, PROBE) == time_left(99.0, 100.0, PROBE) == UNDO_WAIT


def test_a_server_that_waits_for_replicas_gets_the_time_for_it():
    call = PROBE._replace(acknowledgement=Acknowledgement(1, 2000, b"-"))
    assert time_left(103.0, 100.0, call) == 3.0
    assert time_left(100.01, 100.0, call) == time_left(99.0, 100.0, call) == MIN_REPLY_S + 2


def test_calls_that_leave_together_wait_for_the_most_that_one_of_them_asks():
    asked = [Acknowledgement(1, 2000, b"-"), Acknowledgement(3, 300, b"-"), Acknowledgement(2, 500, b"-")]
    assert widest([PROBE._replace(acknowledgement=one) for one in asked]) == Acknowledgement(3, 2000, b"-")


# --- background cleanup


def test_a_cleanup_sends_what_its_protocol_asks_until_that_ends():
    attempt = Attempt(request(), TOKEN)
    attempt.may_be_there = True
    cleanup = Cleanup(cancel(attempt), 120.0)
    assert cleanup.call == request().cancel(TOKEN)
    cleanup.settle(Answer(100.0, [b"cancelled", 1]), 100.0)
    assert (cleanup.call, cleanup.due_at) == (request().cancel(TOKEN), 100.0), "at once: there is more"
    cleanup.settle(Answer(100.0, [b"cancelled", 0]), 100.0)
    assert cleanup.call is None
    assert not attempt.needs_undo


def test_a_cleanup_without_a_reply_is_due_again_after_pauses_that_grow_until_one_comes():
    cleanup = Cleanup(cancel(Attempt(request(), TOKEN)), 120.0)
    for _ in range(2):
        for pause in (*PAUSES, PAUSES[-1]):
            cleanup.sent(100.0)
            assert cleanup.due_at == 100.0 + pause
        cleanup.settle(Answer(100.0, [b"cancelled", 1]), 101.0)
        assert cleanup.due_at == 101.0


@pytest.mark.parametrize(("refused", "elsewhere"), [(LOADING, False), (READONLY, True), (NOPERM, False)])
def test_a_refused_cleanup_is_sent_again_after_a_pause_until_its_time_is_up(refused, elsewhere):
    attempt = Attempt(request(), TOKEN)
    attempt.may_be_there = True
    cleanup = Cleanup(cancel(attempt), 120.0)
    assert cleanup.settle(refused, 119.0) is elsewhere
    assert (cleanup.call, cleanup.due_at) == (request().cancel(TOKEN), 119.0 + CLEANUP_PAUSE_S)
    assert cleanup.time_left(119.0) == 1.0
    cleanup.settle(refused, 120.0)
    assert (cleanup.call, cleanup.result) == (None, None)
    assert attempt.needs_undo
