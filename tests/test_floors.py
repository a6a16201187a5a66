"""The house stands: imports point down only, and everything public is what we say it is."""

from __future__ import annotations

import ast
from pathlib import Path

import holdfast

SOURCE = Path(holdfast.__file__).parent
FLOORS = {"words": 0, "wire": 1, "protocol": 2, "drivers": 3, "facade": 4}
RIM = 5


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
            yield from (f"{node.module}.{alias.name}" for alias in node.names if node.module == "holdfast")


def modules():
    for path in SOURCE.rglob("*.py"):
        parts = ["holdfast", *path.relative_to(SOURCE).with_suffix("").parts]
        yield ".".join(parts), path


def test_imports_point_down_only():
    seen = 0
    for module, path in modules():
        for imported in imports(path):
            if imported.split(".")[0] == "holdfast":
                seen += 1
                assert floor_of(imported) <= floor_of(module), f"{module} looks up to {imported}"
                if floor_of(module) < RIM:
                    assert imported != "holdfast", f"{module} imports the roof"
    assert seen > 50


def test_only_the_drivers_and_the_rim_touch_redis_threads_and_clocks():
    outside = {"redis", "socket", "select", "threading", "asyncio", "time", "subprocess", "multiprocessing"}
    for module, path in modules():
        if floor_of(module) < FLOORS["drivers"]:
            touched = {imported.split(".")[0] for imported in imports(path)} & outside
            assert not touched, f"{module} touches {touched}"


def test_every_module_says_what_it_is():
    for module, path in modules():
        assert ast.get_docstring(ast.parse(path.read_text())), f"{module} has no docstring"


def test_what_is_public_is_listed_there_and_documented():
    assert sorted(holdfast.__all__) == list(holdfast.__all__)
    for name in holdfast.__all__:
        value = getattr(holdfast, name)
        if isinstance(value, type):
            assert value.__doc__, f"{name} has no docstring"
            for member, inner in vars(value).items():
                if callable(inner) and not member.startswith("_"):
                    assert inner.__doc__, f"{name}.{member} has no docstring"
