"""The labels of names in metrics."""

from __future__ import annotations

import importlib
import sys

import pytest

from handfast.metrics import MAX_LABELS, OTHER, Labels, collapse


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("nightly", "nightly"),
        ("order:4711", "order:*"),
        ("order:4711:line:2", "order:*:line:*"),
        ("user-0b7d4c1e-93aa-4b2f-8c55-0d6ea1f3c9e2", "user-*"),
        ("file/9f86d081884c7d65", "file/*"),
        ("commit 9F86D081", "commit *"),
        ("defaced facade", "defaced facade"),
        ("größe ünï", "größe ünï"),
        ("a, b2", "a, b*"),
    ],
)
def test_what_tells_names_of_one_sort_apart_is_dropped(name, label):
    assert collapse(name) == label


def test_there_are_few_however_many_names():
    labels = Labels()
    assert {labels.of(f"order:{number}") for number in range(100_000)} == {"order:*"}
    found = {labels.of("x" * number) for number in range(1, 1000)}
    assert len(found) == MAX_LABELS
    assert OTHER in found
    assert labels.of("order:5") == "order:*"
    assert labels.of("x" * 999) == OTHER


def test_a_function_of_the_users_makes_them():
    labels = Labels(lambda name: name.partition(":")[0])
    assert labels.of("order:4711") == "order"


@pytest.mark.parametrize(
    ("module", "library", "extra"),
    [("prometheus", "prometheus_client", "prometheus"), ("opentelemetry", "opentelemetry", "otel")],
)
def test_a_missing_library_is_named_with_its_extra(monkeypatch, module, library, extra):
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, f"handfast.metrics.{module}", raising=False)
    with pytest.raises(ModuleNotFoundError) as caught:
        importlib.import_module(f"handfast.metrics.{module}")
    assert f"pip install 'handfast[{extra}]'" in caught.value.__notes__[0]
