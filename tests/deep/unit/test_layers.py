"""The layers of the product, as the design page draws them: imports point down only, and nothing imports in a circle.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

from tests.gate.unit.test_layers import LAB, circles, graph

KNOWN_CIRCLES = {
    ("handfast_lab.chaos.contender", "handfast_lab.chaos.onloop"),
    (
        "handfast_lab.simulator.callers",
        "handfast_lab.simulator.faults",
        "handfast_lab.simulator.plans",
        "handfast_lab.simulator.simulation",
        "handfast_lab.simulator.watch",
    ),
}
"""Circles of the lab that are not mended yet. Entries may only be removed."""


def test_circles_of_the_lab_only_become_fewer():
    assert circles(graph(LAB)) <= KNOWN_CIRCLES
