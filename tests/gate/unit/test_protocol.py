"""The protocols against scripted replies and a clock of the test: no server, no sleep."""

from __future__ import annotations

import pytest

from handfast import HandfastError, LimitExceeded, QueueFull, ServerRefused
from handfast._engine.calls import MultiRequest, PermitRequest
from handfast._engine.constants import CLAIM_MS
from handfast._engine.effects import Acknowledgement, Answer, Call, Confirmation, GrantMessage, Park, Waking
from handfast._engine.keys import KeySet
from handfast._engine.options import LeaseOptions
from handfast._engine.packing import doubles
from handfast._engine.resp import bulk
from handfast._kinds import MAX_PERMITS
from handfast._protocol.acquire import (
    EXPIRY_SLACK_S,
    HEAD_POLL_S,
    MAX_POLL_S,
    POLL_STAGGER_S,
    UNHEARD_POLL_S,
    Attempt,
    Grant,
    acquire,
    try_acquire,
)
from handfast._protocol.admin import force_release, resize, status
from handfast._protocol.lease import LeaseState, LeaseTable, downgrade, release, renew
from tests._support.helpers import performed as perform

TOKEN = b"t" * 32


def permits(limit=1, weight=1, **options):
    return PermitRequest(
        KeySet("hf", "lock", "a"), LeaseOptions(**{"ttl_ms": 30_000} | options), limit=limit, weight=weight
    )


def verbs(effects):
    return [effect.prefix.name.removeprefix("permit_") if isinstance(effect, Call) else "park" for effect in effects]


def granted(at, lease_us=30_000_000, fence=7):
    return Answer(at, [b"granted", fence, lease_us])


TICKET = 900_000


def queued(at, now_us=1_000_000, position=0, retry_us=10_000_000):
    return Answer(at, [b"queued", now_us, position, retry_us, TICKET])


def test_a_free_lock_is_one_call_and_its_lease_counts_from_before_it_was_sent():
    effects, grant = perform(acquire(Attempt(permits(), TOKEN), 1e9), granted(100.0))
    assert verbs(effects) == ["acquire"]
    assert grant == Grant(7, 130.0, 30.0)


def test_a_grant_after_a_wait_is_believed_no_longer_than_the_server_does():
    # Asked at 100.0 here and 1.0 there; granted at 4.0 there, which cannot be before 103.0 here.
    message = GrantMessage(8, 4_000_000, 2_000_000)
    effects, grant = perform(acquire(Attempt(permits(), TOKEN), 1e9), queued(100.0), Waking(103.5, message))
    assert verbs(effects) == ["acquire", "park"]
    assert grant == Grant(8, 105.0, 2.0)


def test_a_waiter_brings_the_confirmation_of_its_grant_along_unless_that_is_for_its_whole_ttl_anyway():
    for ttl_ms, confirms in ((30_000, True), (CLAIM_MS + 1, True), (CLAIM_MS, False), (100, False)):
        request = permits(ttl_ms=ttl_ms, renew=False)
        steps = acquire(Attempt(request, TOKEN), 1e9)
        next(steps)
        park = steps.send(queued(100.0))
        assert (park.confirm and park.confirm.args) == (request.renew_for(TOKEN, ttl_ms).args if confirms else None)
    several = MultiRequest([KeySet("hf", "lock", "a")], LeaseOptions(30_000, max_waiters=9))
    assert several.confirm(TOKEN) is None, "its waiters are only woken"


@pytest.mark.parametrize("before", [False, True], ids=["after", "before"])
def test_the_reply_to_a_confirmation_counts_whether_it_comes_before_or_after_the_lease_is_made(before):
    confirmation, message = Confirmation(), GrantMessage(8, 4_000_000, 2_000_000)
    waking, answer = Waking(103.0, message, confirmation), Answer(103.0, [b"renewed", 30_000_000])
    _, grant = perform(acquire(Attempt(permits(renew=False), TOKEN), 1e9), queued(100.0), waking)
    if before:
        confirmation.settle(answer)
    lease = LeaseState(permits(renew=False), TOKEN, grant)
    if not before:
        assert (lease.deadline, lease.unconfirmed) == (105.0, True)
        assert 103.0 < lease.due_at < lease.deadline, "without renewal, too"
        assert lease.renewal == lease.request.renew_for(TOKEN, 30_000)
        confirmation.settle(answer)
    assert (lease.deadline, lease.due_at, lease.unconfirmed) == (133.0, 133.0, False)


@pytest.mark.parametrize("answer", [None, Answer(103.0, [b"lost"])])
def test_a_lease_whose_confirmation_failed_is_due_at_once(answer):
    confirmation = Confirmation()
    lease = LeaseState(permits(renew=False), TOKEN, Grant(8, 105.0, 2.0, confirmation))
    leases = LeaseTable({TOKEN: lease})
    confirmation.settle(answer)
    assert lease.deadline == 105.0
    assert leases.due(103.0) == [lease]
    assert 103.0 < lease.due_at < 105.0, "and again soon"


def test_what_has_arrived_is_read_before_a_lease_is_called_lost():
    received, answers = [], [Answer(101.0, [b"renewed", 30_000_000])]

    class Driver:
        def receive(self, lease):
            received.append(lease)
            if answers:
                lease.confirmation.settle(answers.pop())

    lease = LeaseState(permits(), TOKEN, Grant(8, 102.0, 2.0, Confirmation()), Driver())
    leases = LeaseTable({TOKEN: lease})
    assert leases.remove_expired(105.0) == []
    assert (received, lease.deadline, lease.loss) == ([lease], 131.0, None)
    assert leases.remove_expired(131.0) == [lease]
    assert lease.lost(1.0), "it stays lost"


def test_a_server_clock_that_jumps_ahead_does_not_stretch_the_belief():
    message = GrantMessage(8, 3_600_000_000, 2_000_000)
    _, grant = perform(acquire(Attempt(permits(), TOKEN), 1e9), queued(100.0), Waking(103.5, message))
    assert grant == Grant(8, 105.5, 2.0)


def test_a_grant_that_is_over_when_it_is_heard_is_asked_for_again():
    late = Waking(110.0, GrantMessage(8, 1_500_000, 2_000_000))
    effects, grant = perform(acquire(Attempt(permits(), TOKEN), 1e9), queued(100.0), late, granted(110.0, fence=9))
    assert verbs(effects) == ["acquire", "park", "acquire"]
    assert grant.fence == 9


@pytest.mark.parametrize(
    "heard", [None, GrantMessage(8, 1_500_000, 2_000_000)], ids=["no message", "a message, read late"]
)
def test_a_grant_that_is_nearly_over_is_renewed_before_it_is_given(heard):
    """A grant whose message was lost or late is found by polling, and renewed before it is given."""
    found = granted(101.9, lease_us=100_000, fence=8)
    whole = Answer(101.95, [b"renewed", 30_000_000])
    effects, grant = perform(acquire(Attempt(permits(), TOKEN), 1e9), queued(100.0), Waking(101.9, heard), found, whole)
    assert verbs(effects) == ["acquire", "park", "acquire", "renew"]
    assert grant == Grant(8, 101.95 + 30.0, 30.0)


def test_a_lease_that_ended_before_it_was_made_whole_is_asked_for_again():
    found, lost = granted(101.9, lease_us=1, fence=8), Answer(101.95, [b"lost"])
    effects, grant = perform(
        acquire(Attempt(permits(), TOKEN), 1e9),
        queued(100.0),
        Waking(101.9, None),
        found,
        lost,
        Waking(101.95, None),
        granted(102.0, fence=9),
    )
    assert verbs(effects) == ["acquire", "park", "acquire", "renew", "park", "acquire"]
    assert effects[4].until == 101.95, "without a pause"
    assert grant == Grant(9, 132.0, 30.0)


def test_two_servers_of_which_one_has_a_lease_and_the_other_one_has_not_are_asked_with_pauses_until_the_time_is_up():
    request = permits(acknowledgement=Acknowledgement(1, 2000, b"-"))
    disagreeing = [granted(100.0), Answer(100.1, [b"lost"])]
    effects, grant = perform(
        acquire(Attempt(request, TOKEN), 100.2),
        *(*disagreeing, Waking(100.1, None), *disagreeing, Waking(100.15, GrantMessage(8, 1, 2_000_000))),
        *(*disagreeing, Waking(100.2, None)),
        Answer(100.2, [b"cancelled", 0]),
    )
    assert verbs(effects) == ["acquire", "renew", "park"] * 3 + ["cancel"]
    assert [effect.until for effect in effects if isinstance(effect, Park)] == pytest.approx([100.1, 100.15, 100.2])
    assert grant is None


def test_a_try_whose_lease_replicas_were_to_have_and_that_was_lost_is_to_be_undone():
    attempt = Attempt(permits(acknowledgement=Acknowledgement(1, 2000, b"-")), TOKEN)
    _, grant = perform(try_acquire(attempt), granted(100.0), Answer(100.1, [b"lost"]))
    assert grant is None
    assert attempt.needs_undo, "of several names it may still have some"


def test_a_waiter_near_the_head_polls_within_the_claim_window_of_a_grant():
    steps = acquire(Attempt(permits(), TOKEN), 1e9)
    next(steps)
    park = steps.send(queued(100.0, position=40))
    assert park.until < 100.0 + CLAIM_MS / 1000


def test_a_waiter_polls_when_the_earliest_lease_ends():
    lock = permits()
    effects, _ = perform(
        acquire(Attempt(lock, TOKEN), 1e9), queued(100.0, retry_us=500_000), Waking(100.6, None), granted(100.6)
    )
    assert effects[0] == lock.acquire(TOKEN)
    assert effects[1] == Park(TOKEN, 100.0 + 0.5 + EXPIRY_SLACK_S, lock.confirm(TOKEN), 100.0 + UNHEARD_POLL_S)
    assert effects[2] == lock.acquire(TOKEN, TICKET), "the same call, with the ticket of its place"


@pytest.mark.parametrize(
    ("position", "retry_us", "nap"),
    [
        (0, 10**9, HEAD_POLL_S),
        (10, 10**9, HEAD_POLL_S + 10 * POLL_STAGGER_S),
        (9999, 10**9, MAX_POLL_S),
        (9999, -1, MAX_POLL_S),
        (9999, 0, 0.0),
    ],
)
def test_poll_intervals_are_short_at_the_head_of_the_queue_and_bounded_at_its_end(position, retry_us, nap):
    steps = acquire(Attempt(permits(), TOKEN), 1e9)
    next(steps)
    park = steps.send(queued(100.0, position=position, retry_us=retry_us))
    assert park.until == pytest.approx(100.0 + nap)


@pytest.mark.parametrize(("position", "nap"), [(0, 0.05), (10, 0.25), (9999, HEAD_POLL_S)])
def test_where_no_message_comes_through_every_waiter_polls_within_the_claim_window(position, nap):
    steps = acquire(Attempt(permits(), TOKEN), 1e9)
    next(steps)
    assert steps.send(queued(100.0, position=position, retry_us=10**9)).poll_at == pytest.approx(100.0 + nap)


def test_a_timeout_cancels_the_request_until_the_server_has_no_more_to_do():
    attempt = Attempt(permits(), TOKEN)
    more, done = Answer(101.0, [b"cancelled", 1]), Answer(101.0, [b"cancelled", 0])
    effects, grant = perform(acquire(attempt, 101.0), queued(100.0), Waking(101.0, None), more, done)
    assert verbs(effects) == ["acquire", "park", "cancel", "cancel"]
    assert grant is None
    assert not attempt.needs_undo


def test_a_grant_that_comes_with_the_timeout_is_taken():
    waking = Waking(101.0, GrantMessage(8, 1_900_000, 2_000_000))
    _, grant = perform(acquire(Attempt(permits(), TOKEN), 101.0), queued(100.0), waking)
    assert grant.fence == 8


def test_a_full_queue_leaves_nothing_to_undo():
    attempt = Attempt(permits(), TOKEN)
    with pytest.raises(QueueFull, match="3 are already waiting"):
        perform(acquire(attempt, 1e9), Answer(100.0, [b"full", 3]))
    assert not attempt.needs_undo


@pytest.mark.parametrize("ask", [lambda attempt: acquire(attempt, 1e9), try_acquire])
def test_a_request_above_the_limit_leaves_nothing_to_undo(ask):
    attempt = Attempt(permits(limit=4, weight=4), TOKEN)
    with pytest.raises(LimitExceeded, match="limit of 3 ") as caught:
        perform(ask(attempt), Answer(100.0, [b"exceeds_limit", 3]))
    assert caught.value.limit == 3
    assert not attempt.needs_undo


def test_a_grant_message_without_a_lease_makes_the_waiter_ask_again():
    bundle = MultiRequest([KeySet("hf", "lock", name) for name in "ab"], LeaseOptions(30_000, max_waiters=9))
    attempt = Attempt(bundle, TOKEN)
    rung = Waking(100.5, GrantMessage(0, 1_500_000, 0))
    effects, grant = perform(acquire(attempt, 1e9), queued(100.0), rung, granted(100.5))
    assert [effect.prefix.name for effect in effects if isinstance(effect, Call)] == ["multi_acquire"] * 2
    assert grant.deadline == 130.5


def test_a_refusal_leaves_something_to_undo_only_after_the_request_was_queued():
    attempt = Attempt(permits(), TOKEN)
    with pytest.raises(ServerRefused):
        perform(acquire(attempt, 1e9), ServerRefused("no", name="a", changed_nothing=True), attempt=attempt)
    assert not attempt.needs_undo
    with pytest.raises(ServerRefused):
        perform(
            acquire(attempt, 1e9),
            queued(100.0),
            Waking(101.0, None),
            ServerRefused("no", name="a", changed_nothing=True),
            attempt=attempt,
        )
    assert attempt.needs_undo
    attempt = Attempt(permits(), TOKEN)
    with pytest.raises(ServerRefused):
        perform(try_acquire(attempt), ServerRefused("no", name="a", changed_nothing=True), attempt=attempt)
    assert not attempt.needs_undo


def test_a_request_that_was_cancelled_elsewhere_raises():
    with pytest.raises(HandfastError, match="cancelled while it waited"):
        perform(acquire(Attempt(permits(), TOKEN), 1e9), Answer(100.0, [b"finished"]))


def test_a_try_is_one_call():
    effects, grant = perform(try_acquire(Attempt(permits(), TOKEN)), Answer(100.0, [b"busy", 5]))
    assert (verbs(effects), grant) == (["acquire"], None)
    assert perform(try_acquire(Attempt(permits(), TOKEN)), granted(100.0))[1].deadline == 130.0


def holding(**options):
    return LeaseState(permits(**options), TOKEN, Grant(7, 130.0, 30.0))


def test_a_release_repeats_while_waiters_are_left_to_serve():
    effects, released = perform(release(holding()), Answer(1.0, [b"released", 1]), Answer(1.0, [b"released", 0]))
    assert (len(effects), released) == (2, True)
    assert perform(release(holding()), Answer(1.0, [b"lost"]))[1] is False


def test_renew_moves_the_deadline_but_never_back():
    lease = holding()
    assert perform(renew(lease, 5000), Answer(110.0, [b"renewed", 20_000_000]))[1] is True
    assert lease.deadline == 130.0
    perform(renew(lease, 60_000), Answer(110.0, [b"renewed", 60_000_000]))
    assert lease.deadline == 170.0
    assert perform(renew(lease, 5000), Answer(110.0, [b"lost"]))[1] is False


def test_a_lease_is_lost_at_its_deadline_without_io():
    lease = holding()
    assert not lease.lost(129.999)
    assert lease.lost(130.0)
    assert lease.lost(0.0), "what is lost stays lost"


def test_a_lease_that_was_released_is_not_lost():
    lease = holding()
    lease.let_go(110.0)
    assert not lease.lost(1000.0)


def test_a_lease_is_due_after_a_third_of_its_ttl_and_again_before_its_end():
    table, lease = LeaseTable(), holding()
    table[lease.token] = lease
    assert table.next_due() == 110.0
    assert table.due(109.9) == []
    assert table.due(110.0) == [lease]
    assert table.due(110.0) == [], "put off until it is tried again"
    assert table.next_due() == 111.0
    lease.renewed(111.0, 30_000_000)
    assert table.next_due() == 121.0


def test_renewals_that_are_nearly_due_go_along_with_one_that_is():
    table = LeaseTable()
    leases = [LeaseState(permits(), b"%d" % number, Grant(7, 130.0 + number / 4, 30.0)) for number in range(8)]
    for lease in leases:
        table[lease.token] = lease
    assert table.due(109.9) == [], "none goes early alone"
    assert table.due(110.0) == leases[:5], "a second is a tenth of the time between two renewals"
    assert table.next_due() == 111.0


def test_a_lease_that_lasts_longer_than_its_ttl_is_renewed_as_often():
    lease = LeaseState(permits(at_least_ms=600_000), TOKEN, Grant(7, 700.0, 600.0))
    assert lease.due_at == 110.0
    assert lease.renewal.args.endswith(bulk(30_000))
    lease.renewed(110.0, 590_000_000)
    assert (lease.deadline, lease.due_at) == (700.0, 120.0)


def test_a_short_grant_is_renewed_for_all_that_it_is_to_last():
    lease = LeaseState(permits(renew=False, at_least_ms=600_000), TOKEN, Grant(7, 102.0, 2.0))
    assert lease.due_at == pytest.approx(100 + 2 / 3)
    assert lease.renewal.args.endswith(bulk(600_000))


def test_a_handed_over_lease_is_due_within_its_claim_window():
    lease = LeaseState(permits(), TOKEN, Grant(7, 102.0, 2.0))
    assert lease.due_at == pytest.approx(100.0 + 2 / 3)


def test_a_lease_without_renewal_is_due_when_it_ends():
    table, lease = LeaseTable(), holding(renew=False)
    table[lease.token] = lease
    assert table.next_due() == 130.0
    assert table.due(1000.0) == []
    assert table.remove_expired(129.0) == []
    assert table.remove_expired(130.0) == [lease]
    assert not table


def test_a_removed_lease_is_neither_due_nor_expired():
    table, lease = LeaseTable(), holding()
    table[lease.token] = lease
    table.pop(lease.token)
    assert table.due(1e9) == table.remove_expired(1e9) == []
    assert table.next_due() is None


def test_a_renewal_is_overdue_when_a_quarter_of_the_time_from_then_on_is_over():
    table, lease = LeaseTable(), holding()
    table[lease.token] = lease
    assert table.overdue_at(100.0) == 115.0
    assert table.overdue(114.9) == []
    assert table.overdue(115.0) == [lease]
    assert table.overdue(115.0) == [], "put off until it is tried again"
    assert lease.trouble == "the server did not answer"
    assert table.due(115.9) == []
    lease.renewed(111.0, 30_000_000)
    assert table.overdue_at(115.0) == 126.0


def test_a_handed_over_lease_is_overdue_within_its_claim_window():
    lease = LeaseState(permits(), TOKEN, Grant(7, 102.0, 2.0))
    assert LeaseTable({TOKEN: lease}).overdue_at(100.0) == pytest.approx(101.0)


@pytest.mark.parametrize(
    "lease",
    [
        LeaseState(permits(renew=False), TOKEN, Grant(7, 130.0, 30.0)),
        LeaseState(permits(max_hold=30.0), TOKEN, Grant(7, 130.0, 30.0)),
    ],
    ids=["without renewal", "held for long enough"],
)
def test_what_is_not_renewed_is_never_overdue(lease):
    table = LeaseTable({TOKEN: lease})
    lease.renewed(100.0, 30_000_000)
    assert table.overdue_at(100.0) is None
    assert table.overdue(129.9) == []


def test_what_has_ended_is_never_overdue():
    table = LeaseTable({TOKEN: holding()})
    assert table.overdue_at(130.0) is None
    assert table.overdue(130.0) == []


def test_force_release_names_the_latest_grant_that_it_saw():
    seen = Answer(1.0, [b"state", 1_000_000, 42, 0, 1, 1, 0, 1, 0, b"", [], []])
    effects, count = perform(
        force_release(permits(), "why", "web-1:7"),
        seen,
        Answer(1.0, [b"revoked", 1, 1, 9]),
        Answer(1.0, [b"revoked", 0, 0, 0]),
    )
    assert verbs(effects) == ["inspect", "revoke", "revoke"]
    assert b"$7\r\n1000000\r\n" in effects[1].args
    for effect, start in zip(effects[1:], (0, 9), strict=True):
        assert effect.args.endswith(bulk(start) + bulk("web-1:7") + bulk(0))
    assert count == 1


NOTE = doubles(1_000_000) + b"force_release web-1:7 why"


def seen(noted):
    return Answer(1.0, [b"state", 1_000_000, 42, 0, 1, 1, 0, 1, 0, noted, [], []])


@pytest.mark.parametrize(
    ("noted", "count"),
    [
        pytest.param(b"", 0, id="nothing"),
        pytest.param(NOTE, 0, id="an earlier act for the same reason"),
        pytest.param(doubles(1_000_001) + NOTE[8:], 1, id="this act"),
        pytest.param(doubles(1_000_001) + b"force_release web-1:7 why not", 0, id="another act"),
    ],
)
def test_a_single_release_that_is_sent_again_finds_out_by_a_note_that_is_new(noted, count):
    effects, found = perform(
        force_release(permits(), "why", "web-1:7", 42, least_fence=42),
        seen(NOTE),
        Answer(1.0, [b"revoked", 0, 0, 0], True),
        seen(noted),
    )
    assert verbs(effects) == ["inspect", "revoke", "inspect"]
    assert effects[1].args.endswith(bulk(42) + bulk("why") + bulk(0) + bulk("web-1:7") + bulk(42))
    assert found == count


def test_a_single_release_that_was_sent_once_needs_no_note():
    answers = seen(NOTE), Answer(1.0, [b"revoked", 1, 0, 0])
    effects, count = perform(force_release(permits(), "why", "web-1:7", 42, least_fence=42), *answers)
    assert (verbs(effects), count) == (["inspect", "revoke"], 1)


def test_a_downgrade_repeats_while_waiters_are_left_and_changes_the_request():
    write = permits(limit=MAX_PERMITS, weight=MAX_PERMITS)
    read = write.with_weight(1)
    lease = LeaseState(write, TOKEN, Grant(7, 130.0, 30.0))
    assert perform(downgrade(lease, read), Answer(1.0, [b"lost"])) == ([read.lower(TOKEN)], False)
    assert lease.request is write
    effects, done = perform(downgrade(lease, read), Answer(1.0, [b"lowered", 1]), Answer(1.0, [b"lowered", 0]))
    assert (effects, done) == ([read.lower(TOKEN)] * 2, True)
    assert lease.request is read


def test_a_resize_repeats_while_waiters_are_left_to_serve():
    effects, _ = perform(resize(permits(), 9, "me"), Answer(1.0, [b"resized", 1]), Answer(1.0, [b"resized", 0]))
    assert effects == [permits().resize(9, "me")] * 2


@pytest.mark.parametrize(
    ("limit", "out", "seen"), [(0, 3, (5, 2)), (8, 3, (8, 5)), (2, 3, (2, 0)), (0, -1, (5, 0)), (0, 0, (5, 5))]
)
def test_free_permits_are_counted_by_the_limit_in_force(limit, out, seen):
    _, found = perform(
        status(permits(limit=5)), Answer(1.0, [b"state", 1_000_000, 42, limit, out, 1, 0, 1, 0, b"", [], []])
    )
    assert (found.limit, found.free) == seen


def test_a_record_that_was_evicted_is_shown_with_what_is_known():
    lists = (
        [b"abcdefgh", b"2000000", b""],
        [b"ijklmnop", b"500000", doubles(9, 2, 2, 9, 17) + b"hf:inbox:c1:1 hf:control:c1 some%20label"],
    )
    numbers = 1_000_000, 42, 0, -1, 1, 1, 9, 2_500_000
    _, found = perform(status(permits(limit=5)), Answer(1.0, [b"state", *numbers, b"", *map(list, lists)]))
    assert (found.grants, found.waited, found.last) == (9, 2.5, None)
    (holder,), (waiter,) = found.holders, found.waiters
    assert (holder.token, holder.weight, holder.remaining, holder.label) == ("abcdefgh", 0, 1.0, "")
    assert (waiter.weight, waiter.position, waiter.waited_for, waiter.label) == (2, 0, 0.5, "some label")
    assert (holder.owner, waiter.owner) == ("", "c1.17")
    assert (holder.exclusive, waiter.exclusive) == (False, True)


# --- a limit of the time that it is held


def test_what_is_renewed_ends_when_it_was_held_for_long_enough():
    lease = LeaseState(permits(max_hold=75.0), TOKEN, Grant(7, 130.0, 30.0))
    table = LeaseTable({TOKEN: lease})
    for now, asked_ms in ((110.0, 30_000), (120.0, 30_000), (150.0, 25_000)):
        assert table.due(now) == [lease]
        assert lease.renewal == lease.request.renew_for(TOKEN, asked_ms)
        lease.renewed(now, asked_ms * 1000)
        assert lease.deadline == now + asked_ms / 1000
    assert table.due(174.9) == []
    assert not lease.lost(174.999)
    assert lease.lost(175.0)
    assert lease.loss_text == "it was held for max_hold, 75 s"
    assert lease.held_for(300.0) == 75.0


def test_no_reply_and_no_extension_lets_it_last_longer():
    lease = LeaseState(permits(max_hold=30.0), TOKEN, Grant(7, 130.0, 30.0))
    lease.renewed(100.5, 30_000_000)  # the confirmation of a grant that was handed over
    assert (lease.deadline, lease.due_at) == (130.0, 130.0)
    assert lease.limited(600_000, 129.0) == 1000
    assert lease.limited(500, 129.0) == 500
    assert lease.limited(600_000, 131.0) == 1
    assert LeaseState(permits(), TOKEN, Grant(7, 130.0, 30.0)).limited(600_000, 129.0) == 600_000


def test_an_outage_that_ends_with_that_time_is_not_the_reason():
    lease = LeaseState(permits(max_hold=30.0), TOKEN, Grant(7, 130.0, 30.0))
    lease.trouble = "Connection refused"
    assert lease.lost(130.0)
    assert lease.loss_text == "it was held for max_hold, 30 s"


@pytest.mark.parametrize(
    "request_",
    [
        permits(max_hold=75.0).adapted(str.upper, None),
        permits(max_hold=75.0, limit=3).with_weight(2),
        MultiRequest([KeySet("hf", "lock", name) for name in "ab"], LeaseOptions(1000, max_waiters=1, max_hold=75.0))
        .adapted(str.upper, None)
        .groups[0],
    ],
    ids=["renamed", "weighted", "group"],
)
def test_a_request_that_is_made_of_another_keeps_the_limit(request_):
    assert request_.max_hold == 75.0
