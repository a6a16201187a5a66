"""``handfast acquire``: a name that one step of a script takes and another one gives back."""

from __future__ import annotations

import json

import pytest
import redis
from click.testing import CliRunner

from handfast import Lease, LeaseLost
from handfast.cli import acquire as module
from handfast.cli.acquire import command as acquire
from handfast.cli.operate.extend import command as extend
from handfast.cli.operate.release import command as release
from handfast.cli.run import command as run
from handfast.cli.supervision.signals import Interrupted
from handfast.cli.taking.options import Options
from tests._support.kinds import ROWS

WORDS = {"lock": [], "semaphore": ["--slots", "2"], "read": ["-s"], "write": ["-x"]}
"""The options of the command, by the row of what it acquires."""


@pytest.fixture
def call(server, raw):
    """Return a function that runs a command on the server."""

    def call(command, *words, url=server.url, **options):
        return CliRunner().invoke(command, [*words, "--url", url], **options)

    return call


@pytest.mark.parametrize("kind", WORDS)
def test_one_step_takes_a_name_and_others_extend_and_release_it(call, hf, kind):
    words, primitive = WORDS[kind], ROWS[kind].make
    taken = call(acquire, "a", "--ttl", "10m", *words)
    assert (taken.exit_code, taken.stderr) == (0, "")
    token = taken.stdout.removesuffix("\n")
    assert "\n" not in token
    (holder,) = primitive(hf).status().holders
    assert 590 < holder.remaining <= 600
    assert call(extend, "a", "--ttl", "1h", "--token", token).exit_code == 0
    (holder,) = primitive(hf).status().holders
    assert holder.remaining > 3500
    assert call(release, "a", "--token", token).exit_code == 0
    assert not primitive(hf).status().holders
    assert call(release, "a", "--token", token).exit_code == 1


def test_the_token_is_written_as_variables_or_as_json(call, hf):
    taken = call(acquire, "a", "--ttl", "60", "--env")
    (holder,) = hf.lock("a").status().holders
    variables = dict(line.split("=") for line in taken.stdout.splitlines())
    assert variables.keys() == {"HANDFAST_TOKEN", "HANDFAST_FENCE"}
    assert int(variables["HANDFAST_FENCE"]) == holder.fence
    assert call(extend, "a", "--ttl", "90", env=variables).exit_code == 0
    assert call(release, "a", "--token", variables["HANDFAST_TOKEN"]).exit_code == 0
    found = json.loads(call(acquire, "a", "--ttl", "60", "--json").stdout)
    assert found == {"name": "a", "token": found["token"], "fence": found["fence"], "ttl": 60}
    assert found["fence"] > holder.fence
    assert call(release, "a", "--token", "-", input=found["token"]).exit_code == 0


def test_a_name_that_is_taken_is_not_waited_for_longer_than_allowed(call, hf):
    with hf.lock("a"):
        refused = call(acquire, "a", "--ttl", "60", "-n")
        assert (refused.exit_code, refused.stdout) == (75, "")
        assert "'a' is held by " in refused.stderr
        assert call(acquire, "a", "--ttl", "60", "-n", "-E", "9").exit_code == 9
        assert call(acquire, "a", "--ttl", "60", "-w", "1ms").exit_code == 75
        assert not hf.lock("a").status().waiting


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "Missing option '--ttl'"),
        (["--ttl", "60", "--env", "--json"], "Use either --env or --json."),
        (["--ttl", "60", "-s", "-x"], "Use only one of --slots, --shared and --exclusive."),
        (["--ttl", "60", "-n", "-w", "1"], "Use either --nonblock or --wait."),
        (["--ttl", "0"], "a duration must be at least a millisecond"),
    ],
)
def test_wrong_usage_takes_nothing(call, hf, words, said):
    refused = call(acquire, "a", *words)
    assert (refused.exit_code, refused.stdout) == (64, "")
    assert said in refused.stderr
    assert not hf.lock("a").status().holders


# --- what keeps the token from being written gives the name back


@pytest.mark.parametrize(
    ("error", "code"),
    [(BrokenPipeError(32, "Broken pipe"), 74), (OSError(28, "No space left on device"), 74), (Interrupted(15), 143)],
)
def test_a_token_that_is_not_written_leaves_nothing_held(call, hf, monkeypatch, error, code):
    def fail(*_):
        assert hf.lock("a").status().holders
        raise error

    monkeypatch.setattr(module, "_write", fail)
    refused = call(acquire, "a", "--ttl", "10m")
    assert (refused.exit_code, refused.stdout) == (code, "")
    assert ("the token could not be written, so 'a' is released" in refused.stderr) is (code == 74)
    assert not hf.lock("a").status().holders


def test_a_closed_output_takes_nothing(hf, server, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdout", None)
    with pytest.raises(SystemExit) as ended:
        acquire(["a", "--ttl", "60", "--url", server.url])
    assert ended.value.code == 74
    assert "standard output is closed" in capsys.readouterr().err
    assert not hf.lock("a").status().grants


@pytest.mark.parametrize("error", [redis.TimeoutError("the server did not answer"), LeaseLost("a", 1, "deploy")])
def test_a_lease_that_can_not_be_left_is_released(call, hf, monkeypatch, error):
    def fail(_):
        assert hf.lock("a").status().holders
        raise error

    monkeypatch.setattr(Lease, "detach", fail)
    refused = call(acquire, "a", "--ttl", "60")
    assert (refused.exit_code, refused.stdout, refused.stderr) == (69, "", f"handfast: {error}\n")
    assert not hf.lock("a").status().holders


def test_what_is_written_for_github_is_one_line_each(call, hf):
    """A name with a line end can't add variables of its own."""
    taken = call(acquire, "a\nPATH=/evil", "--ttl", "60", "--env")
    assert [line.partition("=")[0] for line in taken.stdout.splitlines()] == ["HANDFAST_TOKEN", "HANDFAST_FENCE"]
    assert call(release, "a\nPATH=/evil", "--token", taken.stdout.partition("=")[2].splitlines()[0]).exit_code == 0


@pytest.mark.parametrize(
    ("command", "own"), [(acquire, {"as_env", "as_json"}), (run, {"on_lost", "kill_after"})], ids=["acquire", "run"]
)
def test_every_option_has_a_field(command, own):
    """An option without a field would be dropped in silence. --embedded is an address, see `server_options`."""
    assert {option.name for option in command.params} - own - {"embedded"} <= {*Options._fields}
