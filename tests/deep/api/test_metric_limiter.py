"""A limiter of several metrics among processes that are killed, and in which replies are lost."""

from __future__ import annotations

import re
from pathlib import Path

from handfast.embedded import PrivateServer
from tests.deep.api.metric_crowd import run


def test_no_instant_of_the_server_has_more_of_any_metric_than_its_limit():
    found = run(6000, 6, 2.0)
    assert found["over"] == []
    assert found["wrong sums"] == []
    assert all(share <= 1 for share in found["any interval"].values())
    assert found["median share of the tightest"] > 0.9
    assert found["kills"] >= 2
    assert found["calls"] >= 5000


async def test_the_program_of_the_page_returns_the_answer_though_the_server_is_gone_before_it_settles():
    page = Path(__file__).parents[3] / "docs/how-to/requests-and-tokens.md"
    program, _, _ = re.search(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)[1].partition(
        "assert await"
    )
    with PrivateServer() as server:
        found = {}
        exec(program.replace("redis://localhost:6379/0", f"unix://{server.socket}"), found)

        async def send(_question):
            server.close()
            return {"text": "paid for", "usage": {"total_tokens": 5}}

        found["send"] = send
        assert await found["ask"]("What?") == "paid for"
        await found["hf"].close()
