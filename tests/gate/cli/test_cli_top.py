"""``handfast top``: its frames, its keys and its acts."""

from __future__ import annotations

import re
import threading
import time

import pytest
from click.testing import CliRunner
from redis.exceptions import ConnectionError as RedisConnectionError
from rich.cells import cell_len

from handfast import Handfast, Holder, LeaseLost, LimiterStatus, LockStatus, RateStatus, Waiter
from handfast._engine.server_facts import TIME
from handfast._protocol.names import Search
from handfast._watch.live import Live, Row, View
from handfast._watch.problems import find_problems
from handfast.cli.colors import BOLD, RED
from handfast.cli.top.acts import act_for
from handfast.cli.top.cells import cut, drawn, fit
from handfast.cli.top.command import Keyboard, Watching, command
from handfast.cli.top.frames import SORTS, Screen
from handfast.cli.top.terminal import keys_of
from tests._support.helpers import eventually

ODD = ["注文:東京🦊", "evil\x1b[31mred\x07", "\u202eright to left", "x" * 300]


@pytest.fixture
def call(server, raw):
    """Return a function that prints a frame."""
    return lambda *words: CliRunner().invoke(command, ["--once", "--url", server.url, *words])


@pytest.fixture
def live(hf):
    return Live(hf)


class Watched:
    """A screen with keys, whose looks and acts are done at once."""

    def __init__(self, client):
        self.client, self.live = client, Live(client)
        self.screen = Screen("hf on a server")
        self.keyboard = Keyboard(self.screen, self)
        self.look()

    def look(self):
        self.screen.view = self.live.step(self.screen.seen(24))
        self.screen.problems = find_problems(self.screen.view)

    def perform(self, act, typed):
        self.screen.note = act.perform(self.client, typed)

    def press(self, *keys):
        for key in keys:
            assert self.keyboard.press(key)

    def text(self, size=(100, 24)):
        lines = self.screen.frame(*size, self.screen.view.at)
        return "\n".join(drawn(line, size[0], color=False, plain=True).rstrip() for line in lines)


@pytest.fixture
def watched(hf):
    return Watched


def waiting(client, lock, count=1):
    """Let threads wait for a lock. Return a function that waits for their ends."""
    threads = [threading.Thread(target=lambda: client.lock(lock.name).acquire().release()) for _ in range(count)]
    for thread in threads:
        thread.start()
    eventually(lambda: lock.status().waiting == count)
    return lambda: [thread.join() for thread in threads]


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (60, 12), (40, 5), (20, 2)])
def test_a_frame_is_exactly_as_large_as_the_terminal(call, hf, size):
    for name in ODD:
        hf.limiter(name[:100], "5/min").acquire(cost=2)
        hf.latch(name[:100], 3).done("a")
    with hf.lock_all(ODD), Handfast(hf._driver.address, label=ODD[1]) as other:
        for view in ("names", "limits", "problems"):
            done = call("--size", "{}x{}".format(*size), "--view", view)
            assert done.exit_code == 0, done.output
            lines = done.stdout.splitlines()
            assert len(lines) == size[1]
            assert max(map(cell_len, lines)) <= size[0]
            assert not set("\x1b\x07\u202e") & set(done.stdout)
        seen = Watched(other)
        for row in seen.screen.rows():
            seen.screen.marked, seen.screen.shows = row.key, "show"
            for line in seen.screen.frame(*size, seen.screen.view.at):
                assert cell_len(drawn(line, size[0], color=True, plain=True)) <= size[0]


def test_a_frame_shows_who_holds_and_waits_and_what_is_wrong(call, hf, other):
    semaphore = other.semaphore("gpu", 4)
    with hf.lock("order:42"), hf.rwlock("config").write(), semaphore.acquire(permits=3):
        join = waiting(other, hf.lock("order:42"), 3)
        hf.hold("deploy", 3600, reason="DB migration")
        text = call("--size", "120x20").stdout
        head, totals, worst, heads, first, *rest = text.splitlines()
        assert head.startswith(" handfast  hf on ")
        assert totals.split()[:4] == ["5", "held", "3", "waiting"] or totals.split()[:4] == [
            "3",
            "held",
            "3",
            "waiting",
        ]
        assert "is on hold for 59m" in worst or "restart forgets" in worst
        assert heads.split() == ["NAME", "KIND", "HELD", "BY", "HELD", "ENDS", "QUEUE↓", "WAITED", "/S"]
        assert first.split()[:2] == ["order:42", "lock"]
        assert first.split()[5:7] == ["3", "▁▁▁"]
        assert {line.split()[0] for line in rest if line.strip()} >= {"config", "gpu", "deploy", "q"}
        (gpu,) = [line for line in rest if line.startswith(" gpu")]
        assert "3/4" in gpu
        assert "■■■□" in gpu
        assert "1 to" not in text
        small = call("--size", "80x6", "--filter", "order").stdout
        assert [line.split()[0] for line in small.splitlines()[4:5]] == ["order:42"]
    join()


def test_an_empty_server_and_a_filter_without_a_match_say_so(call, hf):
    assert "No name is held or waited for." in call().stdout
    assert "No limiter has admitted anything lately." in call("--view", "limits").stdout
    with hf.lock("a"):
        assert "No name matches; esc shows all." in call("--filter", "b").stdout


@pytest.mark.parametrize("words", [["--size", "80"], ["--size", "0x5"], ["--size", "axb"], ["--view", "show"]])
def test_wrong_usage(call, words):
    assert call(*words).exit_code == 64


def test_it_wants_a_terminal_and_a_server(server):
    done = CliRunner().invoke(command, ["--url", server.url])
    assert (done.exit_code, "print one frame with --once" in done.stderr) == (64, True)
    assert CliRunner().invoke(command, ["--once", "--url", "redis://127.0.0.1:1/0"]).exit_code == 69


def test_keys_mark_names_sort_them_filter_and_show_one(hf, other, watched):
    with hf.lock("a"), hf.lock("b") as second, other.lock("c"):
        join = waiting(other, hf.lock("b"))
        seen = watched(hf)
        names = lambda: [row.name for row in seen.screen.rows()]  # noqa: E731
        assert names() == ["b", "a", "c"]
        seen.press("j", "j", "k")
        assert seen.screen.marked == ("lock", "b")
        seen.press("G")
        assert seen.screen.marked == ("lock", "c")
        seen.press("s", "s")
        assert (seen.screen.sort, names()) == (SORTS[2], ["a", "b", "c"])
        seen.press("/", "C", "escape", "/", "B", "x", "back", "enter")
        assert (seen.screen.filter, names()) == ("B", ["b"])
        seen.press("escape")
        assert names() == ["a", "b", "c"]
        seen.press("j", "j", "enter")
        assert re.search(r"lock b\n held by \S+ for \d\.\ds; 1 waiting, the first for \d\.\ds\n 1 grant\n", seen.text())
        assert re.search(rf"\n HELD BY .*FENCE\n .*  {second.fence}\n\n    # WAITS ", seen.text())
        seen.press("escape", "w", "w", "l", "l", "f")
        assert (seen.screen.shows, seen.screen.is_frozen) == ("names", True)
        assert not seen.keyboard.press("q")
    join()
    seen.look()
    assert seen.screen.rows() == []


def test_a_release_takes_up_to_the_fence_that_was_shown_and_is_in_the_audit(hf, other, watched):
    lease = other.lock("a").acquire()
    seen = watched(hf)
    seen.press("r")
    assert "mark a name first" in seen.screen.note
    seen.press("j", "r")
    assert seen.screen.prompt == f"Take it from {other._driver.label}; reason:"
    seen.press("enter")
    assert seen.screen.note == "nothing was done: a reason is needed"
    seen.press("r")
    lease.release()
    with pytest.raises(LeaseLost, match="was lost"), other.lock("a"):
        seen.press(*"hangs", "enter")
        assert seen.screen.note == "nothing was taken: who was shown has released it"
        seen.look()
        seen.press("r", *"hangs", "enter")
        assert seen.screen.note == "1 taken"
        assert other.lock("a").status().holding == 0
        (entry,) = hf.audit()
        assert (entry.what, entry.name, entry.why, entry.count) == ("release", "a", "hangs", 1)
        seen.look()
        seen.press("j", "r")
        assert "mark a name first" in seen.screen.note


def test_a_name_is_put_on_hold_and_a_limiter_is_paused_from_the_screen(hf, other, watched):
    other.limiter("mail", "5/min").keyed("x").acquire(cost=2)
    with other.lock("a"), other.group("g").join():
        seen = watched(hf)
        for typed, note in (
            ("soon", "is no duration"),
            ("10m", "a reason is needed"),
            ("10m a test", "on hold for 10m00s"),
        ):
            seen.screen.marked = ("lock", "a")
            seen.press("h", *typed, "enter")
            assert note in seen.screen.note
        seen.look()
        assert other.lock("a").status().hold.reason == "a test"
        row = seen.screen.marked_row()
        seen.press("h", *"over", "enter")
        assert (seen.screen.note, other.lock("a").status().hold) == ("it is on hold no more", None)
        assert act_for("h", row).perform(hf, "over") == "it was not on hold any more"
        seen.look()
        free = seen.screen.marked_row()
        other.hold("a", 60, reason="of another one")
        assert "nothing was done: it is not what was shown; it is now on hold" in act_for("h", free).perform(
            hf, "10m mine"
        )
        assert "nothing was done: it is not the hold that was shown" in act_for("h", row).perform(hf, "over")
        assert other.unhold("a")
        seen.screen.marked = ("group", "g")
        seen.press("h")
        assert seen.screen.note == "a name of this kind cannot be put on hold"
        seen.press("p")
        assert seen.screen.note == "only limiters can be paused"
        seen.press("l", "j")
        assert seen.screen.marked == ("limiter", "mail|x")
        seen.press("r")
        assert seen.screen.note == "a name of this kind has no leases"
        seen.press("p", *"1h 429", "enter")
        assert seen.screen.note == "paused for 1h00m"
        seen.look()
        assert "paused for 59m" in seen.text() or "59m" in seen.text()
        seen.press("p", *"over", "enter")
        assert (seen.screen.note, other.limiter("mail", "5/min").keyed("x").status().paused_for) == (
            "it is paused no more",
            0,
        )
    assert [entry.what for entry in hf.audit()] == ["hold", "unhold", "pause", "resume"]
    assert hf.audit()[-1].name == "mail|x"


def test_a_name_that_a_search_does_not_find_any_more_is_forgotten(hf, live, monkeypatch):
    """Also if it was inspected again while the search went on."""
    monkeypatch.setattr("handfast._watch.live.SEARCH_EVERY_S", 0.0)
    monkeypatch.setattr("handfast._watch.live.SEARCH_REST", 0)
    with hf.lock("a"):
        assert [row.name for row in live.step().rows] == ["a"]
        with monkeypatch.context() as nothing:

            def look(_search, _cursor, _slot=None):
                yield TIME
                return b"0", []

            nothing.setattr(Search, "look", look)
            assert live.step([("lock", "a")]).rows == ()
        for _ in range(2):
            assert [row.name for row in live.step([("lock", "a")]).rows] == ["a"]


class Still:
    """A terminal that is not there."""

    def wake(self):
        pass


def look(watching):
    """Do what the thread does in a turn."""
    watching.looker._note(watching.looker._look(), time.monotonic())
    watching.note_outage()


def seen_lines(screen, watching):
    return [drawn(line, 80, color=False, plain=True) for line in screen.frame(80, 24, watching.now())]


def test_a_look_that_fails_leaves_what_was_seen_and_says_so(hf, monkeypatch):
    with hf.lock("a"):
        screen = Screen("hf on a server")
        watching = Watching(screen, hf, "redis://x", Still())
        look(watching)
        assert [row.name for row in screen.view.rows] == ["a"]
        monkeypatch.setattr(watching._live, "step", lambda _: (_ for _ in ()).throw(RedisConnectionError("gone")))
        look(watching)
        assert watching.now() == screen.view.at
        lines = seen_lines(screen, watching)
        assert "no answer" in lines[0]
        assert re.match(r" ! No answer for \d\.\ds\. What you see is old\. cannot use redis://x:6379/0: gone", lines[2])
        assert any("a " in line for line in lines[4:])
        keyboard = Keyboard(screen, watching)
        for key in ("j", "r"):
            keyboard.press(key)
        assert screen.note == "the server does not answer"
        watching.looker._note(None, time.monotonic())
        watching.looker._began_at = time.monotonic() - 3
        watching.note_outage()
        assert screen.reason == "The server hangs, or the network does."


def test_looks_go_on_whatever_one_of_them_raises(hf, monkeypatch):
    screen = Screen("hf on a server")
    watching = Watching(screen, hf, "redis://x", Still())
    look(watching)
    errors = [ZeroDivisionError("mine")]
    step = watching._live.step
    monkeypatch.setattr(
        watching._live, "step", lambda seen: (_ for _ in ()).throw(errors.pop()) if errors else step(seen)
    )
    look(watching)
    lines = seen_lines(screen, watching)
    assert "no look" in lines[0]
    assert re.match(r" ! No look has succeeded for \d\.\ds\. What you see is old\. ZeroDivisionError\(", lines[2])
    look(watching)
    assert (screen.outage, screen.reason) == (None, "")


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("j", ["j"]),
        ("\x1b", ["escape"]),
        ("\x1b[B", ["down"]),
        ("\x1b[B\x1b[B\x1b[6~q", ["down", "down", "page down", "q"]),
        ("\x1bOA\x1bOA", ["up", "up"]),
        ("\x1b[1;5C\x1b[B", ["down"]),
        ("é\r\x7f", ["é", "enter", "back"]),
    ],
)
def test_keys_that_come_together_are_all_read(text, keys):
    """As those of an arrow that is held down."""
    assert keys_of(text) == keys


def test_problems_scroll_and_open_their_names():
    now = time.monotonic()
    rows = []
    for number in range(14):
        rate = RateStatus(10, 60.0, 10, 0, 30.0)
        rows.append(Row("limiter", f"limit-{number:02}", LimiterStatus((rate,), 20 - number, longest_wait=9.0), now))
    view = View(now, 0.0, tuple(rows), (), is_whole=True)
    screen = Screen("hf", view, find_problems(view), shows="problems")

    def names():
        text = "\n".join(drawn(line, 80, color=False, plain=True) for line in screen.frame(80, 24, now))
        return re.findall(r"(limit-\d\d) has used", text)

    assert names() == [f"limit-{number:02}" for number in range(len(names()))]
    assert len(names()) < 14
    for _ in range(20):
        screen.move(1)
    assert names()[-1] == "limit-13"
    screen.move(-1000)
    assert names()[0] == "limit-00"
    screen.open()
    assert (screen.shows, screen.marked) == ("show", ("limiter", "limit-00"))


@pytest.mark.parametrize(("kind", "alarms"), [("lock", ["1h10m"]), ("election", [])])
def test_a_leader_is_no_alarm_since_its_candidates_stand_by(kind, alarms):
    now = time.monotonic()
    holder = Holder("t", 1, 1, 10.0, 4200.0, "web-1", True, "o", released=False, lock_all=False, ttl=30.0)
    waiter = Waiter("w", 1, 0, 9.0, "web-2", True, "p", lock_all=False)
    status = LockStatus((holder,), (waiter,), 1, 1, 1, 1, 0, 1, 0.0, None, 4200.0)
    view = View(now, 0.0, (Row(kind, "a", status, now),), (), is_whole=True)
    frame = Screen("hf", view).frame(120, 10, now)
    assert [cell.text.strip() for line in frame for cell in line if cell.style == f"{BOLD};{RED}"] == alarms


# --- looks


def test_a_step_sees_what_has_changed_and_forgets_what_is_gone(hf, other, live, raw):
    view = live.step()
    assert (view.rows, view.is_whole) == ((), True)
    with other.lock("a"):
        assert live.step().rows == (), "the next search is later"
        live._search_at = 0.0
        assert [row.name for row in live.step().rows] == ["a"]
    assert [row.status.holding for row in live.step().rows] == [0], "it was granted lately"
    raw.delete("{hf:lock:a}:state", "{hf:lock:a}:tokens")
    assert live.step([("lock", "a")]).rows == ()


def test_a_search_that_fails_begins_anew_and_loses_no_name(hf, other, live, monkeypatch):
    look, failed = hf._driver.look, []

    def fails(steps, name, timeout):
        def cut():  # the SCAN succeeds, and the call that inspects does not
            answer = yield next(steps)
            steps.send(answer)
            failed.append(True)
            raise RedisConnectionError("gone")

        return look(cut(), name, timeout)

    with other.lock("a"), other.lock("b"):
        monkeypatch.setattr(hf._driver, "look", fails)
        with pytest.raises(RedisConnectionError):
            live.step()
        assert failed
        monkeypatch.undo()
        assert sorted(row.name for row in live.step().rows) == ["a", "b"]


def test_a_step_inspects_what_matters_and_no_more_than_it_may(hf, other, live, monkeypatch):
    monkeypatch.setattr("handfast._watch.live.MOST", 30)
    leases = [other.lock(f"n{number}").acquire() for number in range(60)]
    join = waiting(hf, other.lock("n59"))
    live.step()
    wanted = live._wanted([("lock", "n7"), ("lock", "nowhere")], time.monotonic())
    assert (wanted[:2], len(wanted)) == ([("lock", "n7"), ("lock", "n59")], 30)
    for lease in leases:
        lease.release()
    join()


def test_grants_are_counted_over_the_last_seconds(hf, live, monkeypatch):
    now = time.monotonic()
    monkeypatch.setattr("handfast._watch.live.time", type("Clock", (), {"monotonic": staticmethod(lambda: now)}))
    hf.lock("a").acquire().release()
    live.step()
    for _ in range(6):
        hf.lock("a").acquire().release()
    now += 3
    (row,) = live.step().rows
    assert (row.rate, row.before) == (2.0, None)
    assert 0 <= row.mean < 1
    now += 60
    (row,) = live.step([("lock", "a")]).rows
    assert (row.rate, row.before) == (0.0, 0)


def test_texts_are_fitted_to_columns():
    assert [fit("注文東京", width) for width in (8, 6, 1, 0)] == ["注文東京", "注…京 ", "…", ""]
    assert fit("ab", 4, right=True) == "  ab"
    assert cut("a long sentence", 8) == "a long…"
    assert View().mean is None
