"""The marketplace of the examples: run as its reader runs it, and looked at more closely than the reader does."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from threading import Barrier

import pytest
import redis
from examples.marketplace import benchmark, market, race
from examples.marketplace.books import Books
from examples.marketplace.first_form import FirstForm
from examples.marketplace.market import OFFERS, REMEMBERED, Offer, funds, goods, receipt
from examples.marketplace.naive import Naive
from examples.marketplace.scripted import Scripted
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.retry import Retry

from handfast import Handfast, Reply, Script, ScriptError
from handfast._engine.header import read_header
from handfast.testing import FaultProxy, command, script

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples/marketplace"

LAMP, CHAIR = Offer("lamp", "ann", 10), Offer("chair", "ann", 10)
BOOKS = Books({"ann": ["lamp", "chair", "vase"], "bob": ["book"]}, {"ann": 5, "bob": 15, "carol": 100})


@pytest.fixture(params=[False, True], ids=["bytes", "str"])
def conn(request, server, raw):
    """A client of either kind, on a market that has opened: ann offers a lamp and a chair."""
    with redis.Redis.from_url(server.url, decode_responses=request.param) as client:
        BOOKS.open_market(client)
        for offer in LAMP, CHAIR:
            assert Scripted(client).list_item(offer).tag == "listed"
        yield client


@pytest.fixture(params=[FirstForm, Scripted], ids=["first", "scripted"])
def form(request, conn):
    return request.param(conn)


@pytest.fixture
def proxy(server):
    with FaultProxy(server.url) as proxy:
        yield proxy


def dump(raw):
    """Everything that is on the server, but for how long."""
    readers = {"string": raw.get, "set": raw.smembers, "zset": lambda key: raw.zrange(key, 0, -1, withscores=True)}
    readers["list"] = lambda key: raw.lrange(key, 0, -1)
    return {key: readers[raw.type(key)](key) for key in raw.scan_iter()}


def run(module, *arguments):
    command = [sys.executable, "-m", f"examples.marketplace.{module}", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=50, check=False)


# --- what each call answers, in both forms


ANSWERS = {
    "listed": lambda form: form.list_item(Offer("vase", "ann", 3)),
    "missing": lambda form: form.list_item(Offer("book", "ann", 3)),
    "sold": lambda form: form.purchase_item("bob", LAMP, "1"),
    "gone": lambda form: form.purchase_item("bob", Offer("lamp", "carol", 10), "1"),
    "repriced": lambda form: form.purchase_item("bob", Offer("lamp", "ann", 9), "1"),
    "short": lambda form: [form.purchase_item("bob", LAMP, "1"), form.purchase_item("bob", CHAIR, "2")][1],
    "own": lambda form: form.purchase_item("ann", LAMP, "1"),
}
FIELDS = {"sold": {"price": 10}, "repriced": {"price": 10}, "short": {"missing": 5}}


@pytest.mark.parametrize("tag", ANSWERS)
def test_every_answer_is_given_and_the_books_balance(tag, form, conn):
    assert ANSWERS[tag](form) == Reply(tag, FIELDS.get(tag, {}))
    assert BOOKS.complaints(conn) == []


def test_the_headers_list_these_answers_and_no_others():
    headers = [read_header(path.read_text()) for path in sorted((EXAMPLE / "lua").glob("*.lua"))]
    assert sorted(tag for header in headers for tag in header.replies) == sorted(ANSWERS)
    assert all(header.repeatable for header in headers)


def test_the_checker_finds_nothing_in_the_scripts():
    pytest.importorskip("tree_sitter_lua", reason="checking scripts needs the extra lint")
    command = [sys.executable, "-m", "handfast", "script", "check", *sorted((EXAMPLE / "lua").glob("*.lua"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert (done.returncode, done.stdout) == (0, "")  # what it finds it prints there


def test_a_purchase_moves_the_item_and_the_coins(form, conn, raw):
    form.purchase_item("bob", LAMP, "1")
    assert raw.smembers(goods("bob")) == {"book", "lamp"}
    assert (raw.get(funds("bob")), raw.get(funds("ann"))) == ("5", "15")
    assert raw.zrange(OFFERS, 0, -1) == [CHAIR.member]
    assert raw.get(receipt("1")) == "10"
    assert REMEMBERED - 60 < raw.ttl(receipt("1")) <= REMEMBERED


@pytest.mark.parametrize("tag", ["missing", "gone", "repriced", "own"])
def test_a_refusal_changes_nothing(tag, form, raw):
    before = dump(raw)
    ANSWERS[tag](form)
    assert dump(raw) == before


def test_a_listing_takes_the_item_away_and_another_one_changes_the_price(form, conn, raw):
    form.list_item(Offer("vase", "ann", 3))
    assert raw.smembers(goods("ann")) == set()
    form.list_item(Offer("vase", "ann", 4))
    assert raw.zscore(OFFERS, "vase.ann") == 4
    assert form.purchase_item("carol", Offer("vase", "ann", 3), "1") == Reply("repriced", {"price": 4})
    assert form.purchase_item("carol", Offer("vase", "ann", 4), "1").tag == "sold"
    assert BOOKS.complaints(conn) == []


def test_who_has_never_had_funds_is_short_of_all_of_it(form):
    assert form.purchase_item("dave", LAMP, "1") == Reply("short", {"missing": 10})


def test_the_most_expensive_offer_of_all_is_exact(form, conn, raw):
    most_expensive = Offer("vase", "ann", market.MAX_PRICE)
    form.list_item(most_expensive)
    raw.set(funds("carol"), market.MAX_PRICE + 1)
    assert form.purchase_item("carol", most_expensive, "1") == Reply("sold", {"price": market.MAX_PRICE})
    assert (raw.get(funds("carol")), raw.get(funds("ann"))) == ("1", str(market.MAX_PRICE + 5))


def test_an_offer_is_read_as_it_was_written():
    offer = Offer("a lamp.v2", "ann", 7)
    assert Offer.read(offer.member, 7.0) == Offer.read(offer.member.encode(), 7.0) == offer


@pytest.mark.parametrize(("seller", "price"), [("a.b", 1), ("ann", 0), ("ann", -1), ("ann", 1.5), ("ann", 2**53 + 1)])
def test_what_no_offer_can_be_is_refused(seller, price):
    with pytest.raises(ValueError, match=r"the name of a seller must not contain a dot|a price is a whole number"):
        Offer("lamp", seller, price)


def test_all_keys_of_a_call_share_a_slot():
    keys = [OFFERS, goods("ann"), goods("bob"), funds("ann"), funds("bob"), receipt("1")]
    assert len(set(keys)) == len(keys)
    assert len({key_slot(key.encode()) for key in keys}) == 1


# --- once more, late, or not at all


def test_an_order_that_was_carried_out_is_not_paid_again(form, raw):
    first = form.purchase_item("bob", LAMP, "1")
    before = dump(raw)
    assert form.purchase_item("bob", LAMP, "1") == first == Reply("sold", {"price": 10})
    assert dump(raw) == before


def test_not_even_when_the_same_offer_stands_again(form, conn, raw):
    form.purchase_item("bob", LAMP, "1")
    form.list_item(Offer("lamp", "bob", 10))
    form.purchase_item("ann", Offer("lamp", "bob", 10), "2")
    form.list_item(LAMP)
    before = dump(raw)
    assert form.purchase_item("bob", LAMP, "1").tag == "sold"
    assert dump(raw) == before
    raw.delete(receipt("1"))  # its day is over
    assert form.purchase_item("bob", LAMP, "1").tag == "sold"
    assert dump(raw) != before
    assert BOOKS.complaints(conn) == []


def test_a_refused_order_may_be_sent_again_and_is_then_decided_anew(form, raw):
    raw.set(funds("bob"), 9)
    assert form.purchase_item("bob", LAMP, "1").tag == "short"
    raw.set(funds("bob"), 10)
    assert form.purchase_item("bob", LAMP, "1").tag == "sold"


def test_listing_twice_is_listing_once_until_it_is_sold(form, raw):
    before = dump(raw)
    assert form.list_item(LAMP).tag == "listed"
    assert dump(raw) == before
    form.purchase_item("bob", LAMP, "1")
    assert form.list_item(LAMP).tag == "missing"


def through(proxy, kind):
    """A form whose client sends again what was lost, and what to lose of it."""
    retrying = redis.Redis.from_url(proxy.url, retry=Retry(NoBackoff(), 3), retry_on_error=[redis.ConnectionError])
    purchase = script(Script.from_file(EXAMPLE / "lua/purchase_item.lua"))
    return {
        "first": lambda: (FirstForm(retrying), command("EXEC")),
        "scripted": lambda: (Scripted(retrying), purchase),
        "handfast": lambda: (Scripted(Handfast(proxy.url)), purchase),
    }[kind]()


@pytest.mark.parametrize("what", ["lose_reply", "lose_request"])
@pytest.mark.parametrize("kind", ["first", "scripted", "handfast"])
def test_a_purchase_that_got_lost_is_paid_once(kind, what, conn, raw, proxy):
    form, match = through(proxy, kind)
    form.purchase_item("carol", CHAIR, "0")  # now the server knows the script
    lost = getattr(proxy, what)(match)
    assert form.purchase_item("bob", LAMP, "1").tag == "sold"
    assert lost.spent
    assert form.retries == (kind == "first")
    assert raw.get(funds("bob")) == "5"
    assert BOOKS.complaints(conn) == []
    form.conn.close()


@pytest.mark.parametrize("call", ["listed", "sold"])
def test_a_full_server_refuses_and_nothing_has_changed(call, form, raw):
    before = dump(raw)
    raw.config_set("maxmemory", 1)
    with pytest.raises((redis.ResponseError, ScriptError), match="maxmemory"):
        ANSWERS[call](form)
    raw.config_set("maxmemory", 0)
    assert dump(raw) == before


@pytest.mark.parametrize("key", [OFFERS, goods("bob"), funds("bob"), funds("ann"), receipt("1")])
def test_a_key_of_another_type_fails_before_the_script_has_written(key, conn, raw):
    raw.delete(key)
    raw.rpush(key, "no such thing")
    before = dump(raw)
    with pytest.raises(ScriptError, match="WRONGTYPE"):
        Scripted(conn).purchase_item("bob", LAMP, "1")
    assert dump(raw) == before
    raw.delete(key)


@pytest.mark.parametrize("key", [OFFERS, goods("ann")])
def test_nor_does_a_listing(key, conn, raw):
    raw.delete(key)
    raw.rpush(key, "no such thing")
    before = dump(raw)
    with pytest.raises(ScriptError, match="WRONGTYPE"):
        Scripted(conn).list_item(Offer("vase", "ann", 3))
    assert dump(raw) == before
    raw.delete(key)


# --- others


def once(act):
    """What happens at the first call only."""
    calls = count()
    return lambda: act() if next(calls) == 0 else None


@pytest.mark.parametrize(
    ("meanwhile", "tag"),
    [
        (lambda form: form.purchase_item("carol", LAMP, "2"), "gone"),
        (lambda form: form.purchase_item("bob", CHAIR, "2"), "short"),
        (lambda form: form.purchase_item("bob", LAMP, "1"), "sold"),
        (lambda form: form.list_item(Offer("lamp", "ann", 11)), "repriced"),
        (lambda form: form.list_item(Offer("vase", "ann", 11)), "sold"),
    ],
    ids=["lost the item", "spent the funds", "the same order", "another price", "another item"],
)
@pytest.mark.parametrize("other", [FirstForm, Scripted])
def test_the_first_form_sees_who_came_between_and_starts_over(meanwhile, tag, other, conn):
    ours = FirstForm(conn, once(lambda: meanwhile(other(conn))))
    assert ours.purchase_item("bob", LAMP, "1").tag == tag
    assert ours.retries == 1
    assert BOOKS.complaints(conn) == []


@pytest.mark.parametrize(
    ("meanwhile", "tag"),
    [
        (lambda raw: raw.zrem(OFFERS, LAMP.member), "gone"),
        (lambda raw: raw.set(funds("bob"), 0), "short"),
        (lambda raw: raw.set(receipt("1"), 10), "sold"),
    ],
    ids=["offers", "funds", "receipt"],
)
def test_a_purchase_watches_every_key_that_it_rests_on(meanwhile, tag, conn, raw):
    ours = FirstForm(conn, once(lambda: meanwhile(raw)))
    assert ours.purchase_item("bob", LAMP, "1").tag == tag
    assert ours.retries == 1
    assert not raw.sismember(goods("bob"), "lamp")


def test_a_listing_watches_the_goods_as_well(conn, raw):
    ours = FirstForm(conn, once(lambda: raw.srem(goods("ann"), "vase")))
    assert ours.list_item(Offer("vase", "ann", 3)).tag == "missing"
    assert ours.retries == 1


def test_listing_starts_over_too(conn):
    ours = FirstForm(conn, once(lambda: Scripted(conn).purchase_item("bob", LAMP, "1")))
    assert ours.list_item(Offer("lamp", "ann", 11)).tag == "missing"
    assert ours.retries == 1


def test_without_watching_the_lamp_is_sold_twice(conn):
    ours = Naive(conn, once(lambda: Naive(conn).purchase_item("carol", LAMP, "2")))
    assert ours.purchase_item("bob", LAMP, "1").tag == "sold"
    assert BOOKS.complaints(conn) == ["lamp is there 2 times"]


@pytest.mark.parametrize("forms", [[FirstForm], [Scripted], [FirstForm, Scripted]], ids=["first", "scripted", "both"])
def test_a_crowd_of_traders_neither_makes_nor_loses_anything(forms, server, raw):
    traders = [f"trader{number}" for number in range(4)]
    books = Books({name: [f"{name}-{item}" for item in range(3)] for name in traders}, dict.fromkeys(traders, 20))
    books.open_market(raw)
    together = Barrier(len(traders) + 1)

    def trade(number):
        name, chance, bought = traders[number], random.Random(number), 0
        with redis.Redis.from_url(server.url) as mine:
            form = forms[number % len(forms)](mine)
            together.wait()
            for order in range(80):
                for item in mine.smembers(goods(name)):
                    form.list_item(Offer(item.decode(), name, chance.randint(1, 9)))
                offers = [Offer.read(*one) for one in mine.zrange(OFFERS, 0, -1, withscores=True)]
                bought += form.purchase_item(name, chance.choice(offers), f"{name}-{order}").tag == "sold"
        return bought

    with ThreadPoolExecutor(len(traders)) as threads:
        coming = [threads.submit(trade, number) for number in range(len(traders))]
        together.wait()
        while not all(one.done() for one in coming):
            assert books.complaints(raw) == []
    assert sum(one.result() for one in coming) == raw.eval("return #redis.call('KEYS', '{market}:order:*')", 0) > 0
    assert books.complaints(raw) == []


@pytest.mark.parametrize(
    ("mistake", "complaint"),
    [
        (lambda raw: raw.sadd(goods("bob"), "lamp"), "lamp is there 2 times"),
        (lambda raw: raw.srem(goods("bob"), "book"), "book is there 0 times"),
        (lambda raw: raw.zrem(OFFERS, LAMP.member), "lamp is there 0 times"),
        (lambda raw: raw.sadd(goods("bob"), "moon"), "moon is there 1 times"),
        (lambda raw: raw.incr(funds("bob")), "1 coins came from nowhere"),
        (lambda raw: raw.delete(funds("ann")), "5 coins are lost"),
        (lambda raw: [raw.decrby(funds("bob"), 16), raw.incrby(funds("ann"), 16)], "bob has -1 coins"),
    ],
)
def test_the_books_tell_each_mistake(mistake, complaint, conn, raw):
    assert BOOKS.complaints(conn) == []
    mistake(raw)
    assert BOOKS.complaints(conn) == [complaint]


# --- the programs


def test_race_shows_what_the_readme_says():
    done = run("race")
    assert (done.returncode, done.stderr) == (0, "")
    [shown] = re.findall(r"```text\n(.*?)```", (EXAMPLE / "README.md").read_text(), re.DOTALL)
    assert done.stdout.startswith(shown)
    assert re.search(
        r"  first form  150 gone, 50 sold  \(started over: \d+\)\n  scripted    150 gone, 50 sold\n", done.stdout
    )


def forgetful(form, buyer, offer, order, *, purchase=Scripted.purchase_item):
    form.conn.delete(receipt(order))
    if order == "bob-1":  # and the item is on offer again
        form.conn.zadd(OFFERS, {offer.member: offer.price})
    return purchase(form, buyer, offer, order)


@pytest.mark.parametrize(("form", "wrong"), [(FirstForm, Naive.purchase_item), (Scripted, forgetful)])
def test_race_fails_where_a_form_does(form, wrong, monkeypatch, server, raw):
    monkeypatch.setattr(form, "purchase_item", wrong)
    monkeypatch.setattr(sys, "argv", ["race", "--url", server.url])
    assert race.main() == 1
    assert dump(raw) == {}


def test_benchmark_measures_and_does_the_books(server, raw):
    done = run("benchmark", "--seconds", "0.2", "--rounds", "2", "--buyers", "1", "2", "--url", server.url)
    assert (done.returncode, done.stderr) == (0, "")
    rows = re.findall(
        r"^ +(\d+)  (first form|scripted) +([\d,]+) +([\d,]+) +([\d,]+) +(\d+\.\d\d)$", done.stdout, re.MULTILINE
    )
    assert [row[:2] for row in rows] == [(buyers, form) for buyers in "12" for form in ("first form", "scripted")]
    for _, form, *rates, retries in rows:
        median, lowest, highest = (int(rate.replace(",", "")) for rate in rates)
        assert 0 < lowest <= median <= highest
        assert float(retries) == 0 or form == "first form"
    assert "The books balanced after every run." in done.stdout
    assert dump(raw) == {}


def test_a_run_of_the_benchmark_counts_what_was_sold(server, raw):
    with ThreadPoolExecutor(3) as threads:
        run, complaints = benchmark.measure(threads, Barrier(3), server.url, "first form", 0.2)
    assert complaints == []
    assert run.purchases == len(raw.keys(receipt("*"))) > 0
    assert run.retries > 0


@pytest.mark.parametrize("program", ["race", "benchmark"])
def test_a_market_that_is_there_already_is_left_alone(program, server, raw):
    raw.set(funds("dave"), 1)
    done = run(program, "--url", server.url)
    assert done.returncode == 1
    assert "Choose another server" in done.stderr
    assert dump(raw) == {funds("dave"): "1"}
