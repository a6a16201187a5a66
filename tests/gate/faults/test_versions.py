"""Processes of an earlier version and of this version share names: exclusion, order and fences hold across both."""

from __future__ import annotations

from itertools import pairwise

import pytest

from handfast.embedded import PrivateServer
from tests._support.helpers import BOUND_S, eventually
from tests._support.versions import ROOT, Peer, source_of

EARLIER = "e98d789dbbb0ff1d059a6cba8b74d7453947f3da"
"""The oldest commit whose clients may share names with clients of this commit, as in the changelog."""

RESULT = "(lambda run: (run.done, run.result))(done(client.once('{name}', keep=60).acquire()))"


@pytest.fixture(scope="module")
def earlier(tmp_path_factory):
    """Return the folder of the earlier version's source."""
    return source_of(EARLIER, tmp_path_factory.mktemp("earlier")) or pytest.skip("this clone lacks the history")


@pytest.fixture(scope="module")
def peers(earlier):
    """Return a process for each version and API, on a server of their own."""
    with PrivateServer() as server:
        sources = {"earlier": earlier, "this": str(ROOT / "src")}
        found = {
            (version, api): Peer(server.url, api, source)
            for version, source in sources.items()
            for api in ("sync", "asyncio")
        }
        yield found
        for peer in found.values():
            peer.close()


@pytest.fixture(params=["sync", "asyncio"])
def api(request):
    return request.param


@pytest.fixture(params=[("earlier", "this"), ("this", "earlier")], ids="-".join)
def pair(request, peers, api):
    """Two processes of different versions, in both orders."""
    return [peers[version, api] for version in request.param]


@pytest.fixture
def name(request):
    return request.node.name.partition("[")[2].rstrip("]") + request.node.name.partition("[")[0]


def queued(pair, made, makes):
    """Let both processes request an object in turn, the second process first; return the futures of the fences."""
    waits = []
    for place, expression in enumerate(makes):
        waits.append(pair[(place + 1) % 2].start(f"keep({place}, {expression})"))
        for peer in pair:
            eventually(lambda peer=peer, place=place: peer(f"done({made}.status()).waiting") == place + 1)
    return waits


def test_a_lock_is_handed_over_in_one_order_with_growing_fences(pair, name):
    first, second = pair
    lock = f"client.lock({name!r})"
    fences = [first(f"keep('a', {lock}.acquire())")]
    assert second(f"keep('b', {lock}.try_acquire())") is None
    waits = queued(pair, lock, [f"{lock}.acquire()"] * 4)
    shown = [peer(f"[(one.token, one.label, one.owner) for one in done({lock}.status()).waiters]") for peer in pair]
    assert shown[0] == shown[1]
    first("give('a')")
    for place, wait in enumerate(waits):
        fences.append(wait.result(BOUND_S))
        assert not [late for late in waits[place + 1 :] if late.done()]
        assert pair[(place + 1) % 2](f"give({place})") is True
    assert all(before < after for before, after in pairwise(fences))


@pytest.mark.parametrize("word", ["ttl", "ahead", "wanted", "hold"])
def test_a_word_that_was_added_since_is_passed_over_by_the_earlier_version(peers, api, name, word):
    """In a status, and in the status that an AcquireTimeout has."""
    this, earlier, lock = peers["this", api], peers["earlier", api], f"client.lock({name!r})"
    if word == "hold":
        this(f"done(client.hold({name!r}, 60, reason='a test')) and None")
    else:
        head_start = 5 if word == "ahead" else 0
        this(f"keep('a', client.lock({name!r}, ttl={60 if word == 'ttl' else 30}).acquire(head_start={head_start}))")
    if word == "wanted":
        wait = this.start(f"keep('b', {lock}.preempt(grace=60))")
        eventually(lambda: this("bool(kept['a'].wanted)"))
    assert earlier(f"done({lock}.status()).holding") == 1
    with pytest.raises(RuntimeError, match="AcquireTimeout"):
        earlier(f"done({lock}.acquire(timeout=0.001))")
    if word == "hold":
        assert this(f"done(client.unhold({name!r}))") is True
    else:
        this("give('a')")
    if word == "wanted":
        assert wait.result(BOUND_S)
        this("give('b')")


def test_a_holder_of_the_earlier_version_is_preempted_after_the_grace_and_has_its_turn_later(peers, api, name):
    """It does not know that it is asked. The field ``over``, which the request leaves, says nothing to it."""
    this, earlier, lock = peers["this", api], peers["earlier", api], f"client.lock({name!r})"
    fences = [earlier(f"keep('a', {lock}.acquire())"), this(f"keep('b', {lock}.preempt(grace=0.05))")]
    eventually(lambda: earlier("kept['a'].lost"))
    assert this(f"bool(bare.hget('{{hf:lock:{name}}}:state', 'over'))")
    assert earlier(f"keep('c', {lock}.try_acquire())") is None
    wait = earlier.start(f"keep('c', {lock}.acquire())")
    eventually(lambda: this(f"done({lock}.status()).waiting") == 1)
    assert this("give('b')") is True
    fences += [wait.result(BOUND_S)]
    assert this(f"keep('d', {lock}.try_acquire())") is None
    assert earlier("give('c')") is True
    fences += [this(f"keep('d', {lock}.acquire())")]
    assert this("give('d')") is True
    assert all(before < after for before, after in pairwise(fences))


def test_permits_of_a_semaphore_are_counted_together(pair, name):
    first, second = pair
    semaphore = f"client.semaphore({name!r}, 3)"
    first(f"keep('a', {semaphore}.acquire(permits=2))")
    second(f"keep('b', {semaphore}.acquire())")
    assert [peer(f"keep('c', {semaphore}.try_acquire())") for peer in pair] == [None, None]
    waits = queued(pair, semaphore, [f"{semaphore}.acquire(permits=2)", f"{semaphore}.acquire()"])
    second("give('b')")
    assert not [wait for wait in waits if wait.done()]
    first("give('a')")
    assert waits[0].result(BOUND_S) < waits[1].result(BOUND_S)
    assert [peer(f"done({semaphore}.status()).free") for peer in pair] == [0, 0]
    assert (second("give(0)"), first("give(1)")) == (True, True)


def test_readers_and_writers_of_both_exclude_each_other(pair, name):
    first, second = pair
    read, write = f"client.rwlock({name!r}).read().acquire()", f"client.rwlock({name!r}).write().acquire()"
    for peer in pair:
        peer(f"keep('a', {read})")
    waits = queued(pair, f"client.rwlock({name!r})", [write, read])
    first("give('a')")
    assert not waits[0].done()
    second("give('a')")
    waits[0].result(BOUND_S)
    assert not waits[1].done()
    second("give(0)")
    waits[1].result(BOUND_S)
    first("give(1)")


def test_names_of_lock_all_are_taken_from_both(pair, name):
    first, second = pair
    first(f"keep('a', client.lock({name + '2'!r}).acquire())")
    both = f"client.lock_all([{name + '1'!r}, {name + '2'!r}])"
    wait = second.start(f"keep('b', {both}.acquire())")
    eventually(lambda: first(f"done(client.lock({name + '2'!r}).status()).waiting"))
    first("give('a')")
    wait.result(BOUND_S)
    assert [first(f"keep('c', client.lock({name + end!r}).try_acquire())") for end in "12"] == [None, None]
    assert second("give('b')") is True


def test_a_token_moves_between_them_and_a_lease_is_taken_by_force(pair, name):
    first, second = pair
    lock = f"client.lock({name!r})"
    fence = first(f"keep('a', {lock}.acquire())")
    token = first("done(kept.pop('a').detach())")
    assert second(f"keep('b', {lock}.adopt({token!r}))") == fence
    assert first(f"done({lock}.force_release(reason='a test'))") == 1
    eventually(lambda: second("str(kept['b'].lost)") != "None")
    assert second("give('b')") is False


def test_of_holders_of_both_versions_one_loses_its_lease_and_the_others_go_on(peers, api, name):
    """The earlier version sends its own script, which takes all leases up to a fence; and it reads both in the status."""
    this, earlier, semaphore = peers["this", api], peers["earlier", api], f"client.semaphore({name!r}, 4)"
    fences = {}
    for key, peer in zip("abcd", (earlier, this, earlier, this), strict=True):
        fences[key] = peer(f"keep({key!r}, {semaphore}.acquire())")
    assert this(f"done({semaphore}.force_release(fence={fences['c']}, reason='a test'))") == 1
    eventually(lambda: earlier("kept['c'].lost"))
    assert not earlier("kept['a'].lost")
    assert not this("kept['b'].lost or kept['d'].lost")
    assert earlier("give('c')") is False
    assert earlier(f"done({semaphore}.status()).last.why") == "a test"
    assert earlier(f"done({semaphore}.force_release(up_to_fence={fences['b']}))") == 2
    eventually(lambda: this("kept['b'].lost"))
    assert not this("kept['d'].lost")
    assert [earlier("give('a')"), this("give('b')"), this("give('d')")] == [False, False, True]


def test_a_limiter_admits_both_under_one_rate_in_one_order(pair, name):
    first, second = pair
    few, slow = f"client.limiter({name!r}, '3/min')", f"client.limiter({name + '2'!r}, '1/50ms')"
    asked = [peer(f"done({few}.try_acquire()).admitted") for peer in (first, second, first, second, first)]
    assert asked == [True, True, True, False, False]
    assert [peer(f"done({few}.status()).rates[0].used") for peer in pair] == [3, 3]
    first(f"done({few}.reset())")
    second(f"done({few}.pause(60))")
    assert first(f"done({few}.try_acquire()).admitted") is False
    first(f"done({few}.resume())")
    assert second(f"done({few}.try_acquire()).admitted") is True
    order = []
    first(f"done({slow}.pause(60))")
    for place in range(4):
        wait = pair[(place + 1) % 2].start(f"done({slow}.acquire()).admitted")
        wait.add_done_callback(lambda _, place=place: order.append(place))
        eventually(lambda place=place: first(f"done({slow}.status()).waiting") == place + 1)
    second(f"done({slow}.resume())")
    eventually(lambda: len(order) == 4)
    assert order == [0, 1, 2, 3]


def test_what_is_done_once_is_done_by_one_of_them(pair, name):
    first, second = pair
    once = f"client.once({name!r}, keep=60)"
    first(f"keep('a', {once}.acquire())")
    waits = [peer.start(RESULT.format(name=name)) for peer in (second, first)]
    eventually(lambda: second(f"done({once}.status()).waiting") == 2)
    first("done(kept['a'].finish(['a', 41]))")
    first("give('a')")
    assert [wait.result(BOUND_S) for wait in waits] == [(True, ["a", 41])] * 2
    assert second(RESULT.format(name=name)) == (True, ["a", 41])
    assert second(f"done({once}.forget())") is True


def test_of_calls_that_follow_each_other_the_newest_runs(pair, name):
    first, second = pair
    debounce = f"client.debounce({name!r}, quiet=0.2)"
    calls, came = [], f"bare.hget('{{hf:debounce:{name}}}:burst', 'came')"
    for peer in (first, second, first, second):
        before = peer(came)
        calls.append(peer.start(f"done({debounce}.wait())"))
        eventually(lambda before=before: first(came) != before)
    assert [call.result(BOUND_S) for call in calls] == [False, False, False, True]


def worked(peers, make, inside, name, times):
    """Let processes of both versions and APIs hold two names at once. Return the results for each name, with fences."""
    makers = ", ".join(f"(lambda: {make.format(name + end)}, {inside}('{name + end}:n'))" for end in "12")
    works = [peer.start(f"work([{makers}], {times})") for peer in peers.values()]
    of_names = zip(*(work.result(BOUND_S) for work in works), strict=True)
    return [sorted(one for seen in of_name for one in seen) for of_name in of_names]


def test_under_load_they_exclude_each_other_and_fences_grow(peers, name):
    """Every count is made once, and in the order of fences."""
    for seen in worked(peers, "client.lock('{}')", "counted", name, 10):
        assert [number for number, _ in seen] == [*range(120)]
        assert all(before < after for (_, before), (_, after) in pairwise(seen))


def test_under_load_no_more_hold_a_semaphore_than_it_has_permits(peers, name):
    for seen in worked(peers, "client.semaphore('{}', 2)", "crowded", name, 10):
        assert (len(seen), max(many for many, _ in seen)) == (120, 2)
