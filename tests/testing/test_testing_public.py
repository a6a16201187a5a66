"""What the fault kit exports."""

from __future__ import annotations

import inspect

import handfast.testing


def test_what_is_public_is_listed_and_documented():
    assert sorted(handfast.testing.__all__) == list(handfast.testing.__all__)
    for name in handfast.testing.__all__:
        value = getattr(handfast.testing, name)
        if isinstance(value, type):
            assert value.__doc__, f"{name} has no docstring"
            for member, inner in vars(value).items():
                if not member.startswith("_") and (callable(inner) or isinstance(inner, property)):
                    assert inner.__doc__, f"{name}.{member} has no docstring"
        elif inspect.isfunction(value):
            assert value.__doc__, f"{name} has no docstring"


def test_every_module_of_it_lists_what_it_offers():
    for name in ("commands", "faults", "connection", "proxy", "servers", "clock", "injection", "scripted"):
        module = __import__(f"handfast.testing.{name}", fromlist=["*"])
        assert sorted(module.__all__) == list(module.__all__)
        assert all(hasattr(module, one) for one in module.__all__)
