"""Annotations that name what only type checkers import: no decorator evaluates them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import handfast

PROGRAM = """
import asyncio
from typing import TYPE_CHECKING
from handfast import AsyncHandfast, Handfast, Script
if TYPE_CHECKING:
    from decimal import Decimal as Money
hf, ahf = Handfast("null:"), AsyncHandfast("null:")

def price(price: Money) -> Money:
    return price

async def later(price: Money) -> Money:
    return price

makers = (
    lambda client: client.lock("a:{price}"),
    lambda client: client.semaphore("a:{price}", 1),
    lambda client: client.limiter("a", "5/s"),
    lambda client: client.limiter("a", "5/s", by="price"),
    lambda client: client.once("a", by="price"),
    lambda client: client.debounce("a", 0.01),
)
for make in makers:
    assert make(hf)(price)(5) == 5
    assert asyncio.run(make(ahf)(later)(5)) == 5

@Script("return 1").typed
def stub(client: Money, keys: Money, args: Money) -> int: ...
"""


@pytest.mark.parametrize("future", ["", "from __future__ import annotations\n"])
def test_no_decorator_evaluates_the_annotations_of_parameters(future):
    if sys.version_info < (3, 14) and not future:
        pytest.skip("before Python 3.14, Python itself evaluates them")
    done = subprocess.run(
        [sys.executable, "-c", future + PROGRAM], capture_output=True, text=True, check=False, timeout=30
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_function_without_a_signature_may_be_limited():
    with handfast.Handfast("null:") as hf:
        assert hf.limiter("a", "5/s")(max)(3, 4) == 4


def test_the_package_asks_for_signatures_in_one_place():
    package = Path(handfast.__file__).parent
    found = [path.name for path in package.rglob("*.py") if "inspect.signature(" in path.read_text(encoding="utf-8")]
    assert found == ["_signatures.py"]
