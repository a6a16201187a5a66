"""The tools of the page for agents, in the frameworks that they are for. Models are functions; none is asked over a network."""

from __future__ import annotations

import asyncio
import importlib
import itertools
import json
import sys

import pytest

from tests.deep.frameworks.test_recipes import written  # noqa: F401 -- a fixture

ARGUMENTS = {"order_id", "cents"}
"""What the model sees of a refund."""

PAID = "500 cents of order 7 are paid back."

UNKNOWN = "It is not known whether this was paid back. Look at the order, and do not try again."

DIES = """
import asyncio, os, effects
effects.paid = type("", (), {"append": lambda *_: os._exit(9)})()
asyncio.run(effects.refund("run 1", "7", 500))
"""


def openai():
    pytest.importorskip("agents")
    from agents.tool_context import ToolContext

    tool, ids = importlib.import_module("openai_agent").refund, itertools.count()
    assert {*tool.params_json_schema["properties"]} == ARGUMENTS

    async def call(run, **arguments):
        text = json.dumps(arguments)
        context = ToolContext(run, tool_name="refund", tool_call_id=f"call {next(ids)}", tool_arguments=text)
        return await tool.on_invoke_tool(context, text)

    return call


def langgraph():
    pytest.importorskip("langgraph")
    from langchain_core.messages import AIMessage

    module, ids = importlib.import_module("langgraph_agent"), itertools.count()
    assert {*module.refund.tool_call_schema.model_json_schema()["properties"]} == ARGUMENTS

    async def call(run, **arguments):
        asked = AIMessage("", tool_calls=[{"name": "refund", "args": arguments, "id": f"call {next(ids)}"}])
        return (await module.app.ainvoke({"messages": [asked], "run": run}))["messages"][-1].content

    return call


def pydantic_ai():
    pytest.importorskip("pydantic_ai")
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    agent = importlib.import_module("pydantic_agent").agent

    def model(messages, info):
        assert [{*tool.parameters_json_schema["properties"]} for tool in info.function_tools] == [ARGUMENTS]
        last = messages[-1].parts[-1]
        if last.part_kind == "tool-return":
            return ModelResponse([TextPart(last.content)])
        return ModelResponse([ToolCallPart("refund", json.loads(last.content))])

    async def call(run, **arguments):
        return (await agent.run(json.dumps(arguments), deps=run, model=FunctionModel(model))).output

    return call


def mcp():
    pytest.importorskip("mcp")
    from mcp import Client

    server = importlib.import_module("mcp_server").server

    async def call(run, **arguments):
        async with Client(server) as client:
            tools = (await client.list_tools()).tools
            assert [{*tool.input_schema["properties"]} for tool in tools] == [ARGUMENTS]
            return (await client.call_tool("refund", arguments, meta={"run": run})).content[0].text

    return call


@pytest.fixture(params=[openai, langgraph, pydantic_ai, mcp], ids=lambda made: made.__name__)
async def tool(request, written, raw):  # noqa: F811 -- it is that fixture
    """Return how a framework calls the tool, each time with another id, and the functions of the page."""
    program = written("agents.md") / "effects.py"
    program.write_text(program.read_text().replace("rerun=", "ttl=0.5, rerun="))
    effects = importlib.import_module("effects")
    yield request.param(), effects
    await effects.hf.aclose()


async def test_an_effect_is_made_once_for_a_run_whichever_calls_ask_for_it(tool):
    call, effects = tool
    refund = {"order_id": "7", "cents": 500}
    assert await asyncio.gather(call("run 1", **refund), call("run 1", **refund)) == [PAID] * 2
    assert await call("run 1", **refund) == PAID
    assert effects.paid == [("7", 500)]
    assert await call("run 1", order_id="7", cents=400) == PAID.replace("500", "400")
    assert await call("run 2", **refund) == PAID
    assert effects.paid == [("7", 500), ("7", 400), ("7", 500)]


async def test_a_model_reads_that_it_is_not_known_whether_a_payment_was_made(tool, tmp_path):
    call, effects = tool
    died = await asyncio.create_subprocess_exec(sys.executable, "-c", DIES, cwd=tmp_path)
    assert await died.wait() == 9
    assert await call("run 1", order_id="7", cents=500) == UNKNOWN
    assert effects.paid == []


async def test_turns_of_a_conversation_come_one_after_another(written, hf, raw):  # noqa: F811 -- it is that fixture
    written("agents.md")
    turns = importlib.import_module("turns")
    with hf.lock("turn:7"):
        waiting = asyncio.create_task(turns.turn(7, "two"))
        await turns.turn(8, "other")
        await asyncio.sleep(0.1)
        assert turns.answers == [(8, "other")]
    await waiting
    assert turns.answers == [(8, "other"), (7, "two")]
    await turns.hf.aclose()
