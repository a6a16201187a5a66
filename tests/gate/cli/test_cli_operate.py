"""``handfast ls``, ``show`` and ``release``: what is listed, how it looks, and which leases are taken."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from handfast import Handfast, Holder, LockStatus, Waiter
from handfast._watch.rows import Row
from handfast.cli.operate import looking, table, words
from handfast.cli.operate import release as module
from handfast.cli.operate.ls import command as ls
from handfast.cli.operate.release import command as release
from handfast.cli.operate.show import command as show
from tests._support.helpers import eventually
from tests._support.running import HANDFAST, starting, until_queued

OPERATE = Path(__file__).parents[3] / "docs/how-to/operate.md"

NOWHERE = "redis://127.0.0.1:1/0"


@pytest.fixture
def call(server, raw):
    """Return a function that runs a command on the server."""
    return lambda command, *words: CliRunner().invoke(command, [*words, "--url", server.url])


@pytest.fixture
def start():
    """Return a function that starts processes, which end with the test."""
    with starting(forks=True) as start:
        yield start


@pytest.fixture
def labelled(server, raw):
    """A client with a label."""
    with Handfast(server.url, label="web-3:4711;task=bill") as client:
        yield client


@pytest.fixture
def waiting(start, server):
    """Return a function that lets a process wait for a lock."""

    def wait(lock):
        start(*HANDFAST, lock.name, "--url", server.url, "--label", "web-9:77", "--", "true")
        until_queued(lock)

    return wait


def objects(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


def documented(heading):
    """Return the keys of a table of the page for operators."""
    text = OPERATE.read_text().partition(heading)[2].partition("\n\n#")[0]
    return [
        key
        for keys in re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", text, re.MULTILINE)
        for key in re.findall(r"\w+", keys)
    ]


# --- ls


def test_ls_lists_what_is_held_and_waited_for_the_longest_queue_first(call, labelled, hf, waiting):
    hf.lock("idle").acquire().release()
    with labelled.semaphore("gpu", 4).acquire(permits=3), labelled.rwlock("config").write():
        with labelled.lock("order:42"), labelled.lock("nightly", at_least=60):
            pass
        with labelled.lock("order:42") as lease:
            waiting(hf.lock("order:42"))
            done = call(ls)
            assert done.exit_code == 0
            head, first, *others = (re.split("  +", line) for line in done.stdout.splitlines())
            assert head == ["NAME", "KIND", "HELD BY", "HELD", "ENDS IN", "QUEUE", "WAITED"]
            assert first[:3] == ["order:42", "lock", "web-3:4711;task=bill"]
            assert first[5] == "1"
            assert [row[:3] for row in others] == [
                ["gpu", "semaphore", "3/4 web-3:4711;task=bill"],
                ["config", "rwlock", "writer web-3:4711;task=bill"],
                ["nightly", "lock", "released web-3:4711;task=bill"],
            ]
            (found,) = objects(call(ls, "--waiting", "--json"))
            assert (found["fence"], found["holding"], found["waiting"]) == (lease.fence, 1, 1)
            assert found["held_by"] == ["web-3:4711;task=bill"]
            assert 0 <= found["longest_wait"] <= found["held_for"]
            assert 0 < found["ends_in"] <= 30
    assert {row["name"] for row in objects(call(ls, "--all", "--json"))} == {
        "idle",
        "order:42",
        "gpu",
        "config",
        "nightly",
    }


def test_ls_all_says_when_a_name_was_last_used(call, hf):
    hf.lock("idle").acquire().release()
    with hf.lock("held").acquire():
        head, *rows = (re.split("  +", line) for line in call(ls, "--all").stdout.splitlines())
        assert head[-1] == "LAST USED"
        used = {row[0]: row[-1] for row in rows}
        assert used["held"] == "now"
        assert re.fullmatch(r"\d\.\ds ago", used["idle"])
        assert "-" not in {cell for row in rows for cell in row}
        assert re.search(r"\n  1 grant; the latest \d\.\ds ago\n", call(show, "idle").stdout)
        ago = {row["name"]: row["granted_ago"] for row in objects(call(ls, "--all", "--json"))}
        assert ago["idle"] > ago["held"] >= 0
        assert hf.lock("unknown").status().granted_ago is None


def test_names_in_another_layout_come_after_the_others(call, hf, raw):
    raw.hset("{hf:lock:new}:state", "s", "layout 2")
    raw.pexpire("{hf:lock:new}:state", 600_000)
    with hf.lock("a").acquire():
        done = call(ls)
        assert done.exit_code == 69
        listed = [line.split()[:2] for line in done.stdout.splitlines() if line]
        assert listed == [["NAME", "KIND"], ["a", "lock"], ["NAME", "KIND"], ["new", "lock"]]
        assert "it is in layout 2, and this version knows layout 1" in done.stdout
        assert done.stderr.startswith("handfast: 'new' is stored in layout 2 on the server")
        assert call(show, "new").exit_code == 69


def test_what_runs_of_once_is_listed_shown_and_taken_away(call, labelled, hf):
    done = hf.once("invoice").keyed(41)
    with done:
        pass
    run = labelled.once("invoice").keyed(42).acquire()
    (row,) = call(ls, "--kind", "once").stdout.splitlines()[1:]
    assert re.split("  +", row)[:3] == ["invoice|42", "once", "web-3:4711;task=bill"]
    shown = call(show, "invoice|42").stdout.splitlines()
    assert shown[0] == "once invoice|42"
    assert re.fullmatch(r"  held by web-3:4711;task=bill for \d\.\ds; no one waits", shown[1])
    assert re.search(rf"  web-3:4711;task=bill  once .*  {run.fence}$", shown[5])
    taken = call(release, "invoice|42", "--reason", "stuck", "--yes")
    assert taken.stdout == f"released once 'invoice|42': 1 lease taken, up to fence {run.fence}\n"
    assert run.release() is False
    says = r"once invoice\|41\n  done \d\.\ds ago\n  1 grant; the latest \d\.\ds ago\n"
    assert re.match(says, call(show, "invoice|41").stdout)


def test_ls_selects_by_pattern_kind_and_number(call, hf):
    with hf.lock("order:1"), hf.lock("order:2"), hf.semaphore("order:3", 1), hf.lock("job"):
        assert {row["name"] for row in objects(call(ls, "order:*", "--json"))} == {"order:1", "order:2", "order:3"}
        (row,) = objects(call(ls, "order:*", "--kind", "semaphore", "--json"))
        assert (row["name"], row["limit"], row["free"]) == ("order:3", 1, 0)
        assert len(objects(call(ls, "--json", "--limit", "2"))) == 2
        assert call(ls, "x*").exit_code == 1
        assert objects(call(ls, "--json", "--namespace", "other")) == []


@pytest.mark.parametrize(
    ("words", "said"), [([], "held or waited for"), (["--waiting"], "waited for"), (["--all"], "known")]
)
def test_ls_says_that_there_is_nothing(call, words, said):
    done = call(ls, *words)
    assert (done.exit_code, done.stdout, done.stderr) == (1, "", f"handfast: no name is {said}\n")


@pytest.mark.parametrize(
    "command", [[ls], [show, "a"], [release, "a", "--reason", "x", "--yes"]], ids=lambda words: words[0].name
)
def test_a_server_that_is_not_there_or_not_named_has_its_exit_code(command, monkeypatch):
    monkeypatch.delenv("HANDFAST_URL", raising=False)
    monkeypatch.delenv("REDIS_URL", raising=False)
    done = CliRunner().invoke(command[0], [*command[1:], "--url", NOWHERE])
    assert done.exit_code == 69
    assert "refused" in done.stderr
    assert CliRunner().invoke(command[0], command[1:]).exit_code == 64
    assert CliRunner().invoke(command[0], [*command[1:], "--url", "http://x"]).exit_code == 64


def test_names_and_labels_cannot_move_the_cursor(call, server, raw):
    with Handfast(server.url, label="a\x1b[2Jb") as client, client.lock("x\x1b[31m\ny"):
        for done in (call(ls), call(show, "x\x1b[31m\ny")):
            assert done.exit_code == 0
            assert "\x1b" not in done.stdout
            assert "\ny" not in done.stdout


# --- show


def test_show_tells_holders_waiters_and_the_last_action(call, labelled, hf, waiting):
    lock = labelled.lock("a")
    lease = lock.acquire()
    hf.lock("a").force_release(reason="stuck since noon")
    assert lease.release() is False
    with lock as lease:
        waiting(hf.lock("a"))
        done = call(show, "a")
        assert done.exit_code == 0
        says = r"lock a\n  held by web-3:4711;task=bill for \d\.\ds; 1 waiting, the first for \d\.\ds\n  2 grants\n"
        assert re.match(says, done.stdout)
        assert re.search(rf"web-3:4711;task=bill  lock +\d\.\ds +\d\ds  {lease.fence}\n", done.stdout)
        assert re.search(r"    1  web-9:77  lock +\d\.\ds\n", done.stdout)
        assert re.search(
            r"last: force_release by \S+ at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\n +stuck since noon\n", done.stdout
        )
        (found,) = objects(call(show, "a", "--json"))
        (holder,), (waiter,) = found["holders"], found["waiters"]
        assert (holder["label"], holder["fence"], holder["lock_all"]) == ("web-3:4711;task=bill", lease.fence, False)
        assert lease.token.startswith(holder["token"])
        assert len(holder["token"]) == 8
        assert (waiter["label"], waiter["position"]) == ("web-9:77", 0)
        assert found["last"]["why"] == "stuck since noon"
        assert datetime.fromisoformat(found["last"]["at"]).tzinfo is not None


def test_show_tells_the_kinds_of_a_name_apart(call, hf):
    with hf.lock_all(["a", "b"]), hf.semaphore("a", 3).acquire(permits=2), hf.rwlock("a").read():
        shown = call(show, "a").stdout
        assert [block.split("\n")[0] for block in shown.split("\n\n") if not block.startswith(" ")] == [
            "lock a",
            "semaphore a",
            "rwlock a",
        ]
        assert re.search("  lock_all  ", shown)
        assert re.search(r"  2 of 3 permits held for \d\.\ds;", shown)
        assert re.search("  2 permits  ", shown)
        assert re.search("  reader  ", shown)
        assert [row["kind"] for row in objects(call(show, "a", "--kind", "rwlock", "--json"))] == ["rwlock"]


def test_show_has_the_values_of_an_election(call, hf):
    election = hf.election("a", value="http://10.0.0.5:8000 \x1b[31m")
    candidates = ThreadPoolExecutor(1)
    with election:
        second = candidates.submit(lambda: hf.election("a", value="http://10.0.0.6:8000").acquire().release())
        until_queued(election)
        shown = call(show, "a").stdout
        assert re.search(r"  leader +\d\.\ds +\d\ds +\d+  http://10.0.0.5:8000 \\x1b\[31m\n", shown)
        assert re.search(r"  candidate +\d\.\ds  http://10.0.0.6:8000\n", shown)
        (found,) = objects(call(show, "a", "--json"))
        assert found["holders"][0]["value"] == "http://10.0.0.5:8000 \x1b[31m"
        assert found["waiters"][0]["value"] == "http://10.0.0.6:8000"
        assert call(ls, "--kind", "election").stdout.splitlines()[1].startswith("a     election  ")
    assert second.result(20)


def test_show_has_the_members_of_a_group_and_the_slots_of_a_semaphore(call, hf):
    with hf.group("a").join(value="zone=\x1b[31m"), hf.group("a").join(value="two"):
        shown = call(show, "a", "--kind", "group").stdout
        assert re.match(r"group a\n  2 members, the first for \d\.\ds; no one waits\n", shown)
        assert re.search(r"  member +\d\.\ds +\d+s +\d+  zone=\\x1b\[31m\n", shown)
    with hf.semaphore("b", 3) as lease, hf.semaphore("b", 3):
        assert lease.slot(prefer=2) == 2
        shown = call(show, "b").stdout
        assert re.search(r"  1 permit, slot 2 +\d\.\ds ", shown)
        assert re.search(r"  1 permit  +\d\.\ds ", shown)
        (found,) = objects(call(show, "b", "--json"))
        assert sorted((one["slot"] for one in found["holders"]), key=str) == [2, None]


def test_show_lists_ten_waiters_and_counts_the_others():
    queue = tuple(Waiter("t", 1, place, 9.0, f"w{place}", True, "o.1", False) for place in range(12))
    status = LockStatus((), queue, 1, 0, 112, 1, 1, 5, 1.0, None)
    some = list(words.described(Row("lock", "a", status, 0.0), None, whole_queue=False))
    every = list(words.described(Row("lock", "a", status, 0.0), None, whole_queue=True))
    assert some[-2:] == ["     10  w9     lock  9.0s", "  … 102 more"]
    assert every[-2:] == ["     12  w11    lock  9.0s", "  … 100 more"]


def test_show_says_who_waits_for_what_its_own_client_holds(call, hf):
    with ThreadPoolExecutor(1) as threads:
        with hf.lock("a").acquire():
            waiter = threads.submit(lambda: hf.lock("a").acquire(timeout=20).release())
            until_queued(hf.lock("a"))
            shown = call(show, "a").stdout
        waiter.result(20)
    assert "\n  1 waits for another thread or task of its own client\n" in shown
    assert "without end" not in shown


def test_show_says_who_waits_for_what_its_own_thread_holds():
    held = Holder("t", 1, 1, 9.0, 9.0, "web", True, "client.1", False, False)
    queue = tuple(Waiter("t", 1, at, 9.0, "web", True, owner, False) for at, owner in enumerate(OWNERS))
    status = LockStatus((held,), queue, 1, 1, len(queue), 1, 0, 5, 1.0, None)
    lines = list(words.described(Row("lock", "a", status, 0.0), None, whole_queue=False))
    assert lines[3:5] == [
        "  1 waits for its own thread or task, and perhaps without end",
        "  2 wait for others of their own client",
    ]


OWNERS = "client.1", "client.2", "client.3", "other.1"


def test_show_says_that_the_server_does_not_know_a_name(call, hf):
    held = hf.lock("ab").acquire()
    done = call(show, "a*")
    held.release()
    assert (done.exit_code, done.stdout) == (1, "")
    assert "does not know 'a*'" in done.stderr


# --- how it looks


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0.0s"), (9.99, "9.9s"), (10, "10s"), (59.9, "59s"), (252.1, "4m12s"), (3723, "1h02m"), (273600, "3d04h")],
)
def test_a_span_has_two_units_at_most(seconds, shown):
    assert words.span(seconds) == shown


TEXT = st.text(min_size=1, max_size=60)


def holder(label, weight):
    return Holder("12345678", 2**53, weight, 1e6, 1e6, label, False, "o", False, False)


@given(st.lists(st.tuples(TEXT, TEXT, st.integers(1, 99)), min_size=1, max_size=5))
def test_tables_fit_80_columns(found):
    rows = []
    for name, label, weight in found:
        queue = (Waiter("12345678", weight, 0, 1e6, label, False, "o", False),)
        held = (holder(label, weight), holder("x", weight))
        status = LockStatus(held, queue, 1, 1000, 100_000, 100_000, 5, 10**9, 1.0, None, held=99_995)
        rows.append(Row("semaphore", name, status, 0.0))
        idle = replace(status, holders=(), holding=0, granted_ago=3599.0)
        rows.append(Row("semaphore", name, idle, 0.0))
    lines = [line for last in (False, True) for line in words.summary(map(words.entry, rows), 80, last_used=last)]
    for row in rows:
        lines += words.described(row, 80, whole_queue=True)
    assert max(map(cell_len, lines)) <= 80


def test_a_text_is_shortened_in_its_middle():
    assert table.fitted("order:2026-11-23:42", 11) == "order…23:42"
    assert table.fitted("short", 11) == table.fitted("short", None) == "short"


# --- release


def test_release_takes_the_lease_and_hands_the_name_over(call, labelled, hf):
    lease = labelled.lock("a").acquire()
    done = call(release, "a", "--reason", "stuck", "--yes", "--label", "ops@bastion")
    assert (done.exit_code, done.stdout) == (0, f"released lock 'a': 1 lease taken, up to fence {lease.fence}\n")
    assert lease.release() is False
    last = hf.lock("a").status().last
    assert (last.what, last.by, last.why) == ("force_release", "ops@bastion", "stuck")
    again = call(release, "a", "--reason", "stuck", "--yes")
    assert (again.exit_code, again.stderr) == (1, "handfast: 'a' is not held\n")


def test_release_says_who_has_the_name_next(call, labelled, hf, start, server):
    lease = labelled.lock("a").acquire()
    start(*HANDFAST, "a", "--url", server.url, "--label", "web-9:77", "--", "cat")
    until_queued(hf.lock("a"))
    done = call(release, "a", "--reason", "stuck", "--yes")
    assert done.stdout.endswith("; now held by 'web-9:77'\n")
    assert lease.release() is False


@pytest.mark.parametrize(
    ("kind", "take"),
    [
        ("semaphore", lambda hf: [hf.semaphore("a", 3).acquire(), hf.semaphore("a", 3).acquire()]),
        ("rwlock", lambda hf: [hf.rwlock("a").read().acquire(), hf.rwlock("a").read().acquire()]),
    ],
)
def test_release_takes_all_leases_of_a_name_of_any_kind(call, hf, kind, take):
    leases = take(hf)
    done = call(release, "a", "--reason", "stuck", "--yes", "--json")
    assert objects(done) == [
        {
            "namespace": "hf",
            "kind": kind,
            "name": "a",
            "released": 2,
            "up_to_fence": max(lease.fence for lease in leases),
            "reason": "stuck",
            "fence": None,
            "label": None,
        }
    ]
    assert [lease.release() for lease in leases] == [False, False]


@pytest.mark.parametrize("kind", ["election", "group"])
def test_release_of_a_leader_or_a_member_spares_a_lock_of_that_name(call, hf, kind):
    lease = hf.election("a").acquire() if kind == "election" else hf.group("a").join()
    with hf.lock("a") as beside:
        assert call(release, "a", "--kind", kind, "--reason", "stuck", "--yes").stdout.startswith(
            f"released {kind} 'a'"
        )
        assert not beside.lost
    eventually(lambda: lease.lost)
    lease.release()


def test_release_takes_leases_whose_state_the_server_has_lost(call, hf, raw):
    semaphore = hf.semaphore("a", 2)
    leases = [semaphore.acquire(), semaphore.acquire()]
    raw.delete("{hf:semaphore:a}:state")
    assert "held" in call(show, "a").stdout
    assert call(release, "a", "--reason", "stuck", "--yes").exit_code == 0
    assert [lease.release() for lease in leases] == [False, False]


def test_release_frees_a_lock_that_stays_taken_after_its_release(call, hf):
    hf.lock("a", at_least=60).acquire().release()
    assert hf.lock("a").try_acquire() is None
    assert call(release, "a", "--reason", "again, please", "--yes").exit_code == 0
    hf.lock("a").try_acquire().release()


def test_release_of_a_name_that_is_held_as_two_kinds_asks_which(call, hf):
    with hf.lock("a") as lock, hf.semaphore("a", 1):
        done = call(release, "a", "--reason", "stuck", "--yes")
        assert done.exit_code == 64
        assert "held as lock and semaphore" in done.stderr
        lock.extend(30)
        call(release, "a", "--reason", "stuck", "--yes", "--kind", "lock")
        assert hf.lock("a").status().holding == 0
        assert hf.semaphore("a", 1).status().holding == 1
        lock.release()


def test_release_asks_for_a_confirmation_where_it_cannot_ask(call, hf):
    with hf.lock("a") as lease:
        done = call(release, "a", "--reason", "stuck")
        assert done.exit_code == 64
        assert "--yes" in done.stderr
        lease.extend(30)


def test_release_up_to_a_fence_spares_a_later_lease(call, hf):
    old = hf.lock("a").acquire()
    old.release()
    with hf.lock("a") as lease:
        done = call(release, "a", "--reason", "stuck", "--yes", "--if-fence", str(old.fence))
        assert (done.exit_code, done.stdout) == (1, "")
        assert f"nothing was taken: 'a' has no lease up to fence {old.fence}" in done.stderr
        lease.extend(30)


# --- release of one holder


@pytest.fixture
def four(server, raw):
    """Four leases of a semaphore, of clients with a label each."""
    clients = [Handfast(server.url, label=f"gpu-{number}:7") for number in range(4)]
    yield [client.semaphore("gpu", 4).acquire() for client in clients]
    for client in clients:
        client.close(release=True)


@pytest.mark.parametrize("which", [0, 2, 3])
def test_release_of_one_holder_says_which_and_spares_the_others(call, hf, four, which):
    taken, others = four[which], [lease for lease in four if lease is not four[which]]
    words = ["gpu", "--reason", "hangs", "--yes", "--fence", str(taken.fence)]
    done = call(release, *words, "--label", "ops@bastion")
    labels = [f"'gpu-{number}:7'" for number in range(4) if number != which]
    assert done.exit_code == 0, done.stderr
    text, _, next_text = done.stdout.partition("; now held by ")
    assert text == f"released semaphore 'gpu': the lease of 'gpu-{which}:7' with fence {taken.fence} taken"
    assert sorted(next_text.strip().split(", ")) == labels
    eventually(lambda: taken.lost)
    for lease in others:
        lease.extend(30)
    (entry,) = hf.audit()
    assert (entry.what, entry.count, entry.fence, entry.single) == ("release", 1, taken.fence, True)
    assert (entry.name, entry.by, entry.why) == ("gpu", "ops@bastion", "hangs")
    again = call(release, *words)
    assert (again.exit_code, again.stdout) == (1, "")
    assert again.stderr == f"handfast: nothing was taken: 'gpu' has no lease with fence {taken.fence}\n"
    assert len(hf.audit()) == 1


def test_the_audit_distinguishes_a_release_up_to_a_fence_from_that_of_one(call, hf, four):
    call(release, "gpu", "--reason", "hang", "--yes", "--if-fence", str(four[0].fence))
    assert [(one.count, one.fence, one.single) for one in hf.audit()] == [(1, four[0].fence, False)]


def test_release_of_one_holder_as_json(call, four):
    taken = four[1]
    words = ["gpu", "--reason", "hangs", "--yes", "--fence", str(taken.fence), "--json"]
    common = {"namespace": "hf", "kind": "semaphore", "name": "gpu"}
    of_one = {"up_to_fence": None, "reason": "hangs", "fence": taken.fence, "label": "gpu-1:7"}
    (found,) = objects(call(release, *words))
    assert found == common | {"released": 1} | of_one
    (found,) = objects(call(release, *words))
    assert found == common | {"released": 0} | of_one | {"label": None}


def test_release_of_one_holder_and_of_all_exclude_each_other(call, hf):
    with hf.lock("a") as lease:
        done = call(release, "a", "--reason", "stuck", "--yes", "--fence", str(lease.fence), "--if-fence", "9")
        assert (done.exit_code, "Use one of --fence and --if-fence" in done.stderr) == (64, True)
        for fence in ("0", "-1", "x", "1.5"):
            assert call(release, "a", "--reason", "stuck", "--yes", "--fence", fence).exit_code == 64
        lease.extend(30)


@pytest.mark.parametrize("answer", [True, False])
def test_release_of_one_holder_asks_about_that_one(call, four, monkeypatch, answer):
    asked = []
    monkeypatch.setattr(module, "sys", SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True)))
    monkeypatch.setattr(module.click, "confirm", lambda text, **_: asked.append(text) or answer)
    done = call(release, "gpu", "--reason", "hangs", "--fence", str(four[2].fence))
    assert asked == [f"\nTake the lease of 'gpu-2:7' with fence {four[2].fence} away?"]
    assert all(f"gpu-{number}:7" in done.stderr for number in range(4)), "it shows all of them"
    assert done.exit_code == (0 if answer else 1)
    assert four[2].release() is not answer
    gone = call(release, "gpu", "--reason", "hangs", "--fence", str(four[2].fence))
    assert (gone.exit_code, len(asked)) == (1, 1), "there is nothing to ask about"


def test_release_of_one_holder_that_is_not_listed(call, hf, monkeypatch):
    """As of a read-write lock with more readers than a status lists: its label is not known."""
    leases = [hf.rwlock("a").read().acquire() for _ in range(2)]
    monkeypatch.setattr(looking, "LISTED", 1)
    done = call(release, "a", "--reason", "stuck", "--yes", "--fence", str(leases[1].fence))
    assert done.exit_code == 0
    assert done.stdout.startswith(f"released rwlock 'a': the lease with fence {leases[1].fence} taken")
    assert [lease.release() for lease in leases] == [True, False]


# --- the documentation


def test_every_key_of_the_json_is_documented_in_its_order(call, labelled, hf, waiting):
    with labelled.lock("a"):
        waiting(hf.lock("a"))
        (listed,), (shown,) = objects(call(ls, "--json")), objects(call(show, "a", "--json"))
        assert list(listed) == documented("### Objects of names")
        assert list(shown)[: len(listed)] == list(listed)
        assert [*list(shown)[len(listed) :]] == ["holders", "waiters", "last"]
        ours = documented("### Holders and waiters")
        assert [key for key in ours if key in shown["holders"][0]] == list(shown["holders"][0])
        assert [key for key in ours if key in shown["waiters"][0]] == list(shown["waiters"][0])
        assert set(ours) == set(shown["holders"][0]) | set(shown["waiters"][0])
