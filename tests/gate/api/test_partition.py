"""Partitions: each item on a single worker, in both APIs."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter

import pytest

from handfast import ClientClosed
from handfast._api.sync import worker as sync_worker
from handfast._api.sync.partition import Assignment
from handfast._drivers.sync.jobs import Job
from handfast._engine.calls import PermitRequest
from handfast._engine.keys import KeySet
from handfast._engine.options import LeaseOptions
from handfast._protocol import admin, loops
from handfast.testing import FaultProxy, script
from tests._support.apis import ASYNCIO
from tests._support.family import NOWHERE, until_listening
from tests._support.helpers import eventually, eventually_async, settled

ITEMS = [f"item-{number}" for number in range(12)]
QUICK = {"every": 0.2}
"""Items move within a fraction of a second."""

SOON_S = 0.4
"""A ttl in seconds that is to end."""


class Log:
    """Which items are served, by whom. Two workers have an item if the lease of the first has not ended by the client's clock."""

    def __init__(self):
        self.served = []
        self.now = {}
        self.doubles = []
        self._lock = threading.Lock()

    def begin(self, who, item, lease):
        with self._lock:
            other, held = self.now.get(item, (None, None))
            if held is not None and not held.lost:
                self.doubles.append((item, who, other))
            self.now[item] = who, lease
            self.served.append((who, item))

    def end(self, item, lease):
        with self._lock:
            if self.now.get(item, (None, None))[1] is lease:
                del self.now[item]

    def loads(self):
        return Counter(who for who, _ in list(self.now.values()))

    def serve(self, api, who):
        async def serve_async(item, lease):
            self.begin(who, item, lease)
            try:
                await asyncio.Event().wait()
            finally:
                self.end(item, lease)

        def serve(item, lease):
            self.begin(who, item, lease)
            lease.wanted_event.wait()
            self.end(item, lease)

        return serve_async if api is ASYNCIO else serve


@contextlib.asynccontextmanager
async def working(api, client, log, who, items=ITEMS, **options):
    """Serve items until the end of the block."""
    partition = client.partition("a", items, **{**QUICK, **options})
    if api is ASYNCIO:
        task = asyncio.create_task(partition.run(log.serve(api, who)))
        yield partition
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, ClientClosed):
            await task
        return
    # A run of the sync API ends with its client: here the block that it enters is entered by hand.
    mine = Assignment(partition._thing, log.serve(api, who))
    await asyncio.to_thread(mine.__enter__)
    yield partition
    await asyncio.to_thread(mine.__exit__, None, None, None)


async def test_a_single_worker_has_all_items(api, here, there):
    log = Log()
    async with working(api, here, log, "one", value="http://one") as partition:
        await eventually_async(lambda: log.loads() == {"one": 12})
        owners = await there.partition("a", ITEMS).owners()
        assert owners.keys() == set(ITEMS)
        assert {one.value for one in owners.values()} == {"http://one"}
        assert repr(partition).endswith("Partition 'a'>")
    assert log.now == {}
    assert set((await there.partition("a", ITEMS).owners()).values()) == {None}


async def test_workers_that_come_and_go_share_the_items(api, server, here, there):
    log = Log()
    async with working(api, here, log, "one"):
        await eventually_async(lambda: log.loads() == {"one": 12})
        async with working(api, there, log, "two"):
            await eventually_async(lambda: log.loads() == {"one": 6, "two": 6})
            async with api.client(server.url) as third, working(api, third, log, "three"):
                await eventually_async(lambda: log.loads() == {"one": 4, "two": 4, "three": 4})
            await eventually_async(lambda: log.loads() == {"one": 6, "two": 6})
        await eventually_async(lambda: log.loads() == {"one": 12})
    assert log.doubles == []


async def test_workers_that_start_together_share_the_items_from_the_beginning(api, here, there):
    log = Log()
    async with working(api, here, log, "one", every=5), working(api, there, log, "two", every=5):
        await eventually_async(lambda: log.loads() == {"one": 6, "two": 6})
        assert len(log.served) == 12


async def test_the_items_of_a_dead_worker_are_on_others_when_its_leases_end(api, server, here):
    log = Log()
    async with working(api, here, log, "one", ttl=SOON_S):
        mortal = api.client(server.url, release_at_exit=False)
        async with working(api, mortal, log, "two", ttl=SOON_S):
            await eventually_async(lambda: log.loads() == {"one": 6, "two": 6})
            await mortal.close(release=False)
            await eventually_async(lambda: log.loads()["one"] == 12)
    assert log.doubles == []


async def test_a_worker_that_is_taken_away_comes_back(api, here, there, raw):
    log = Log()
    async with working(api, here, log, "one", ttl=SOON_S):
        await eventually_async(lambda: log.loads() == {"one": 12})
        raw.flushall()
        await eventually_async(lambda: len(log.served) == 24)
        await eventually_async(lambda: log.loads() == {"one": 12})
        assert len(await there.partition("a", ITEMS).owners()) == 12
    assert log.doubles == []


async def test_a_function_says_which_items_there_are(api, here):
    log, items = Log(), ["a", "b"]
    async with working(api, here, log, "one", items=lambda: list(items), every=0.1):
        await eventually_async(lambda: set(log.now) == {"a", "b"})
        items[:] = ["b", "c"]
        await eventually_async(lambda: set(log.now) == {"b", "c"})
        items[:] = ["b", "b"]  # a mistake is logged, and what there was goes on
        items.append("c")
        await eventually_async(lambda: set(log.now) == {"b", "c"})


async def test_a_coroutine_function_says_which_items_there_are(server):
    log = Log()
    async with ASYNCIO.handfast(server.url) as client:

        async def items():
            return ["a", "b"]

        async with working(ASYNCIO, client, log, "one", items=items):
            await eventually_async(lambda: set(log.now) == {"a", "b"})


async def test_no_worker_has_more_than_the_most(api, here, there):
    log = Log()
    async with working(api, here, log, "one", max_items=5):
        await eventually_async(lambda: log.loads() == {"one": 5})
        async with working(api, there, log, "two", max_items=5):
            await eventually_async(lambda: log.loads() == {"one": 5, "two": 5})
            owners = await there.partition("a", ITEMS).owners()
            assert Counter(one is None for one in owners.values()) == {False: 10, True: 2}


async def test_what_raises_is_logged_and_called_again(api, here, caplog, monkeypatch):
    monkeypatch.setattr(loops, "FIRST_PAUSE_S", 0.01)
    calls, log = Counter(), Log()

    def serve(item, _lease):
        calls[item] += 1
        if calls[item] < 4:
            raise LookupError("no such bot")

    async def serve_async(item, lease):
        serve(item, lease)

    log.serve = lambda api, _who: serve_async if api is ASYNCIO else serve
    async with working(api, here, log, "one", items=["a"]):
        await eventually_async(lambda: calls["a"] >= 6)  # it returns then, and rests for `every`
    failures = [one for one in caplog.records if one.name == "handfast.partition"]
    assert len(failures) == 3
    assert (
        "the function that serves 'a' of 'a' failed, and is called again in 0.01 s: LookupError"
        in failures[0].getMessage()
    )
    assert "in 0.04 s" in failures[2].getMessage()


async def test_who_does_not_stop_loses_the_lease_before_another_has_the_item(api, here, there):
    stubborn, log, let_go = [], Log(), threading.Event()

    async def serve_async(item, lease):
        stubborn.append(lease)
        while not let_go.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)

    def serve(item, lease):
        stubborn.append(lease)
        let_go.wait(20)

    bad = Log()
    bad.serve = lambda api, _who: serve_async if api is ASYNCIO else serve
    async with working(api, here, bad, "one", ttl=SOON_S):
        await eventually_async(lambda: len(stubborn) == 12)
        async with working(api, there, log, "two", ttl=SOON_S):
            await eventually_async(lambda: log.loads() == {"two": 6})
            taken = {one.name for one in stubborn if one.lost}
            assert {f"a|{item}" for item in log.now} == taken
            assert all(
                one.wanted and "did not release it in time" in one._state.loss_text for one in stubborn if one.lost
            )
            let_go.set()


async def test_an_item_whose_function_hangs_after_a_release_is_served_again(api, here, hf, raw, caplog):
    """A thread waits for a socket without a timeout, or a task swallows its cancellation."""
    let_go, served = threading.Event(), []

    async def serve_async(item, lease):
        served.append(lease)
        while len(served) == 1 and not let_go.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)
        await asyncio.Event().wait()

    def serve(item, lease):
        served.append(lease)
        if len(served) == 1:
            let_go.wait(20)
        lease.wanted_event.wait()

    bad = Log()
    bad.serve = lambda api, _who: serve_async if api is ASYNCIO else serve
    async with working(api, here, bad, "one", items=["a"], ttl=SOON_S):
        await eventually_async(lambda: served)
        await until_listening(raw)
        item = PermitRequest(KeySet("hf", "partition", "a", ("a",)), LeaseOptions(1, renew=False))
        assert await asyncio.to_thread(hf._driver.run, admin.force_release(item, "stuck", "operator", 0), "a") == 1
        await eventually_async(lambda: len(served) == 2)
        assert served[0].lost
        assert not served[1].lost
        assert served[1].fence > served[0].fence
        let_go.set()
    assert "the function that serves 'a' of 'a' has not ended" in caplog.text


@pytest.mark.parametrize("trouble", ["hangs", "fails late"])
async def test_items_move_while_the_function_that_knows_them_is_in_trouble(api, here, there, caplog, trouble):
    log, over, in_trouble = Log(), threading.Event(), threading.Event()

    async def items_async():
        if in_trouble.is_set():
            if trouble == "hangs":
                await asyncio.to_thread(over.wait, 30)
            raise LookupError("no database")
        return ITEMS

    def items():
        if in_trouble.is_set():
            if trouble == "hangs":
                over.wait(30)
            raise LookupError("no database")
        return ITEMS

    known = items_async if api is ASYNCIO else items
    async with working(api, here, log, "one", items=known):
        async with working(api, there, log, "two"):
            await eventually_async(lambda: log.loads() == {"one": 6, "two": 6})
            in_trouble.set()
            said = "has not returned" if trouble == "hangs" else "the function for the items of 'a' failed"
            await eventually_async(lambda: said in caplog.text)
        await eventually_async(lambda: log.loads() == {"one": 12})
        over.set()
    assert log.doubles == []


async def test_by_hand_an_item_stays_until_its_lease_is_released(api, here, there):
    log, changes, leases = Log(), [], {}
    partition = here.partition("a", ITEMS, **QUICK)
    async with join(api, partition) as mine:
        reader = read(api, mine, changes)
        await eventually_async(lambda: len(changes) == 12)
        leases = dict(changes)
        assert mine.items() == set(ITEMS)
        assert not any(lease.wanted for lease in leases.values())
        async with working(api, there, log, "two"):
            await eventually_async(lambda: len(changes) == 18)
            moved = {item for item, lease in changes[12:] if lease is None}
            assert len(moved) == 6
            assert all(leases[item].wanted and not leases[item].lost for item in moved)
            assert log.now == {}
            for item in moved:
                await settled(leases[item].release())
            await eventually_async(lambda: set(log.now) == moved)
            assert mine.items() == set(ITEMS) - moved
    assert not mine.items()  # some of those that moved may have come back in between
    await reader


async def test_by_hand_an_item_that_is_not_released_is_lost(api, here, there):
    log, changes = Log(), []
    async with join(api, here.partition("a", ITEMS, ttl=SOON_S, **QUICK)) as mine:
        read(api, mine, changes)
        await eventually_async(lambda: len(changes) == 12)
        async with working(api, there, log, "two", ttl=SOON_S):
            await eventually_async(lambda: log.loads() == {"two": 6})
            assert {item for item, lease in changes[:12] if lease.lost} == set(log.now)


def read(api, mine, changes):
    """Note all changes; return what ends with them."""
    if api is ASYNCIO:

        async def follow():
            async for change in mine.changes():
                changes.append(change)

        return asyncio.create_task(follow())
    return asyncio.create_task(asyncio.to_thread(drain, mine, changes))


def drain(mine, changes):
    for change in mine.changes():
        changes.append(change)


@contextlib.asynccontextmanager
async def join(api, partition):
    if api is ASYNCIO:
        async with partition.join() as mine:
            yield mine
        return
    mine = partition._thing.join()
    await asyncio.to_thread(mine.__enter__)
    try:
        yield mine
    finally:
        await asyncio.to_thread(mine.__exit__, None, None, None)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"items": ["a", "a"]}, "stands twice"),
        ({"items": "abc"}, "items must be several"),
        ({"items": ["a", 1]}, "an item must be a str"),
        ({"items": range(10_001)}, "at most 10,000"),
    ],
    ids=str,
)
def test_bad_items_are_refused_before_any_io(api, options, words):
    with pytest.raises((TypeError, ValueError), match=words):
        api.handfast(NOWHERE).partition(**{"name": "a", "items": ["a"]} | options)


async def test_an_assignment_is_entered_once(api, here):
    mine = here.partition("a", ["a"], **QUICK).join()
    async with mine:
        with pytest.raises(RuntimeError, match=r"can be entered once; call join\(\) for another"):
            await mine.__aenter__()
    with pytest.raises(RuntimeError, match="entered once"):
        await mine.__aenter__()
    assert await settled(here.partition("a", ["a"]).owners()) == {"a": None}


async def test_a_cancellation_of_what_the_items_function_awaits_is_logged_and_the_worker_goes_on(server, caplog):
    calls = []

    async def items():
        calls.append(None)
        if len(calls) == 2:
            raise asyncio.CancelledError
        return ["a"]

    log = Log()
    async with ASYNCIO.handfast(server.url) as client, working(ASYNCIO, client, log, "one", items=items, every=0.05):
        await eventually_async(lambda: len(calls) >= 4 and log.loads() == {"one": 1})
    assert "the function for the items of 'a' failed, and is called again in" in caplog.text


def test_a_worker_that_can_start_no_thread_goes_on_and_is_no_member_if_it_can_start_none(hf, monkeypatch, caplog):
    log, failing = Log(), []

    class Limited(Job):
        def __init__(self, function, *args):
            if function.__name__ in failing:
                raise RuntimeError("can't start new thread")
            super().__init__(function, *args)

    monkeypatch.setattr(sync_worker, "Job", Limited)
    monkeypatch.setattr(loops, "FIRST_PAUSE_S", 0.01)
    partition = hf.partition("a", ["a", "b"], **QUICK)
    failing[:] = ["_coordinate"]
    with pytest.raises(RuntimeError, match="new thread"):
        partition.join().__enter__()
    assert not partition._group.size()
    failing[:] = ["_hold"]
    with Assignment(partition, log.serve(None, "one")):
        eventually(lambda: "could not go on, and tries again in 0.01 s: can't start new thread" in caplog.text)
        failing.clear()
        eventually(lambda: log.loads() == {"one": 2})


async def test_errors_at_the_beginning_put_a_worker_in_no_queue_of_others(api, server, here, raw, monkeypatch):
    monkeypatch.setattr(loops, "FIRST_PAUSE_S", 0.05)
    with FaultProxy(server.url) as proxy:
        async with api.client(proxy.url, retry_for=0) as far:
            log = Log()
            async with working(api, here, log, "one"):
                await eventually_async(lambda: log.loads() == {"one": 12})
                fault = proxy.lose_reply(script("group_watch"), times=8)
                async with working(api, far, log, "two"):
                    await eventually_async(lambda: fault.happened >= 6)
                    assert raw.keys("*|item*:tokens") == []
                    await eventually_async(lambda: log.loads() == {"one": 6, "two": 6})
    assert log.doubles == []


async def test_items_of_a_function_are_checked_when_the_worker_joins(api, here):
    async def nothing_async(_item, _lease):
        pytest.fail("it was called")

    serve = nothing_async if api is ASYNCIO else (lambda _item, _lease: pytest.fail("it was called"))
    with pytest.raises(ValueError, match="stands twice"):
        await here.partition("a", lambda: ["a", "a"]).run(serve)
    assert not await here.group("a").size()


async def test_the_end_of_the_client_ends_a_run(api, server, raw):
    client, log = api.client(server.url), Log()
    run = asyncio.create_task(settled(client.partition("a", ITEMS, **QUICK).run(log.serve(api, "one"))))
    await eventually_async(lambda: log.loads() == {"one": 12})
    await client.close(release=True)
    if api is not ASYNCIO:
        raw.publish("x", "y")
    with pytest.raises(ClientClosed):
        await asyncio.wait_for(run, 20)
    await eventually_async(lambda: log.now == {})


async def test_without_a_server_a_worker_has_all_items(api):
    log = Log()
    async with api.client("null:") as client, working(api, client, log, "one"):
        await eventually_async(lambda: log.loads() == {"one": 12})
        assert set((await settled(client.partition("a", ITEMS).owners())).values()) == {None}
    await eventually_async(lambda: log.now == {})


async def test_a_worker_goes_on_after_its_connection_broke(api, server, here):
    with FaultProxy(server.url) as proxy:
        async with api.client(proxy.url) as far:
            log = Log()
            async with working(api, far, log, "one"):
                await eventually_async(lambda: log.loads() == {"one": 12})
                proxy.cut()
                async with working(api, here, log, "two"):
                    await eventually_async(lambda: log.loads() == {"one": 6, "two": 6})
    assert log.doubles == []


@pytest.mark.parametrize("name", ["group_watch", "permit_acquire", "permit_release"])
async def test_a_reply_that_is_lost_changes_nothing(api, server, here, name):
    with FaultProxy(server.url) as proxy:
        async with api.client(proxy.url) as far:
            log = Log()
            fault = proxy.lose_reply(script(name))
            async with working(api, far, log, "one", items=["a", "b"]):
                await eventually_async(lambda: log.loads() == {"one": 2})
                async with working(api, here, log, "two", items=["a", "b"]):
                    await eventually_async(lambda: log.loads() == {"one": 1, "two": 1})
            assert fault.happened == 1
    assert log.doubles == []


def test_an_interrupt_ends_a_run_of_the_sync_api(hf):
    """As Ctrl-C does: the caller waits for the coordinator, and leaves the block."""
    log = Log()
    partition = hf.partition("a", ITEMS, **QUICK)
    serve = log.serve(None, "one")
    mine = Assignment(partition, serve)

    def run():
        with contextlib.suppress(KeyboardInterrupt), mine:
            eventually(lambda: log.loads() == {"one": 12})
            raise KeyboardInterrupt

    run()
    eventually(lambda: log.now == {})
    assert not any(partition.owners().values())
