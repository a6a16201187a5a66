"""The header of a script: what it may say, and what is refused, with the line that is at fault."""

from __future__ import annotations

import pickle

import pytest

from handfast._engine.header import Header, HeaderError, lines_of, read_header


def test_a_whole_header_is_read():
    header = read_header(
        "-- take: move an amount from one account to another.\n"
        "--\n"
        "-- KEYS from to\n"
        "-- ARGV amount note...\n"
        "-- REPLY taken left\n"
        "-- REPLY short missing\n"
        "-- REPLY none\n"
        "-- REPLY - how many there are\n"
        "-- NEEDS redis 7.0, valkey 8.0.1\n"
        "--\n"
        "-- TWICE the same answer.\n"
        "return 1\n"
    )
    assert header._replace(lines={}) == Header(
        keys=("from", "to"),
        args=("amount", "note"),
        replies={"taken": ("left",), "short": ("missing",), "none": ()},
        more_keys=False,
        more_args=True,
        untagged=True,
        needs={"redis": (7, 0), "valkey": (8, 0)},
        lines={},
    )
    assert header.declares
    assert header.repeatable
    assert header.lines == {"KEYS": 3, "ARGV": 4, "REPLY": 5, "NEEDS": 9, "TWICE": 11}


@pytest.mark.parametrize("source", ["", "return 1", "-- a comment that promises nothing\nreturn 1", "\n\n", "--"])
def test_a_script_without_a_header_declares_nothing(source):
    header = read_header(source)
    assert not any(header)
    assert not header.declares
    assert not header.repeatable


@pytest.mark.parametrize("word", ["KEYS", "ARGV"])
def test_a_word_alone_declares_that_there_is_nothing_to_pass(word):
    header = read_header(f"-- {word}\nreturn 1")
    assert header.declares
    assert (header.keys, header.args) == ((), ())


def test_keys_arguments_and_replies_may_stand_on_several_lines():
    header = read_header("-- KEYS a b\n-- ARGV x\n-- KEYS c\n-- ARGV y z...\n-- REPLY one\n-- REPLY two")
    assert header.keys == ("a", "b", "c")
    assert header.args == ("x", "y", "z")
    assert (header.more_keys, header.more_args) == (False, True)
    assert set(header.replies) == {"one", "two"}


def test_needs_may_stand_on_several_lines_too():
    assert read_header("-- NEEDS redis 7.2\n-- NEEDS valkey 8.1").needs == {"redis": (7, 2), "valkey": (8, 1)}


@pytest.mark.parametrize(
    "source",
    [
        "-- KEYS a\nreturn 1",
        "--KEYS a\nreturn 1",
        "--   KEYS   a  \nreturn 1",
        "-- KEYS a\r\nreturn 1\r\n",
        "-- KEYS a\rreturn 1\r",
        "\n\n  \n-- KEYS a\nreturn 1",
        "\n    -- KEYS a\n    return 1\n",
        "#!lua flags=no-writes\n-- KEYS a\nreturn 1",
        "#!lua\n\n-- KEYS a\nreturn 1",
        "-- KEYS a",
    ],
)
def test_how_the_comment_is_laid_out_does_not_matter(source):
    assert read_header(source).keys == ("a",)


@pytest.mark.parametrize(
    "source",
    [
        "return 1\n-- KEYS a",
        "-- first\n\n-- KEYS a\nreturn 1",
        "-- first\nlocal x = 1 -- KEYS a",
        "--[[\nKEYS a\n]]\nreturn 1",
        "return 1 -- KEYS a",
        "-- the KEYS a",
        "-- keys a",
        "---- KEYS a",
        "-- KEYS: a",
        "\n#!lua\n-- KEYS a",
    ],
)
def test_what_stands_elsewhere_or_is_spelled_otherwise_is_no_header(source):
    assert not read_header(source).declares


def test_a_reply_may_have_a_field_of_its_own_name_and_share_fields_with_another():
    assert read_header("-- REPLY left left\n-- REPLY short left").replies == {"left": ("left",), "short": ("left",)}


def test_prose_is_not_told_from_names_so_it_begins_with_a_dash():
    assert read_header("-- REPLY how many").replies == {"how": ("many",)}
    assert read_header("-- REPLY - how many").replies == {}
    assert read_header("-- REPLY - how many").untagged


def test_keys_and_replies_may_share_names():
    header = read_header("-- KEYS left\n-- REPLY left left")
    assert (header.keys, header.replies) == (("left",), {"left": ("left",)})


@pytest.mark.parametrize(
    ("source", "line", "words"),
    [
        ("-- KEYS a 1b", 1, "'1b' is no name: KEYS takes names only"),
        ("-- x\n-- KEYS a-b", 2, "'a-b' is no name"),
        ("--\n--\n-- ARGV a,", 3, "'a,' is no name: ARGV takes names only"),
        ("-- KEYS été", 1, "'été' is no name"),
        ("\n\n-- KEYS a b c.", 3, "'c.' is no name"),
        ("-- KEYS a... b", 1, "only the last of KEYS may end with ..."),
        ("-- ARGV a...\n-- ARGV b", 1, "only the last of ARGV may end with ..."),
        ("-- KEYS ...", 1, "'' is no name"),
        ("-- KEYS a a", 1, "KEYS has 'a' twice"),
        ("-- x\n-- ARGV a b a...", 2, "ARGV has 'a' twice"),
        ("-- KEYS a\n--\n-- KEYS 1b", 3, "'1b' is no name"),
        ("-- KEYS a\n-- KEYS b\n-- KEYS a", 3, "KEYS has 'a' twice"),
        ("-- KEYS a\n-- ARGV b\n-- ARGV a", 3, "'a' is the name of a key and of an argument"),
        ("-- ARGV b a...\n-- KEYS a", 1, "'a' is the name of a key and of an argument"),
        ("-- REPLY", 1, "REPLY has no tag"),
        ("-- REPLY ok\n-- REPLY", 2, "REPLY has no tag"),
        ("-- REPLY how-many", 1, "'how-many' is no name: REPLY takes names only"),
        ("-- REPLY ok a a", 1, "REPLY has 'a' twice"),
        ("-- REPLY ok items...", 1, "'items...' is no name: REPLY takes names only"),
        ("-- REPLY ok a\n-- REPLY ok", 2, "the reply 'ok' is described twice"),
        ("-- x\n-- REPLY ok tag", 2, "a field of a reply can't be called 'tag'"),
        ("-- REPLY ok _fields", 1, "a field of a reply can't be called '_fields'"),
        ("-- NEEDS", 1, "NEEDS takes servers such as"),
        ("-- NEEDS redis", 1, "not 'redis'"),
        ("-- x\n-- NEEDS redis 7", 2, "not 'redis 7'"),
        ("-- NEEDS redis 7.0 valkey 8.0", 1, "not 'redis 7.0 valkey 8.0'"),
        ("-- NEEDS keydb 6.3", 1, "not 'keydb 6.3'"),
        ("-- NEEDS redis 7.0,", 1, "not ''"),
    ],
)
def test_a_fault_names_its_line(source, line, words):
    with pytest.raises(HeaderError) as caught:
        read_header(source)
    assert caught.value.line == line
    assert words in str(caught.value)


def test_a_fault_is_a_value_error_and_survives_pickling():
    with pytest.raises(ValueError, match="described twice") as caught:
        read_header("-- REPLY ok\n--\n-- REPLY ok")
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is HeaderError
    assert (str(again), again.line) == (str(caught.value), 3)


def test_lines_are_counted_as_lua_counts_them():
    assert lines_of("a\nb\rc\r\nd\n\re") == ["a", "b", "c", "d", "e"]
    assert lines_of("a\x0bb\x0cc\x1cd\x85e\u2028f") == ["a\x0bb\x0cc\x1cd\x85e\u2028f"]
    assert read_header("-- a line\u2028of a text\n-- KEYS a").keys == ("a",)
