"""``handfast extend`` and ``handfast release --token``: leases by their tokens."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from handfast.cli.operate.extend import command as extend
from handfast.cli.operate.release import command as release
from tests._support.helpers import eventually
from tests._support.kinds import ROWS

kinds = pytest.mark.parametrize("kind", ["lock", "semaphore", "read", "write", "election"])


@pytest.fixture
def call(server, raw):
    """Return a function that runs a command on the server."""

    def call(command, *words, **options):
        return CliRunner().invoke(command, [*words, "--url", server.url], **options)

    return call


def remaining(kind, hf):
    [holder] = ROWS[kind].make(hf).status().holders
    return holder.remaining


@kinds
def test_a_detached_lease_is_extended_and_released(call, hf, kind):
    token = ROWS[kind].make(hf).acquire().detach()
    extended = call(extend, "a", "--token", token, "--ttl", "10m")
    assert (extended.exit_code, extended.output) == (0, "")
    assert 590 < remaining(kind, hf) <= 600
    assert call(extend, "a", "--token", token, "--ttl", "1s").exit_code == 0
    assert remaining(kind, hf) > 590, "it never gets shorter"
    released = call(release, "a", "--token", token)
    assert (released.exit_code, released.output) == (0, "")
    assert not ROWS[kind].make(hf).status().holders
    for command in (extend, release):
        words = ["--ttl", "1s"] if command is extend else []
        over = call(command, "a", "--token", token, *words)
        assert (over.exit_code, over.output) == (1, "handfast: the lease of 'a' has ended\n")


@pytest.mark.parametrize("how", ["detach", "token"])
def test_a_term_is_extended_and_released_by_its_token_and_noted_once(call, hf, how):
    election = hf.election("a", value="web-1")
    term = election.acquire()
    token = term.detach() if how == "detach" else term.token
    assert call(extend, "a", "--token", token, "--kind", "election", "--ttl", "10m").exit_code == 0
    assert election.leader().remaining > 500
    eventually(election.history)
    assert [(one.fence, one.ended) for one in election.history()] == [(term.fence, None)]
    assert call(extend, "a", "--token", "0" * 32, "--kind", "election", "--ttl", "20m").exit_code == 1
    assert call(release, "a", "--token", token, "--kind", "election").exit_code == 0
    assert election.leader() is None
    eventually(lambda: election.history()[0].ended)
    assert [one.fence for one in election.history()] == [term.fence]


@pytest.mark.parametrize("how", ["detach", "token"])
def test_a_release_by_token_leaves_the_name_taken_for_at_least_as_long_as_its_grant_said(call, hf, how):
    lease = hf.lock("a", at_least=300).acquire()
    token = lease.detach() if how == "detach" else lease.token
    assert call(release, "a", "--token", token).exit_code == 0
    assert remaining("lock", hf) > 200
    assert hf.lock("a").try_acquire() is None


def test_a_token_may_come_from_standard_input_or_the_environment(call, hf):
    token = hf.lock("a").acquire().detach()
    assert call(extend, "a", "--ttl", "1h", env={"HANDFAST_TOKEN": token}).exit_code == 0
    assert remaining("lock", hf) > 3500
    assert call(release, "a", "--token", "-", input=f"{token}\n").exit_code == 0
    assert not hf.lock("a").status().holders


def test_a_release_without_a_token_never_takes_that_of_the_environment(call, hf):
    """Within `handfast run` it would release what that holds."""
    token = hf.lock("a").acquire().detach()
    assert call(release, "a", env={"HANDFAST_TOKEN": token}).exit_code == 64
    assert hf.lock("a").status().holders


def test_of_a_token_and_a_reason_one_is_needed(call, hf):
    token = hf.lock("a").acquire().detach()
    for words in ([], ["--token", token, "--reason", "why"]):
        refused = call(release, "a", *words)
        assert refused.exit_code == 64
        assert "Use one of --token and --reason." in refused.output
    assert call(extend, "a", "--ttl", "1s").exit_code == 64
    assert hf.lock("a").status().holders


@pytest.mark.parametrize("token", ["x", "", "lock.1.2.3"])
def test_what_is_no_token_is_wrong_usage_and_not_shown(call, raw, token):
    refused = call(extend, "a", "--token", token, "--ttl", "1s")
    assert refused.exit_code == 64
    assert "is not one that detach() returned" in refused.output


def test_a_token_of_another_name_releases_nothing(call, hf):
    token = hf.lock("a").acquire().detach()
    assert call(release, "b", "--token", token).exit_code == 1
    assert call(release, "a", "--token", token, "--kind", "semaphore").exit_code == 64
    assert hf.lock("a").status().holders


def test_a_run_of_once_stays_with_its_process(call, hf):
    with hf.once("a") as run:
        for command, words in ((extend, ["--ttl", "1s"]), (release, [])):
            refused = call(command, "a", "--token", run.token, "--kind", "once", *words)
            assert refused.exit_code == 64
            assert "a run of once belongs to its process" in refused.output
        run.check()


@pytest.mark.parametrize("kind", ["group", "partition"])
def test_a_place_in_a_group_stays_with_its_process(call, kind):
    refused = call(release, "a", "--token", "0" * 32, "--kind", kind)
    assert refused.exit_code == 64
    assert "belongs to its process: no other can" in refused.output


@pytest.mark.parametrize("words", [["--fence", "3"], ["--if-fence", "3"], ["--json"]])
def test_a_release_by_token_refuses_options_that_have_no_effect(call, words):
    refused = call(release, "a", "--token", "x" * 26, *words)
    assert refused.exit_code == 64
    assert "A token is of one lease" in refused.output
