"""Each way to lose a lease has a cause and a text, and no cause depends on a text."""

from __future__ import annotations

from types import SimpleNamespace
from typing import get_args

import pytest

from handfast._drivers.events import Events
from handfast._drivers.losses import LossNotifier
from handfast._drivers.sync.inquiry import NOTED, Inquiry
from handfast._engine.calls import PermitRequest
from handfast._engine.effects import Answer
from handfast._engine.keys import KeySet
from handfast._engine.messages import Wanted
from handfast._engine.options import LeaseOptions
from handfast._engine.packing import doubles
from handfast._protocol.acquire import Grant
from handfast._protocol.lease import LeaseState, LeaseTable
from handfast._protocol.loss import EXPIRED, Loss
from handfast.events import LossCause

TOKEN = b"t" * 32
ASKED = "its holder was asked to end and did not in time: a new message"


def a_lease(**options):
    """Return a lease that was granted at 100.0 for 30 s, and the table that has it."""
    request = PermitRequest(KeySet("hf", "lock", "a"), LeaseOptions(**{"ttl_ms": 30_000} | options))
    lease = LeaseState(request, TOKEN, Grant(7, 130.0, 30.0))
    return lease, LeaseTable({TOKEN: lease})


# --- the ways in which a lease ends, from 110.0 on


def runs_out(lease, table):
    """Nothing renews it."""


def is_not_renewed(lease, table):
    table.due(110.0)
    table.note_failure("Connection refused.")


def is_to_move(lease, table):
    lease.end_within(1.0, 110.0)


def is_asked_for(lease, table):
    lease.want(Wanted(5.0, 20.0, "web-3", "a new message"), 110.0)


def gets_message(text):
    return lambda lease, table: LossNotifier(table, Events()).tell(lease, text)


def is_unknown(lease, table):
    table.settle(lease, Answer(110.0, [b"lost"]), 110.0)


def is_given_up(lease, table):
    table.give_up(110.0)


def is_left(lease, table):
    lease.owner = SimpleNamespace(is_closed=True, receive=id)


def is_inherited(lease, table):
    lease.disown(110.0)


ENDS = [
    ({}, runs_out, "expired", "its ttl ended before it was renewed or released"),
    ({}, is_not_renewed, "expired", f"{EXPIRED.text}; the last renewal failed: Connection refused"),
    ({"max_hold": 20.0}, runs_out, "expired", "it was held for max_hold, 20 s"),
    ({}, is_to_move, "expired", "it was to be given up, and its holder did not release it in time"),
    ({"renew": False}, runs_out, "planned", EXPIRED.text),
    ({"renew": False}, is_not_renewed, "planned", EXPIRED.text),
    ({"renew": False, "max_hold": 20.0}, runs_out, "planned", "it was held for max_hold, 20 s"),
    ({}, is_asked_for, "revoked", ASKED),
    ({"renew": False}, is_asked_for, "revoked", ASKED),
    ({}, gets_message(ASKED), "revoked", ASKED),
    ({}, gets_message("INC-4411"), "revoked", "INC-4411"),
    ({}, gets_message(""), "revoked", ""),
    ({}, is_unknown, "server", "the server no longer had it when it was to be renewed"),
    ({}, is_given_up, "closed", "its client was closed, which released it"),
    ({}, is_left, "closed", "its client was closed, and its ttl has ended since"),
    ({}, is_inherited, "closed", "it belongs to the process that this process was forked from"),
]


@pytest.mark.parametrize(("options", "ends", "cause", "text"), ENDS)
def test_each_end_has_its_cause_and_its_text(options, ends, cause, text):
    lease, table = a_lease(**options)
    ends(lease, table)
    assert lease.lost(200.0)
    assert (lease.loss, lease.loss_text) == (Loss(cause, text), text)


def test_each_cause_has_an_end():
    """An event alone has the cause `dropped`: see ``test_a_lease_that_is_dropped_is_lost``."""
    assert {cause for _, _, cause, _ in ENDS} | {"dropped"} == {*get_args(LossCause)}


@pytest.mark.parametrize("reason", sorted({text for *_, text in ENDS}))
@pytest.mark.parametrize("renew", [True, False])
def test_the_reason_of_an_operator_may_read_as_any_of_these_texts(renew, reason):
    lease, table = a_lease(renew=renew)
    gets_message(reason)(lease, table)
    lease.disown(111.0)
    assert lease.loss == Loss("revoked", reason)


@pytest.mark.parametrize(("action", "text"), [("force_release", "a new message"), ("preempt", ASKED)])
def test_an_inquiry_finds_the_loss_that_the_message_tells(action, text):
    lease, table = a_lease()
    noted = doubles(8) + f"{action} web-3 a new message".encode()
    found = Inquiry(lease, Answer(110.0, [b"lost"])).loss(Answer(111.0, [None] * NOTED + [noted]))
    gets_message(text)(lease, table)
    assert found == lease.loss == Loss("revoked", text)
