"""The house stands: imports point down only, and everything public is what we say it is."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

import handfast

SOURCE = Path(handfast.__file__).parent
FLOORS = {"errors": 0, "records": 0, "_engine": 1, "_protocol": 2, "_drivers": 3, "embedded": 3, "_api": 4}
RIM = 5

OUTSIDE = {"redis", "valkey", "hiredis", "socket", "ssl", "select", "selectors", "signal", "subprocess", "time"}
OUTSIDE |= {"threading", "_thread", "queue", "concurrent", "multiprocessing", "asyncio", "sched"}
"""What is on the other side of the drivers: the client library, the network, processes, threads, tasks and clocks."""


def floor_of(module):
    parts = module.split(".")
    return FLOORS.get(parts[1], RIM) if len(parts) > 1 else RIM


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names if node.module == "handfast")


def modules():
    for path in SOURCE.rglob("*.py"):
        parts = ["handfast", *path.relative_to(SOURCE).with_suffix("").parts]
        yield ".".join(parts), path


def test_imports_point_down_only():
    seen = 0
    for module, path in modules():
        for imported in imports(path):
            if imported.split(".")[0] == "handfast":
                seen += 1
                assert floor_of(imported) <= floor_of(module), f"{module} looks up to {imported}"
                if floor_of(module) < RIM:
                    assert imported != "handfast", f"{module} imports the roof"
    assert seen > 50


def touched(path):
    """The packages that a file imports."""
    return {imported.split(".")[0] for imported in imports(path)}


def test_only_the_drivers_and_the_rim_touch_redis_threads_and_clocks():
    seen = set()
    for module, path in modules():
        if floor_of(module) < FLOORS["_drivers"]:
            assert not touched(path) & OUTSIDE, f"{module} touches {touched(path) & OUTSIDE}"
        elif floor_of(module) == FLOORS["_api"]:
            # An event to wait for, and how much time is left: nothing else of them.
            own = {"aio": {"asyncio", "time"}, "sync": {"threading", "time"}}.get(api_of(module), set())
            assert not touched(path) & OUTSIDE - own, f"{module} touches {touched(path) & OUTSIDE}"
        else:
            seen |= touched(path) & OUTSIDE
    assert seen >= {"redis", "socket", "select", "threading", "asyncio", "time", "subprocess"}


def api_of(module):
    parts = module.split(".")
    coloured = len(parts) > 2 and parts[1] in ("_drivers", "_api") and parts[2] in ("aio", "sync")
    return parts[2] if coloured else None


def test_the_two_apis_know_nothing_of_each_other():
    foreign = {"aio": {"threading", "queue", "select", "socket"}, "sync": {"asyncio"}}
    seen = set()
    for module, path in modules():
        api = api_of(module)
        if api in foreign:
            seen.add(module.rpartition(".")[0])
            assert not touched(path) & foreign[api], f"{module} touches {touched(path) & foreign[api]}"
            for imported in imports(path):
                assert api_of(imported) not in foreign.keys() - {api}, f"{module} imports {imported}"
    assert seen >= {f"handfast.{floor}.{api}" for floor in ("_drivers", "_api") for api in foreign}


def members(kind):
    """The public members of a class, and what they are called with."""
    found = {}
    for name in dir(kind):
        if not name.startswith("_"):
            member = getattr(kind, name)
            found[name] = type(member)
            if callable(member):
                given = inspect.signature(member).parameters.values()
                found[name] = [(parameter.name, parameter.kind, parameter.default) for parameter in given]
    return found


@pytest.mark.parametrize("name", ["Handfast", "Lock", "Lease"])
def test_the_two_apis_have_the_same_members(name):
    sync, asynchronous = getattr(handfast, name), getattr(handfast, f"Async{name}")
    assert members(sync) == members(asynchronous)
    assert len(members(sync)) >= 3, members(sync)
    for plain, other in (("__enter__", "__aenter__"), ("__exit__", "__aexit__")):
        assert hasattr(sync, plain)
        assert not hasattr(sync, other)
        assert hasattr(asynchronous, other)
        assert not hasattr(asynchronous, plain), "a plain with would not wait"


def test_every_class_of_the_facade_has_its_twin():
    twins = {name for name in handfast.__all__ if name.startswith("Async")}
    for name in twins:
        assert name.removeprefix("Async") in handfast.__all__
    assert len(twins) >= 3


def test_every_module_says_what_it_is():
    for module, path in modules():
        assert ast.get_docstring(ast.parse(path.read_text())), f"{module} has no docstring"


def test_what_is_public_is_listed_there_and_documented():
    assert sorted(handfast.__all__) == list(handfast.__all__)
    for name in handfast.__all__:
        value = getattr(handfast, name)
        if isinstance(value, type):
            assert value.__doc__, f"{name} has no docstring"
            for member, inner in vars(value).items():
                if callable(inner) and not member.startswith("_"):
                    assert inner.__doc__, f"{name}.{member} has no docstring"
