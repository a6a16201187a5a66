"""The layers of the product, as the design page draws them: imports point down only, and nothing imports in a circle."""

from __future__ import annotations

import ast
import functools
import inspect
from pathlib import Path

import pytest

import handfast

ROOT = Path(__file__).parents[3]

SOURCE = ROOT / "src"

LAB = ROOT / "lab/src"

LAYERS = {"_engine": 2, "_protocol": 3, "_drivers": 4, "embedded": 4, "_api": 5}

LAYERS |= dict.fromkeys(
    (
        "_amounts",
        "arguments",
        "errors",
        "events",
        "records",
        "_kinds",
        "_naming",
        "_objects",
        "_signatures",
        "_version",
    ),
    1,
)

DRIVERS = LAYERS["_drivers"]

PUBLIC = 7
"""Everything else: the package itself and its public modules."""

OUTSIDE = {"redis", "valkey", "hiredis", "socket", "ssl", "select", "selectors", "signal", "subprocess", "time"}

OUTSIDE |= {"threading", "_thread", "queue", "concurrent", "multiprocessing", "asyncio", "sched"}
"""What only drivers and public modules may use: the client library, the network, processes, threads, tasks and
clocks."""


def layer_of(module):
    parts = module.split(".")
    return LAYERS.get(parts[1], PUBLIC) if len(parts) > 1 else PUBLIC


@functools.cache
def modules(root=SOURCE):
    """Return the path of every module."""
    return {
        ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path
        for path in sorted(root.rglob("*.py"))
    }


@functools.cache
def imports(path):
    """Return every module that a module imports, those for type checkers included."""
    ours, found = {**modules(SOURCE), **modules(LAB)}, set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            parts = {alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            found |= {part if part in ours else node.module for part in parts.values()}
    return found


def graph(root):
    """Return, of every module, the modules of the same distribution that it imports."""
    return {module: imports(path) & modules(root).keys() for module, path in modules(root).items()}


def circles(imported):
    """Return the groups of modules that import each other, directly or not (Tarjan's algorithm, by reachability)."""
    reached = {}
    for start in imported:
        seen, todo = set(), list(imported[start])
        while todo:
            module = todo.pop()
            if module not in seen:
                seen.add(module)
                todo.extend(imported[module])
        reached[start] = seen
    return {
        tuple(sorted({module} | {other for other in reached[module] if module in reached[other]}))
        for module in imported
        if module in reached[module]
    }


def test_imports_point_down_only():
    seen = 0
    for module, path in modules().items():
        for imported in imports(path):
            if imported.split(".")[0] == "handfast" and imported != "handfast":
                seen += 1
                assert layer_of(imported) <= layer_of(module), f"{module} imports {imported}, which is above it"
            if layer_of(module) < PUBLIC:
                assert imported != "handfast", f"{module} imports the package itself"
    assert seen > 50


def test_no_module_of_the_product_imports_in_a_circle():
    imported = graph(SOURCE)
    assert "handfast._engine.validate" in imported["handfast._api.aio.client"]
    assert circles(imported) == set()


def test_a_circle_is_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == {("a", "b", "c")}


def test_the_product_imports_neither_the_linter_nor_the_lab():
    for module, path in modules().items():
        assert not touched(path) & {"handfast_lint", "handfast_lab"}, module


def touched(path):
    """The packages that a file imports."""
    return {imported.split(".")[0] for imported in imports(path)}


def test_only_drivers_and_public_modules_use_sockets_threads_and_clocks():
    seen = set()
    for module, path in modules().items():
        if layer_of(module) < DRIVERS:
            assert not touched(path) & OUTSIDE, f"{module} uses {touched(path) & OUTSIDE}"
        elif DRIVERS < layer_of(module) < PUBLIC:
            # The type of lost_event, and the time that a lease has left.
            own = {"aio": {"asyncio", "time"}, "sync": {"threading", "time"}}.get(api_of(module), set())
            assert not touched(path) & OUTSIDE - own, f"{module} uses {touched(path) & OUTSIDE}"
        else:
            seen |= touched(path) & OUTSIDE
    assert seen >= {"redis", "socket", "select", "threading", "asyncio", "time", "subprocess"}


TWICE = ("_drivers", "_api")
"""Packages with a part for each API."""


def api_of(module):
    parts = module.split(".")
    in_two_apis = len(parts) > 2 and parts[1] in TWICE and parts[2] in ("aio", "sync")
    return parts[2] if in_two_apis else None


def test_the_two_apis_know_nothing_of_each_other():
    foreign = {"aio": {"threading", "queue", "select", "socket"}, "sync": {"asyncio"}}
    seen = set()
    for module, path in modules().items():
        api = api_of(module)
        if api in foreign:
            seen.add(module.rpartition(".")[0])
            assert not touched(path) & foreign[api], f"{module} uses {touched(path) & foreign[api]}"
            for imported in imports(path):
                assert api_of(imported) not in foreign.keys() - {api}, f"{module} imports {imported}"
    assert seen >= {f"handfast.{layer}.{api}" for layer in TWICE for api in foreign}


def members(kind):
    """The public members of a class, and what they are called with in both APIs."""
    found = {}
    for name in dir(kind):
        if not name.startswith("_"):
            member = getattr(kind, name)
            found[name] = type(member)
            if callable(member):
                given = [one for one in inspect.signature(member).parameters.values() if one.name != "cancel"]
                found[name] = [(parameter.name, parameter.kind, parameter.default) for parameter in given]
    return found


ARGUMENTS = {"AsyncItems", "AsyncRedisClient", "AsyncRedisClusterClient"}
"""Not classes of ours, but types of arguments."""


@pytest.mark.parametrize(
    "name",
    [name.removeprefix("Async") for name in handfast.__all__ if name.startswith("Async") and name not in ARGUMENTS],
)
def test_the_two_apis_have_the_same_members(name):
    sync, asynchronous = getattr(handfast, name), getattr(handfast, f"Async{name}")
    alias = members(asynchronous).pop("aclose", None)
    assert members(sync) == {key: value for key, value in members(asynchronous).items() if key != "aclose"}
    assert alias == (members(asynchronous)["close"] if name == "Handfast" else None)
    assert len(members(sync)) >= 2, members(sync)
    for plain, other in (("__enter__", "__aenter__"), ("__exit__", "__aexit__")):
        assert hasattr(sync, plain) is hasattr(asynchronous, other)
        assert not hasattr(sync, other)
        assert not hasattr(asynchronous, plain), "a plain with would not wait"


def test_every_module_says_what_it_is():
    for module, path in modules().items():
        assert ast.get_docstring(ast.parse(path.read_text())), f"{module} has no docstring"
