"""The programs of the pages about ownership run as they stand there, several at a time."""

from __future__ import annotations

import asyncio
import importlib
import re
import shlex
import types
from pathlib import Path

import click
import pytest
import yaml

from handfast.fencing import latest_fence
from tests._support.helpers import eventually_async

HOW_TO = Path(__file__).parents[3] / "docs" / "how-to"
PROBES = {"exec", "httpGet", "tcpSocket", "grpc"}


def block(page, title):
    """Return a block with a title."""
    return re.search(rf'^```\w+ title="{title}"\n(.*?)^```$', (HOW_TO / page).read_text(), re.MULTILINE | re.DOTALL)[1]


def program(page, title, server):
    """Return a new module of a program on a page, with the server of the test."""
    module = types.ModuleType(title.removesuffix(".py"))
    text = block(page, title).replace('"redis://localhost:6379/0"', repr(server.url))
    exec(compile(text, title, "exec", dont_inherit=True), module.__dict__)
    return module


async def test_one_of_several_web_workers_schedules_and_the_next_after_it(server):
    workers = [program("elect-a-leader.md", "app.py", server) for _ in range(3)]
    lifespans = [worker.lifespan(None) for worker in workers]
    for one in lifespans:
        await one.__aenter__()
    await eventually_async(lambda: any(len(worker.ran) > 2 for worker in workers))
    (first,) = [worker for worker in workers if worker.ran]
    await lifespans[workers.index(first)].__aexit__(None, None, None)
    others = [worker for worker in workers if worker is not first]
    await eventually_async(lambda: any(worker.ran for worker in others))
    (second,) = [worker for worker in others if worker.ran]
    assert max(first.ran) < min(second.ran)
    for worker in others:
        await lifespans[workers.index(worker)].__aexit__(None, None, None)


async def test_a_control_loop_writes_under_the_fence_of_its_term(server, raw):
    raw.set("wanted", "5")
    loops = [asyncio.create_task(program("elect-a-leader.md", "control.py", server).main()) for _ in range(2)]
    await eventually_async(lambda: raw.get("actual") in ("5", b"5"))
    fence = latest_fence(raw, "actual")
    loops[0].cancel()
    await asyncio.wait(loops[:1])
    raw.set("wanted", "7")
    await eventually_async(lambda: raw.get("actual") in ("7", b"7"))
    assert latest_fence(raw, "actual") >= fence
    loops[1].cancel()
    await asyncio.wait(loops)


@pytest.mark.parametrize(
    ("page", "probe", "kind", "variables"),
    [
        ("elect-a-leader.md", "readinessProbe", "exec", {"HANDFAST_URL", "POD_IP"}),
        ("migrate-once.md", "startupProbe", "httpGet", {"HANDFAST_URL", "REVISION"}),
    ],
)
def test_the_deployment_is_one(page, probe, kind, variables):
    manifest = yaml.safe_load(block(page, "deployment.yaml"))
    assert (manifest["apiVersion"], manifest["kind"]) == ("apps/v1", "Deployment")
    spec = manifest["spec"]
    assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
    (container,) = spec["template"]["spec"]["containers"]
    assert container.keys() <= {"name", "image", "command", "args", "env", probe}
    assert PROBES & container[probe].keys() == {kind}
    assert {one["name"] for one in container["env"]} == variables


def test_the_deployment_of_a_leader_runs_our_command():
    manifest = yaml.safe_load(block("elect-a-leader.md", "deployment.yaml"))
    (container,) = manifest["spec"]["template"]["spec"]["containers"]
    options = parsed([*container["command"], *container["args"]])
    assert container["readinessProbe"]["exec"]["command"] == ["test", "-e", str(options["ready_file"])]


def test_the_entry_point_and_the_services_of_compose_run_our_commands():
    (line,) = [line for line in block("migrate-once.md", "entrypoint.sh").splitlines() if line.startswith("handfast")]
    assert (options := parsed(shlex.split(line)))["keep"] == 30 * 86_400
    services = yaml.safe_load(block("migrate-once.md", "compose.yaml"))["services"]
    assert services["web"]["entrypoint"] == ["./entrypoint.sh"]
    assert parsed(services["scheduler"]["command"])["name"] == "scheduler"
    assert all(one["depends_on"].keys() <= services.keys() for one in services.values() if "depends_on" in one)
    assert services["redis"]["healthcheck"]["test"][0] == "CMD"
    probe = yaml.safe_load(block("migrate-once.md", "deployment.yaml"))["spec"]["template"]["spec"]["containers"][0][
        "startupProbe"
    ]
    assert probe["periodSeconds"] * probe["failureThreshold"] > options["wait"], "it waits for the others"


def parsed(words):
    """Return the options of a command of ours, as its words give them."""
    program, name, *rest = words
    assert program == "handfast"
    command = importlib.import_module(f"handfast.cli.{name}").command
    with pytest.raises(click.UsageError, match="No such option"):
        command.make_context(name, ["--no-such", *rest])
    return command.make_context(name, rest).params
