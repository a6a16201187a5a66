"""What operators change in the shell, and ``handfast audit``, which says who did it."""

from __future__ import annotations

import json
import re
import threading
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from handfast import LeaseLost, NotCompleted, RateLimited
from handfast._watch import acts as operators_acts
from handfast.cli.operate import audit, forget, hold, limits, release, show
from tests._support.helpers import eventually

TIME = r"[-\d]+ [:\d]+"


@pytest.fixture
def call(server, raw):
    """Return a function that runs a command on the server."""
    return lambda command, *words: CliRunner().invoke(command, [*words, "--url", server.url])


def entries(call):
    return [json.loads(line) for line in call(audit.command, "--json").stdout.splitlines()]


def acts(call):
    return [(one["what"], one["kind"], one["name"], one["why"]) for one in entries(call)]


def test_what_was_done_once_is_shown_forgotten_and_done_again(call, hf):
    once = hf.once("nightly")
    assert once.run(lambda: 1) == 1
    shown = call(show.command, "nightly")
    assert re.match(r"once nightly\n  done \d+\.\ds ago\n  1 grant; ", shown.stdout)
    assert json.loads(call(show.command, "nightly", "--json").stdout)["recorded"]["state"] == "done"
    asks = call(forget.command, "nightly", "--reason", "bad data")
    assert (asks.exit_code, "confirm with --yes" in asks.stderr) == (64, True)
    done = call(forget.command, "nightly", "--reason", "bad data", "--yes", "--label", "ann")
    assert done.stdout == "once 'nightly' is forgotten: the next one does it again\n"
    assert re.fullmatch(r"once 'nightly': done \d+\.\d s ago; 0 waiting\n", done.stderr)
    assert once.run(lambda: 2) == 2
    once.forget()
    again = call(forget.command, "nightly", "--reason", "bad data", "--yes")
    assert (again.exit_code, again.stderr) == (1, "handfast: of once 'nightly' nothing is recorded\n")
    (entry,) = entries(call)
    assert (entry["what"], entry["kind"], entry["name"], entry["by"]) == ("forget", "once", "nightly", "ann")


def test_a_record_without_a_lock_is_shown(call, hf, raw):
    hf.once("bill").keyed("7").run(lambda: 1)
    raw.delete("{hf:once:bill|7}:state")
    assert re.fullmatch(r"once bill\|7\n  done \d+\.\ds ago\n", call(show.command, "bill|7").stdout)
    row = json.loads(call(show.command, "bill|7", "--json").stdout)
    assert (row["kind"], row["name"], row["recorded"]["state"]) == ("once", "bill|7", "done")
    assert call(show.command, "bill|7", "--kind", "lock").exit_code == 1
    assert call(show.command, "bill|").exit_code == 1


def test_a_run_that_began_and_did_not_end_is_shown_and_may_run_again(call, hf):
    once = hf.once("pay", rerun=False).keyed("7")
    with pytest.raises(ZeroDivisionError):
        once.run(lambda: 1 // 0)
    with pytest.raises(NotCompleted):
        once.run(lambda: 1)
    assert re.search(r"  failed \d\.\ds ago, and is not run again\n", call(show.command, "pay|7").stdout)
    assert call(forget.command, "pay", "--key", "7", "--reason", "mended", "-y").exit_code == 0
    assert once.run(lambda: 3) == 3
    assert acts(call) == [("forget", "once", "pay|7", "mended")]


def test_what_was_recorded_after_the_question_is_not_forgotten(call, hf, monkeypatch):
    once = hf.once("nightly")
    once.run(lambda: 1)
    latch = hf.latch("deploy", 9)
    latch.done("a")

    def answer(*_, **__):
        once.forget()
        once.run(lambda: 2)
        latch.done(latch.status().number)
        return True

    monkeypatch.setattr(forget, "sys", SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True)))
    monkeypatch.setattr(forget.click, "confirm", answer)
    for kind, name, now in (("once", "nightly", "done 0.0 s ago"), ("latch", "deploy", "3 done; 0 waiting")):
        refused = call(forget.command, name, "--kind", kind, "--reason", "bad data")
        assert refused.exit_code == 1
        assert f"handfast: nothing was done: it is not what was shown; it is now {now}" in refused.stderr
    assert once.status().state == "done"
    assert latch.status().number == 3
    assert not hf.audit()


def test_a_latch_is_forgotten(call, hf):
    hf.latch("deploy", 2).done("a")
    hf.latch("deploy", 2).keyed("a").done("a")
    done = call(forget.command, "deploy|a", "--kind", "latch", "--reason", "again", "-y")
    assert done.exit_code == 0
    assert [one.status().left for one in (hf.latch("deploy", 2).keyed("a"), hf.latch("deploy", 2))] == [2, 1]
    done = call(forget.command, "deploy", "--kind", "latch", "--reason", "again", "-y")
    assert done.exit_code == 0
    assert hf.latch("deploy", 2).status().left == 2


def test_a_limiter_is_paused_resized_and_reset_for_all(call, hf):
    limiter = hf.limiter("api", "2/h; 3/d")
    for _ in range(2):
        assert limiter.try_acquire()
    assert not limiter.try_acquire()
    assert call(limits.reset, "api", "--reason", "locked out").stdout == "limiter 'api' counts from zero\n"
    assert limiter.try_acquire()
    done = call(limits.resize, "api", "1/s", "--reason", "the vendor said so")
    assert done.stdout == "limiter 'api' admits 1/s\n"
    assert [rate.limit for rate in limiter.status().rates] == [1]
    assert call(limits.pause, "api", "--for", "2h", "--reason", "429").stdout == "limiter 'api' is paused for 2h00m\n"
    assert 7000 < limiter.status().paused_for <= 7200
    with pytest.raises(RateLimited):
        limiter.acquire(timeout=0)
    assert call(limits.resume, "api", "--reason", "well again").exit_code == 0
    assert limiter.status().paused_for == 0
    assert call(limits.resize, "api", "none", "--reason", "well again").exit_code == 0
    assert [rate.limit for rate in limiter.status().rates] == [2, 3]
    assert [what for what, *_ in acts(call)] == ["reset", "resize", "pause", "resume", "resize"]


def test_a_key_of_a_limiter_is_a_limiter_of_its_own(call, hf):
    logins = hf.limiter("login", "1/h")
    for user in ("ann", "bob"):
        assert logins.keyed(user).try_acquire()
    call(limits.reset, "login", "--key", "ann", "--reason", "she called")
    assert logins.keyed("ann").try_acquire()
    assert not logins.keyed("bob").try_acquire()
    nothing = call(limits.reset, "unknown", "--reason", "x")
    assert nothing.stdout == "limiter 'unknown' has admitted nothing lately\n"
    assert acts(call)[0] == ("reset", "limiter", "login|ann", "she called")


def test_a_command_takes_the_name_that_is_shown(call, hf):
    """So that what `ls` prints can be given to a command, whatever is in the name."""
    logins, odd = hf.limiter("login", "1/h"), hf.limiter("login|bob", "1/h")
    assert logins.keyed("bob").try_acquire()
    for words in (["login|bob"], ["login", "--key", "bob"]):
        assert call(limits.pause, *words, "--for", "1m", "--reason", "x").stdout.startswith("limiter 'login|bob' ")
        assert (logins.keyed("bob").status().paused_for > 0, odd.status().paused_for) == (True, 0)
        assert call(limits.resume, *words, "--reason", "x").exit_code == 0
        assert logins.keyed("bob").status().paused_for == 0
    assert call(limits.reset, "login|bob", "--reason", "x").stdout == "limiter 'login|bob' counts from zero\n"
    assert call(limits.resize, "login|bob", "7/h", "--reason", "x").exit_code == 0
    assert [one.status().rates[0].limit for one in (logins.keyed("bob"), odd)] == [7, 1]
    assert call(limits.pause, r"login\|bob", "--for", "1m", "--reason", "x").exit_code == 0
    assert odd.status().paused_for > 0
    assert {name for _, _, name, _ in acts(call)} == {"login|bob", r"login\|bob"}


@pytest.mark.parametrize("name", ["a||b", "a|", "|a", "a\\b", "a\\"])
def test_a_name_that_no_key_has_is_refused(call, hf, name):
    for command, *words in ((limits.pause, "--for", "1m"), (limits.resume,), (limits.reset,), (forget.command, "-y")):
        refused = call(command, name, "--reason", "x", *words)
        assert (refused.exit_code, r"write \| and \\ for a | and a \ inside" in refused.stderr) == (64, True)
    assert call(hold.hold, name, "--kind", "once", "--for", "1m", "--reason", "x").exit_code == 64
    assert call(hold.hold, name, "--for", "1m", "--reason", "x").exit_code == 0
    assert hf.lock(name).status().hold.reason == "x"
    assert acts(call) == [("hold", "lock", name, "x")]


def test_waiters_get_in_after_a_reset_though_the_operator_does_not_know_their_rates(call, hf):
    limiter = hf.limiter("api", "2/h; 3/d")
    limiter.acquire(cost=2)
    waiting = threading.Thread(target=lambda: limiter.acquire(timeout=7200))
    waiting.start()
    eventually(lambda: limiter.status().waiting == 1)
    call(limits.reset, "api", "--reason", "go on")
    waiting.join(30)
    assert not waiting.is_alive()


def test_a_pause_or_resume_that_does_nothing_says_so(call, hf):
    limiter = hf.limiter("x", "3/min")
    nothing = call(limits.resume, "x", "--reason", "r")
    assert (nothing.exit_code, nothing.stderr) == (1, "handfast: limiter 'x' is not paused\n")
    call(limits.pause, "x", "--for", "1h", "--reason", "first")
    shorter = call(limits.pause, "x", "--for", "1m", "--reason", "second")
    assert shorter.exit_code == 0
    assert re.fullmatch(r"limiter 'x' is paused for (59m59s|1h00m) already: nothing was done\n", shorter.stdout)
    assert limiter.status().last.why == "first"
    done = call(limits.resume, "x", "--reason", "well again")
    was = rf"it was paused until {TIME} UTC by \S+: first \(since {TIME} UTC\)"
    assert re.fullmatch(rf"limiter 'x' is paused no more; {was}\n", done.stdout)
    assert call(limits.resume, "x", "--reason", "again").exit_code == 1
    assert (limiter.status().last.what, limiter.status().last.why) == ("resume", "well again")
    assert acts(call) == [("pause", "limiter", "x", "first"), ("resume", "limiter", "x", "well again")]


def test_resume_leaves_a_pause_that_was_set_after_it_has_looked(call, hf, monkeypatch):
    def version(status, known=operators_acts.pause_version):
        limiter.pause(3600, reason="second")
        return known(status)

    limiter = hf.limiter("x", "3/min")
    limiter.pause(60, reason="first")
    monkeypatch.setattr(operators_acts, "pause_version", version)
    done = call(limits.resume, "x", "--reason", "r")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "nothing was done: it is not the pause that was shown; it is now paused until" in done.stderr
    assert (limiter.status().last.why, entries(call)) == ("second", [])


def test_the_audit_has_what_was_set(call, hf):
    for words in (
        (limits.resize, "x", "1/s; 9/h"),
        (limits.resize, "x", "none"),
        (limits.resize, "s", "7"),
        (limits.pause, "x", "--for", "90m"),
        (hold.hold, "a", "--for", "3h"),
        (hold.hold, "b", "--for", "3h", "--now"),
    ):
        assert call(words[0], *words[1:], "--reason", "r", "--label", "ann").exit_code == 0
    assert [line.partition("  ")[2] for line in call(audit.command).stdout.splitlines()] == [
        "resize  limiter 'x' to 1/s; 9/h by ann: r",
        "resize  limiter 'x' to what each client brings by ann: r",
        "resize  semaphore 's' to 7 permits by ann: r",
        "pause   limiter 'x' for 1h30m by ann: r",
        "hold    lock 'a' for 3h00m by ann: r",
        "hold    lock 'b' for 3h00m, now by ann: r",
    ]
    values = [(one["rates"], one["permits"], one["duration"], one["now"]) for one in entries(call)]
    assert values[3:] == [(None, None, 5400.0, False), (None, None, 10800.0, False), (None, None, 10800.0, True)]


def test_show_has_the_reason_of_the_last_change_of_a_limiter(call, hf):
    for words, why in (
        ((limits.resize, "x", "3/min"), "3/min: r"),
        ((limits.pause, "x", "--for", "10m"), "r"),
        ((limits.resume, "x"), "r"),
    ):
        assert call(words[0], *words[1:], "--reason", "r").exit_code == 0
        last = json.loads(call(show.command, "x", "--kind", "limiter", "--json").stdout)["last"]
        assert last["why"] == why


def test_a_semaphore_is_resized(call, hf):
    assert call(limits.resize, "gpu", "8", "--reason", "a new machine").stdout == "semaphore 'gpu' has 8 permits\n"
    assert hf.semaphore("gpu", 1).status().limit == 8
    assert call(limits.resize, "gpu", "8", "--key", "a", "--reason", "x").exit_code == 64
    assert call(limits.resize, "gpu", "8x", "--reason", "x").exit_code == 64
    assert acts(call) == [("resize", "semaphore", "gpu", "a new machine")]


def test_the_audit_says_who_took_what_away(call, hf):
    with pytest.raises(LeaseLost), hf.lock("order:1") as lease:
        done = call(release.command, "order:1", "--reason", "it \x1b[31mhangs", "--yes", "--label", "ann")
        assert done.exit_code == 0
        lease.extend(60)
    call(hold.hold, "order:2", "--for", "1h", "--reason", "a migration")
    call(hold.unhold, "order:2")
    (first, *others) = entries(call)
    assert (first["count"], first["fence"] >= lease.fence, first["by"]) == (1, True, "ann")
    assert [one["what"] for one in others] == ["hold", "unhold"]
    text = call(audit.command, "--name", "*:1").stdout
    assert re.fullmatch(r"[-\d]{10} [:\d]{8}  release lock 'order:1' \(1 lease\) by ann: it .*31mhangs\n", text)
    assert "\x1b" not in text
    assert call(audit.command, "--since", "1h", "--name", "order:2").stdout.count("\n") == 2
    none = call(audit.command, "--since", "1h", "--name", "other")
    assert (none.exit_code, none.stderr) == (1, "handfast: no operator has done anything since then\n")


@pytest.mark.parametrize("reason", ["", "x" * 1001])
def test_an_act_with_a_reason_that_the_audit_refuses_is_not_done(call, hf, reason):
    hf.once("nightly").run(lambda: 1)
    limiter = hf.limiter("login", "5/min")
    limiter.acquire(cost=5)
    with hf.lock("report") as lease, hf.semaphore("gpu", 4):
        hf.hold("deploy", 60, reason="migration")
        for command, *words in (
            (forget.command, "nightly", "--yes"),
            (hold.hold, "report", "--for", "1h"),
            (hold.unhold, "deploy"),
            (limits.pause, "login", "--for", "1h"),
            (limits.resume, "login"),
            (limits.resize, "login", "9/min"),
            (limits.resize, "gpu", "2"),
            (limits.reset, "login"),
            (release.command, "report", "--yes"),
        ):
            done = call(command, *words, "--reason", reason)
            assert (done.exit_code, "reason" in done.stderr) == (64, True), done.output
        assert hf.once("nightly").status().state == "done"
        assert hf.lock("report").status().hold is None
        assert hf.lock("deploy").status().hold is not None
        assert (limiter.status().paused_for, limiter.status().rates[0].used) == (0, 5)
        assert hf.semaphore("gpu", 4).status().limit == 4
        assert not lease.lost
    assert not entries(call)


def test_an_act_whose_entry_is_refused_is_done(call, hf, raw):
    raw.set("{hf:audit:operators}:log", "x", ex=60)
    done = call(hold.hold, "a", "--for", "1h", "--reason", "x")
    assert done.exit_code == 0
    assert done.stderr.startswith("handfast: done, but not written into the audit: ")
    assert hf.lock("a").status().hold.reason == "x"
