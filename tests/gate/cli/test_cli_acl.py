"""``handfast acl`` and ``handfast script load`` as commands: the line that they print, and the exit code."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest
import redis
from click.testing import CliRunner

from handfast import Handfast
from handfast.acl import NAMESPACED, USES, rights_for, scripts_for
from handfast.acl.check import CHECK
from handfast.cli.acl import PASSWORD, command
from handfast_lint.command import command as script

PAGE = Path(__file__).parents[3] / "docs/how-to/least-privilege.md"
UNREACHABLE = "redis://127.0.0.1:1/0"


def acl(*words, given=None):
    return CliRunner().invoke(command, words, input=given)


def words_of(line):
    """Split a line without quotes as redis-cli does."""
    assert not set(line) & set("\"'")
    return line.split(" ")


@pytest.fixture
def app(raw, server):
    """Return a function that runs a line as an operator and returns the URL of the user that it makes."""

    def run(line):
        assert raw.execute_command(*words_of(line)) in {"OK", True}
        return server.url.replace("unix://", "unix://app:secret@")

    yield run
    raw.acl_deluser("app")
    raw.acl_log_reset()


# --- the line


def test_line_makes_a_user_that_may_use_the_primitives(app):
    done = acl("--plain", "--password-file", "-", "--namespace", "billing", given="secret\n")
    assert done.exit_code == 0
    with Handfast(app(done.stdout.rstrip("\n")), namespace="billing") as hf:
        with hf.lock("a"), hf.semaphore("a", 2), hf.rwlock("a").read(), hf.lock_all(["b", "c"]), hf.rlock("d"):
            pass
        hf.scores("a").advance({"x": 1.0})
        hf.autocomplete("a").add("x")


def test_comments_explain_the_parts_of_the_line():
    *comments, line = acl().stdout.splitlines()
    assert comments
    assert all(comment.startswith("#") for comment in comments)
    for part in (
        "~{hf:lock:*",
        "&hf:control:*",
        "+info +subscribe +pubsub|numsub",
        "+evalsha +eval",
        "namespace 'hf'",
        PASSWORD[1:],
    ):
        assert part in "\n".join(comments)
    assert line == acl("--plain").stdout.rstrip("\n")
    usual = [use for use in NAMESPACED if use not in ("names", "operate", "check_server", "min_replicas")]
    assert words_of(line) == ["ACL", "SETUSER", "app", "reset", "on", PASSWORD, *rights_for(usual).rules()]


def test_server_refuses_the_line_without_a_password(raw):
    with pytest.raises(redis.ResponseError, match="SHA-256"):
        raw.execute_command(*words_of(acl("--plain").stdout.rstrip("\n")))
    assert "app" not in raw.acl_users()


def test_options_are_passed_to_the_library():
    done = acl("--plain", "--for", "lock,compat", "--key", "report*", "--preloaded", "--redis", "7.2", "--user", "me")
    rights = rights_for(["lock", "compat"], keys=["report*"], preloaded=True, tells_its_name=True)
    assert words_of(done.stdout.rstrip("\n"))[2:] == ["me", "reset", "on", PASSWORD, *rights.rules()]
    assert words_of(acl("--plain", "--for", "all", "--key", "k").stdout.rstrip("\n"))[6:] == [
        *rights_for(USES, keys=["k"]).rules()
    ]
    assert "handfast script load --for lock" in acl("--for", "lock", "--preloaded").stdout


@pytest.mark.parametrize(("version", "is_sharded"), [("6.2", False), ("7.0", True)])
def test_sharded_channels_are_allowed_in_clusters_of_versions_that_know_them(version, is_sharded):
    line = acl("--plain", "--cluster", "--redis", version).stdout
    assert "+asking" in line
    assert [rule in line for rule in ("+ssubscribe", "+spublish", "+pubsub|shardnumsub")] == [is_sharded] * 3


@pytest.mark.parametrize(
    ("version", "tells"), [("6.2", True), ("6.2.14", True), ("7.0", False), ("7.2", True), ("8.0", True), ("9.1", True)]
)
def test_client_setinfo_is_allowed_for_versions_that_accept_the_rule(version, tells):
    assert ("+client|setinfo" in acl("--plain", "--redis", version).stdout) is tells


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--for", "nonsense"], "'nonsense' is not one of lock"),
        (["--for", ""], "'' is not one of"),
        (
            ["--for", "compat"],
            "Compat needs the patterns of the keys on which it is used: pass keys=, or --key on the command line.",
        ),
        (["--key", "a"], "Only compat and fencing"),
        (["--for", "compat", "--key", "a b"], "without blanks"),
        (["--namespace", ""], "Namespace must not be empty."),
        (["--redis", "6.0"], "not a version of Redis from 6.2 on"),
        (["--redis", "new"], "not a version of Redis from 6.2 on"),
        (["--user", "a b"], "without blanks"),
        (["--user", ""], "without blanks"),
        (["--password-file", "-"], "The password is empty."),
    ],
)
def test_wrong_usage_exits_64_with_a_message(words, said):
    done = acl(*words)
    assert done.exit_code == 64
    assert said in done.stderr
    assert done.stdout == ""


def test_password_is_printed_as_a_hash_only(tmp_path):
    (tmp_path / "password").write_text("s3cret\n")
    done = acl("--password-file", str(tmp_path / "password"))
    assert hashlib.sha256(b"s3cret").hexdigest() in done.stdout
    assert "s3cret" not in done.stdout
    assert PASSWORD not in done.stdout


@pytest.mark.parametrize("pattern", ['a"b', "a'b*", 'a\\"', "{a}*", "a\\*b", "é?"])
def test_redis_cli_parses_the_quoted_line(pattern, raw, server):
    if shutil.which("redis-cli") is None:
        pytest.skip("there is no redis-cli")
    done = acl("--plain", "--for", "fencing", "--key", pattern, "--password-file", "-", given="secret")
    try:
        said = subprocess.run(
            ["redis-cli", "-s", server.socket],
            input=done.stdout,
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        )
        assert said.stdout == "OK\n"
        assert f"~{pattern}" in next(text for text in raw.acl_list() if text.startswith("user app "))
    finally:
        raw.acl_deluser("app")


# --- --check


def test_check_prints_the_line_that_grants_missing_rights(app, raw):
    if raw.info("server")["redis_version"] < "7":
        pytest.skip("this server cannot tell")
    rules = rights_for(["lock"]).rules()
    made = "ACL SETUSER app reset on >secret " + " ".join(
        rule for rule in rules if rule not in {"+zadd", "&hf:control:*"}
    )
    url = app(made)
    done = acl("--check", url, "--for", "lock")
    assert (done.exit_code, done.stdout) == (1, "ACL SETUSER app &hf:control:* +zadd\n")
    assert "'app' lacks rights" in done.stderr
    app(done.stdout.rstrip("\n"))
    done = acl("--check", url, "--for", "lock")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "has all these rights" in done.stderr


def test_the_line_grants_all_at_once_unless_the_user_may_run_no_scripts(app, raw):
    if raw.info("server")["redis_version"] < "7":
        pytest.skip("this server cannot tell")
    for granted, rounds in (("+eval +evalsha ~other:*", 1), ("+eval +evalsha ~* resetchannels", 1), ("+@read ~*", 2)):
        url = app(f"ACL SETUSER app reset on >secret {granted}")
        for number in range(rounds):
            done = acl("--check", url, "--for", "lock")
            assert ("check again" in done.stderr) == (number + 1 < rounds), granted
            app(done.stdout.rstrip("\n"))
        assert acl("--check", url, "--for", "lock").exit_code == 0, granted


def test_check_of_an_unrestricted_user_finds_nothing(raw, server):
    done = acl("--check", server.url)
    can_tell = raw.info("server")["redis_version"] >= "7"
    assert done.exit_code == (0 if can_tell else 69)
    assert ("'default' has all these rights" if can_tell else "takes Redis 7.0") in done.stderr


@pytest.mark.parametrize(("url", "code"), [(UNREACHABLE, 69), ("nonsense", 64)])
def test_check_of_an_unreachable_server_fails(url, code):
    done = acl("--check", url)
    assert done.exit_code == code
    assert done.stderr.startswith("handfast: ")


def test_check_of_a_preloaded_user_needs_the_check_script_loaded(app, raw):
    if raw.info("server")["redis_version"] < "7":
        pytest.skip("this server cannot tell")
    url = app("ACL SETUSER app reset on >secret " + " ".join(rights_for(["lock"], preloaded=True).rules()))
    raw.script_flush()
    done = acl("--check", url, "--for", "lock", "--preloaded")
    assert done.exit_code == 69
    assert "handfast script load" in done.stderr
    raw.script_load(CHECK.source)
    assert acl("--check", url, "--for", "lock", "--preloaded").exit_code == 0


# --- script load


def load(*words):
    return CliRunner().invoke(script, ["load", *words])


def test_load_loads_all_scripts_and_prints_their_digests(raw, server):
    raw.script_flush()
    done = load("--url", server.url)
    digests = [line.split("  ")[0] for line in done.stdout.splitlines()]
    assert done.exit_code == 0
    assert set(digests) == {known.digest for known in (*scripts_for(USES), CHECK)}
    assert raw.script_exists(*digests) == [True] * len(digests)


def test_load_for_loads_only_the_scripts_of_a_primitive(raw, server):
    raw.script_flush()
    done = load("--for", "scores", "--url", server.url)
    assert [line.split("  ")[1] for line in done.stdout.splitlines()] == ["scores_advance", "rights_check"]
    assert raw.script_exists(scripts_for(["lock"])[0].digest) == [False]


def test_load_loads_scripts_from_files(raw, server, tmp_path):
    (tmp_path / "one.lua").write_text("return 1")
    done = load(str(tmp_path / "one.lua"), "--url", server.url)
    digest, name = done.stdout.rstrip("\n").split("  ")
    assert (digest, name) == (hashlib.sha1(b"return 1").hexdigest(), str(tmp_path / "one.lua"))
    assert raw.evalsha(digest, 0) == 1


def test_load_failure_exits_with_a_message(raw, server, tmp_path, app):
    (tmp_path / "wrong.lua").write_text("return (")
    (tmp_path / "latin.lua").write_bytes(b"-- \xe9")
    url = app("ACL SETUSER app reset on >secret " + " ".join(rights_for(["lock"]).rules()))
    for words, code, said in (
        ([str(tmp_path / "wrong.lua"), "--url", server.url], 1, "compil"),
        ([str(tmp_path / "latin.lua"), "--url", server.url], 64, "not UTF-8"),
        ([str(tmp_path / "none.lua"), "--url", server.url], 64, "No such file"),
        (["--for", "nonsense", "--url", server.url], 64, "'nonsense' is not one of"),
        (["--url", UNREACHABLE], 69, "handfast: "),
        (["--url", "nonsense"], 64, "scheme"),
        (["--url", url], 69, "script"),
    ):
        done = load(*words)
        assert (done.exit_code, done.stdout) == (code, "")
        assert said in done.stderr


# --- the page


def test_page_shows_the_printed_line():
    page = PAGE.read_text()
    assert f"\n{acl('--plain', '--for', 'lock').stdout}" in page
