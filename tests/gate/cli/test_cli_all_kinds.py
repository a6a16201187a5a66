"""``handfast ls`` and ``show`` of limiters, debounced names, latches, and of what `once` has recorded."""

from __future__ import annotations

import json
import re
import threading

import pytest
from click.testing import CliRunner

from handfast.cli.operate.ls import command as ls
from handfast.cli.operate.show import command as show
from tests._support.forked import PROGRAM
from tests._support.helpers import eventually
from tests._support.running import done, starting


@pytest.fixture
def call(server, raw):
    """Return a function that runs a command on the server."""
    return lambda command, *words: CliRunner().invoke(command, [*words, "--url", server.url])


def objects(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_ls_has_tables_for_limiters_debounced_names_and_latches(call, hf):
    hf.limiter("login", "3/min; 9/h").keyed("ann\n").acquire(cost=2)
    hf.limiter("set", "1/s").resize("40/min")
    hf.limiter("mail", "1/s").pause(60)
    hf.latch("import", 3).done("a", "b")
    hf.debounce("reindex", 0.001).wait()
    with hf.lock("order:42"):
        done = call(ls)
    tables = [[re.split("  +", line) for line in text.splitlines()] for text in done.stdout.split("\n\n")]
    assert [table[0][0] for table in tables] == ["NAME", "LIMITER", "LATCH"]
    head, login, mail = tables[1]
    assert head == ["LIMITER", "USED", "QUEUE", "WAITED", "PAUSED"]
    assert (login[:2], mail[0]) == ([r"login|ann\n", "2 in 1m, 2 in 1h"], "mail")
    assert re.fullmatch(r"5\ds", mail[1])
    assert tables[2] == [["LATCH", "DONE", "WAITING"], ["import", "2"]]
    assert [row["name"] for row in objects(call(ls, "--on-hold", "--json"))] == ["mail"]
    assert [row["name"] for row in objects(call(ls, "--kind", "limiter", "--all", "--json"))] == [
        "login|ann\n",
        "mail",
        "set",
    ]
    assert [row["done"] for row in objects(call(ls, "--kind", "latch", "--json"))] == [2]
    assert call(ls, "--waiting").exit_code == 1


def test_ls_all_says_what_once_has_recorded(call, hf, raw):
    hf.once("invoice").keyed(1).acquire().finish("x")
    hf.once("pay", rerun=False).keyed(2).acquire().release()
    raw.delete("{hf:once:invoice|1}:state", "{hf:once:invoice|1}:tokens")
    done = call(ls, "--all")
    rows = [re.split("  +", line) for line in done.stdout.splitlines()]
    assert [row[:3] for row in rows[1:]] == [["invoice|1", "once", "done"], ["pay|2", "once", "began, did not end"]]
    assert all(row[-1].endswith("ago") for row in rows[1:])
    assert [row["recorded"]["state"] for row in objects(call(ls, "--all", "--json"))] == ["done", "begun"]
    assert call(ls).exit_code == 1


def test_show_tells_all_of_a_limiter_a_debounced_name_and_a_latch(call, hf, other):
    hf.limiter("mail", "3/min").acquire(cost=2)
    hf.limiter("mail", "3/min").resize("9/min")
    hf.limiter("mail", "3/min").pause(60)
    hf.latch("mail", 30).done(*"abcdefghijkl")
    latch, parts, limiter = call(show, "mail").stdout.split("\n\n", 2)
    assert latch == "latch mail\n  12 parts done; no one waits"
    assert parts == "  Parts done\n    a, b, c, d, e, f, g, h, i, j and 2 more"
    says = r"limiter mail\n  2/9 in 1m used; no one waits\n  paused for 5\ds by \S+\n  2/9 in 1m are all free in 5\ds\n\n  last: pause"
    assert re.match(says, limiter)
    latch, limiter = objects(call(show, "mail", "--json"))
    assert (limiter["rates"][0]["limit"], limiter["last"]["what"], latch["done"]) == (9, "pause", 12)
    assert latch["parts"][0] == "a"
    calls = threading.Thread(target=hf.debounce("mail", 60.0).wait)
    calls.start()
    eventually(lambda: other.debounce("mail", 60.0).status().waiting)
    text = call(show, "mail", "--kind", "debounce").stdout
    assert re.fullmatch(r"debounce mail\n  runs in 5\ds; calls for \d\.\ds\n  0 items that no run has done\n", text)
    assert re.search(
        r"DEBOUNCE +RUNS IN +CALLS FOR +ITEMS\nmail +5\ds +\d\.\ds\n$", call(ls, "--kind", "debounce").stdout
    )
    assert other.debounce("mail", 0.001).wait()
    calls.join()


def test_what_a_command_makes_has_the_name_that_the_command_was_given(call, hf, server):
    with starting(forks=True) as start:
        for words in (["once", "a|b", "--keep", "1h"], ["limit", "a|b", "1/h"], ["done", r"a\|b|c", "x", "--of", "2"]):
            command = [*PROGRAM, *words, "--url", server.url]
            assert done(start(*command, *(["--", "true"] if words[0] == "once" else [])))[0] == 0
    assert hf.once("a").keyed("b").status().state == "done"
    assert hf.limiter("a", "1/h").keyed("b").status().rates[0].used == 1
    assert hf.latch("a|b", 2).keyed("c").status().done == ("x",)
    assert sorted(one.name for one in hf.names(recorded=True)) == [r"a\|b|c", "a|b", "a|b"]
