"""A limiter of several metrics among processes that are killed, and in which replies are lost."""

from __future__ import annotations

from handfast.embedded import PrivateServer
from tests.deep.api.metric_crowd import run
from tests.deep.api.pages import first_program


def test_no_instant_of_the_server_has_more_of_any_metric_than_its_limit():
    found = run(6000, 6, 2.0)
    assert found["over"] == []
    assert found["wrong sums"] == []
    assert all(share <= 1 for share in found["any interval"].values())
    assert found["median share of the tightest"] > 0.9
    assert found["kills"] >= 2
    assert found["lost replies"] > 20
    assert found.get("lost", 0) < 10  # several replies of a call in a row
    assert found["calls"] >= 5900


async def test_the_program_of_the_page_returns_the_answer_though_the_server_is_gone_before_it_settles():
    with PrivateServer() as server:
        found = first_program("requests-and-tokens.md", f"unix://{server.socket}")

        async def send(_question):
            server.close()
            return {"text": "paid for", "usage": {"total_tokens": 5}}

        found["send"] = send
        assert await found["ask"]("What?") == "paid for"
        await found["hf"].close()
