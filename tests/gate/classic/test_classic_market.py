"""The classic marketplace behaves as documented, flaws included."""

from __future__ import annotations

import pytest
import redis

from handfast import classic
from handfast.classic import watch
from handfast.testing import command
from tests._support import listings
from tests._support.listings import Interrupted

conn, form, proxy, resending = listings.conn, listings.form, listings.proxy, listings.resending


@pytest.fixture
def market(conn):
    """A market: seller 1 has a sword and a bow, buyer 2 has funds of 100 and an apple."""
    conn.sadd("inventory:1", "sword", "bow")
    conn.hset("users:1", "funds", 5)
    conn.sadd("inventory:2", "apple")
    conn.hset("users:2", "funds", 100)
    return conn


def funds(conn, user):
    return int(conn.hget(f"users:{user}", "funds") or 0)


def things(conn, user):
    return {thing if isinstance(thing, str) else thing.decode() for thing in conn.smembers(f"inventory:{user}")}


# --- behaviour


def test_listed_item_leaves_the_inventory(form, market):
    assert form.list_item(market, "sword", 1, 30) is True
    assert things(market, 1) == {"bow"}
    assert market.zscore("market:", "sword.1") == 30
    assert form.list_item(market, "sword", 1, 40) is False, "the item has left the inventory"
    assert form.list_item(market, "sword", "stranger", 40) is False
    assert market.zrange("market:", 0, -1, withscores=True)[0][1] == 30


def test_purchase_moves_item_and_price(form, market):
    form.list_item(market, "sword", 1, 100)
    assert form.purchase_item(market, 2, "sword", 1) is True
    assert (funds(market, 1), funds(market, 2)) == (105, 0)
    assert things(market, 2) == {"sword", "apple"}
    assert market.zcard("market:") == 0
    assert form.purchase_item(market, 2, "sword", 1) is False
    assert (funds(market, 1), funds(market, 2)) == (105, 0)


def test_purchase_beyond_the_funds_fails(form, market):
    form.list_item(market, "sword", 1, 101)
    assert form.purchase_item(market, 2, "sword", 1) is False
    assert form.purchase_item(market, "stranger", "sword", 1) is False
    assert (funds(market, 1), funds(market, 2)) == (5, 100)
    assert things(market, 2) == {"apple"}
    assert market.zscore("market:", "sword.1") == 101
    assert market.exists("users:stranger", "inventory:stranger") == 0


def test_funds_are_compared_as_numbers(form, market):
    market.hset("users:2", "funds", 9)
    form.list_item(market, "sword", 1, 10)
    assert form.purchase_item(market, 2, "sword", 1) is False


def test_item_with_price_0_can_be_bought(form, market):
    form.list_item(market, "sword", 1, 0)
    assert form.purchase_item(market, 3, "sword", 1) is True
    assert things(market, 3) == {"sword"}
    assert (funds(market, 1), funds(market, 3)) == (5, 0)


def test_large_funds_keep_all_digits(form, market):
    market.hset("users:2", "funds", 2**53 - 1)
    form.list_item(market, "sword", 1, 2**53 - 2)
    assert form.purchase_item(market, 2, "sword", 1) is True
    assert (funds(market, 1), funds(market, 2)) == (2**53 + 3, 1)


def test_purchase_without_funds_fails(form, market):
    form.list_item(market, "sword", 1, 1)
    assert form.purchase_item(market, 3, "sword", 1) is False


def test_at_maxmemory_listing_fails_and_changes_nothing(form, market, raw):
    raw.config_set("maxmemory", 1)
    with pytest.raises(redis.RedisError):
        form.list_item(market, "sword", 1, 30)
    assert things(market, 1) == {"sword", "bow"}
    assert market.zcard("market:") == 0


def test_scripts_reply_as_their_headers_say(market):
    listing, buying = ((listings.LUA / f"market_{verb}.lua").read_text() for verb in ("list", "purchase"))
    assert [market.eval(listing, 1, "market:", "sword", 1, 30) for _ in range(2)] == [1, 0]
    assert [market.eval(buying, 1, "market:", 2, "sword", 1) for _ in range(2)] == [1, 0]


@pytest.mark.parametrize("price", [-1, 0.5, float("inf"), float("nan")])
def test_invalid_prices_are_refused(form, market, price):
    with pytest.raises(ValueError, match="whole number"):
        form.list_item(market, "sword", 1, price)
    assert things(market, 1) == {"sword", "bow"}


@pytest.mark.parametrize(("one", "other"), [(watch, classic), (classic, watch)], ids=["first-lua", "lua-first"])
def test_both_forms_use_the_same_market(one, other, market):
    assert one.list_item(market, "sword", 1, 30) is True
    assert other.list_item(market, "sword", 1, 30) is False
    assert other.purchase_item(market, 2, "sword", 1) is True
    assert one.purchase_item(market, 2, "sword", 1) is False
    assert things(market, 2) == {"sword", "apple"}


# --- flaws of the first form


def test_flaw_first_form_starts_over_for_each_change_of_the_market(market):
    market.sadd("inventory:3", *(f"thing{number}" for number in range(5)))
    watch.list_item(market, "sword", 1, 30)
    others = [lambda number=number: watch.list_item(market, f"thing{number}", 3, 1) for number in range(5)]
    buyer = Interrupted(market, EXEC=others)
    assert watch.purchase_item(buyer, 2, "sword", 1) is True
    assert buyer.sent == ["WATCH", "ZSCORE", "HGET", "EXEC"] * 6

    seller = Interrupted(market, EXEC=[lambda: market.sadd("inventory:1", "shield")])
    assert watch.list_item(seller, "bow", 1, 30) is True
    assert seller.sent == ["WATCH", "SISMEMBER", "EXEC"] * 2

    lua = Interrupted(market)
    assert classic.purchase_item(lua, 2, "bow", 1) is True
    assert lua.sent == ["EVALSHA"]


def test_item_sold_before_the_first_form_starts_over_is_not_bought(market):
    market.hset("users:4", "funds", 100)
    watch.list_item(market, "sword", 1, 30)
    late = Interrupted(market, EXEC=[lambda: classic.purchase_item(market, 4, "sword", 1)])
    assert watch.purchase_item(late, 2, "sword", 1) is False
    assert (funds(market, 1), funds(market, 2), funds(market, 4)) == (35, 100, 70)


# --- flaws of both forms


def test_flaw_call_does_not_declare_its_keys(market):
    watched = Interrupted(market)
    shown = []
    watched.evalsha = lambda digest, count, *rest: shown.append(rest[:count]) or market.evalsha(digest, count, *rest)
    assert classic.list_item(watched, "sword", 1, 30)
    assert classic.purchase_item(watched, 2, "sword", 1)
    assert set(shown) == {("market:",)}, "without the keys of users and inventories"


def test_flaw_buyer_pays_the_current_price(form, market):
    form.list_item(market, "sword", 1, 30)
    seen = market.zscore("market:", "sword.1")
    market.zadd("market:", {"sword.1": 90})
    assert form.purchase_item(market, 2, "sword", 1) is True
    assert 100 - funds(market, 2) == 90 > seen


def test_flaw_second_copy_of_an_item_is_paid_for_and_lost(form, market):
    market.sadd("inventory:3", "sword")
    for seller in (1, 3):
        form.list_item(market, "sword", seller, 30)
        assert form.purchase_item(market, 2, "sword", seller) is True
    assert funds(market, 2) == 40
    assert things(market, 2) == {"sword", "apple"}


def test_flaw_ids_with_a_dot_collide(form, market):
    market.sadd("inventory:b.c", "a")
    assert form.list_item(market, "a", "b.c", 30) is True
    assert form.purchase_item(market, 2, "a.b", "c") is True
    assert (funds(market, "c"), funds(market, "b.c")) == (30, 0), "another seller was paid"


def test_flaw_nothing_is_rolled_back(form, market):
    form.list_item(market, "sword", 1, 30)
    market.delete("inventory:2")
    market.set("inventory:2", "no set")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        form.purchase_item(market, 2, "sword", 1)
    assert (funds(market, 1), funds(market, 2)) == (35, 70)


def test_flaw_lost_reply_makes_a_purchase_return_false(form, market, resending, proxy):
    form.list_item(market, "sword", 1, 30)
    fault = proxy.lose_reply(command("EVALSHA" if form is classic else "EXEC"))
    assert form.purchase_item(resending, 2, "sword", 1) is False
    assert fault.spent
    assert things(market, 2) == {"sword", "apple"}
