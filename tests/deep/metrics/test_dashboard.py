"""The dashboard in the terms of Grafana's own schema: what the schema does not know would be lost here."""

from __future__ import annotations

import json

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from tests.gate.metrics.test_exporter import CONTRIB


def differences(ours, theirs, path=""):
    """Yield where the second value lacks something of the first one, or differs from it."""
    if isinstance(ours, dict):
        for key, value in ours.items():
            if not isinstance(theirs, dict) or key not in theirs:
                yield f"{path}/{key}"
            else:
                yield from differences(value, theirs[key], f"{path}/{key}")
    elif isinstance(ours, list):
        if not isinstance(theirs, list) or len(ours) != len(theirs):
            yield path
        else:
            for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
                yield from differences(one, other, f"{path}[{number}]")
    elif ours != theirs:
        yield path


def test_the_dashboard_fits_grafanas_schema():
    register_default_plugins()
    board = json.loads((CONTRIB / "grafana.json").read_text())
    read = json.loads(JSONEncoder(sort_keys=True).encode(Dashboard.from_json(board)))
    assert not [*differences(board, read)]
    strange = board | {"titel": "Handfast"}
    assert [*differences(strange, json.loads(JSONEncoder().encode(Dashboard.from_json(strange))))] == ["/titel"]


def test_the_panels_do_not_cover_each_other():
    board = json.loads((CONTRIB / "grafana.json").read_text())
    cells = [
        (x, y)
        for panel in board["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) == 23
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
