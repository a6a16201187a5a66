"""A budget among processes that are killed, and in which replies are lost; and the program of the page in an outage."""

from __future__ import annotations

from decimal import Decimal

from handfast import Handfast
from handfast.embedded import PrivateServer
from tests.deep.api.budget_crowd import MOST, run
from tests.deep.api.pages import first_program


def test_no_instant_of_the_server_has_an_account_above_its_limit_and_each_call_counts_once():
    found = run(6000, 6, 1.0)
    assert found["over"] == []
    assert found["wrong sums"] == []
    unknown = (
        found["kills"] + found.get("late", 0) + found.get("lost", 0)
    )  # calls that may count, and whose caller does not know
    assert all(0 <= more <= unknown * MOST for more in found["spent and not confirmed"].values())
    assert found["kills"] >= 2
    assert found["lost replies"] > 20
    assert unknown < 30
    assert found["exceeded"] > 20
    assert found["calls"] >= 5900


async def test_the_program_of_the_page_returns_the_answer_though_the_server_is_gone_before_it_settles():
    with PrivateServer() as server:
        found = first_program("budgets.md", f"unix://{server.socket}")

        async def send(_question):
            server.close()
            return {"text": "paid for", "tokens": 5}

        found["send"] = send
        assert await found["paid"]("acme", "team-7", "What?") == "paid for"
        await found["hf"].close()


async def test_the_program_of_the_page_pays_once_for_a_job_that_is_sent_twice():
    with PrivateServer() as server:
        found = first_program("budgets.md", f"unix://{server.socket}")
        for _ in range(3):
            assert await found["ask"]("job", "acme", "team-7", "What?") == "42"
        await found["hf"].close()
        with Handfast(f"unix://{server.socket}") as hf:
            status = hf.budget("llm", "100.00/month", zone="Europe/Berlin").keyed("acme").status()
        assert (status.spent, status.held) == (Decimal("0.0183"), 0)
