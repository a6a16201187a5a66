"""Processes for the trial of handoffs, with a mistake. They are pickled for child processes, which import this module."""

from __future__ import annotations

import importlib

from handfast_lab.chaos.trials.handoffs import Computing

__all__ = ["UNCONFIRMED", "Unconfirmed"]

UNCONFIRMED = "lab.tests._support.planted_unconfirmed"


class Unconfirmed(Computing):
    """Its grants are not confirmed."""

    def begin(self, stack):
        importlib.import_module(UNCONFIRMED)
        super().begin(stack)
