"""The reader of the protocol: whole frames out of bytes in any pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handfast._engine.resp import INCOMPLETE, ErrorReply, Push, Reader, bulk

leaf = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.binary(max_size=30), st.booleans())
frames = st.recursive(
    leaf, lambda inner: st.lists(inner, max_size=5) | st.builds(Push, st.lists(inner, max_size=4)), max_leaves=20
)


def encode(frame):
    if frame is None:
        return b"_\r\n"
    if isinstance(frame, bool):
        return b"#t\r\n" if frame else b"#f\r\n"
    if isinstance(frame, int):
        return b":%d\r\n" % frame
    if isinstance(frame, bytes):
        return bulk(frame)
    kind = b">" if isinstance(frame, Push) else b"*"
    return kind + b"%d\r\n" % len(frame) + b"".join(map(encode, frame))


def read_all(reader):
    found = []
    while (frame := reader.frame()) is not INCOMPLETE:
        found.append(frame)
    return found


@given(st.lists(frames, max_size=6), st.lists(st.integers(1, 40), min_size=1))
def test_frames_come_out_as_they_went_in_however_the_bytes_are_cut(sent, cuts):
    data, reader, found, turn = b"".join(map(encode, sent)), Reader(), [], 0
    while data:
        size = cuts[turn % len(cuts)]
        reader.feed(data[:size])
        data, turn = data[size:], turn + 1
        found += read_all(reader)
    assert found == sent
    assert [type(frame) for frame in found] == [type(frame) for frame in sent]


@pytest.mark.parametrize(
    ("data", "frame"),
    [
        (b"+OK\r\n", b"OK"),
        (b"-ERR no\r\n", ErrorReply("ERR no")),
        (b"!6\r\nERR no\r\n", ErrorReply("ERR no")),
        (b",1.5\r\n", 1.5),
        (b"(123456789012345678901\r\n", 123456789012345678901),
        (b"=7\r\ntxt:abc\r\n", b"abc"),
        (b"~1\r\n:1\r\n", [1]),
        (b"%1\r\n+a\r\n:1\r\n", {b"a": 1}),
        (b"|1\r\n+a\r\n:1\r\n:7\r\n", 7),
        (b"$-1\r\n", None),
        (b"*-1\r\n", None),
    ],
)
def test_every_other_kind_of_frame(data, frame):
    reader = Reader()
    for byte in data[:-1]:
        reader.feed(bytes([byte]))
        assert reader.frame() is INCOMPLETE
    reader.feed(data[-1:])
    found = reader.frame()
    assert found == frame
    assert type(found) is type(frame)


class Counting(Reader):
    """Counts the bytes that are looked at."""

    looked_at = 0

    def _read_whole(self, data):
        self.looked_at += len(data)
        return super()._read_whole(data)

    def _read_any(self, data):
        self.looked_at += len(data)
        return super()._read_any(data)


@pytest.mark.parametrize(
    "sent",
    [
        [b"x" * 5_000] * 200,
        b"x" * 1_000_000,
        [[b"member", 1], [b"other", 2]] * 10_000,
        [b"short"] * 50_000,
        [[b"y" * 100_000] * 3] * 3,
    ],
    ids=["texts", "one text", "nested", "flat", "deep"],
)
def test_a_long_reply_in_pieces_is_read_anyce_and_not_at_every_piece_again(sent):
    data, reader = encode(sent), Counting()
    for start in range(0, len(data), 1_000):
        assert reader.frame() is INCOMPLETE
        reader.feed(data[start : start + 1_000])
    assert reader.frame() == sent
    assert reader.looked_at < 8 * len(data)
