"""The wire of a connection without sockets: bytes in, outcomes out."""

from __future__ import annotations

import itertools

import pytest

from handfast._engine.calls import PermitRequest
from handfast._engine.effects import Acknowledgement, Answer, GrantMessage
from handfast._engine.exchange import Aside, Called, Exchange
from handfast._engine.keys import KeySet, sharded_channel
from handfast._engine.options import LeaseOptions
from handfast._engine.packing import doubles
from handfast._engine.resp import ErrorReply, Push, bulk
from handfast._engine.shards import word_of
from handfast._engine.slots import ASKING, slot_of_call

TOKEN = b"t" * 32
REQUEST = PermitRequest(KeySet("hf", "lock", "a"), LeaseOptions(1000))
ACQUIRE, RELEASE = REQUEST.acquire(TOKEN), REQUEST.release(TOKEN)
ACKNOWLEDGED = RELEASE._replace(acknowledgement=Acknowledgement(2, 500, b"nowhere"))
SLOT = slot_of_call(ACQUIRE)
SHARDED = sharded_channel("inbox", word_of(SLOT)).encode()

GRANTED = Push([b"message", b"inbox", b"granted " + TOKEN + b" " + doubles(7, 2000, 3000)])


class Session:
    """A session that notes all calls of its exchange."""

    def __init__(self, *, heard=True, confirms_in_full=True):
        self.heard, self.confirms_in_full = heard, confirms_in_full
        self.noted = []
        self.exchange = Exchange(self)
        self.reader = self.exchange.open()
        self.exchange.owner = b"inbox control label"

    def take(self, *frames):
        """Take frames, or the bytes of frames."""
        for frame in frames:
            if type(frame) is bytes:
                self.reader.feed(frame)
            else:
                self.reader.frames.append(frame)
            while self.reader.frames:
                self.exchange.take(self.reader.frames.popleft(), self)

    def called(self, call, **options):
        """Have a call on its way."""
        one = Called(call, 5.0, **options)
        self.exchange.send([one])
        return one

    def deliver(self, called, frame, replicas):
        called.settle(frame, replicas)
        self.noted.append(("reply", frame, replicas))

    def refuse(self, called, error):
        self.deliver(called, error, 0)

    def on_message(self, message):
        self.noted.append(message)

    def on_slot_left(self, slot):
        self.noted.append(("left", slot))

    def note_heard(self):
        self.heard = True
        self.noted.append("heard")

    def note_source(self, reply):
        self.noted.append(("source", reply))


@pytest.fixture
def session():
    return Session()


def sent_of(call, *, by_source=False, owner=b"inbox control label"):
    """Return the bytes of a call."""
    head = call.prefix.eval_source if by_source else call.prefix.evalsha
    return head + call.packed + (call.record(owner) if call.waiter else b"")


# --- out


@pytest.mark.parametrize("by_source", [False, True])
@pytest.mark.parametrize("call", [ACQUIRE, RELEASE])
def test_a_call_ends_with_the_record_of_a_waiter(session, call, by_source):
    assert b"".join(session.exchange.pack(call, by_source=by_source)) == sent_of(call, by_source=by_source)
    assert session.exchange.send([Called(call, 0, by_source=by_source)]) == sent_of(call, by_source=by_source)


def test_a_call_for_a_slot_on_the_move_is_sent_behind_asking(session):
    one, other = Called(ACQUIRE, 0, asking=True), Called(RELEASE, 0)
    assert session.exchange.send([one, other]) == ASKING + sent_of(ACQUIRE) + sent_of(RELEASE)
    session.take(b"+OK\r\n:1\r\n:2\r\n")
    assert (one.outcome.reply, other.outcome.reply) == (1, 2)


# --- in


def test_replies_come_in_the_order_of_the_calls(session):
    ones = [session.called(RELEASE) for _ in range(3)]
    session.take(b":1\r\n-OOM no\r\n", GRANTED, b":3\r\n")
    assert [one.outcome for one in ones] == [Answer(5.0, 1), ErrorReply("OOM no"), Answer(5.0, 3)]
    assert session.noted[2] == (TOKEN, GrantMessage(7, 2000, 3000))


def test_a_reply_that_is_not_due_is_an_error(session):
    with pytest.raises(ConnectionError, match=r"a reply without a request: b'x+$"):
        session.take(bulk(b"x" * 1000))


@pytest.mark.parametrize(
    "words",
    [
        b"",
        b"granted",
        b"granted " + TOKEN,
        b"granted " + TOKEN + b" x y z",
        b"granted  " + TOKEN + doubles(7, 2000, 3000),
        b"hello there",
    ],
)
def test_messages_of_strangers_are_ignored(session, words):
    for frame in (
        Push([b"message", b"inbox", words]),
        Push([b"invalidate", [b"key"]]),
        Push([b"message", b"inbox", 1]),
    ):
        session.take(frame)
    assert not session.noted


def test_the_first_message_shows_that_messages_come_through():
    session = Session(heard=False)
    session.take(GRANTED, GRANTED)
    assert session.noted == ["heard", *[(TOKEN, GrantMessage(7, 2000, 3000))] * 2]


def test_a_revocation_has_its_reason(session):
    session.take(Push([b"message", b"control", b"revoked abc too slow, sorry"]))
    assert session.noted == [(b"abc", "too slow, sorry")]


# --- ASKING is refused, or a barrier


@pytest.mark.parametrize("together", [False, True])
def test_a_call_behind_a_refused_asking_gets_that_error(session, together):
    one = Called(ACKNOWLEDGED, 0, asking=True)
    session.exchange.send([one], together=together)
    session.take(b"-NOPERM no asking\r\n-MOVED 1 elsewhere:6379\r\n")
    if together:
        assert one.outcome is None
        session.take(b":0\r\n:2\r\n")
    assert one.outcome == ErrorReply("NOPERM no asking")


def test_calls_behind_a_barrier_have_the_number_of_replicas(session):
    ones = [
        Called(call, 1.0)
        for call in (ACKNOWLEDGED, ACKNOWLEDGED._replace(acknowledgement=Acknowledgement(1, 900, b"n")))
    ]
    sent = session.exchange.send(ones, together=True)
    assert sent == sent_of(ACKNOWLEDGED) * 2 + Acknowledgement(2, 900, b"nowhere").barrier
    session.take(b":1\r\n-OOM no\r\n:0\r\n")
    assert [one.outcome for one in ones] == [None, None], "the last reply counts the replicas"
    session.take(b":2\r\n")
    assert [one.outcome for one in ones] == [Answer(1.0, 1, replicas=2), ErrorReply("OOM no")]


@pytest.mark.parametrize("replies", [b"-NOPERM no publish\r\n:2\r\n", b":0\r\n-NOPERM no wait\r\n"])
def test_a_refused_barrier_is_the_outcome_of_its_calls(session, replies):
    ones = [Called(ACKNOWLEDGED, 1.0) for _ in range(2)]
    session.exchange.send(ones, together=True)
    session.take(b":1\r\n-OOM no\r\n" + replies)
    assert ones[0].outcome.startswith("NOPERM no ")
    assert ones[1].outcome == ErrorReply("OOM no")


# --- confirmations


@pytest.mark.parametrize("in_full", [False, True])
def test_a_confirmation_takes_its_reply_in_turn(in_full):
    session, told = Session(confirms_in_full=in_full), []
    data, confirmation = session.exchange.confirm(RELEASE, 3.0, "pending")
    assert data == sent_of(RELEASE, by_source=in_full)
    assert confirmation.pending == "pending"
    confirmation.then(told.append)
    one = session.called(RELEASE)
    session.take(b":1\r\n:2\r\n")
    assert (told, one.outcome.reply) == ([Answer(3.0, 1)], 2)
    assert [note for note in session.noted if note[0] == "source"] == [("source", 1)] * in_full


def test_a_confirmation_that_fails_or_is_lost_has_no_answer(session):
    told = []
    for _ in range(2):
        _, confirmation = session.exchange.confirm(RELEASE, 3.0)
        confirmation.then(told.append)
    session.take(b"-NOPERM no\r\n")
    assert told == [None]
    assert session.exchange.broken() == []
    assert told == [None, None]


# --- sharded inboxes


def test_calls_name_the_sharded_inbox_of_their_slot_once_the_server_has_it(session):
    assert session.exchange.subscribe(SLOT) == b"*2\r\n" + bulk("SSUBSCRIBE") + bulk(SHARDED)
    assert session.exchange.subscribe(SLOT) == b"", "it was asked for"
    one = session.called(ACQUIRE)
    assert b"".join(session.exchange.pack(ACQUIRE)) == sent_of(ACQUIRE)
    session.take(Push([b"ssubscribe", SHARDED, 1]), b":1\r\n")
    assert one.outcome.reply == 1
    assert b"".join(session.exchange.pack(ACQUIRE)) == sent_of(ACQUIRE, owner=SHARDED + b" control label")
    session.take(Push([b"sunsubscribe", SHARDED, 0]))
    assert session.noted[-1] == ("left", SLOT)
    assert b"".join(session.exchange.pack(ACQUIRE)) == sent_of(ACQUIRE)


@pytest.mark.parametrize(("error", "asks_again"), [("MOVED 1 elsewhere:6379", True), ("ERR unknown command", False)])
def test_a_refused_inbox_is_asked_for_again_where_that_may_help(session, error, asks_again):
    session.exchange.subscribe(SLOT)
    one = session.called(ACQUIRE)
    session.take(b"-%b\r\n:1\r\n" % error.encode())
    assert one.outcome.reply == 1
    assert bool(session.exchange.subscribe(SLOT)) is asks_again


def test_pushes_of_other_inboxes_say_nothing(session):
    one = session.called(ACQUIRE)
    session.take(Push([b"ssubscribe", SHARDED, 1]), Push([b"sunsubscribe", SHARDED, 0]), b":1\r\n")
    assert one.outcome.reply == 1
    assert session.noted == [("reply", 1, 0)]


# --- the end


def test_a_broken_connection_gives_back_all_calls_without_a_reply_in_order(session):
    exchange, calls = (
        session.exchange,
        [Called(ACKNOWLEDGED, 0, asking=asking) for asking in (False, True, False, False)],
    )
    exchange.due.append(Aside())
    exchange.send(calls[:2])
    exchange.confirm(RELEASE, 0)
    exchange.subscribe(SLOT)
    exchange.send(calls[2:], together=True)
    session.take(b"+probed\r\n:1\r\n-NOPERM no asking\r\n")
    assert exchange.broken() == calls[1:]
    assert not exchange.due
    session.reader = exchange.open()
    assert exchange.owner == b""
    assert exchange.subscribe(SLOT)


def test_frames_may_come_in_any_pieces():
    whole = b":1\r\n" + b">3\r\n" + b"".join(map(bulk, GRANTED)) + b"-OOM no\r\n"
    for cut in itertools.product(range(0, len(whole), 7), repeat=2):
        session = Session()
        ones = [session.called(RELEASE) for _ in range(2)]
        start, end = sorted(cut)
        session.take(whole[:start], whole[start:end], whole[end:])
        assert [one.outcome for one in ones] == [Answer(5.0, 1), ErrorReply("OOM no")]
        assert session.noted[1] == (TOKEN, GrantMessage(7, 2000, 3000))
