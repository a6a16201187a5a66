"""The classic autocompletion behaves as documented, flaws included; `hf.autocomplete` does not have these flaws."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import redis

from handfast import Handfast, classic
from handfast.classic import watch
from handfast.classic.autocomplete import find_prefix_range
from tests._support import listings
from tests._support.listings import Crash, Interrupted, commands, crash

conn, form = listings.conn, listings.form

TEN = [f"ja{letter}" for letter in "abcdefghij"]


def join(conn, *names, guild="g"):
    for name in names:
        classic.join_guild(conn, guild, name)


@pytest.fixture
def reader(raw, server):
    """A client of a user with read-only rights."""
    categories = ["+@read", "+@connection", "+@pubsub", "+@scripting"]
    raw.acl_setuser("reader", enabled=True, nopass=True, keys=["*"], channels=["*"], categories=categories)
    with redis.Redis.from_url(server.url, username="reader", password="any", decode_responses=True) as client:
        yield client
    raw.acl_deluser("reader")


# --- behaviour


def test_completion_returns_names_with_the_prefix_in_order(form, conn):
    join(conn, "jill", "jeff", "jenny", "bob", "je", "jf", "jezz")
    assert form.autocomplete_on_prefix(conn, "g", "je") == ["je", "jeff", "jenny", "jezz"]
    assert form.autocomplete_on_prefix(conn, "g", "j") == ["je", "jeff", "jenny", "jezz", "jf", "jill"]
    assert form.autocomplete_on_prefix(conn, "g", "jeff") == ["jeff"]
    assert form.autocomplete_on_prefix(conn, "g", "") == ["bob", "je", "jeff", "jenny", "jezz", "jf", "jill"]
    assert conn.zcard("members:g") == 7, "no sentinel remains"


def test_completion_returns_at_most_ten_names(form, conn):
    join(conn, *(f"j{first}{second}" for first in "ab" for second in "abcdefgh"))
    assert form.autocomplete_on_prefix(conn, "g", "j") == [f"ja{end}" for end in "abcdefgh"] + ["jba", "jbb"]


def test_removed_name_is_not_found(form, conn):
    for name in ("jeff", "jenny"):
        form.join_guild(conn, "g", name)
    form.join_guild(conn, "other", "jeff")
    form.leave_guild(conn, "g", b"jeff")
    form.leave_guild(conn, "g", "stranger")
    assert form.autocomplete_on_prefix(conn, "g", "j") == ["jenny"]
    assert form.autocomplete_on_prefix(conn, "other", "j") == ["jeff"]


@pytest.mark.parametrize("prefix", ["", "a", "b", "z", "jx", "`", "{", "A", "0", "é", "\x00", "a{", "a b", "ja" * 500])
def test_completion_without_a_match_leaves_nothing(form, conn, prefix):
    names = ["m", "n", "o"] if prefix else []
    join(conn, *names)
    assert form.autocomplete_on_prefix(conn, "g", prefix) == []
    assert conn.zcard("members:g") == len(names)


def test_prefix_range_surrounds_the_prefix():
    assert find_prefix_range("abc") == ("abb{", "abc{")
    assert find_prefix_range("a") == ("`{", "a{")
    assert find_prefix_range("z") == ("y{", "z{")
    assert find_prefix_range("") == ("`{", "{")
    assert find_prefix_range("J") == ("`{", "J{")
    assert find_prefix_range("é") == ("{{", "é{")


def test_both_forms_find_names_of_either(conn):
    watch.join_guild(conn, "g", "jeff")
    classic.join_guild(conn, "g", "jenny")
    assert watch.autocomplete_on_prefix(conn, "g", "j") == classic.autocomplete_on_prefix(conn, "g", "j")
    watch.leave_guild(conn, "g", "jenny")
    assert classic.autocomplete_on_prefix(conn, "g", "j") == ["jeff"]


def test_guild_deleted_during_a_completion_has_no_names(conn):
    join(conn, *TEN)
    meddled = Interrupted(conn, ZRANK=[lambda: conn.delete("members:g")])
    assert watch.autocomplete_on_prefix(meddled, "g", "ja") == []


# --- flaws of the first form


def test_flaw_first_form_starts_over_for_each_other_completion(conn, hf, raw):
    join(conn, *TEN)

    def another():
        assert watch.autocomplete_on_prefix(conn, "g", "ja")

    disturbed = Interrupted(conn, EXEC=[another] * 5)
    assert watch.autocomplete_on_prefix(disturbed, "g", "ja") == TEN
    assert disturbed.sent == ["ZADD"] + ["WATCH", "ZRANK", "ZRANK", "EXEC"] * 6

    lua = Interrupted(conn)
    assert classic.autocomplete_on_prefix(lua, "g", "ja") == TEN
    assert lua.sent == ["EVALSHA"]
    hf.autocomplete("g").add(TEN)
    raw.config_resetstat()
    assert hf.autocomplete("g").complete("ja") == tuple(TEN)
    assert commands(raw)["zrangebylex"] == 1


def test_flaw_sentinels_of_dead_clients_count_among_the_ten(conn, hf):
    join(conn, *TEN)
    with pytest.raises(Crash):
        watch.autocomplete_on_prefix(Interrupted(conn, EXEC=[crash]), "g", "ja")
    assert conn.zcard("members:g") == 12
    for form in (watch, classic):
        assert form.autocomplete_on_prefix(conn, "g", "j") == TEN[:9]

    hf.autocomplete("g").add(TEN)
    assert hf.autocomplete("g").complete("j") == tuple(TEN)
    assert hf.autocomplete("g").size() == 10


def test_flaw_sentinels_of_other_clients_count_among_the_ten(conn):
    join(conn, *TEN)
    seen = []

    def another(form):
        seen.append(form.autocomplete_on_prefix(conn, "g", "j"))

    watch.autocomplete_on_prefix(Interrupted(conn, WATCH=[lambda: another(watch)]), "g", "ja")
    watch.autocomplete_on_prefix(Interrupted(conn, WATCH=[lambda: another(classic)]), "g", "ja")
    assert seen == [TEN[:9], TEN[:9]]

    classic.autocomplete_on_prefix(Interrupted(conn, EVALSHA=[lambda: another(classic)]), "g", "ja")
    assert seen[2] == TEN, "the sentinels of the Lua form are never visible"


# --- flaws of both forms


def test_flaw_names_with_a_brace_are_not_found(form, conn, hf):
    names = ["ja{", "ja{mes}", "jane"]
    for name in names:
        form.join_guild(conn, "g", name)
    assert form.autocomplete_on_prefix(conn, "g", "ja") == ["jane"]
    assert form.autocomplete_on_prefix(conn, "g", "ja{") == []
    assert conn.zcard("members:g") == 3, "all three are stored"

    index = hf.autocomplete("g")
    index.add(names)
    assert index.complete("ja") == ("jane", "ja{", "ja{mes}")
    assert index.complete("ja{") == ("ja{", "ja{mes}")


def test_flaw_names_with_a_brace_count_among_the_ten(form, conn):
    join(conn, "ia{", "j{", *TEN)
    assert form.autocomplete_on_prefix(conn, "g", "") == TEN[:9]


def test_flaw_completion_writes(form, conn, reader, raw):
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
    """A prefix, the names that are found, and the correct ones."""

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
def test_flaw_only_lower_case_ascii_letters_work(form, conn, hf, case):
    join(conn, *case.names)
    assert form.autocomplete_on_prefix(conn, "g", case.prefix) == case.found
    hf.autocomplete("g").add(case.names)
    assert hf.autocomplete("g").complete(case.prefix) == case.right
