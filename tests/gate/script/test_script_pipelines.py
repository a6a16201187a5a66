"""Scripts in pipelines: what is sent, how NOSCRIPT is avoided, and to which call an error belongs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import redis
from redis.exceptions import ResponseError, WatchError

from handfast import Reply, Script, ScriptError
from tests._support.helpers import ends_first, settled
from tests._support.scripting import BOOM, COUNT, OPTIONS, TAKE, Sent, named, pipeline


@pytest.fixture(params=ends_first(OPTIONS), ids=named)
async def user(request, api, server, raw):
    """Yield each kind of client of redis-py in turn."""
    async with api.users_client(unix_socket_path=server.socket, **request.param) as client:
        yield client
    raw.script_flush()


@pytest.mark.parametrize("transaction", [True, False], ids=["transaction", "plain"])
async def test_a_script_flushed_in_the_middle_of_a_pipeline_still_runs(user, raw, transaction):
    broken = Script("return ===", name="broken")
    async with pipeline(user, transaction=transaction) as pipe:
        sent = Sent(raw)
        COUNT(pipe, counter="c")
        pipe.script_flush()
        COUNT(pipe, counter="c")
        broken(pipe)
        broken(pipe)
        first, _, second, *errors = await settled(pipe.execute(raise_on_error=False))
        assert (first, second) == (1, 2)
        assert [broken.explain(error).line for error in errors] == [1, 1]
        assert sent == (4, 0)


async def test_an_error_among_the_replies_is_raised_by_read(user, raw):
    async with pipeline(user) as pipe:
        TAKE(pipe, account="a", log="l", amount="no number")
        (error,) = await settled(pipe.execute(raise_on_error=False))
    with pytest.raises(ScriptError, match="'take' failed on line"):
        TAKE.read(error)


async def test_without_a_transaction_each_call_carries_the_source(user, raw):
    raw.script_flush()
    sent = Sent(raw)
    async with pipeline(user, transaction=False) as pipe:
        for _ in range(3):
            assert COUNT(pipe, counter="c") is pipe
        assert await settled(pipe.execute()) == [1, 2, 3]
    assert sent == (3, 0)


@pytest.mark.parametrize("transaction", [True, False], ids=["transaction", "plain"])
async def test_a_script_flush_at_any_moment_does_not_break_a_pipeline(user, raw, transaction):
    async with pipeline(user, transaction=transaction) as pipe:
        for moment in range(4):
            raw.delete("c")
            raw.script_flush()
            for call in range(3):
                if moment == call:
                    raw.script_flush()
                COUNT(pipe, counter="c")
            if moment == 3:
                raw.script_flush()
            assert await settled(pipe.execute()) == [1, 2, 3]


async def test_a_pipeline_may_be_reused_after_execute_or_reset(user, raw):
    async with pipeline(user) as pipe:
        for _ in range(3):
            COUNT(pipe, counter="c")
            COUNT(pipe, counter="c")
            await settled(pipe.reset())
            raw.script_flush()
            COUNT(pipe, counter="c")
            COUNT(pipe, counter="c")
            await settled(pipe.execute())
            raw.script_flush()
        assert raw.get("c") == "6"
        COUNT(pipe, counter="c").execute_command("NO SUCH COMMAND")
        with pytest.raises(ResponseError, match="unknown command"):
            await settled(pipe.execute())
        raw.script_flush()
        COUNT(pipe, counter="c")
        assert await settled(pipe.execute()) == [7]


async def test_concurrent_pipelines_do_not_share_state(user, raw):
    raw.script_flush()
    async with pipeline(user) as one, pipeline(user) as two, pipeline(user, transaction=False) as three:
        for pipe in (one, two, three, one, two, three):
            COUNT(pipe, counter="c")
        for pipe, counts in ((three, [1, 2]), (two, [3, 4]), (one, [5, 6])):
            raw.script_flush()
            assert await settled(pipe.execute()) == counts


@pytest.mark.parametrize("transaction", [True, False], ids=["transaction", "plain"])
async def test_a_watching_pipeline_runs_scripts_at_once_until_multi(user, raw, transaction):
    raw.set("a", 10)
    async with pipeline(user, transaction=transaction) as pipe:
        for have in (10, 7, 4):
            await settled(pipe.watch("watched"))
            raw.script_flush()
            assert await settled(TAKE(pipe, account="a", log="l", amount=100)) == Reply(
                "short", {"missing": 100 - have}
            )
            pipe.multi()
            raw.script_flush()
            sent = Sent(raw)
            assert TAKE(pipe, account="a", log="l", amount=1) is pipe
            assert TAKE(pipe, account="a", log="l", amount=2) is pipe
            replies = [TAKE.read(reply) for reply in await settled(pipe.execute())]
            assert replies == [Reply("taken", {"left": have - 1}), Reply("taken", {"left": have - 3})]
            assert sent == (2, 0)


async def test_a_transaction_whose_watched_key_changes_does_not_run_its_scripts(user, raw):
    async with pipeline(user) as pipe:
        await settled(pipe.watch("watched"))
        raw.set("watched", 1)
        pipe.multi()
        COUNT(pipe, counter="c")
        with pytest.raises(WatchError):
            await settled(pipe.execute())
        assert raw.get("c") is None
        COUNT(pipe, counter="c")
        COUNT(pipe, counter="c")
        assert await settled(pipe.execute()) == [1, 2]


async def test_a_script_that_fails_in_a_watching_pipeline_names_its_line(user, raw):
    async with pipeline(user) as pipe:
        await settled(pipe.watch("watched"))
        with pytest.raises(ScriptError, match="'boom' failed on line 3: boom"):
            await settled(BOOM(pipe, counter="c"))
        assert await settled(COUNT(pipe, counter="c")) == 2


@pytest.mark.parametrize("transaction", [True, False], ids=["transaction", "plain"])
async def test_explain_locates_the_error_of_a_pipeline(user, raw, transaction):
    hostile = ") of pipeline caused error: user_script:77: not me"
    script = Script("-- ARGV text\nlocal x = 'it\\'s'\nreturn x .. {}", name="odd \n'")
    async with pipeline(user, transaction=transaction) as pipe:
        COUNT(pipe, counter="c")
        script(pipe, text=hostile)
        with pytest.raises(ResponseError) as caught:
            await settled(pipe.execute())
        explained = script.explain(caught.value)
        assert isinstance(explained, ScriptError)
        assert (explained.name, explained.line, explained.source_line) == ("odd \n'", 3, "return x .. {}")
        assert explained.reason == "attempt to concatenate a table value"
        assert explained.__cause__ is caught.value

        COUNT(pipe, counter="c")
        script(pipe, text=hostile)
        COUNT(pipe, counter="c")
        before, error, after = await settled(pipe.execute(raise_on_error=False))
        assert (before, after) == (2, 3)
        assert (script.explain(error).line, script.explain(error).reason) == (3, explained.reason)


async def test_explain_returns_an_error_without_a_line_unchanged(user):
    meant = Script("return redis.error_reply('MY own words')")
    async with pipeline(user) as pipe:
        meant(pipe)
        (error,) = await settled(pipe.execute(raise_on_error=False))
    assert meant.explain(error) is error
    gone = redis.ConnectionError("gone")
    assert meant.explain(gone) is gone


def test_threads_with_pipelines_of_their_own_share_a_script(server, raw):
    def work(number):
        with redis.Redis.from_url(server.url) as client:
            for _ in range(20):
                with client.pipeline() as pipe:
                    COUNT(COUNT(pipe, counter=f"c{number}"), counter="c")
                    assert len(pipe.execute()) == 2
        return raw.get(f"c{number}")

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(work, range(8))) == ["20"] * 8
    assert raw.get("c") == "160"
