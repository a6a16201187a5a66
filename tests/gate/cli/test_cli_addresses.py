"""Every command finds the server by every address that the library takes."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from handfast.acl import scripts_for
from handfast.cli.acl import command as acl
from handfast.cli.acquire import command as acquire
from handfast.cli.demo.command import command as demo
from handfast.cli.operate.doctor import command as doctor
from handfast.cli.operate.ls import command as ls
from handfast.cli.run import command as run
from handfast_lint.command import command as script
from tests._support.sentinel import free_port


@pytest.fixture
def over_tcp(raw):
    """The address of the server of the tests, without its scheme."""
    port = free_port()
    raw.config_set("port", port)
    yield f"127.0.0.1:{port}/0"
    raw.config_set("port", 0)


def called(command, *words, given=None):
    return CliRunner().invoke(command, words, input=given)


def use_all(url, said="the rights"):
    """Run each command that reads, writes or asks the server directly."""
    assert called(script, "run", "-", "--url", url, given="return 'here'").stdout == '"here"\n'
    loaded = called(script, "load", "--for", "lock", "--url", url)
    assert (loaded.exit_code, loaded.stderr) == (0, "")
    assert len(loaded.stdout.splitlines()) > len(scripts_for(["lock"]))
    checked = called(acl, "--for", "lock", "--check", url)
    assert (checked.exit_code, checked.stdout) in ((0, ""), (69, "")), checked.stderr
    assert "has all these rights" in checked.stderr or "Redis 7.0" in checked.stderr
    assert called(ls, "--url", url).exit_code == 1
    assert called(doctor, "--url", url).exit_code == 0


@pytest.mark.parametrize("scheme", ["redis", "valkey"])
def test_a_url_of_valkey_means_the_same_as_one_of_redis(over_tcp, scheme):
    use_all(f"{scheme}://{over_tcp}")


@pytest.mark.parametrize(
    ("url", "code", "said"),
    [
        ("http://u:secret@here", 64, "its scheme must be"),
        ("redis://web:secret@127.0.0.1:1/3", 69, "cannot use redis://web@127.0.0.1:1/3: "),
    ],
)
def test_an_address_that_is_wrong_or_where_no_server_is_has_one_exit_code_each(url, code, said):
    for command, *words in ((script, "run", "-"), (script, "load"), (ls,), (doctor,), (demo,)):
        done = called(command, *words, "--url", url, given="return 1")
        assert done.exit_code == code, (command.name, done.output)
        assert said in done.stderr
        assert "secret" not in done.output
    for command, *words in (
        (acl, "--check", url),
        (run, "x", "--url", url, "--", "true"),
        (acquire, "x", "--ttl", "9", "--url", url),
    ):
        done = called(command, *words)
        assert (done.exit_code, said in done.stderr) == (code, True), (command.name, done.output)
        assert "secret" not in done.output


def test_an_error_names_the_variable_that_the_address_is_from(monkeypatch):
    monkeypatch.setenv("REDIS_URL", "redis://web:secret@127.0.0.1:1")
    monkeypatch.delenv("HANDFAST_URL", raising=False)
    for command, *words in (
        (ls,),
        (doctor,),
        (script, "run", "-"),
        (run, "x", "--", "true"),
        (acquire, "x", "--ttl", "9"),
    ):
        done = called(command, *words, given="return 1")
        assert "cannot use redis://web@127.0.0.1:1/0 (the URL in $REDIS_URL): " in done.stderr, command.name
        assert done.stderr.count("cannot use") == 1
