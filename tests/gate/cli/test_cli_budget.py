"""``handfast budget``: the sums of a budget and of each key, and limits that operators set."""

from __future__ import annotations

import json
import re

import pytest
from click.testing import CliRunner

from handfast import BudgetExceeded
from handfast.cli.operate.audit import command as audit
from handfast.cli.operate.budget import command as budget
from handfast.cli.operate.ls import command as ls
from handfast.cli.operate.show import command as show


@pytest.fixture
def call(server, raw):
    """Return a function that runs a command on the server."""
    return lambda command, *words: CliRunner().invoke(command, [*words, "--url", server.url])


def cells(line):
    return re.split("  +", line)


def spend(made, amount):
    with made.reserve(amount):
        pass


def test_ls_and_show_tell_how_much_is_spent(call, hf):
    made = hf.budget("llm", "1000.00/month", zone="Europe/Berlin", begins=15)
    spend(made.keyed("acme"), "993.42")
    with made.keyed("beta", "x").reserve("3.42"):
        lines = call(ls).stdout.splitlines()
    assert cells(lines[0]) == ["BUDGET", "SPENT", "HELD", "LIMIT", "RESETS IN"]
    assert [cells(line)[:3] for line in lines[1:]] == [["llm|acme", "993.42", "1,000"], ["llm|beta|x", "0", "3.42"]]
    made.keyed("acme").set_limit("2000", reason="a bigger plan")
    shown = call(show, "llm|acme").stdout
    assert shown.startswith("budget llm|acme\n  993.42 of 2,000 spent this month\n  the next month begins in ")
    assert re.search(r"in Europe/Berlin\n\n  last: resize by .*\n +limit 2000: a bigger plan\n$", shown)
    found = json.loads(call(show, "llm|acme", "--json").stdout)
    assert {
        name: found[name] for name in ("spent", "held", "limit", "remaining", "period", "zone", "begins", "was")
    } == {
        "spent": "993.42",
        "held": "0",
        "limit": "2000",
        "remaining": "1006.58",
        "period": "month",
        "zone": "Europe/Berlin",
        "begins": 15,
        "was": "0",
    }
    assert (found["is_set"], found["last"]["what"]) == (True, "resize")
    spend(hf.budget("day", "5/day"), 1)
    spend(hf.budget("all", "5/total"), 1)
    assert "1 of 5 spent today" in call(show, "day").stdout
    assert call(show, "all").stdout == "budget all\n  1 of 5 spent in total\n"


def test_show_lists_a_name_and_its_keys_the_fullest_first(call, hf):
    made = hf.budget("llm", "10/month")
    spend(made, 1)
    spend(made.keyed("acme"), 5)
    spend(made.keyed("acme", "x"), 9)
    spend(hf.budget("llm2", "10/month"), 9)
    lines = call(budget, "show", "llm").stdout.splitlines()
    assert [cells(line)[:2] for line in lines[1:]] == [["llm|acme|x", "9"], ["llm|acme", "5"], ["llm", "1"]]
    lines = call(budget, "show", "llm|acme").stdout.splitlines()
    assert [cells(line)[0] for line in lines[1:]] == ["llm|acme|x", "llm|acme"]
    found = [json.loads(line) for line in call(budget, "show", "llm", "--json").stdout.splitlines()]
    assert [one["spent"] for one in found] == ["9", "5", "1"]
    done = call(budget, "show", "nope")
    assert (done.exit_code, "the server does not know the budget 'nope'" in done.output) == (1, True)


def test_set_limits_all_programs_and_is_audited(call, hf):
    made = hf.budget("llm", "10/month", zone="Europe/Berlin").keyed("acme")
    spend(made, 3)
    done = call(budget, "set", "llm|acme", "5", "--reason", "too dear", "--label", "ann@web-1")
    assert re.fullmatch(r"budget 'llm\|acme': 3 of 5 spent; resets at .* UTC\n", done.stdout)
    with pytest.raises(BudgetExceeded):
        spend(made, 3)
    done = call(budget, "set", "llm", "--key", "acme", "none", "--at-least-spent", "7.5", "--reason", "the bill")
    assert done.stdout == "budget 'llm|acme' has the limit that each program brings\n"
    assert str(made.status()).startswith("7.50 of 10 spent; ")
    assert cells(call(ls).stdout.splitlines()[1])[:3] == ["llm|acme", "7.50", "10"]
    lines = [line.partition("  ")[2] for line in call(audit).stdout.splitlines()]
    assert lines[0] == "resize  budget 'llm|acme' to 5 by ann@web-1: too dear"
    assert lines[1].startswith("resize  budget 'llm|acme' to what each client brings by ")
    assert lines[2].startswith("raise   budget 'llm|acme' to 7.5 spent by ")
    assert str(hf.audit()[0]).endswith("UTC: resize budget 'llm|acme' to 5 by ann@web-1: too dear")


def test_set_makes_a_budget_where_nothing_is_spent_yet(call, hf):
    done = call(budget, "set", "new", "5", "--reason", "x")
    assert (done.exit_code, "the server does not know the budget 'new'; give --period" in done.output) == (1, True)
    words = ["--period", "month", "--zone", "Europe/Berlin", "--begins", "15"]
    assert call(budget, "set", "new", "5", "--reason", "x", *words).stdout.startswith("budget 'new': 0 of 5 spent; ")
    status = hf.budget("new", "9/month", zone="Europe/Berlin", begins=15).status()
    assert (int(status.limit), status.is_set, status.begins) == (5, True, 15)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--reason", "x"], "Give AMOUNT, --at-least-spent or both."),
        (["5"], "Missing option '--reason'"),
        (["5", "--reason", "x", "--zone", "UTC"], "--zone and --begins come with --period."),
        (["5", "--reason", "x", "--period", "month", "--zone", "Mars"], "'Mars' is no time zone"),
        (["5", "--reason", "x", "--period", "day", "--begins", "3"], "a day has no begins, not 3"),
        (["x", "--reason", "x", "--period", "day"], "AMOUNT must be a number such as '0.42', not 'x'"),
        (["0.1234567", "--reason", "x", "--period", "day"], "AMOUNT has at most 6 decimals"),
        (["5", "--at-least-spent", "x", "--reason", "x", "--period", "day"], "--at-least-spent must be a number"),
        (["5", "--reason", "x", "--period", "fortnight"], "'fortnight' is not one of"),
    ],
)
def test_wrong_usage_says_what_is_wrong(call, raw, words, said):
    done = call(budget, "set", "llm", *words)
    assert (done.exit_code, said in done.output) == (64, True), done.output
    assert raw.keys("*") == []
