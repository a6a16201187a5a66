"""``handfast hold`` and ``handfast unhold``, and what `ls` and `show` say of a hold."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from click.testing import CliRunner

from handfast import AcquireTimeout
from handfast._watch import acts
from handfast.cli.operate.hold import hold, unhold
from handfast.cli.operate.ls import command as ls
from handfast.cli.operate.show import command as show
from tests._support.helpers import eventually

TIME = r"[-\d]+ [:\d]+"


@pytest.fixture
def call(server, raw):
    """Return a function that runs a command on the server."""
    return lambda command, *words: CliRunner().invoke(command, [*words, "--url", server.url])


def objects(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_hold_lets_no_one_in_until_unhold(call, hf):
    with hf.lock("report:1") as lease:
        done = call(hold, "report:1", "--for", "2h", "--reason", "DB \x1b[31mmigration", "--label", "ops")
        assert done.exit_code == 0
        assert re.fullmatch(
            r"lock 'report:1' is on hold until [-\d]+ [:\d]+ UTC by ops: DB \S*31mmigration\n", done.stdout
        )
        lease.extend(60)
    with pytest.raises(AcquireTimeout, match="on hold"):
        hf.lock("report:1").acquire(timeout=0)
    shown = call(show, "report:1").stdout
    assert re.search(r"  on hold for 1h59m, until .* UTC, by ops: DB ", shown)
    assert "\x1b" not in shown
    assert "on hold ops" in call(ls).stdout
    assert call(ls, "--on-hold").stdout.count("\n") == call(ls).stdout.count("\n")
    (found,) = objects(call(ls, "--json", "--on-hold"))
    assert found["hold"]["by"] == "ops"
    was = rf"it was on hold until {TIME} UTC by ops: DB \S*31mmigration \(since {TIME} UTC\)"
    assert re.fullmatch(rf"lock 'report:1' is on hold no more; {was}\n", call(unhold, "report:1").stdout)
    again = call(unhold, "report:1")
    assert (again.exit_code, again.stderr) == (1, "handfast: 'report:1' is not on hold\n")
    assert call(ls, "--on-hold").exit_code == 1
    with hf.lock("report:1"):
        pass


def test_hold_takes_the_names_that_a_pattern_matches(call, hf):
    for name in ("report:1", "report:2", "other"):
        with hf.semaphore(name, 2):
            pass
    done = call(hold, "report:*", "--kind", "semaphore", "--for", "1m", "--reason", "x", "--json")
    assert [one["name"] for one in objects(done)] == ["report:1", "report:2"]
    assert not hf.semaphore("other", 2).locked()
    assert hf.semaphore("report:2", 2).try_acquire() is None
    assert call(unhold, "report:*", "--kind", "semaphore").stdout.count("no more") == 2
    none = call(hold, "nothing*", "--for", "1m", "--reason", "x")
    assert (none.exit_code, none.stderr) == (1, "handfast: no lock is known that matches 'nothing*'\n")


def test_unhold_leaves_a_hold_that_was_set_after_it_has_looked(call, hf, monkeypatch):
    def version(hold, known=acts.hold_version):
        hf.hold("a", 3600, reason="second")
        return known(hold)

    hf.hold("a", 60, reason="first")
    monkeypatch.setattr(acts, "hold_version", version)
    done = call(unhold, "a")
    assert (done.exit_code, done.stdout) == (1, "")
    assert re.fullmatch(
        rf"handfast: lock 'a': nothing was done: it is not the hold that was shown; it is now on hold until {TIME} .*: second\n",
        done.stderr,
    )
    assert hf.lock("a").status().hold.reason == "second"
    assert hf.audit() == ()


def test_hold_now_takes_the_leases_after_the_grace(call, hf):
    lease = hf.lock("a", yields=False).acquire()
    assert call(hold, "a", "--for", "1m", "--reason", "x", "--now", "--grace", "0").exit_code == 0
    eventually(lambda: lease.lost)


def test_hold_now_holds_all_names_and_writes_the_audit_before_it_waits(call, hf):
    leases = [hf.lock(name, yields=False).acquire() for name in ("job:1", "job:2")]
    with ThreadPoolExecutor(1) as pool:
        words = ("job:*", "--for", "1h", "--reason", "x", "--now", "--grace", "1h")
        running = pool.submit(call, hold, *words)
        try:
            eventually(lambda: all(lease.wanted for lease in leases))
            assert not running.done()
            assert all(hf.lock(lease.name).status().hold for lease in leases)
            assert [(one.what, one.name) for one in hf.audit()] == [("hold", "job:1"), ("hold", "job:2")]
        finally:
            for lease in leases:
                lease.release()
        done = running.result(30)
    assert done.exit_code == 0
    assert done.stdout.endswith("2 names; those that are made from now on are not on hold\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("a", "--reason", "x"), "Missing option '--for'"),
        (("a", "--for", "1m"), "Missing option '--reason'"),
        (("a", "--for", "1m", "--reason", "x", "--grace", "1s"), "Use --grace with --now."),
        (("a", "--for", "0", "--reason", "x"), "a duration must be at least a millisecond"),
        (("a", "--for", "1m", "--reason", ""), "reason must not be empty"),
        (("a", "--for", "1m", "--reason", "x", "--kind", "limiter"), "'limiter' is not one of"),
    ],
    ids=str,
)
def test_wrong_usage_of_hold(call, words, message):
    done = call(hold, *words)
    assert done.exit_code == 64
    assert message in done.stderr
