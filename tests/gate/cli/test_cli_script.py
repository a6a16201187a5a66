"""``handfast script`` as a command: files in, findings or a reply out, and an exit code."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from handfast_lint import RULES
from handfast_lint.command import command

ROOT = Path(__file__).parents[3]

GOOD = "return redis.call('GET', KEYS[1])\n"

WRONG = "local id = ARGV[1]\nreturn redis.call('GET', 'user:' .. id)\n"

WARNED = "return redis.call('SPOP', KEYS[1])\n"

TAKE = """\
-- take: move an amount from one account to others.
--
-- KEYS from to...
-- ARGV amount
-- REPLY taken left moved
-- REPLY short
-- REPLY - a list, for an amount of 0
local from, amount = KEYS[1], tonumber(ARGV[1])
local left = tonumber(redis.call('GET', from) or 0)
if amount == 0 then
  return {1, {2, {}, 'x', false}, 'yes'}
end
if left < amount then
  return {'short'}
end
redis.call('DECRBY', from, amount)
for i = 2, #KEYS do
  redis.call('INCRBY', KEYS[i], amount)
end
return {'taken', left - amount, {#KEYS - 1, 'a\\tb'}}
"""


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Return a function that writes files into the current folder."""
    monkeypatch.chdir(tmp_path)

    def write(**sources):
        for name, source in sources.items():
            path = tmp_path / f"{name}.lua"
            path.write_bytes(source if isinstance(source, bytes) else source.encode())

    return write


@pytest.fixture
def handfast(server, raw, monkeypatch):
    """Return a function that runs ``handfast script`` against the server of the tests."""
    monkeypatch.setenv("HANDFAST_URL", server.url)
    return lambda *words, given=None: CliRunner().invoke(command, words, input=given)


# check
def test_check_prints_nothing_but_a_summary_for_a_correct_script(files, handfast):
    files(good=GOOD)
    done = handfast("check", "good.lua")
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == "1 script checked: no findings\n"


def test_check_prints_a_finding_with_its_source_line_and_column(files, handfast):
    files(get=WRONG)
    done = handfast("check", "get.lua")
    assert done.exit_code == 1
    first, second, third = done.stdout.splitlines()
    assert first.startswith("get.lua:2:26: error [undeclared-key] GET is called on a key that the script builds")
    assert second == "    2 | return redis.call('GET', 'user:' .. id)"
    assert third == "      |                          ^"
    assert second[third.index("^") :].startswith("'user:'")
    assert done.stderr == "1 script checked: 1 error\n"


@pytest.mark.parametrize("before", ["\t\t", "'ä' == 'ä' and ", "'漢字' ~= '' and "])
def test_check_puts_the_mark_below_the_column_whatever_precedes_it(files, handfast, before):
    from rich.cells import cell_len

    files(get=f"local a = {before}redis.call('GET', 'x')\nreturn a\n")
    _, line, mark = handfast("check", "get.lua").stdout.splitlines()
    assert cell_len(mark.partition("^")[0]) == cell_len(line.partition("'x'")[0])


def test_check_prints_no_control_characters(files, handfast):
    files(get=b"local a = '\x1b[2J\x07' return redis.call('GET', 'x') .. a\n")
    out = handfast("check", "get.lua").stdout
    assert not set(out) & {"\x1b", "\x07"}
    assert "GET" in out


def test_check_exits_1_on_warnings_only_if_strict(files, handfast):
    files(pop=WARNED)
    done = handfast("check", "pop.lua")
    assert done.exit_code == 0
    assert "pop.lua:1:8: warning [random] SPOP" in done.stdout
    assert done.stderr == "1 script checked: 1 warning\n"
    assert handfast("check", "--strict", "pop.lua").exit_code == 1


def test_check_takes_several_files_and_folders(files, handfast):
    files(good=GOOD, get=WRONG)
    Path("inner").mkdir()
    Path("inner/pop.lua").write_text(WARNED)
    Path("inner/notes.txt").write_text("no Lua")
    done = handfast("check", "get.lua", "inner", "good.lua", "get.lua")
    assert done.exit_code == 1
    assert re.findall(r"^\S+: \w+", done.stdout, re.MULTILINE) == [
        "get.lua:2:26: error",
        f"inner{os.sep}pop.lua:1:8: warning",
    ]
    assert done.stderr == "3 scripts checked: 1 error, 1 warning\n"


def test_check_reads_standard_input(handfast):
    done = handfast("check", "-", given=WRONG)
    assert done.exit_code == 1
    assert done.stdout.startswith("<stdin>:2:26: error")


def test_check_json_prints_an_array_of_objects(files, handfast):
    files(get=WRONG, good=GOOD)
    done = handfast("check", "--json", "get.lua", "good.lua")
    assert (done.exit_code, done.stderr) == (1, "")
    (found,) = json.loads(done.stdout)
    assert found.pop("message").startswith("GET is called on a key that the script builds")
    assert found == {"file": "get.lua", "line": 2, "column": 26, "rule": "undeclared-key", "severity": "error"}
    assert handfast("check", "--json", "good.lua").stdout == "[]\n"


def test_check_oldest_sets_the_oldest_servers(files, handfast):
    files(pop="return redis.call('LMPOP', 1, KEYS[1], 'LEFT')\n")
    assert handfast("check", "pop.lua").exit_code == 1
    assert handfast("check", "--oldest", "redis=7.0,valkey=7.2", "pop.lua").exit_code == 0
    done = handfast("check", "--oldest", "redis", "pop.lua")
    assert done.exit_code == 64
    assert "write redis=6.2 or valkey=7.2" in done.stderr


def test_check_exits_64_on_wrong_usage(files, handfast):
    files(good=GOOD)
    Path("empty").mkdir()
    for words, message in (
        ((), "Missing argument"),
        (("gone.lua",), "Cannot read 'gone.lua': No such file or directory."),
        (("good.lua", "gone.lua"), "Cannot read 'gone.lua'"),
        (("empty",), "There is no .lua file in 'empty'."),
        (("--loud", "good.lua"), "No such option"),
    ):
        done = handfast("check", *words)
        assert (done.exit_code, done.stdout) == (64, ""), words
        assert message in done.stderr


def test_check_reports_a_file_that_is_not_utf8(files, handfast):
    files(raw=b"return 1\n-- \xff\n")
    done = handfast("check", "raw.lua")
    assert done.exit_code == 1
    assert "raw.lua:2:1: error [syntax] this is not UTF-8" in done.stdout


def test_check_rules_lists_the_rules(handfast):
    done = handfast("check", "--rules")
    assert done.exit_code == 0
    assert [line.split()[0] for line in done.stdout.splitlines()] == list(RULES)


def test_pre_commit_hook_installs_the_linter_of_its_own_commit():
    hook = (ROOT / ".pre-commit-hooks.yaml").read_text()
    assert '  additional_dependencies: ["./lint"]\n' in hook
    assert "- id: handfast-script-check" in hook
    assert "  entry: handfast script check\n" in hook
    assert "  language: python\n" in hook
    (pattern,) = re.findall(r"^  files: (.*)$", hook, re.MULTILINE)
    assert re.search(pattern.strip("'\""), "scripts/take.lua")
    assert not re.search(pattern.strip("'\""), "scripts/take.luac")


def test_run_command_does_not_import_the_linter():
    source = "import sys; from handfast.cli import _group; _group().get_command(None, 'run'); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True, timeout=30)
    assert "handfast.cli.run" in loaded.stdout.split()
    assert not [name for name in loaded.stdout.split() if name.startswith(("handfast_lint", "tree_sitter"))]


# run
def test_run_labels_the_fields_of_a_reply_that_the_header_lists(files, handfast, raw):
    files(take=TAKE)
    raw.set("a", 10, px=60_000)
    done = handfast("run", "take.lua", "--key", "from=a", "--key", "to=b", "--key", "to=c", "--arg", "amount=3")
    assert done.exit_code == 0
    assert done.stdout == 'taken\n  left   (integer) 7\n  moved  1) (integer) 2\n         2) "a\\tb"\n'
    assert raw.mget("a", "b", "c") == ["7", "3", "3"]
    assert handfast("run", "take.lua", "--key", "from=a", "--arg", "amount=30").stdout == "short\n"
    raw.delete("b", "c")


def test_run_prints_other_replies_as_redis_cli_does(files, handfast):
    files(take=TAKE)
    done = handfast("run", "take.lua", "--key", "from=a", "--arg", "amount=0")
    assert done.stdout == (
        '1) (integer) 1\n2) 1) (integer) 2\n   2) (empty array)\n   3) "x"\n   4) (nil)\n3) "yes"\n'
    )  # fmt: skip -- as it is shown
    assert done.exit_code == 0


def test_run_json_prints_the_reply_as_json(files, handfast, raw):
    files(take=TAKE)
    raw.set("a", 10, px=60_000)
    words = ("run", "--json", "take.lua", "--key", "from=a", "--arg")
    assert json.loads(handfast(*words, "amount=0").stdout) == [1, [2, [], "x", None], "yes"]
    assert json.loads(handfast(*words, "amount=3").stdout) == ["taken", 7, [0, "a\tb"]]


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("return 5", "(integer) 5"),
        ("return nil", "(nil)"),
        ("return 'ä\\027[2J'", '"ä\\u001b[2J"'),
        ("return '\\255'", '"\\\\xff"'),
        ("return {}", "(empty array)"),
        ("return redis.status_reply('FINE')", '"FINE"'),
        ("redis.setresp(3) return {double = 1.5}", ("(double) 1.5", '"1.5"')),
        ("redis.setresp(3) return true", ("(true)", "(integer) 1")),
        ("redis.setresp(3) return redis.call('HGETALL', 'none')", ("(empty hash)", "(empty array)")),
    ],
)
def test_run_prints_every_type_of_reply(handfast, source, shown):
    """A RESP2 client receives some of them as other types."""
    done = handfast("run", "-", given=source)
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.rstrip("\n") in (shown if isinstance(shown, tuple) else (shown,))


@pytest.mark.parametrize(
    ("source", "as_text", "as_json"),
    [
        ("return {1, redis.error_reply('A b')}", "1) (integer) 1\n2) (error) A b", [1, {"error": "A b"}]),
        ("redis.setresp(3) return {double = 1/0}", ("(double) inf", '"inf"'), "inf"),
    ],
)
def test_run_prints_what_json_has_no_word_for(handfast, source, as_text, as_json):
    assert handfast("run", "-", given=source).stdout.rstrip("\n") in as_text
    done = handfast("run", "-", "--json", given=source)
    assert (done.exit_code, json.loads(done.stdout)) == (0, as_json)


def test_run_reads_a_file_with_a_byte_order_mark(files, handfast):
    files(one="\ufeffreturn 1")
    assert handfast("run", "one.lua").stdout == "(integer) 1\n"


def test_run_passes_on_the_bytes_that_were_given(handfast):
    done = handfast("run", "-", "--arg", "a\udcff", given="return #ARGV[1]")
    assert (done.exit_code, done.stdout) == (0, "(integer) 2\n")


def test_check_leaves_out_links_that_lead_nowhere(files, handfast, tmp_path):
    files(good="return 1\n")
    (tmp_path / ".#take.lua").symlink_to("someone@host.1234")
    done = handfast("check", ".")
    assert (done.exit_code, done.stderr) == (0, "1 script checked: no findings\n")


def test_run_passes_values_in_order_without_a_header(handfast):
    done = handfast(
        "run", "-", "--key", "a=b", "--arg", "c", "--arg", "d=e", given="return {KEYS[1], ARGV[1], ARGV[2]}"
    )
    assert done.stdout == '1) "a=b"\n2) "c"\n3) "d=e"\n'


def test_run_accepts_a_value_with_an_equals_sign(files, handfast, raw):
    files(get="-- KEYS key\nreturn redis.call('GET', KEYS[1])\n")
    raw.set("a=b", "c", px=60_000)
    assert handfast("run", "get.lua", "--key", "key=a=b").stdout == '"c"\n'


def test_run_prints_the_source_line_of_a_failure(files, handfast):
    files(take=TAKE)
    done = handfast("run", "take.lua", "--key", "from=a", "--arg", "amount=x")
    assert (done.exit_code, done.stdout) == (1, "")
    first, second = done.stderr.splitlines()
    assert first == "take.lua:13: attempt to compare number with nil"
    assert second == "   13 | if left < amount then"


def test_run_exits_1_on_an_error_reply(handfast):
    done = handfast("run", "-", given="return redis.error_reply('NOACCOUNT there is none')")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == "(error) NOACCOUNT there is none\n"


def test_run_exits_1_on_a_reply_that_the_header_does_not_list(handfast):
    done = handfast("run", "-", given="-- REPLY taken left\nreturn 7")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "does not list the reply 7" in done.stderr


def test_run_checks_names_before_it_connects(files, handfast, monkeypatch):
    files(take=TAKE, odd="-- KEYS a-b\nreturn 1\n", raw=b"-- \xff\n")
    monkeypatch.setenv("HANDFAST_URL", "unix:///nowhere/there")
    ok = ("--key", "from=a", "--arg", "amount=1")
    for words, message in (
        (("take.lua",), "Missing: --key from=..."),
        (("take.lua", "--key", "from=a"), "Missing: --arg amount=..."),
        (("take.lua", *ok, "--arg", "amount=2"), "--arg amount is given twice"),
        (
            ("take.lua", *ok, "--key", "form=a"),
            "--key 'form=a' does not start with NAME= for a name of the header; its names are: from, to",
        ),
        (
            ("take.lua", *ok, "--arg", "3"),
            "--arg '3' does not start with NAME= for a name of the header; its names are: amount",
        ),
        (("odd.lua",), "The header of 'odd.lua' is wrong, on line 1"),
        (("raw.lua",), "'raw.lua' is not UTF-8"),
        (("gone.lua",), "Cannot read 'gone.lua'"),
        (("take.lua", *ok, "--url", "nonsense"), "must begin with a scheme and two slashes"),
        ((), "Missing argument"),
    ):
        done = handfast("run", *words)
        assert (done.exit_code, done.stdout) == (64, ""), words
        assert message in done.stderr, done.stderr
    done = handfast("run", "take.lua", *ok)
    assert done.exit_code == 69
    assert done.stderr.startswith("handfast: ")
