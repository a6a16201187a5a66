"""The names that `handfast.testing` exports."""

from __future__ import annotations

import inspect

import handfast.testing


def test_public_names_are_listed_and_documented():
    assert sorted(handfast.testing.__all__) == list(handfast.testing.__all__)
    for name in handfast.testing.__all__:
        value = getattr(handfast.testing, name)
        assert getattr(value, "__module__", "").startswith(("handfast.testing", "collections", "types", "typing"))
        if isinstance(value, type):
            assert value.__doc__, f"{name} has no docstring"
            for member, inner in vars(value).items():
                if not member.startswith("_") and (callable(inner) or isinstance(inner, property)):
                    assert inner.__doc__, f"{name}.{member} has no docstring"
        elif inspect.isfunction(value):
            assert value.__doc__, f"{name} has no docstring"


def test_each_module_lists_its_names():
    for name in ("commands", "faults", "connection", "proxy", "servers", "injection"):
        module = __import__(f"handfast.testing.{name}", fromlist=["*"])
        in_order = sorted(module.__all__, key=lambda name: (not name.isupper(), not name[0].isupper(), name))
        assert in_order == list(module.__all__)
        assert all(hasattr(module, one) for one in module.__all__)
