"""The autocomplete index through both APIs: what it finds, in which order, and how concurrent changes behave."""

from __future__ import annotations

import asyncio
import unicodedata
from types import MappingProxyType

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from handfast import ServerRefused
from handfast._protocol.asking import BATCH
from handfast.testing import FaultProxy, command, containing, script
from tests._support.family import NOWHERE
from tests._support.helpers import ends_first

OPTIONS = [{"fold_case": fold_case, "ranked": ranked} for fold_case in (False, True) for ranked in (False, True)]

ODD = ["a b", "a}{b", "{a}", "a:b", "}", "a\0b", "a\nb", "ä", "😀", "%7B", "a/b@c", "a:exact", "exact"]
"""Index names that could end a hash tag early, or collide with the keys of another index."""

DOTLESS = "\N{LATIN SMALL LETTER DOTLESS I}"


def named(options):
    return " ".join(option for option, chosen in options.items() if chosen) or "plain"


every_kind = pytest.mark.parametrize("options", ends_first(OPTIONS), ids=named)

ranked_or_not = pytest.mark.parametrize("ranked", [False, True], ids=["unranked", "ranked"])


@pytest.fixture(params=ends_first(OPTIONS), ids=named)
def names(here, request):
    """Yield an index with each combination of options in turn."""
    return here.autocomplete("guild:7", **request.param)


def commands(raw):
    """Return how often the server has run each command so far."""
    return {name.removeprefix("cmdstat_"): each["calls"] for name, each in raw.info("commandstats").items()}


# --- completion


async def test_complete_returns_the_names_that_begin_with_the_prefix(names):
    assert await names.add(["jeff", "jenny", "jen", "anna"]) is None
    assert await names.complete("je") == ("jeff", "jen", "jenny")
    assert await names.complete("jen") == ("jen", "jenny")
    assert await names.complete("jenny") == ("jenny",)
    assert await names.complete("jennys") == ()
    assert await names.complete("") == ("anna", "jeff", "jen", "jenny")
    assert await names.complete("je", limit=2) == ("jeff", "jen")
    assert await names.size() == 4


@pytest.mark.parametrize("limit", [1, 499, 500, 501, 1000, 1200, 5000])
async def test_many_names_are_read_in_batches(names, ranked, limit):
    every = [f"n{number:04}" for number in range(1200)]
    await names.add(every)
    assert await names.complete("n", limit=limit) == tuple(every[:limit])
    await ranked.add({name: float(number) for number, name in enumerate(every)})
    assert await ranked.complete("n", limit=limit) == tuple(every[::-1][:limit])
    await ranked.add({f"x{number}": 1e6 + number for number in range(900)})
    assert await ranked.complete("n", limit=limit) == tuple(every[::-1][:limit])


async def test_the_default_limit_is_ten_names(names):
    await names.add(f"n{number:02}" for number in range(25))
    assert await names.complete("n") == tuple(f"n{number:02}" for number in range(10))
    assert len(await names.complete("n", limit=10_000)) == 25


async def test_a_single_string_is_one_name_rather_than_an_iterable_of_letters(names):
    await names.add("jeff")
    await names.add("jeff")
    assert await names.complete("") == ("jeff",)
    await names.remove("j")
    assert await names.size() == 1
    await names.remove("jeff")
    assert await names.size() == 0


async def test_add_and_remove_take_any_iterable_of_names(names):
    await names.add(name for name in ("a", "b"))
    await names.add({"c", "d"})
    await names.add(("e", "e"))
    await names.remove(name for name in ("a", "c", "never there"))
    assert await names.complete("") == ("b", "d", "e")


async def test_an_unused_index_is_empty(names):
    assert await names.complete("") == await names.complete("a") == ()
    assert await names.size() == 0
    assert await names.remove("a") is None
    assert await names.clear() is None


async def test_clear_removes_all_names_and_their_keys(names, raw):
    await names.add(["a", "b"])
    await names.clear()
    assert await names.size() == 0
    assert await names.complete("") == ()
    assert raw.keys() == []
    await names.add("c")
    assert await names.complete("") == ("c",)


async def test_clients_of_one_namespace_share_an_index(here, there, api, server):
    await here.autocomplete("a").add("jeff")
    assert await there.autocomplete("a").complete("j") == ("jeff",)
    assert await there.autocomplete("b").complete("j") == ()
    async with api.client(server.url, namespace="billing") as billing:
        assert await billing.autocomplete("a").size() == 0


async def test_clients_with_different_options_use_different_indexes(here, raw):
    kinds = [here.autocomplete("a", **options) for options in OPTIONS]
    for number, kind in enumerate(kinds):
        await kind.add([f"n{number}", "both"])
    for number, kind in enumerate(kinds):
        assert await kind.complete("") == ("both", f"n{number}")
        await kind.remove("both")
    await kinds[0].clear()
    assert [await kind.size() for kind in kinds] == [0, 1, 1, 1]


# --- any Unicode


async def test_any_text_is_a_name(names):
    odd = [
        *(
            "{",
            "}",
            "{a}",
            "[",
            "(",
            "+",
            "-",
            "*",
            "a b",
            " ",
            "\n",
            "a\nb",
            "a\r\nb",
            "\r\n",
            "\0",
            "a\0",
            "a\0b",
            "\x01",
        ),
        *("é", "e\u0301", "日本語", "\u200d", "\ufeff", "\uffff", "\U0010ffff", "😀", "👩\u200d🚀", "א", "x" * 16_384),
    ]
    await names.add(odd)
    assert await names.size() == len(odd)
    assert set(await names.complete("", limit=100)) == set(odd)
    for name in odd:
        assert name in await names.complete(name)
    await names.remove(odd)
    assert await names.size() == 0


async def test_a_name_that_extends_another_sorts_after_it(names):
    chain = (
        "a",
        "a\0",
        "a\0\0",
        "a\0b",
        "a\x01",
        "a ",
        "aa",
        "aaa",
        "ab",
        "a{",
        "a\x7f",
        "aø",
        "a\uffff",
        "a\U00010000",
        "b",
    )
    await names.add(reversed(chain))
    assert await names.complete("", limit=100) == chain
    assert await names.complete("a", limit=100) == chain[:-1]
    assert await names.complete("a\0") == ("a\0", "a\0\0", "a\0b")


@ranked_or_not
async def test_case_is_not_folded_by_default(here, ranked):
    names = here.autocomplete("a", ranked=ranked)
    await names.add(["Jeff", "jeff", "é", "e\u0301", "ß"])
    assert await names.complete("j") == ("jeff",)
    assert await names.complete("J") == ("Jeff",)
    assert await names.complete("e") == ("e\u0301",)
    assert await names.complete("é") == ("é",)
    assert await names.complete("ss") == ()


@ranked_or_not
async def test_with_fold_case_any_case_matches_and_names_keep_their_spelling(here, ranked):
    names = here.autocomplete("a", fold_case=True, ranked=ranked)
    await names.add(["jeff", "Jeff", "JEFFREY", "jeffa"])
    for prefix in ("jeff", "Jeff", "JEFF", "jEFf"):
        assert await names.complete(prefix) == ("Jeff", "jeff", "jeffa", "JEFFREY")
    await names.remove("JEFF")
    assert await names.size() == 4, "a name is removed as it was added"
    await names.remove(["Jeff", "JEFFREY"])
    assert await names.complete("J") == ("jeff", "jeffa")


@ranked_or_not
@pytest.mark.parametrize(
    ("name", "found_by", "not_by"),
    [
        ("Straße", ["straß", "STRAẞE", "strasse", "STRAS"], ["strase"]),
        ("MASSE", ["maß", "Mass"], ["mas\u0301"]),
        ("ΟΔΟΣ", ["οδος", "οδοσ", "οδοΣ", "ΟΔ"], ["οδω"]),
        ("İzmir", ["İz", "i\u0307z", "i", "I"], ["iz", "IZ", DOTLESS]),  # the dot stays: folding is not Turkish
        (f"{DOTLESS}s{DOTLESS}", [DOTLESS, f"{DOTLESS}S"], ["i", "I"]),  # a letter of its own, not a lowercase I
        (
            "ÉTÉ",
            ["é", "été", "e\u0301te\u0301", "E\u0301", "e", "E"],
            ["et", "ete"],
        ),  # an accent follows its letter
        ("한국", ["ᄒ", "하", "한", "한구", "한국"], ["허", "한가"]),
        ("ﬁn", ["fi", "FI", "f"], ["in"]),
        ("Ω", ["ω", "\u2126"], ["o"]),
        ("ǆ", ["Ǆ", "ǅ"], ["d"]),
    ],
    ids=["sharp s", "double s", "sigma", "dotted i", "dotless i", "accent", "syllable", "ligature", "ohm", "digraph"],
)
async def test_fold_case_matches_letters_that_do_not_fold_one_to_one(here, ranked, name, found_by, not_by):
    names = here.autocomplete("a", fold_case=True, ranked=ranked)
    await names.add(name)
    assert {prefix for prefix in [*found_by, *not_by] if await names.complete(prefix) == (name,)} == set(found_by)


# --- ranks


@pytest.fixture(params=[False, True], ids=["exact", "folded"])
def ranked(here, request):
    """Yield a ranked index without and with case folding."""
    return here.autocomplete("a", fold_case=request.param, ranked=True)


async def test_ranked_names_sort_by_falling_score_and_then_by_name(ranked):
    await ranked.add({"ab": 1, "ac": 2.5, "aa": 1, "ad": -3, "b": 9, "ae": 0})
    assert await ranked.complete("a") == ("ac", "aa", "ab", "ae", "ad")
    assert await ranked.complete("a", limit=2) == ("ac", "aa")
    assert await ranked.complete("") == ("b", "ac", "aa", "ab", "ae", "ad")


async def test_adding_a_name_again_changes_its_score(ranked):
    await ranked.add({"a": 1, "b": 2})
    await ranked.add({"a": 3})
    assert await ranked.complete("") == ("a", "b")
    await ranked.add(MappingProxyType({"a": -3}))
    assert await ranked.complete("") == ("b", "a")


async def test_adding_without_a_score_sets_0_for_new_names_and_keeps_existing_scores(ranked):
    await ranked.add({"low": -1, "high": 1})
    await ranked.add(["low", "high", "new"])
    assert await ranked.complete("") == ("high", "new", "low")
    await ranked.remove("high")
    await ranked.add("high")
    assert await ranked.complete("") == ("high", "new", "low"), "remove deleted its score, so its score is 0 again"


async def test_scores_of_every_magnitude_sort_correctly(ranked):
    scores = [
        1.7976931348623157e308,
        2**53,
        2**53 - 1,
        1e15,
        0.1 + 0.2,
        0.3,
        5e-324,
        0,
        -5e-324,
        -1e-300,
        -(2**53),
        -1e308,
    ]
    await ranked.add({f"n{(place * 7) % 12:02}": score for place, score in enumerate(scores)})
    assert await ranked.complete("n", limit=100) == tuple(f"n{(place * 7) % 12:02}" for place in range(12))
    await ranked.add({"z+": 0.0, "z-": -0.0})
    assert await ranked.complete("z") == ("z+", "z-")


# --- against a model


def fold(text):
    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", text).casefold())


class Model:
    """A model of the index in plain Python."""

    def __init__(self, *, fold_case, ranked):
        self.form = fold if fold_case else str
        self.ranked = ranked
        self.scores = {}

    def add(self, names):
        scores = names if isinstance(names, dict) else {name: self.scores.get(name, 0) for name in names}
        self.scores.update(scores)

    def remove(self, names):
        for name in names:
            self.scores.pop(name, None)

    def clear(self):
        self.scores.clear()

    def size(self):
        return len(self.scores)

    def complete(self, prefix, *, limit):
        found = [name for name in self.scores if self.form(name).startswith(self.form(prefix))]
        return tuple(sorted(found, key=lambda name: (-self.scores[name], self.form(name), name))[:limit])


LETTERS = st.sampled_from(f"aAbBsSßΣ\u03c3ςiİI{DOTLESS}eé\u0301\u0307{{}}\0\n\r\x7f\uffff\U0010ffff😀") | st.characters(
    codec="utf-8"
)

WORDS = st.text(LETTERS, min_size=1, max_size=4)

SCORES = st.integers(-2, 2) | st.floats(allow_nan=False, allow_infinity=False)

LIMITS = st.integers(1, 8)

CHANGES = [
    st.tuples(st.just("add"), st.lists(WORDS, max_size=6)),
    st.tuples(st.just("remove"), st.lists(WORDS, max_size=3)),
    st.tuples(st.just("clear")),
]

RANKINGS = st.tuples(st.just("add"), st.dictionaries(WORDS, SCORES, max_size=6))

QUESTIONS = st.lists(st.tuples(st.text(LETTERS, max_size=2), LIMITS), max_size=4)


@every_kind
@given(data=st.data())
async def test_the_index_agrees_with_its_model(here, options, data):
    names, model = here.autocomplete("a", **options), Model(**options)
    await names.clear()
    changes = st.one_of(*CHANGES, *([RANKINGS] * 3 if options["ranked"] else []))
    for change, *args in data.draw(st.lists(changes, min_size=1, max_size=6)):
        await getattr(names, change)(*args)
        getattr(model, change)(*args)
        known = [(name[:1], 3) for name in model.scores] + [(name, 1) for name in model.scores]
        for prefix, limit in [("", 100), *known[:6], *data.draw(QUESTIONS)]:
            assert await names.complete(prefix, limit=limit) == model.complete(prefix, limit=limit)
        assert await names.size() == model.size()


# --- batches


@every_kind
async def test_many_names_are_sent_in_batches(here, raw, options):
    names, many = here.autocomplete("a", **options), [f"n{number:05}" for number in range(10_000)]
    await names.add(many[:1])
    raw.config_resetstat()
    await names.add(name for name in many)
    assert commands(raw)["evalsha" if options["ranked"] else "zadd"] == 10_000 / BATCH
    assert await names.size() == 10_000
    assert await names.complete("", limit=10_000) == tuple(many)
    await names.remove(name for name in many[1:])
    assert await names.complete("", limit=10_000) == ("n00000",)


async def test_many_scores_are_sent_in_batches(ranked):
    await ranked.add({f"n{number:05}": number for number in range(10_000)})
    assert await ranked.complete("", limit=10_000) == tuple(f"n{number:05}" for number in reversed(range(10_000)))


# --- concurrent clients


@every_kind
async def test_names_added_concurrently_by_several_clients_are_all_present(here, there, options):
    async def add(client, mine):
        for number in range(0, 300, 10):
            await client.autocomplete("a", **options).add(f"{mine}{each:03}" for each in range(number, number + 10))

    async with asyncio.TaskGroup() as tasks:
        for client, mine in ((here, "a"), (here, "b"), (there, "c"), (there, "a")):
            tasks.create_task(add(client, mine))
    names = here.autocomplete("a", **options)
    assert await names.size() == 900
    assert await names.complete("", limit=900) == tuple(f"{mine}{each:03}" for mine in "abc" for each in range(300))


# --- requests to the server


@pytest.fixture
def reader(server, raw):
    """Yield the URL of a user that may read and run scripts, but not write."""
    rights = ("~*", "&*", "-@all", "+@read", "+@connection", "+subscribe", "+pubsub|numsub", "+evalsha", "+eval")
    raw.execute_command("ACL", "SETUSER", "reader", "reset", "on", ">secret", *rights)
    yield server.url.replace("unix://", "unix://reader:secret@")
    raw.execute_command("ACL", "DELUSER", "reader")


@every_kind
async def test_complete_works_for_a_user_without_write_permission(api, here, reader, raw, options):
    await here.autocomplete("a", **options).add([f"n{number}" for number in range(2500)])
    async with api.client(reader) as client:
        names = client.autocomplete("a", **options)
        before = {key: raw.dump(key) for key in raw.scan_iter()}
        assert await names.complete("n1", limit=3) == ("n1", "n10", "n100")
        assert len(await names.complete("", limit=10_000)) == await names.size() == 2500
        for write in (lambda: names.add("x"), lambda: names.remove("n1"), names.clear):
            with pytest.raises(ServerRefused, match="too few rights"):
                await write()
        assert {key: raw.dump(key) for key in raw.scan_iter()} == before


@pytest.mark.parametrize("fold_case", [False, True], ids=["exact", "folded"])
async def test_complete_is_one_read_command(here, raw, fold_case):
    names = here.autocomplete("a", fold_case=fold_case)
    await names.add(f"n{number:05}" for number in range(5000))
    for prefix, limit in (("n", 10), ("n0", 380 if fold_case else 1500), ("", 3), ("nothing", 10)):
        raw.config_resetstat()
        await names.complete(prefix, limit=limit)
        assert [item for item in commands(raw).items() if not item[0].startswith("config")] == [("zrangebylex", 1)]


async def test_ranked_complete_is_one_call_for_few_matches_and_for_the_best(here, raw):
    names = here.autocomplete("a", ranked=True)
    await names.add({f"{'ab'[number % 2]}{number:05}": number for number in range(5000)})
    await names.add("rare")
    for prefix in ("a", "", "rare", "a0000", "nothing"):
        raw.config_resetstat()
        await names.complete(prefix)
        assert commands(raw)["evalsha"] == 1


async def test_ranked_complete_reads_the_matches_when_few_of_the_best_names_match(here, raw):
    names = here.autocomplete("a", ranked=True)
    await names.add(
        {f"z{number:04}": 10 for number in range(3000)} | {f"a{number:04}": -number for number in range(700)}
    )
    raw.config_resetstat()
    assert await names.complete("a", limit=2) == ("a0000", "a0001")
    done = commands(raw)
    assert done["zrange"] >= 1, "it began to read the ranking"
    assert done["zrangebylex"] == 2, "it stopped, and read all 700 matches in two batches"


async def test_all_keys_of_an_index_share_a_slot_and_have_no_ttl(names, raw):
    await names.add(["a", "b"])
    keys = raw.keys()
    assert len({key_slot(key.encode()) for key in keys}) == 1
    assert {raw.pttl(key) for key in keys} == {-1}
    assert all(key.startswith("{hf:autocomplete:guild:7}:") for key in keys)


async def test_indexes_with_odd_names_use_distinct_keys(here, raw):
    indexes = [here.autocomplete(name, ranked=ranked) for name in ODD for ranked in (False, True)]
    for number, index in enumerate(indexes):
        await index.add(f"n{number}")
    assert [await index.complete("") for index in indexes] == [(f"n{number}",) for number in range(len(indexes))]
    assert [index.name for index in indexes[::2]] == ODD
    keys = raw.keys()
    assert len(keys) == 3 * len(ODD)
    assert len({key_slot(key.encode()) for key in keys}) == len({key.partition("}")[0] for key in keys}) == len(ODD)
    assert all(key.isascii() and key.isprintable() and key.count("{") == key.count("}") == 1 for key in keys)
    await indexes[0].clear()
    assert [await index.size() for index in indexes] == [0] + [1] * (len(indexes) - 1)


# --- faults


@pytest.fixture
def proxy(server):
    with FaultProxy(server.url) as proxy:
        yield proxy


@every_kind
@pytest.mark.parametrize("what", ["lose_reply", "lose_request"])
async def test_a_call_is_sent_again_after_its_request_or_reply_is_lost(api, proxy, raw, options, what):
    many = [f"n{number:05}" for number in range(1500)]
    async with api.client(proxy.url) as far:
        names = far.autocomplete("a", **options)
        await names.add("warm")

        lost = [getattr(proxy, what)(containing(piece), times=2) for piece in (b"n00700", b"n01400")]
        await names.add(many)
        lost.append(getattr(proxy, what)(script("names_best") if options["ranked"] else command("ZRANGEBYLEX")))
        assert await names.complete("n", limit=2000) == tuple(many)
        lost.append(getattr(proxy, what)(containing(b"n00001")))
        await names.remove(many[:2])
        lost.append(getattr(proxy, what)(command("ZCARD")))
        assert await names.size() == 1499
        assert await names.complete("n", limit=1) == ("n00002",)
        lost.append(getattr(proxy, what)(command("UNLINK")))
        await names.clear()
        assert raw.keys() == []
        assert all(fault.spent for fault in lost)


async def test_scripts_are_loaded_again_after_script_flush(here, raw):
    names = here.autocomplete("a", ranked=True)
    for step in (lambda: names.add({"a": 1, "b": 2}), lambda: names.remove("a"), lambda: names.complete("")):
        raw.script_flush()
        found = await step()
    assert found == ("b",)


async def test_at_maxmemory_add_is_refused_without_effect_and_other_calls_work(names, raw):
    await names.add(["a", "b"])
    raw.config_set("maxmemory", 1)
    for new in ("c", ["a", "d"]):
        with pytest.raises(ServerRefused, match="out of memory") as refused:
            await names.add(new)
        assert refused.value.changed_nothing
        assert refused.value.name == "guild:7"
    assert await names.complete("") == ("a", "b")
    await names.remove("a")
    assert await names.size() == 1
    await names.clear()
    assert await names.complete("") == ()


# --- invalid arguments


@pytest.mark.parametrize(
    ("names", "error"),
    [
        ("", ValueError),
        (["a", ""], ValueError),
        (["a", "\ud800"], ValueError),
        ("x" * 16_385, ValueError),
        (["ä" * 8193], ValueError),
        (None, TypeError),
        (5, TypeError),
        (b"a", TypeError),
        (["a", b"b"], TypeError),
        (["a", None], TypeError),
        ([["a"]], TypeError),
    ],
    ids=lambda value: repr(value)[:20],
)
@every_kind
async def test_invalid_names_are_refused_before_any_io(api, options, names, error):
    async with api.client(NOWHERE) as client:
        index = client.autocomplete("a", **options)
        for use in (index.add, index.remove):
            with pytest.raises(error):
                await use(names)


@every_kind
async def test_one_invalid_name_refuses_the_whole_call(here, raw, options):
    names = here.autocomplete("a", **options)
    with pytest.raises(ValueError, match="a name must not be empty"):
        await names.add([*map(str, range(9999)), ""])
    assert raw.keys() == []


@pytest.mark.parametrize(
    ("scores", "error"),
    [
        ({"a": 1, "b": float("nan")}, ValueError),
        ({"a": float("inf")}, ValueError),
        ({"a": -float("inf")}, ValueError),
        ({"a": 2**53 + 1}, ValueError),
        ({"a": 10**400}, ValueError),
        ({"a": "1"}, TypeError),
        ({"a": None}, TypeError),
        ({"a": True}, TypeError),
        ({"": 1}, ValueError),
        ({b"a": 1}, TypeError),
        ({"a\ud800": 1}, ValueError),
    ],
    ids=lambda value: repr(value)[:20],
)
async def test_invalid_scores_are_refused_before_any_io(api, scores, error):
    async with api.client(NOWHERE) as client:
        with pytest.raises(error):
            await client.autocomplete("a", ranked=True).add(scores)


async def test_an_unranked_index_refuses_scores(api):
    async with api.client(NOWHERE) as client:
        for scores in ({"a": 1}, {}):
            with pytest.raises(TypeError, match=r"'a' does not rank its names: make it with ranked=True"):
                await client.autocomplete("a").add(scores)


@pytest.mark.parametrize(
    ("prefix", "limit", "error"),
    [
        (None, 10, TypeError),
        (b"", 10, TypeError),
        (["a"], 10, TypeError),
        ("\udfff", 10, ValueError),
        ("x" * 16_385, 10, ValueError),
        ("a", 0, ValueError),
        ("a", -1, ValueError),
        ("a", 10_001, ValueError),
        ("a", True, TypeError),
        ("a", 1.0, TypeError),
        ("a", "10", TypeError),
        ("a", None, TypeError),
    ],
    ids=lambda value: repr(value)[:20],
)
@every_kind
async def test_invalid_prefixes_and_limits_are_refused_before_any_io(api, options, prefix, limit, error):
    async with api.client(NOWHERE) as client:
        with pytest.raises(error):
            await client.autocomplete("a", **options).complete(prefix, limit=limit)


@pytest.mark.parametrize(("name", "error"), [("\ud800", ValueError), (None, TypeError)])
async def test_an_index_requires_a_name(api, name, error):
    async with api.client(NOWHERE) as client:
        with pytest.raises(error):
            client.autocomplete(name)


@every_kind
async def test_a_call_without_items_sends_no_request(api, options):
    async with api.client(NOWHERE) as client:
        names = client.autocomplete("a", **options)
        for use in (names.add, names.remove):
            assert await use([]) is None
        for use in (lambda: names.add("a"), lambda: names.complete(""), names.size):
            with pytest.raises(redis.ConnectionError):
                await use()
