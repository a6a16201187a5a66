"""The classic autocomplete does what it is known for, flaws included; and `hf.autocomplete` does not have these."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import redis

from handfast import Handfast, classic
from handfast.classic import watch
from handfast.classic.autocomplete import find_prefix_range
from tests._support import listings
from tests._support.listings import Crash, Meddled, commands, crash

conn, form = listings.conn, listings.form

TEN = [f"ja{letter}" for letter in "abcdefghij"]


def join(conn, *names, guild="g"):
    for name in names:
        classic.join_guild(conn, guild, name)


@pytest.fixture
def reader(raw, server):
    """A user who may only read, and what a connection needs."""
    categories = ["+@read", "+@connection", "+@pubsub", "+@scripting"]
    raw.acl_setuser("reader", enabled=True, nopass=True, keys=["*"], channels=["*"], categories=categories)
    with redis.Redis.from_url(server.url, username="reader", password="any", decode_responses=True) as client:
        yield client
    raw.acl_deluser("reader")


# --- what they do


def test_the_names_that_begin_with_the_prefix_are_found_in_their_order(form, conn):
    join(conn, "jill", "jeff", "jenny", "bob", "je", "jf", "jezz")
    assert form.autocomplete_on_prefix(conn, "g", "je") == ["je", "jeff", "jenny", "jezz"]
    assert form.autocomplete_on_prefix(conn, "g", "j") == ["je", "jeff", "jenny", "jezz", "jf", "jill"]
    assert form.autocomplete_on_prefix(conn, "g", "jeff") == ["jeff"]
    assert form.autocomplete_on_prefix(conn, "g", "") == ["bob", "je", "jeff", "jenny", "jezz", "jf", "jill"]
    assert conn.zcard("members:g") == 7, "no sentinel is left"


def test_ten_are_given_at_most(form, conn):
    join(conn, *(f"j{first}{second}" for first in "ab" for second in "abcdefgh"))
    assert form.autocomplete_on_prefix(conn, "g", "j") == [f"ja{end}" for end in "abcdefgh"] + ["jba", "jbb"]


def test_who_leaves_is_found_no_more(form, conn):
    for name in ("jeff", "jenny"):
        form.join_guild(conn, "g", name)
    form.join_guild(conn, "other", "jeff")
    form.leave_guild(conn, "g", b"jeff")
    form.leave_guild(conn, "g", "nobody")
    assert form.autocomplete_on_prefix(conn, "g", "j") == ["jenny"]
    assert form.autocomplete_on_prefix(conn, "other", "j") == ["jeff"]


@pytest.mark.parametrize("prefix", ["", "a", "b", "z", "jx", "`", "{", "A", "0", "é", "\x00", "a{", "a b", "ja" * 500])
def test_where_no_name_begins_so_none_is_found_and_nothing_is_left(form, conn, prefix):
    names = ["m", "n", "o"] if prefix else []
    join(conn, *names)
    assert form.autocomplete_on_prefix(conn, "g", prefix) == []
    assert conn.zcard("members:g") == len(names)


def test_the_range_of_a_prefix_is_what_stands_beside_it():
    assert find_prefix_range("abc") == ("abb{", "abc{")
    assert find_prefix_range("a") == ("`{", "a{")
    assert find_prefix_range("z") == ("y{", "z{")
    assert find_prefix_range("") == ("`{", "{")
    assert find_prefix_range("J") == ("`{", "J{")
    assert find_prefix_range("é") == ("{{", "é{")


def test_both_forms_find_what_either_has_put_in(conn):
    watch.join_guild(conn, "g", "jeff")
    classic.join_guild(conn, "g", "jenny")
    assert watch.autocomplete_on_prefix(conn, "g", "j") == classic.autocomplete_on_prefix(conn, "g", "j")
    watch.leave_guild(conn, "g", "jenny")
    assert classic.autocomplete_on_prefix(conn, "g", "j") == ["jeff"]


def test_a_guild_that_is_removed_in_the_middle_has_no_names(conn):
    join(conn, *TEN)
    meddled = Meddled(conn, ZRANK=[lambda: conn.delete("members:g")])
    assert watch.autocomplete_on_prefix(meddled, "g", "ja") == []


# --- the flaws of the first form


def test_flaw_the_first_form_starts_over_whenever_somebody_else_asks(conn, hf, raw):
    join(conn, *TEN)

    def another():
        assert watch.autocomplete_on_prefix(conn, "g", "ja")

    disturbed = Meddled(conn, EXEC=[another] * 5)
    assert watch.autocomplete_on_prefix(disturbed, "g", "ja") == TEN
    assert disturbed.sent == ["ZADD"] + ["WATCH", "ZRANK", "ZRANK", "EXEC"] * 6

    lua = Meddled(conn)
    assert classic.autocomplete_on_prefix(lua, "g", "ja") == TEN
    assert lua.sent == ["EVALSHA"]
    hf.autocomplete("g").add(TEN)
    raw.config_resetstat()
    assert hf.autocomplete("g").complete("ja") == tuple(TEN)
    assert commands(raw)["zrangebylex"] == 1


def test_flaw_the_sentinels_of_those_who_died_count_among_the_ten_for_ever(conn, hf):
    join(conn, *TEN)
    with pytest.raises(Crash):
        watch.autocomplete_on_prefix(Meddled(conn, EXEC=[crash]), "g", "ja")
    assert conn.zcard("members:g") == 12
    for form in (watch, classic):
        assert form.autocomplete_on_prefix(conn, "g", "j") == TEN[:9]

    hf.autocomplete("g").add(TEN)
    assert hf.autocomplete("g").complete("j") == tuple(TEN)
    assert hf.autocomplete("g").size() == 10


def test_flaw_the_sentinels_of_others_count_among_the_ten_while_they_ask(conn):
    join(conn, *TEN)
    seen = []

    def another(form):
        seen.append(form.autocomplete_on_prefix(conn, "g", "j"))

    watch.autocomplete_on_prefix(Meddled(conn, WATCH=[lambda: another(watch)]), "g", "ja")
    watch.autocomplete_on_prefix(Meddled(conn, WATCH=[lambda: another(classic)]), "g", "ja")
    assert seen == [TEN[:9], TEN[:9]]

    classic.autocomplete_on_prefix(Meddled(conn, EVALSHA=[lambda: another(classic)]), "g", "ja")
    assert seen[2] == TEN, "those of the Lua form nobody sees"


# --- the flaws of both


def test_flaw_names_with_a_brace_are_lost(form, conn, hf):
    names = ["ja{", "ja{mes}", "jane"]
    for name in names:
        form.join_guild(conn, "g", name)
    assert form.autocomplete_on_prefix(conn, "g", "ja") == ["jane"]
    assert form.autocomplete_on_prefix(conn, "g", "ja{") == []
    assert conn.zcard("members:g") == 3, "they are there all the same"

    index = hf.autocomplete("g")
    index.add(names)
    assert index.complete("ja") == ("jane", "ja{", "ja{mes}")
    assert index.complete("ja{") == ("ja{", "ja{mes}")


def test_flaw_names_with_a_brace_count_among_the_ten(form, conn):
    join(conn, "ia{", "j{", *TEN)
    assert form.autocomplete_on_prefix(conn, "g", "") == TEN[:9]


def test_flaw_it_writes_to_answer_a_read(form, conn, reader, raw):
    join(conn, "jeff")
    assert reader.eval("return redis.call('ZCARD', KEYS[1])", 1, "members:g") == 1
    with pytest.raises(redis.ResponseError, match=r"'zadd'|can't run this command"):
        form.autocomplete_on_prefix(reader, "g", "j")
    before = raw.info("persistence")["rdb_changes_since_last_save"]
    form.autocomplete_on_prefix(conn, "g", "j")
    assert raw.info("persistence")["rdb_changes_since_last_save"] > before

    with Handfast(raw) as hf, Handfast(reader) as modern:
        hf.autocomplete("g").add("jeff")
        before = raw.info("persistence")["rdb_changes_since_last_save"]
        assert modern.autocomplete("g").complete("j") == ("jeff",)
        assert raw.info("persistence")["rdb_changes_since_last_save"] == before


class Case(NamedTuple):
    """What is found for a prefix, and what would be right."""

    names: list[str]
    prefix: str
    found: list[str]
    right: tuple[str, ...]


CASES = {
    "capitals": Case(["Jeff", "JEFF"], "J", [], ("JEFF", "Jeff")),
    "digits": Case(["j1", "j2"], "j1", [], ("j1",)),
    "strangers": Case(["à la carte", "été"], "é", ["à la carte", "été"], ("été",)),
    "missed": Case(["éé"], "é", [], ("éé",)),
    "the next letter": Case(["ié", "jé"], "j", ["ié"], ("jé",)),
    "beyond": Case(["石", "石川"], "石", ["石"], ("石", "石川")),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_flaw_it_knows_lower_case_ascii_letters_only(form, conn, hf, case):
    join(conn, *case.names)
    assert form.autocomplete_on_prefix(conn, "g", case.prefix) == case.found
    hf.autocomplete("g").add(case.names)
    assert hf.autocomplete("g").complete(case.prefix) == case.right
