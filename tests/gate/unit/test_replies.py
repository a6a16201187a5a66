"""What is made of a reply: each annotation with texts as bytes and as str, and the record of a tagged array."""

from __future__ import annotations

import copy
import math
import pickle
from collections import namedtuple
from dataclasses import dataclass, field
from typing import Any, List, Literal, NamedTuple, Optional, Union  # noqa: UP035 -- users write them too

import pytest

from handfast import Reply
from handfast._engine.replies import reader, tagged
from handfast._engine.resp import ErrorReply

REPLIES = {"taken": ("left", "at"), "none": ()}


def as_text(value):
    """The reply as a client with ``decode_responses`` gives it."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, list):
        return [as_text(item) for item in value]
    if isinstance(value, dict):
        return {as_text(key): as_text(item) for key, item in value.items()}
    return {as_text(item) for item in value} if isinstance(value, set) else value


def whole(raw):
    return tagged(REPLIES, raw)


class Seen(NamedTuple):
    name: str
    count: int
    last: float | None


@dataclass(frozen=True)
class Price:
    name: str
    cents: int
    total: int = field(init=False)

    def __post_init__(self):
        object.__setattr__(self, "total", self.cents)


@dataclass(kw_only=True)
class Sale:
    price: Price
    buyers: list[str]


Plain = namedtuple("Plain", "a b")  # noqa: PYI024 -- one without types is what is tested

READ = [
    (None, b"anything", None),
    (type(None), [1], None),
    (bool, 1, True),
    (bool, 0, False),
    (bool, None, False),
    (bool, True, True),
    (bool, b"OK", True),
    (int, 12, 12),
    (int, b"-12", -12),
    (int, b"123456789012345678901234567890", 123456789012345678901234567890),
    (int, 3.0, 3),
    (float, 2, 2.0),
    (float, b"2.5", 2.5),
    (float, b"-inf", -math.inf),
    (float, 2.5, 2.5),
    (str, "gör".encode(), "gör"),
    (str, b"", ""),
    (str, 7, "7"),
    (bytes, "gör".encode(), "gör".encode()),
    (bytes, 7, b"7"),
    (int | None, None, None),
    (int | None, b"5", 5),
    (Optional[str], b"a", "a"),  # noqa: UP045 -- the older way to write it
    (Union[None, str], None, None),  # noqa: UP007 -- the older way to write it
    (list[int], [b"1", 2], [1, 2]),
    (List[int], [b"1"], [1]),  # noqa: UP006 -- the older way to write it
    (list[int], [], []),
    (tuple[str, ...], [b"a", b"b"], ("a", "b")),
    (tuple[str, ...], [], ()),
    (tuple[str, int], [b"a", b"1"], ("a", 1)),
    (set[str], [b"a", b"b", b"a"], {"a", "b"}),
    (set[str], {b"a", b"b"}, {"a", "b"}),
    (frozenset[int], [b"1", 1], frozenset({1})),
    (list[list[int] | None], [[b"1"], None], [[1], None]),
    (dict[str, int], [b"a", b"1", b"b", b"2"], {"a": 1, "b": 2}),
    (dict[str, int], {b"a": b"1"}, {"a": 1}),
    (dict[str, tuple[int, float]], [b"a", [b"1", b"2"]], {"a": (1, 2.0)}),
    (dict[str, int], [], {}),
    (Seen, [b"a", b"3", None], Seen("a", 3, None)),
    (Seen, [b"a", 3, b"2.5"], Seen("a", 3, 2.5)),
    (list[Seen], [[b"a", 3, None]], [Seen("a", 3, None)]),
    (Price, [b"a", b"250"], Price("a", 250)),
    (Sale, [[b"a", b"250"], [b"x", b"y"]], Sale(price=Price("a", 250), buyers=["x", "y"])),
    (Literal["a", "b"], b"b", "b"),
    (Literal["a", "b"] | None, None, None),
    (Reply, [b"none"], Reply("none", {})),
    (Reply | None, None, None),
    (list[Reply], [[b"none"], [b"none"]], [Reply("none", {}), Reply("none", {})]),
]


def shown(value):
    return getattr(value, "__name__", None) or str(value).replace("typing.", "")


@pytest.mark.parametrize(
    ("annotation", "raw", "value"), READ, ids=[f"{shown(one[0])}-{type(one[1]).__name__}" for one in READ]
)
def test_an_annotation_reads_the_same_from_bytes_and_from_str(annotation, raw, value):
    read = reader(annotation, whole)
    for given in (raw, as_text(raw)):
        found = read(given)
        assert found == value
        assert type(found) is type(value)


@pytest.mark.parametrize(
    ("annotation", "raw"), [(list, [b"a", [1]]), (tuple, [b"a"]), (dict, [b"a", 1]), (Plain, [b"a", [b"b"]])]
)
def test_where_no_type_is_given_items_come_as_they_are(annotation, raw):
    for given in (raw, as_text(raw)):
        expected = dict([given]) if annotation is dict else Plain(*given) if annotation is Plain else annotation(given)
        assert reader(annotation, whole)(given) == expected


@pytest.mark.parametrize("annotation", [Any, object])
@pytest.mark.parametrize("raw", [None, 1, b"\xff\x00", [1, [b"a"]], {b"a": 1}, 2.5])
def test_any_is_the_reply_as_it_comes(annotation, raw):
    assert reader(annotation, whole)(raw) is raw


WRONG = [
    (bool, 2, "neither true"),
    (bool, b"1", "neither true"),
    (bool, b"QUEUED", "neither true"),
    (bool, [1], "neither true"),
    (int, None, "no whole number"),
    (int, 2.5, "no whole number"),
    (int, math.inf, "no whole number"),
    (int, [1], "no whole number"),
    (int, b"", "invalid literal"),
    (int, b"2.5", "invalid literal"),
    (float, None, "no number"),
    (float, [1], "no number"),
    (float, b"x", "could not convert"),
    (str, None, "no text"),
    (str, [b"a"], "no text"),
    (str, True, "no text"),
    (str, ErrorReply("MY bad"), "no text"),
    (str, b"\xff", "can't decode"),
    (bytes, None, "no text"),
    (int | None, b"x", "invalid literal"),
    (list[int], None, "takes an array"),
    (list[int], b"12", "takes an array"),
    (list[int], [1, None], "no whole number"),
    (tuple[str, int], [b"a"], "takes 2 items, but the reply has 1"),
    (tuple[str, int], [b"a", 1, 2], "takes 2 items, but the reply has 3"),
    (set[str], 1, "takes an array"),
    (dict[str, int], [b"a", 1, b"b"], "alternating keys and values, but the reply has 3"),
    (dict[str, int], None, "takes an array"),
    (Seen, [b"a", 1], "takes 3 items, but the reply has 2"),
    (Seen, None, "takes an array"),
    (Price, [b"a", 1, 1], "takes 2 items"),
    (Literal["a", "b"], b"c", "'c' is none of 'a', 'b'"),
    (Literal["a", "b"], None, "no text"),
]


@pytest.mark.parametrize(
    ("annotation", "raw", "words"), WRONG, ids=[f"{shown(one[0])}-{type(one[1]).__name__}" for one in WRONG]
)
def test_a_reply_that_does_not_fit_its_annotation_is_a_value_error(annotation, raw, words):
    for given in (raw, as_text(raw) if raw != b"\xff" else raw):
        with pytest.raises(ValueError, match=words):
            reader(annotation, whole)(given)


@pytest.mark.parametrize(
    "annotation",
    [
        int | str,
        int | str | None,
        Literal[1, 2],
        Literal["a", None],  # noqa: PYI061 -- the other way to write it can be read
        complex,
        range,
        list[complex],
        dict[str, complex],
        "int",
        5,
        [int],
    ],
    ids=shown,
)
def test_what_no_reply_can_be_read_as_is_refused_at_once(annotation):
    with pytest.raises(TypeError, match="a reply cannot be read as"):
        reader(annotation, whole)


# --- tagged arrays


@pytest.mark.parametrize("tag", [b"taken", "taken"])
def test_a_tagged_array_is_a_record(tag):
    reply = tagged(REPLIES, [tag, 3, b"x"])
    assert reply == Reply("taken", {"left": 3, "at": b"x"})
    assert (reply.tag, reply.left, reply.at) == ("taken", 3, b"x")
    assert tagged(REPLIES, [b"none"]) == Reply("none", {})


@pytest.mark.parametrize(
    "raw",
    [
        None,
        1,
        b"none",
        "none",
        [],
        [b"other"],
        [b"none", 1],
        [b"taken", 1],
        [b"taken", 1, 2, 3],
        [1, 2],
        [None],
        [[b"none"]],
        [b"\xff"],
        {b"none": 1},
    ],
)
def test_what_the_header_does_not_list_is_no_record(raw):
    assert tagged(REPLIES, raw) is None


def test_a_reply_is_matched_by_its_tag_and_its_fields():
    def seen(reply):
        match reply:
            case Reply("taken", left=left, at=at):
                return left, at
            case Reply("none", left=_):
                return "a field that it does not have"
            case Reply("none"):
                return "none"
            case _:
                return "something else"

    assert seen(Reply("taken", {"left": 1, "at": 2})) == (1, 2)
    assert seen(Reply("none", {})) == "none"
    assert seen(Reply("other", {})) == "something else"
    assert seen([b"none"]) == "something else"


def test_replies_are_equal_when_tag_and_fields_are():
    reply = Reply("taken", {"left": 1, "at": 2})
    assert reply == Reply("taken", {"at": 2, "left": 1})
    assert reply != Reply("taken", {"left": 1, "at": 3})
    assert reply != Reply("taken", {"left": 1})
    assert reply != Reply("other", {"left": 1, "at": 2})
    assert reply != ["taken", 1, 2]
    with pytest.raises(TypeError, match="unhashable"):
        hash(reply)


def test_a_reply_is_not_to_be_changed():
    reply = Reply("taken", {"left": 1})
    with pytest.raises(AttributeError, match="is immutable; 'left' can't be set"):
        reply.left = 2
    with pytest.raises(AttributeError, match="is immutable; 'tag' can't be set"):
        reply.tag = "other"
    with pytest.raises(AttributeError, match="is immutable; 'new' can't be set"):
        reply.new = 1
    with pytest.raises(AttributeError, match="is immutable; 'tag' can't be deleted"):
        del reply.tag
    with pytest.raises(AttributeError, match="is immutable; 'left' can't be deleted"):
        del reply.left
    assert reply == Reply("taken", {"left": 1})


def test_an_error_for_an_unknown_field_lists_the_known_ones():
    with pytest.raises(AttributeError, match="'taken' has no field 'right'; its fields are: left, at"):
        _ = Reply("taken", {"left": 1, "at": 2}).right
    with pytest.raises(AttributeError, match="its fields are: none"):
        _ = Reply("none", {}).left
    assert not hasattr(Reply("none", {}), "left")


def test_a_reply_is_shown_listed_copied_and_pickled():
    reply = Reply("taken", {"left": 1, "at": [b"x"]})
    assert repr(reply) == "Reply('taken', left=1, at=[b'x'])"
    assert repr(Reply("none", {})) == "Reply('none')"
    assert {"tag", "left", "at"} <= set(dir(reply))
    for again in (pickle.loads(pickle.dumps(reply)), copy.copy(reply), copy.deepcopy(reply)):
        assert again == reply
        assert again is not reply
        with pytest.raises(AttributeError):
            again.left = 2
