"""A short run of each measurement of policies."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from handfast_lab.commands.bench import command


@pytest.mark.parametrize(
    ("arguments", "checked"),
    [
        (["turn", "--processes", "2", "--conversations", "5", "--turns", "60"], {"overlaps": 0}),
        (["replace", "--calls", "20"], {"ran": 2}),
        (["tenant", "--jobs", "20", "--others", "4"], {"above a limit": 0}),
        (["hold", "--holds", "2"], {"grants inside": 0}),
        (["urgent", "--rate", "300", "--seconds", "1"], {"urgent": 2}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_short_run_finds_no_fault(arguments, checked, tmp_path):
    file = tmp_path / "found.json"
    done = CliRunner().invoke(command, [*arguments, "--json", str(file)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    figures = json.loads(file.read_text())["figures"]
    assert figures
    for name, value in checked.items():
        assert all(one[name] == value for one in figures if name in one), figures
        assert any(name in one for one in figures)
