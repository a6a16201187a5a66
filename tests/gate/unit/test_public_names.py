"""Users find every public thing under a public name, and tracebacks, pickles and help() use that name."""

from __future__ import annotations

import importlib
import inspect
import pickle
import re
import subprocess
import sys
import traceback
from typing import ParamSpec, TypeVar

import pytest

import handfast
import handfast.compat
from handfast._engine import defaults
from handfast._engine.calls import PermitRequest
from handfast._engine.keys import KeySet
from handfast._engine.options import LeaseOptions
from handfast._engine.packing import doubles

CLASSES = {name: getattr(handfast, name) for name in handfast.__all__ if isinstance(getattr(handfast, name), type)}


def public_functions(kind):
    """The public functions of a class, its constructor only if users call it."""
    for name, member in inspect.getmembers(kind):
        function = inspect.unwrap(member.fget if isinstance(member, property) else member)
        if inspect.isroutine(function) and str(getattr(function, "__module__", "")).startswith("handfast"):
            called = kind in (handfast.Handfast, handfast.AsyncHandfast, handfast.Script)
            if not name.startswith("_") or (name == "__init__" and called):
                yield f"{kind.__name__}.{name}", function


@pytest.mark.parametrize("name", CLASSES)
def test_a_public_class_says_that_it_is_from_handfast(name):
    kind = CLASSES[name]
    if kind is not handfast.Duration:
        assert f"{kind.__module__}.{kind.__qualname__}" == f"handfast.{name}"
        assert repr(kind) == f"<class 'handfast.{name}'>"
        assert pickle.loads(pickle.dumps(kind)) is kind


def test_the_redis_py_locks_say_that_they_are_from_the_compat_module():
    for name in handfast.compat.__all__:
        assert getattr(handfast.compat, name).__module__ == "handfast.compat"


def test_a_traceback_shows_the_public_name_of_an_error():
    shown = traceback.format_exception_only(handfast.AcquireTimeout("a", 1))
    assert shown[0].startswith("handfast.AcquireTimeout: 'a' could not")


def test_an_error_can_be_unpickled_where_only_the_error_module_was_imported():
    data = pickle.dumps(handfast.LeaseLost("a", 7, "why"))
    code = (
        f"import pickle, handfast.errors; error = pickle.loads({data!r}); print(type(error), error.name, error.fence)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == "<class 'handfast.LeaseLost'> a 7\n"


def test_every_type_of_a_public_signature_is_public():
    seen = set()
    for kind in CLASSES.values():
        for where, function in public_functions(kind):
            home = importlib.import_module(function.__module__)
            for annotation in function.__annotations__.values():
                for word in re.findall(r"[A-Za-z_]\w*", str(annotation)):
                    value = getattr(home, word, getattr(handfast.records, word, None))
                    ours = str(getattr(value, "__module__", "")).startswith("handfast") or word in {
                        "Duration",
                        "OnLost",
                    }
                    if ours and not isinstance(value, TypeVar | ParamSpec):
                        seen.add(word)
                        assert word in handfast.__all__, f"{where} has {word} in its signature, which is not public"
    assert seen >= {"Duration", "OnLost", "LockStatus", "SemaphoreLease", "AsyncSemaphoreLease", "AsyncLock"}


def test_the_error_of_a_bad_script_header_is_public():
    with pytest.raises(handfast.HeaderError, match="1") as caught:
        handfast.Script("-- KEYS 1\n")
    assert caught.value.line == 1


@pytest.mark.parametrize("client", [handfast.Handfast, handfast.AsyncHandfast])
@pytest.mark.parametrize("maker", ["lock", "rlock", "lock_all", "semaphore", "rwlock"])
def test_help_shows_the_defaults_as_numbers(client, maker):
    shown = str(inspect.signature(getattr(client, maker)))
    assert "= 30.0" in shown
    assert "max_waiters: 'int' = 100000" in shown


def test_each_default_has_one_source():
    parameters = inspect.signature(handfast.Handfast).parameters
    assert parameters["max_sessions"].default == defaults.DEFAULT_MAX_SESSIONS == 16
    request = PermitRequest(KeySet("hf", "lock", "a"), LeaseOptions(1000))
    assert doubles(defaults.DEFAULT_MAX_WAITERS) in request.acquire(b"t").args


# --- docstrings

DOCUMENTED = [
    (where, function)
    for module in (handfast, handfast.compat)
    for name in module.__all__
    if isinstance(kind := getattr(module, name), type)
    for where, function in public_functions(kind)
]
BY_THE_EVENT_LOOP = {f"AcquireContext.{name}" for name in ("send", "throw", "close")}


def test_the_names_of_the_package_are_sorted():
    assert sorted(handfast.__all__) == list(handfast.__all__)


@pytest.mark.parametrize("name", CLASSES)
def test_a_public_class_is_documented(name):
    if CLASSES[name] is not handfast.Duration:
        summary = inspect.getdoc(CLASSES[name]).split("\n\n")[0]
        assert len(summary) > 20
        assert summary.endswith((".", ":"))


@pytest.mark.parametrize(("where", "function"), DOCUMENTED, ids=[where for where, _ in DOCUMENTED])
def test_a_public_function_is_documented_with_its_arguments_and_its_result(where, function):
    kind = CLASSES.get(where.partition(".")[0])
    text = inspect.getdoc(kind if function.__name__ == "__init__" else function)
    assert text, f"{where} has no docstring"
    assert text.split("\n\n")[0].endswith((".", ":")), f"the summary of {where} is not a sentence"
    if where in BY_THE_EVENT_LOOP:
        return
    described = text + inspect.getdoc(kind.lock) if "The other options are those of `lock`." in text else text
    for parameter in list(inspect.signature(function).parameters)[1:]:
        if parameter in {"_args", "_options"}:  # which are refused, with advice
            continue
        assert f"    {parameter}: " in described, f"{where} does not describe {parameter}"
    result = str(function.__annotations__.get("return"))
    if not isinstance(inspect.getattr_static(kind, function.__name__, None), property) and result not in {
        "None",
        "Self",
    }:
        said = "Returns:" in text or text.startswith("Return ") or function.__name__ == "__init__"
        assert said, f"{where} does not say what it returns"
