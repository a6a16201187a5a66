"""The page: what it sends, whom it lets read, and what an act needs."""

from __future__ import annotations

import base64
import contextlib
import logging
import re
import threading
from importlib.resources import files

import httpx
import pytest
from click.testing import CliRunner
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse
from starlette.routing import Mount

from handfast import AsyncHandfast, Handfast, LeaseLost
from handfast._watch import live, results
from handfast.cli.page import command, with_token
from handfast.events import Operated
from handfast.page import ACTS, Visitor, app, serving, watching
from tests._support.helpers import eventually, eventually_async

HERE = "http://localhost"

ODD = "<script>alert('name')</script>\x1b[31m\u202e"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Look at once again, and end when no one asks any more."""
    monkeypatch.setattr(watching, "EVERY_S", 0.01)
    monkeypatch.setattr(watching, "REST", 0)
    monkeypatch.setattr(watching, "AUDIT_EVERY_S", 0.0)
    monkeypatch.setattr(live, "SEARCH_EVERY_S", 0.0)
    monkeypatch.setattr(live, "SEARCH_REST", 0)
    monkeypatch.setattr(watching, "LINGER_S", 0.5)


NOTHING = {"rows": {}, "gone": [], "sum": {}, "all": True}
"""What a page knows before the first look has ended."""


class Browser:
    """A page in a browser."""

    def __init__(self, asgi, base=HERE, **headers):
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(asgi), base_url=base, headers=headers)
        self.origin = str(self.http.base_url.copy_with(path="")).rstrip("/")
        self.state = {}

    async def ask(self, **query):
        """Ask what has changed since the last answer."""
        known = {"run": self.state.get("run", ""), "after": self.state.get("number", 0)}
        got = await self.http.get("api/looks", params={**known, **query})
        assert got.status_code == 200, got.text
        self.state = NOTHING | got.json()
        return self.state

    async def until(self, is_it, **query):
        """Ask for everything until it is so."""

        async def is_so():
            return is_it(await self.ask(after=0, **query))

        await eventually_async(is_so)
        return self.state

    async def token(self):
        return (await self.http.get("api/me")).json()["token"]

    async def act(self, what, *, headers=(), **body):
        sent = {"origin": self.origin, "sec-fetch-site": "same-origin", "x-handfast-token": await self.token()}
        sent |= dict(headers)
        given = {name: value for name, value in sent.items() if value is not None}
        return await self.http.post(f"api/{what}", json={"reason": "hangs", **body}, headers=given)


@pytest.fixture
def browse(hf):
    """Return a function that opens the page."""
    return lambda client=hf, allow=ACTS, authorize=None, **headers: Browser(
        app(client, allow=allow, authorize=authorize), **headers
    )


def rows(state):
    return {(row["kind"], row["name"]): row for row in state["rows"].values()}


async def test_the_first_answer_has_everything_and_the_next_ones_what_has_changed(hf, other, browse):
    page = browse()
    assert (await page.ask())["all"]
    with hf.lock(ODD) as lease, other.semaphore("gpu", 3).acquire(permits=2):
        hf.limiter("mail", "5/min").acquire(cost=5)
        hf.hold("deploy", 3600, reason="DB migration")
        state = await page.until(lambda state: len(state["rows"]) == 4)
        assert state["all"]
        seen = rows(state)
        assert seen["lock", ODD]["fence"] == lease.fence
        assert seen["lock", ODD]["holding"] == 1
        assert (seen["semaphore", "gpu"]["limit"], seen["semaphore", "gpu"]["out"]) == (3, 2)
        assert seen["limiter", "mail"]["rates"][0][:3] == [60, 5, 5]
        assert seen["lock", "deploy"]["stop"].items() >= {"by": hf._driver.label, "why": "DB migration"}.items()
        assert 3500 < seen["lock", "deploy"]["stop"]["until"] - state["now"] < 3601
        assert {one["level"] for one in state["findings"]} >= {"fine"}
        assert [one["says"][0] for one in state["problems"] if one["where"] == ["lock", "deploy"]] == [
            {"name": "deploy"}
        ]
        assert state["verdict"]["text"].startswith("Nothing is ")
        number = next(number for number, row in state["rows"].items() if row["name"] == "gpu")
        with other.lock("new"):
            while not (changed := await page.ask())["rows"]:
                assert not changed["all"]
                assert "findings" not in changed
        assert [row["name"] for row in changed["rows"].values()] == ["new"]
    while not (changed := await page.ask())["gone"] and number not in changed["rows"]:
        pass
    if number in changed["rows"]:
        assert changed["rows"][number]["holding"] is None


async def test_a_page_that_knows_another_process_gets_everything(hf, browse):
    page = browse()
    with hf.lock("a"):
        state = await page.until(lambda state: state["rows"])
        assert not (await page.ask())["rows"]
        for strange in ({"run": "1234"}, {"after": state["number"] + 10**6}, {"after": "x"}):
            again = await page.ask(**strange)
            assert again["all"]
            assert len(again["rows"]) == 1


async def test_a_name_that_is_shown_has_its_holders_and_waiters(hf, other, browse):
    page = browse()
    lock = hf.lock("a")
    with lock as lease:
        thread = threading.Thread(target=lambda: other.lock("a").acquire().release())
        thread.start()
        eventually(lambda: lock.status().waiting == 1)
        state = await page.until(
            lambda state: state.get("details") and state["details"]["waiters"], kind="lock", name="a"
        )
        (holder,), (waiter,) = state["details"]["holders"], state["details"]["waiters"]
        assert (holder["fence"], holder["label"]) == (lease.fence, hf._driver.label)
        assert waiter["label"] == other._driver.label
        assert rows(state)["lock", "a"]["queue"] == [[waiter["since"], 0]]
        again = await page.ask(kind="lock", name="a", shown=state["details"]["shown"])
        assert "details" not in again
        assert (await page.ask(kind="lock", name="unknown"))["details"] is None
    thread.join()


async def test_a_name_that_is_new_is_found_without_a_search(hf, browse, monkeypatch):
    monkeypatch.setattr(live, "SEARCH_EVERY_S", 3600.0)
    page = browse()
    await page.until(lambda state: state["sum"].get("whole"))
    with hf.lock("new"):
        state = await page.until(lambda state: state.get("details"), kind="lock", name="new")
        assert len(state["details"]["holders"]) == 1


async def test_results_that_failed_or_did_not_end_are_shown(hf, other, browse, raw):
    once = hf.once("invoice", keep_failure=3600)
    once.keyed("1").run(lambda: "a secret result")
    with pytest.raises(ZeroDivisionError):
        once.keyed("2").run(lambda: 1 / 0)
    run = other.once("payout", rerun=False).keyed("3").acquire()
    page = browse()
    state = await page.until(lambda state: len(state.get("results", {}).get("rows", ())) == 3)
    states = {row["key"]: row["state"] for row in state["results"]["rows"]}
    assert states == {"invoice|1": "done", "invoice|2": "failed", "payout|3": "running"}
    assert state["results"]["rows"][0]["why"] == "ZeroDivisionError: division by zero"
    assert state["results"]["counts"] == {"invoice": {"failed": 1, "done": 1}, "payout": {"running": 1}}
    assert "secret" not in str(state)
    raw.delete("{hf:once:payout|3}:state", "{hf:once:payout|3}:tokens")
    state = await page.until(lambda state: state["results"]["counts"]["payout"] == {"left": 1})
    assert {one["id"] for one in state["problems"]} >= {"left payout", "failed invoice"}
    with contextlib.suppress(LeaseLost):
        run.release()


async def test_a_run_that_has_ended_is_never_shown_as_left(hf, browse, monkeypatch):
    once = hf.once("payout", rerun=False)
    for number in range(30):
        once.keyed(f"done-{number}").run(lambda: 1)
    run = once.keyed("a").acquire()
    page = browse()
    keys = lambda state: {row["key"]: row["state"] for row in state.get("results", {}).get("rows", ())}  # noqa: E731
    await page.until(lambda state: len(keys(state)) == 31)
    monkeypatch.setattr(results, "PIECE_S", -1.0)  # its turn never comes
    assert keys(await page.ask(after=0))["payout|a"] == "running"
    run.finish("paid")
    seen = set()
    await page.until(lambda state: seen.add(keys(state)["payout|a"]) or "done" in seen)
    assert seen <= {"running", "done"}


async def shown(page, key):
    """Return the version of a record, once the page shows it."""
    find = lambda state: [row for row in state.get("results", {}).get("rows", ()) if row["key"] == key]  # noqa: E731
    (row,) = find(await page.until(find))
    return row["version"]


async def test_a_record_that_is_newer_than_the_one_shown_is_not_forgotten(hf, browse, monkeypatch):
    key, other = hf.once("charge", rerun=False).keyed("1"), hf.once("charge").keyed("2")
    run = key.acquire()
    page = browse()
    begun = await shown(page, "charge|1")
    run.finish("first")
    late = await page.act("forget", kind="once", name="charge|1", version=begun)
    assert (late.status_code, "nothing was done: " in late.text, "it is now done" in late.text) == (422, True, True)
    done = await page.until(lambda state: [r for r in state["results"]["rows"] if r["state"] == "done"])
    version = done["results"]["rows"][0]["version"]
    key.forget()
    key.run(lambda: "second")
    late = await page.act("forget", kind="once", name="charge|1", version=version)
    assert (late.status_code, key.status().state) == (422, "done")
    other.run(lambda: "another key")
    late = await page.act("forget", kind="once", name="charge|2", version=version)
    assert (late.status_code, other.status().state) == (422, "done")
    for none in (None, "", "done", 7):
        unknown = await page.act("forget", kind="once", name="charge|1", version=none)
        assert (unknown.status_code, "load the page again" in unknown.text) == (422, True)
    assert not hf.audit()


async def test_a_latch_is_forgotten_as_it_is_shown(hf, browse):
    latch = hf.latch("import", 3)
    latch.done("a")
    page = browse()
    state = await page.until(lambda state: state.get("details"), kind="latch", name="import")
    version = state["details"]["version"]
    latch.done("b")
    late = await page.act("forget", kind="latch", name="import", version=version)
    assert (late.status_code, "it is now 2 done" in late.text, latch.status().number) == (422, True, 2)
    assert (await page.act("forget", kind="latch", name="import", version="abc")).status_code == 422
    state = await page.until(lambda state: state["details"]["version"] != version, kind="latch", name="import")
    done = await page.act("forget", kind="latch", name="import", version=state["details"]["version"])
    assert (done.status_code, latch.status().number) == (200, 0)
    assert [(entry.what, entry.kind) for entry in hf.audit()] == [("forget", "latch")]


async def test_a_key_with_a_bar_is_forgotten_itself(hf, browse, raw):
    once = hf.once("invoice")
    once.keyed("x|y").run(lambda: 1)
    raw.delete("{hf:once:invoice|x%7Cy}:state", "{hf:once:invoice|x%7Cy}:tokens")
    page = browse()
    version = await shown(page, "invoice|x\\|y")
    other = await page.act("forget", kind="once", name="invoice|x|y", version=version)
    assert (other.status_code, "it is now not recorded" in other.text) == (422, True)
    odd = await page.act("forget", kind="once", name="invoice||x", version=version)
    assert (odd.status_code, "is not the name of a once" in odd.text) == (422, True)
    assert once.keyed("x|y").status().state == "done"
    assert (await page.act("forget", kind="once", name="invoice|x\\|y", version=version)).status_code == 200
    assert once.keyed("x|y").status().state == "idle"
    assert [entry.name for entry in hf.audit()] == ["invoice|x\\|y"]


async def test_values_of_others_at_its_keys_are_left_out(hf, browse, raw):
    hf.once("invoice").keyed("1").run(lambda: 1)
    raw.set("{hf:once:zz}:result", "hello", px=60_000)
    raw.lpush("{hf:once:list}:result", "hello")
    raw.expire("{hf:once:list}:result", 60)
    page = browse()
    state = await page.until(lambda state: state.get("results", {}).get("rows"))
    assert [row["key"] for row in state["results"]["rows"]] == ["invoice|1"]
    assert state["results"]["refused"] == ""
    number = state["number"]
    assert (await page.until(lambda state: state["number"] > number + 3))["outage"] is None


async def test_a_name_that_is_none_disturbs_no_one(browse):
    page = browse()
    await page.until(lambda state: state["number"])
    for name in ("x" * 16_385, "", "\ud800".encode(errors="surrogatepass")):
        got = await page.http.get("api/looks", params={"kind": "lock", "name": name})
        assert got.status_code == 200
    for word in ("after", "shown"):
        assert (await page.http.get("api/looks", params={word: "9" * 4301})).status_code == 200
    number = page.state["number"]
    assert (await page.until(lambda state: state["number"] > number + 3))["outage"] is None


@pytest.mark.parametrize(
    ("act", "header"),
    [
        ("release", {"origin": "http://evil.example"}),
        ("release", {"origin": None}),
        ("release", {"origin": "http://["}),
        ("release", {"origin": "null"}),
        ("release", {"sec-fetch-site": "same-site"}),
        ("release", {"x-handfast-token": None}),
        ("release", {"x-handfast-token": "0" * 64}),
        ("release", {"cookie": "handfast_page=guessed"}),
    ],
)
async def test_an_act_from_elsewhere_is_refused(hf, browse, act, header):
    with hf.lock("a") as lease:
        done = await browse().act(act, kind="lock", name="a", fence=lease.fence, headers=header)
        assert done.status_code == 403, done.text
        assert not lease.lost


async def test_an_act_needs_permission(hf, browse):
    with hf.lock("a") as lease:
        body = {"kind": "lock", "name": "a", "fence": lease.fence}
        assert (await browse(allow=["hold"]).act("release", **body)).status_code == 403
        assert (await browse(allow=()).act("release", **body)).status_code == 403
        careful = browse(authorize=lambda _: Visitor("ann", {"pause"}))
        refused = await careful.act("release", **body)
        assert (refused.status_code, refused.json()["error"]) == (403, "ann may not release.")
        assert (await careful.http.get("api/me")).json()["may"] == ["pause"]
        assert not lease.lost
    with pytest.raises(ValueError, match="allow must be some of release, hold, pause, forget, not 'all'"):
        browse(allow=["all"])


@pytest.mark.parametrize(
    "body",
    [
        {"reason": "   "},
        {"reason": None},
        {"reason": 5},
        {"reason": "x" * 1001},
        {"fence": 0},
        {"fence": None},
        {"fence": True},
        {"fence": 1.5},
        {"fence": 2**60},
        {"kind": "limiter"},
        {"kind": "x"},
        {"name": ""},
        {"name": 3},
        {"name": "x" * 20_000},
    ],
)
async def test_bad_input_is_refused(hf, browse, body):
    with hf.lock("a") as lease:
        done = await browse().act("release", **{"kind": "lock", "name": "a", "fence": lease.fence, **body})
        assert done.status_code == 422, done.text
        assert done.json()["error"]
        assert not lease.lost


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"kind": ["a"]}', b"[" * 9000, b"\xff"])
async def test_a_body_that_is_no_object_is_refused(browse, content):
    page = browse()
    headers = {"origin": HERE, "x-handfast-token": await page.token()}
    assert (await page.http.post("api/hold", content=content, headers=headers)).status_code == 422


async def test_a_release_takes_what_was_shown_and_no_more(hf, other, browse):
    first = hf.lock("a").acquire()
    shown = first.fence
    first.release()
    with contextlib.suppress(LeaseLost), other.lock("a") as second:
        page = browse()
        done = await page.act("release", kind="lock", name="a", fence=shown)
        assert (done.status_code, done.json()["error"]) == (409, "Nothing was taken: who was shown has released it.")
        assert not second.lost
        assert not hf.audit()
        done = await page.act("release", kind="lock", name="a", fence=second.fence)
        assert done.json() == {"done": "a is released: 1 lease taken"}
        eventually(lambda: second.lost)
        (entry,) = hf.audit()
        assert (entry.what, entry.kind, entry.name, entry.why, entry.count) == ("release", "lock", "a", "hangs", 1)
        assert entry.fence == second.fence
        state = await page.until(lambda state: state.get("audit", {}).get("entries"))
        assert state["audit"]["entries"][0]["what"] == "release"


@pytest.mark.parametrize("kind", ["semaphore", "rwlock", "election", "group", "once"])
async def test_a_release_is_for_every_kind_with_leases(hf, other, browse, kind):
    makes = {
        "semaphore": lambda: other.semaphore("a", 2).acquire(),
        "rwlock": lambda: other.rwlock("a").read().acquire(),
        "election": lambda: other.election("a").acquire(),
        "group": lambda: other.group("a").join(),
        "once": lambda: other.once("a").keyed("1").acquire(),
    }
    name = "a|1" if kind == "once" else "a"
    with hf.lock("a") as beside:
        lease = makes[kind]()
        page = browse()
        state = await page.until(lambda state: (kind, name) in rows(state))
        done = await page.act("release", kind=kind, name=name, fence=rows(state)[kind, name]["fence"])
        assert done.json() == {"done": f"{name} is released: 1 lease taken"}, done.text
        eventually(lambda: lease.lost)
        assert not beside.lost


async def test_one_holder_of_several_is_released(hf, browse):
    with contextlib.suppress(LeaseLost):
        leases = [hf.semaphore("gpu", 4).acquire() for _ in range(4)]
        page = browse()
        state = await page.until(lambda state: state.get("details"), kind="semaphore", name="gpu")
        fences = [holder["fence"] for holder in state["details"]["holders"]]
        assert fences == [lease.fence for lease in leases]
        done = await page.act("release", kind="semaphore", name="gpu", fence=leases[1].fence, single=True)
        assert done.json() == {"done": "gpu is released: 1 lease taken"}
        eventually(lambda: leases[1].lost)
        assert [lease.lost for lease in leases] == [False, True, False, False]
        (entry,) = hf.audit()
        assert (entry.fence, entry.single, entry.count) == (leases[1].fence, True, 1)
        again = await page.act("release", kind="semaphore", name="gpu", fence=leases[1].fence, single=True)
        assert again.status_code == 409
        for lease in leases:
            lease.release()


async def test_hold_unhold_pause_resume_and_forget(hf, browse):
    page = browse()
    assert (await page.act("hold", kind="lock", name="a", seconds=60)).json() == {"done": "a is on hold"}
    assert hf.lock("a").status().hold.reason == "hangs"
    assert (await page.act("unhold", kind="lock", name="a")).status_code == 200
    assert hf.lock("a").status().hold is None
    assert (await page.act("unhold", kind="lock", name="a")).status_code == 409
    limiter = hf.limiter("login", "5/min").keyed("ann")
    assert (await page.act("pause", kind="limiter", name="login|ann", seconds=60)).status_code == 200
    assert limiter.status().paused_for > 50
    assert (await page.act("resume", kind="limiter", name="login|ann")).status_code == 200
    assert not limiter.status().paused_for
    once = hf.once("invoice").keyed("1")
    once.run(lambda: 1)
    version = await shown(page, "invoice|1")
    assert (await page.act("forget", kind="once", name="invoice|1", version=version)).status_code == 200
    assert once.status().state == "idle"
    assert (await page.act("forget", kind="once", name="invoice|1", version=version)).status_code == 422
    assert [entry.what for entry in hf.audit()] == ["hold", "unhold", "pause", "resume", "forget"]
    for wrong in (0, -1, "60", None, True, 10**9):
        assert (await page.act("hold", kind="lock", name="a", seconds=wrong)).status_code == 422


async def test_a_hold_or_a_pause_that_was_not_shown_goes_on(hf, browse):
    limiter, lock = hf.limiter("mail", "5/min"), hf.lock("a")
    page = browse()
    hf.hold("a", 60, reason="first")
    limiter.pause(60, reason="first")
    both = [("lock", "a"), ("limiter", "mail")]
    state = rows(await page.until(lambda state: all(key in rows(state) for key in both)))
    versions = state[both[0]]["stop"]["id"], state[both[1]]["stop"]["id"]
    assert state[both[1]]["stop"]["why"] == "first"
    hf.hold("a", 70, reason="second")
    limiter.pause(70, reason="second")
    for what, (kind, name), version in zip(("unhold", "resume"), both, versions, strict=True):
        late = await page.act(what, kind=kind, name=name, version=version)
        assert (late.status_code, "nothing was done: it is not the " in late.text) == (422, True)
        assert (await page.act(what, kind=kind, name=name, version="x")).status_code == 422
    assert lock.status().hold.reason == limiter.status().last.why == "second"
    blind = await page.act("hold", kind="lock", name="a", seconds=5, version="0")  # shown without a hold
    assert (blind.status_code, "it is not what was shown; it is now on hold" in blind.text) == (422, True)
    longer = await page.act("pause", kind="limiter", name="mail", seconds=5)
    assert (longer.status_code, "nothing was done: it is paused for" in longer.text) == (422, True)
    assert not hf.audit()
    state = await page.until(lambda state: rows(state)[both[0]]["stop"]["id"] != versions[0])
    state = rows(await page.until(lambda state: rows(state)[both[1]]["stop"]["id"] != versions[1]))
    versions = state[both[0]]["stop"]["id"], state[both[1]]["stop"]["id"]
    for what, (kind, name), version in zip(("unhold", "resume"), both, versions, strict=True):
        assert (await page.act(what, kind=kind, name=name, version=version)).status_code == 200
        assert (await page.act(what, kind=kind, name=name, version=version)).status_code == 409
    assert (lock.status().hold, limiter.status().paused_for) == (None, 0)
    assert [entry.what for entry in hf.audit()] == ["unhold", "resume"]


@pytest.mark.parametrize("act", ["unhold", "resume", "hold"])
async def test_what_is_set_just_before_an_act_goes_on(hf, browse, monkeypatch, act):
    """No look at the name comes between: the script compares."""
    kind, name = ("limiter", "mail") if act == "resume" else ("lock", "a")

    run = type(hf._driver).run

    def act_late(driver, steps, *named):
        if named == (name,) and not changed:
            changed.append(True)
            set_it(70, "second")
        return run(driver, steps, *named)

    def set_it(seconds, reason):
        if act == "resume":
            hf.limiter(name, "5/min").pause(seconds, reason=reason)
        else:
            hf.hold(name, seconds, reason=reason)

    page, changed = browse(), []
    if act == "hold":
        version = "0"
    else:
        set_it(60, "first")
        state = rows(await page.until(lambda state: (kind, name) in rows(state)))[kind, name]
        version = state["stop"]["id"]
    monkeypatch.setattr(type(hf._driver), "run", act_late)
    seconds = {"seconds": 60} if act == "hold" else {}
    late = await page.act(act, kind=kind, name=name, version=version, **seconds)
    assert changed
    assert (late.status_code, "nothing was done: it is not " in late.text) == (422, True)
    found = hf.limiter(name, "5/min").status().last.why if act == "resume" else hf.lock(name).status().hold.reason
    assert (found, hf.audit()) == ("second", ())


async def test_listeners_of_the_client_hear_the_acts_of_every_visitor(hf, browse):
    heard = []
    stop = hf.on(heard.append, Operated)
    page = browse(authorize=lambda _: Visitor("ann"))
    await page.act("hold", kind="lock", name="a", seconds=60)
    await page.act("pause", kind="limiter", name="mail", seconds=60)
    stop()
    await page.act("unhold", kind="lock", name="a")
    assert [(one.what, one.name, one.by, one.duration) for one in heard] == [
        ("hold", "a", "ann", 60.0),
        ("pause", "mail", "ann", 60.0),
    ]


async def test_an_act_that_the_audit_would_refuse_is_not_done(hf, browse):
    hf.once("invoice").keyed("1").run(lambda: 1)
    page, long = browse(), "x" * 1001
    for what, body in {
        "pause": {"kind": "limiter", "name": "mail", "seconds": 60},
        "resume": {"kind": "limiter", "name": "mail"},
        "forget": {"kind": "once", "name": "invoice|1", "version": "0"},
        "hold": {"kind": "lock", "name": "a", "seconds": 60},
    }.items():
        assert (await page.act(what, reason=long, **body)).status_code == 422
    assert not hf.limiter("mail", "1/s").status().paused_for
    assert hf.once("invoice").keyed("1").status().state == "done"
    assert hf.lock("a").status().hold is None


async def test_the_permits_of_a_semaphore_on_hold_are_those_of_its_holders(hf, browse):
    with hf.semaphore("gpu", 4).acquire(permits=2):
        hf.hold("gpu", 60, kind="semaphore", reason="migration")
        state = await browse().until(lambda state: ("semaphore", "gpu") in rows(state))
        assert (rows(state)["semaphore", "gpu"]["out"], rows(state)["semaphore", "gpu"]["limit"]) == (2, 4)


async def test_a_limiter_with_a_bar_in_its_name_is_paused_itself(hf, browse):
    limiter = hf.limiter("a|b", "5/min")
    limiter.acquire()
    page = browse()
    await page.until(lambda state: ("limiter", "a\\|b") in rows(state))
    await page.act("pause", kind="limiter", name="a\\|b", seconds=60)
    assert limiter.status().paused_for > 50
    assert hf.limiter("a", "5/min").keyed("b").status().paused_for == 0


async def test_the_audit_has_the_visitor(hf, other, browse):
    async def authorize(request):
        return Visitor(request.headers["x-user"]) if "x-user" in request.headers else None

    page = browse(authorize=authorize, **{"x-user": "ann@page"})
    with contextlib.suppress(LeaseLost), other.lock("a") as lease:
        await page.act("release", kind="lock", name="a", fence=lease.fence)
        eventually(lambda: lease.lost)
    assert [entry.by for entry in hf.audit()] == ["ann@page"]
    assert hf.lock("a").status().last.by == "ann@page"
    assert (await page.http.get("api/me")).json()["label"] == "ann@page"
    stranger = browse(authorize=authorize)
    for path in ("", "page.css", "api/me", "api/looks", "nothing"):
        assert (await stranger.http.get(path)).status_code == 403
    assert (await stranger.http.post("api/release")).status_code == 403
    login = browse(authorize=lambda _: RedirectResponse("/login"))
    assert (await login.http.get("")).headers["location"] == "/login"


@pytest.mark.parametrize("origin", ["https://locks.example.com", "http://localhost:8443"])
async def test_an_act_whose_host_and_origin_differ_is_refused_with_both(hf, browse, origin):
    refused = await browse().act("hold", kind="lock", name="a", seconds=60, headers={"origin": origin})
    assert refused.status_code == 403
    assert f"its Origin is {origin}, and its Host is localhost" in refused.json()["error"]
    assert "has to pass Host on" in refused.json()["error"]
    assert hf.lock("a").status().hold is None


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8631", "10.0.0.1", "localhost.evil.example", ""])
async def test_another_host_is_refused(browse, host):
    for path in ("", "main.js", "api/looks", "api/me"):
        got = await browse().http.get(path, headers={"host": host})
        assert got.status_code == 421, got.text


@pytest.mark.parametrize("host", ["localhost", "localhost:8631", "127.0.0.1:8631", "[::1]:8631"])
async def test_this_machine_is_served_but_not_through_a_proxy(browse, host):
    page = browse()
    assert (await page.http.get("", headers={"host": host})).status_code == 200
    assert (await page.http.get("", headers={"host": host, "x-forwarded-for": "10.0.0.1"})).status_code == 421
    visitor = browse(authorize=lambda _: Visitor("ann"))
    assert (await visitor.http.get("", headers={"host": "ops.example"})).status_code == 200


async def test_a_request_from_another_machine_is_refused_whatever_its_host_says(hf):
    asgi = app(hf, allow=ACTS)
    for peer in (("203.0.113.9", 1), ("fe80::1", 1), None):
        transport = httpx.ASGITransport(asgi, client=peer)
        async with httpx.AsyncClient(transport=transport, base_url=HERE) as http:
            assert (await http.get("/api/looks")).status_code == 421


async def test_only_a_visitor_is_admitted(browse):
    for refused in (False, None, True, "ann", {"label": "ann"}):
        page = browse(authorize=lambda _, refused=refused: refused)
        for path in ("", "api/looks", "api/me"):
            assert (await page.http.get(path)).status_code == 403

    def raises(_):
        raise HTTPException(401, "log in", {"www-authenticate": "Bearer"})

    got = await browse(authorize=raises).http.get("")
    assert (got.status_code, got.headers["www-authenticate"]) == (401, "Bearer")
    assert "content-security-policy" in got.headers
    for label in ("", "x" * 201, 5):
        with pytest.raises((ValueError, TypeError), match="label"):
            await browse(authorize=lambda _, label=label: Visitor(label)).http.get("")


async def test_every_answer_has_the_headers_that_protect_it(browse):
    page = browse()
    paths = ["", "page.css", "main.js", "icon.svg", "api/me", "api/looks", "nothing", "api/release"]
    for path in paths:
        for host in ("localhost", "evil.example"):
            got = await page.http.get(path, headers={"host": host})
            policy = got.headers["content-security-policy"]
            assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
            assert "unsafe" not in policy
            assert got.headers["x-content-type-options"] == "nosniff"
            assert got.headers["cache-control"] == "no-store"
            assert got.headers["referrer-policy"] == "no-referrer"
    page.http.cookies.clear()
    cookie = (await page.http.get("api/me")).headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "set-cookie" not in (await page.http.get("api/me")).headers
    page.http.cookies.clear()
    assert "Secure" in (await page.http.get("https://localhost/api/me")).headers["set-cookie"]


async def test_the_files_have_no_inline_code_and_ask_no_other_host(browse):
    page = browse()
    html = (await page.http.get("")).text
    assert not re.findall(r"\son\w+=|style=|<script>|<style", html)
    names = {*re.findall(r'(?:src|href)="([\w.]+)"', html)}
    for name in sorted(file.name for file in files("handfast.page").joinpath("static").iterdir()):
        text = (await page.http.get(name if name != "page.html" else "")).text
        names |= {*re.findall(r'from "\./([\w.]+)"', text)}
        assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)", text), name
        assert not re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text), name
    for name in names:
        got = await page.http.get(name)
        assert got.status_code == 200, name
        assert got.headers["content-type"].partition(";")[0] in serving.TYPES.values()


async def test_it_can_be_mounted_under_any_path(hf):
    outer = Starlette(routes=[Mount("/ops/locks", app(hf, allow=ACTS))])
    page = Browser(outer, base=f"{HERE}/ops/locks/")
    with hf.lock("a") as lease:
        assert "<title>Handfast</title>" in (await page.http.get("")).text
        await page.until(lambda state: state["rows"])
        me = await page.http.get("api/me")
        assert "Path=/ops/locks/" in me.headers["set-cookie"]
        assert (await page.act("release", kind="lock", name="a", fence=lease.fence)).status_code == 200
        assert (await page.http.get(f"{HERE}/ops/locks")).status_code == 307
        eventually(lambda: lease.lost)
        with pytest.raises(LeaseLost):
            lease.check()
        lease.release()


async def test_a_server_that_is_gone_is_reported():
    with Handfast("redis://127.0.0.1:1/0", retry_for=0) as client:
        page = Browser(app(client, allow=ACTS))
        state = await page.until(lambda state: state["outage"])
        assert "refused" in state["outage"]["error"]
        assert state["outage"]["since"] <= state["outage"]["now"]
        done = await page.act("hold", kind="lock", name="a", seconds=60)
        assert (done.status_code, "Not known to be done" in done.text) == (503, True)


async def test_a_look_that_hangs_counts_as_an_outage(hf, browse, monkeypatch):
    monkeypatch.setattr(watching, "SLOW_S", 0.3)
    page = browse()
    await page.until(lambda state: state["sum"].get("whole"))
    assert page.state["outage"] is None
    go_on = threading.Event()
    monkeypatch.setattr(watching.Live, "step", lambda *_: go_on.wait())
    state = await page.until(lambda state: state["outage"])
    assert "hangs" in state["outage"]["error"]
    go_on.set()


async def test_an_error_of_ours_is_shown_and_logged(hf, browse, monkeypatch, caplog):
    def fail(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(watching.Live, "step", fail)
    with caplog.at_level(logging.ERROR):
        state = await browse().until(lambda state: state["outage"])
        await eventually_async(lambda: caplog.records)
    assert "ZeroDivisionError" in state["outage"]["error"]
    assert caplog.records[0].name == "handfast.page"


async def test_it_looks_while_it_is_open_and_not_longer(hf, browse, monkeypatch):
    def looks():
        return [thread for thread in threading.enumerate() if thread.name == "handfast-page"]

    monkeypatch.setattr(watching, "LINGER_S", 0.0)
    eventually(lambda: not looks())
    page = browse()
    assert not looks()
    monkeypatch.setattr(watching, "LINGER_S", 60.0)
    await page.until(lambda state: state["number"])
    assert len(looks()) == 1
    monkeypatch.setattr(watching, "LINGER_S", 0.0)
    eventually(lambda: not looks())


async def test_records_and_an_audit_that_may_not_be_read_say_so(hf, browse, monkeypatch):
    from handfast import ServerRefused

    def refuse(*_, **__):
        raise ServerRefused("NOPERM no right", name="", reply="NOPERM no right", changed_nothing=True)

    hf.once("invoice").keyed("1").run(lambda: 1)
    monkeypatch.setattr(results.ResultReader, "_read_some", refuse)
    monkeypatch.setattr(Handfast, "audit", refuse)
    page = browse()
    state = await page.until(lambda state: state.get("results", {}).get("refused"))
    assert "NOPERM" in state["results"]["refused"]
    assert "NOPERM" in state["audit"]["refused"]
    assert state["results"]["totals"] == {"invoice": 1}
    monkeypatch.undo()
    state = await page.until(lambda state: not state["results"]["refused"] and not state["audit"]["refused"])
    assert [row["key"] for row in state["results"]["rows"]] == ["invoice|1"]


async def test_a_token_is_the_password_and_the_user_is_who_acts(hf, browse):
    def basic(user, password):
        return {"authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}

    authorize = with_token("correct horse battery")
    wrong = [{}, basic("ann", "x"), basic("", "correct horse battery")]
    wrong += [{"authorization": text} for text in ("Basic !", "Basic", "Bearer x", "Basic é".encode(), b"Basic \xff")]
    for headers in wrong:
        got = await browse(authorize=authorize, **headers).http.get("")
        assert got.status_code == 401
        assert got.headers["www-authenticate"].startswith("Basic realm=")
        assert "content-security-policy" in got.headers
    page = browse(authorize=authorize, **basic("ann", "correct horse battery"))
    assert (await page.http.get("api/me")).json()["label"] == "ann@page"
    long = browse(authorize=authorize, **basic("é" * 150, "correct horse battery"))
    label = (await long.http.get("api/me")).json()["label"]
    assert label.endswith("é@page")
    assert len(label.encode()) <= 200


def test_an_asyncio_client_is_refused(server):
    with pytest.raises(TypeError, match=r"needs a Handfast, .*not AsyncHandfast"):
        app(AsyncHandfast(server.url))


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--host", "0.0.0.0"], "use --token"),
        (["--host", "::"], "use --token"),
        (["--host", "0.0.0.0", "--token", "short"], "16 characters"),
        (["--allow", "release,all"], "'all' is none of"),
        (["--port", "70000"], "70000"),
    ],
)
def test_wrong_usage_of_the_command(server, words, text):
    done = CliRunner().invoke(command, ["--url", server.url, *words])
    assert (done.exit_code, text in done.stderr) == (64, True), done.stderr


def test_a_port_that_is_taken(server, raw):
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = CliRunner().invoke(command, ["--url", server.url, "--port", str(taken.getsockname()[1])])
    assert (done.exit_code, "cannot listen" in done.stderr) == (69, True), done.stderr
