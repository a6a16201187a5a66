"""The files of a release, installed into empty environments: the product alone, with extras, and with the lab.

``make release-check`` builds them and names the folder in ``HANDFAST_DIST``, and a tag in ``HANDFAST_TAG``. Without the
folder this module builds them.
"""

from __future__ import annotations

import email
import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(600)

ROOT = Path(__file__).parents[2]

TAG = os.environ.get("HANDFAST_TAG")

LOCK = """
import sys
from handfast import Handfast
with Handfast(sys.argv[1]) as hf, hf.lock("wheel", ttl=5) as lease:
    print("fence", lease.fence > 0, Handfast.__module__)
"""

PAGE = """
import ast, asyncio, inspect, sys
scope = {}
for block in sys.stdin.read().split("=====\\n"):
    left = eval(compile(block, "block", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), scope)
    if inspect.iscoroutine(left):
        asyncio.run(left)
"""
"""Runs blocks of code in sequence, as a reader pastes them."""

FAULT_KIT = """
from handfast import Handfast
from handfast.testing import FaultProxy, ServerController, command
with ServerController() as server, FaultProxy(server.url) as proxy, Handfast(proxy.url) as hf:
    with hf.lock("wheel", ttl=5) as lease:
        print("held", lease.fence > 0)
"""


def ran(*command, **options):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=300, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def pip(environment, *args):
    ran(sys.executable, "-m", "pip", "--python", environment / "bin/python", "install", "--quiet", *args)


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """Return the folder of the sdists, and of the wheels that were made of them."""
    if given := os.environ.get("HANDFAST_DIST"):
        return ROOT / given
    folder = tmp_path_factory.mktemp("dist")
    for project in (ROOT, ROOT / "lint", ROOT / "lab"):
        ran(Path(sys.executable).parent / "uv", "build", "--quiet", "--out-dir", folder, project)
    return folder


@pytest.fixture(scope="module")
def wheels(dist):
    product, lab, lint = sorted(dist.glob("*.whl"))
    assert [wheel.name.split("-")[0] for wheel in (product, lint, lab)] == ["handfast", "handfast_lint", "handfast_lab"]
    return product, lint, lab


def environment(folder):
    venv.create(folder, with_pip=False)
    return folder


@pytest.fixture(scope="module")
def with_extras(wheels, tmp_path_factory):
    home = environment(tmp_path_factory.mktemp("extras"))
    pip(home, f"{wheels[0]}[cli,embedded]")
    return home


def test_each_wheel_contains_its_own_package_only(wheels):
    names = [zipfile.ZipFile(wheel).namelist() for wheel in wheels]
    roots = [{name.partition("/")[0].split("-")[0] for name in of_wheel} for of_wheel in names]
    assert roots == [{"handfast"}, {"handfast_lint"}, {"handfast_lab"}]
    assert not [name for name in names[0] if "bench" in name or "chaos" in name or "simulator" in name]


def test_all_have_the_same_version_as_the_tag(dist, wheels):
    (version,) = {file.name.removesuffix(".tar.gz").split("-")[1] for file in (*wheels, *dist.glob("*.tar.gz"))}
    pins = [pin for name in ("lint", "lab") for pin in re.findall(r"handfast.*==([\w.]+)", project(name))]
    assert set(pins) == {version}
    if TAG:
        assert f"v{version}" == TAG
        assert f"\n## [{version}]" in (ROOT / "CHANGELOG.md").read_text(), f"the changelog has no heading for {version}"


def project(name):
    return (ROOT / name / "pyproject.toml").read_text()


def test_no_link_of_a_description_is_relative(wheels):
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as content:
            [name] = [name for name in content.namelist() if name.endswith(".dist-info/METADATA")]
            description = email.message_from_bytes(content.read(name)).get_payload()
        links = re.findall(r"(?:\]\(|(?:src|srcset|href)=\")([^)\"\s]+)", description)
        assert links
        assert [link for link in links if not link.startswith(("https://", "#"))] == []


def test_the_product_alone_provides_a_lock(wheels, server, raw, tmp_path):
    home = environment(tmp_path / "bare")
    pip(home, wheels[0])
    assert ran(home / "bin/python", "-I", "-c", LOCK, server.url) == "fence True handfast\n"
    assert ran(home / "bin/python", "-I", "-c", "import handfast.testing as kit; print(kit.FaultProxy.__name__)")
    refused = subprocess.run([home / "bin/handfast", "run"], capture_output=True, text=True, timeout=60, check=False)
    assert "pip install 'handfast[cli]'" in refused.stderr


def test_the_quickstart_runs_as_it_is_pasted(with_extras, server, raw):
    """But for the server."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/start/quickstart.md").read_text(), re.DOTALL)
    code = "=====\n".join(blocks).replace("Handfast.embedded()", f"Handfast({server.url!r})")
    code = code.replace("redis://localhost:6379/0", server.url)
    printed = ran(with_extras / "bin/python", "-I", "-c", PAGE, input=code).splitlines()
    assert printed[:4] == ["True", "working", "working", "True"]
    assert printed[4].endswith(" 0")


def test_the_demo_keeps_every_promise(with_extras):
    assert "✓ yes" in ran(with_extras / "bin/handfast", "demo", "--seconds", "5", "--processes", "2")


def test_its_extras_provide_the_command_and_the_fault_kit(with_extras, server, raw):
    command = with_extras / "bin/handfast"
    assert ran(command, "run", "--url", server.url, "wheel", "--", "echo", "done") == "done\n"
    assert ran(with_extras / "bin/python", "-I", "-c", FAULT_KIT) == "held True\n"
    help_ = ran(command, "--help")
    assert "demo" in help_
    assert not [name for name in ("bench", "torture", "script") if name in help_]


def test_the_linter_adds_its_command(wheels, with_extras, tmp_path):
    pip(with_extras, wheels[1])
    (tmp_path / "one.lua").write_text("redis.call('GETT', KEYS[1])")
    command = [with_extras / "bin/handfast", "script", "check", tmp_path / "one.lua"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "[unknown-command]" in done.stdout, done.stderr


def test_the_lab_adds_its_commands(wheels, with_extras, server, raw):
    pip(with_extras, "--no-deps", wheels[2])
    command = with_extras / "bin/handfast"
    help_ = ran(command, "--help")
    assert "bench" in help_
    assert "torture" in help_
    few = "--clients", "1", "--rounds", "1", "--seconds", "0.05", "--only", "handfast", "--only", "floor"
    assert "handfast" in ran(command, "bench", "lock", "--url", server.url, *few)
