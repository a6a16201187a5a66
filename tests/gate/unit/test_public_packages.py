"""The public packages beside `handfast`: their objects name the package, have docstrings and use only public types."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import tomllib
from pathlib import Path
from typing import ParamSpec, TypeVar

import pytest

from handfast._version import __version__

PACKAGES = (
    "handfast.acl",
    "handfast.classic",
    "handfast.classic.watch",
    "handfast.embedded",
    "handfast.fencing",
    "handfast_lint",
    "handfast.page",
    "handfast.testing",
)

PRIVATE = {"Rule"}
"""Private types in public signatures: users do not call the constructor of Fault."""


def public_objects(package):
    module = importlib.import_module(package)
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            yield name, value


def public_functions(package):
    """Yield the public functions of a package and the public methods of its classes."""
    for name, value in public_objects(package):
        if inspect.isfunction(value):
            yield name, value
            continue
        if not value.__module__.startswith(package):  # of the engine, such as LuaScript
            continue
        for member, inner in vars(value).items():
            function = inner.fget if isinstance(inner, property) else inspect.unwrap(getattr(inner, "__func__", inner))
            if inspect.isfunction(function) and (member == "__init__" or not member.startswith("_")):
                yield f"{name}.{member}", function


@pytest.mark.parametrize("package", PACKAGES)
def test_public_objects_name_their_package(package):
    for name, value in public_objects(package):
        home = "handfast.classic" if name in {"join_guild", "leave_guild", "release_semaphore"} else package
        if value.__module__.startswith(package):  # not a type of another package, such as LuaScript
            assert value.__module__ in (package, home), name


@pytest.mark.parametrize("package", PACKAGES)
def test_public_functions_document_their_arguments(package):
    for name, function in public_functions(package):
        if name.endswith("__init__"):
            continue
        text = inspect.getdoc(function)
        assert text, f"{name} has no docstring"
        assert re.match(r"[A-Z`*].*\.$", text.partition("\n")[0]), (
            f"the summary of {name} is not one sentence on one line"
        )


@pytest.mark.parametrize("package", PACKAGES)
def test_types_of_public_signatures_are_public(package):
    module, handfast = importlib.import_module(package), importlib.import_module("handfast")
    for name, function in public_functions(package):
        for annotation in function.__annotations__.values():
            for word in re.findall(r"[A-Za-z_]\w*", str(annotation)):
                value = function.__globals__.get(word)
                ours = str(getattr(value, "__module__", "")).startswith("handfast")
                if ours and not isinstance(value, TypeVar | ParamSpec) and word not in PRIVATE:
                    assert word in (*module.__all__, *handfast.__all__), f"{name} has {word} in its signature"
    assert module is sys.modules[package]


@pytest.mark.parametrize("folder", ["lint", "lab"])
def test_the_other_distributions_have_the_products_version_and_ask_for_it(folder):
    """They use what is private."""
    root = Path(__file__).parents[3] / folder
    asked = tomllib.loads((root / "pyproject.toml").read_text())["project"]["dependencies"]
    module = importlib.import_module(f"handfast_{folder}")
    assert module.__version__ == __version__
    assert {one.partition("==")[2] for one in asked if one.startswith("handfast")} == {__version__}


def test_all_distributions_are_for_the_same_pythons():
    """The parts of the deep suite and its workflow take them from the product's."""
    root = Path(__file__).parents[3]
    projects = [
        tomllib.loads((root / folder / "pyproject.toml").read_text())["project"] for folder in (".", "lint", "lab")
    ]
    pythons = [[line for line in project["classifiers"] if "Python :: 3." in line] for project in projects]
    assert pythons[0] == pythons[1] == pythons[2]
