"""The fixtures that users of pytest get, in suites of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs/how-to/testing.md"

SUITE = """
import sys

import pytest

from handfast import Handfast, LeaseLost
from handfast.testing import busy, expire_now

kept = []

def test_nothing_is_imported_before_it_is_used():
    assert "handfast._drivers" not in sys.modules or "handfast.testing" in sys.modules

@pytest.mark.parametrize("number", range(4))
def test_a_client_has_a_namespace_of_its_own(handfast_client, number):
    lease = handfast_client.lock("a").acquire(timeout=0)
    with pytest.raises(LeaseLost), lease:
        expire_now(lease)
        assert lease.lost_event.wait(20)
    kept.append(handfast_client.lock("b").acquire())

@pytest.mark.parametrize("number", range(2))
def test_what_is_held_is_released(handfast_server, number):
    assert not [key for key in handfast_server.admin.keys("*:holders*")]

def test_the_code_under_test_finds_the_server(handfast_server):
    with Handfast() as hf, hf.lock("a"):
        assert handfast_server.url in repr(hf)

async def test_asyncio(async_handfast_client):
    async with async_handfast_client.lock("a"):
        assert await async_handfast_client.lock("a").locked()

def test_a_name_can_be_busy_without_a_server(handfast_deactivated):
    with busy("a"):
        assert Handfast("redis://nowhere.invalid").lock("a").try_acquire() is None
"""

PLAIN = "import sys\n\ndef test_it():\n    assert not [name for name in sys.modules if name.startswith(('handfast._drivers', 'handfast.testing', 'redis'))]\n"


def run(tmp_path, text, *options):
    """Run a suite as a user would: with no configuration, and with each warning as an error."""
    (tmp_path / "test_suite.py").write_text(text)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\nfilterwarnings = error\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:valkey", *options, str(tmp_path)]
    env = {name: value for name, value in os.environ.items() if not name.startswith(("HANDFAST_", "REDIS_", "PYTEST_"))}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=120)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_a_suite_with_all_fixtures(tmp_path, options):
    code, text = run(tmp_path, SUITE, *options)
    assert (code, "10 passed" in text) == (0, True), text


def test_the_suite_of_the_page(tmp_path):
    (program,) = re.findall(
        r'^```python title="test_orders.py"\n(.*?)^```$', PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    code, text = run(tmp_path, program)
    assert code == 0, text


def test_a_suite_without_them_pays_nothing(tmp_path):
    code, text = run(tmp_path, PLAIN)
    assert code == 0, text
