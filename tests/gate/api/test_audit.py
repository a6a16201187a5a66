"""The audit: what operators did. In both APIs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from handfast import AuditEntry, ServerRefused
from handfast.events import Operated
from handfast.testing import FaultProxy


async def test_what_is_noted_is_found_in_the_order_of_time(here, there):
    assert await here.audit() == ()
    await here.note("release", "order:1", kind="lock", reason="it hangs", count=2, fence=17)
    await there.note("hold", "größe\n", kind="once", reason="\N{SNOWMAN}")
    first, second = await here.audit()
    assert isinstance(first, AuditEntry)
    assert (first.what, first.kind, first.name, first.why, first.count, first.fence) == (
        "release",
        "lock",
        "order:1",
        "it hangs",
        2,
        17,
    )
    assert first.by == here._driver.label
    assert abs(datetime.now(UTC) - first.at) < timedelta(minutes=1)
    assert str(first) == f"{first.at:%Y-%m-%d %H:%M:%S} UTC: release lock 'order:1' by {first.by}: it hangs"
    assert (second.name, second.why, second.count, second.fence) == ("größe\n", "\N{SNOWMAN}", None, None)


async def test_an_entry_has_the_values_that_were_set(here):
    seen = []
    here.on(seen.append, Operated)
    given = [
        {"what": "resize", "kind": "limiter", "rates": "5/s; 9/h"},
        {"what": "resize", "kind": "limiter", "rates": ""},
        {"what": "resize", "kind": "semaphore", "permits": 8},
        {"what": "hold", "kind": "lock", "duration": timedelta(hours=3), "now": True},
        {"what": "pause", "kind": "limiter", "duration": 1.5},
        {"what": "release", "kind": "semaphore", "count": 1, "fence": 17, "single": True},
    ]
    for fields in given:
        await here.note(name="a", reason="trial", **fields)
    entries = await here.audit()
    assert [(one.rates, one.permits, one.duration, one.now) for one in entries] == [
        ("5/s; 9/h", None, None, False),
        ("", None, None, False),
        (None, 8, None, False),
        (None, None, 10_800.0, True),
        (None, None, 1.5, False),
        (None, None, None, False),
    ]
    assert [one.single for one in entries] == [one.single for one in seen] == [False] * 5 + [True]
    assert [(one.rates, one.permits, one.duration, one.now) for one in seen] == [
        (one.rates, one.permits, one.duration, one.now) for one in entries
    ]
    assert [str(one).partition("UTC: ")[2].partition(" by ")[0] for one in entries] == [
        "resize limiter 'a' to 5/s; 9/h",
        "resize limiter 'a' to what each client brings",
        "resize semaphore 'a' to 8 permits",
        "hold lock 'a' for 10,800 s now",
        "pause limiter 'a' for 1.5 s",
        "release semaphore 'a' with fence 17",
    ]


async def test_what_is_noted_is_an_event_of_this_client(here, there):
    seen, others = [], []
    here.on(seen.append, Operated)
    there.on(others.append, Operated)
    await here.note("release", "a", kind="lock", reason="it hangs", count=2, fence=17)
    (event,) = seen
    assert (event.what, event.kind, event.name, event.why, event.count, event.fence) == (
        *("release", "lock", "a", "it hangs"),
        *(2, 17),
    )
    assert (event.by, others) == (here._driver.label, [])


async def test_the_newest_or_those_after_an_entry(here):
    for number in range(5):
        await here.note("reset", str(number), kind="limiter", reason="a test")
    everything = await here.audit()
    assert [one.name for one in everything] == ["0", "1", "2", "3", "4"]
    assert [one.name for one in await here.audit(limit=2)] == ["3", "4"]
    assert [one.name for one in await here.audit(after=everything[1].id, limit=2)] == ["2", "3"]
    assert await here.audit(after=everything[-1].id) == ()
    assert len(await here.audit(since=timedelta(days=1))) == 5


async def test_it_is_kept_for_a_time_and_namespaces_have_their_own(api, server, here, raw):
    await here.note("hold", "a", kind="lock", reason="a test")
    (key,) = raw.keys("*audit*")
    assert 0 < raw.pttl(key) <= 90 * 86_400_000
    async with api.client(server.url, namespace="{other}") as other:
        assert await other.audit() == ()
        await other.note("hold", "b", kind="lock", reason="a test")
        assert [one.name for one in await other.audit()] == ["b"]
    assert [one.name for one in await here.audit()] == ["a"]


async def test_what_others_have_written_there_is_read_as_far_as_it_goes(here, raw):
    await here.note("hold", "a", kind="lock", reason="a test")
    (key,) = raw.keys("*audit*")
    raw.xadd(key, {"what": "moved", "count": "many", "color": "red"})
    entry = (await here.audit())[1]
    assert (entry.what, entry.kind, entry.name, entry.why, entry.count) == ("moved", "", "", "", None)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"what": "", "name": "a"}, ValueError),
        ({"what": 1, "name": "a"}, TypeError),
        ({"what": "hold", "name": ""}, ValueError),
        ({"what": "hold", "name": "a", "reason": ""}, ValueError),
        ({"what": "hold", "name": "a", "reason": "x" * 1001}, ValueError),
        ({"what": "hold", "name": "a", "kind": ""}, ValueError),
        ({"what": "hold", "name": "a", "count": -1}, ValueError),
        ({"what": "hold", "name": "a", "fence": 1.5}, TypeError),
        ({"what": "release", "name": "a", "single": True}, ValueError),
    ],
)
async def test_what_is_no_entry_is_refused(here, options, error):
    with pytest.raises(error):
        await here.note(**{"kind": "lock", "reason": "a test"} | options)
    assert await here.audit() == ()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"limit": 0}, ValueError),
        ({"limit": 10_001}, ValueError),
        ({"limit": "1"}, TypeError),
        ({"since": "1d"}, TypeError),
        ({"since": 0}, ValueError),
        ({"after": "yesterday"}, ValueError),
        ({"after": 5}, ValueError),
        ({"after": "0-0", "since": 5}, ValueError),
    ],
)
async def test_wrong_bounds_are_refused(here, options, error):
    with pytest.raises(error):
        await here.audit(**options)


async def test_a_server_that_refuses_says_so(here, raw):
    raw.set("{hf:audit:operators}:log", "x", ex=60)
    with pytest.raises(ServerRefused):
        await here.note("hold", "a", kind="lock", reason="a test")
    with pytest.raises(ServerRefused):
        await here.audit()


@pytest.mark.parametrize("lost", ["call", "reply"])
@pytest.mark.parametrize("command", ["XADD", "PEXPIRE"])
async def test_an_entry_whose_call_or_reply_is_lost_is_there(api, server, raw, command, lost):
    with FaultProxy(server.url) as proxy:
        async with api.client(proxy.url) as client:
            await client.audit()
            lose = proxy.lose_request if lost == "call" else proxy.lose_reply
            lose(lambda found: found.name == command)
            await client.note("hold", "a", kind="lock", reason="a test")
            entries = await client.audit()
    again = command == "XADD" and lost == "reply"
    assert [entry.name for entry in entries] == ["a"] * (2 if again else 1)
    (key,) = raw.keys("*audit*")
    assert raw.pttl(key) > 0


async def test_a_server_out_of_memory_refuses_an_entry(here, raw):
    await here.note("hold", "a", kind="lock", reason="a test")
    raw.config_set("maxmemory", 1)
    with pytest.raises(ServerRefused):
        await here.note("hold", "b", kind="lock", reason="a test")
    raw.config_set("maxmemory", 0)
    assert [entry.name for entry in await here.audit()] == ["a"]
