"""Servers with a wall clock of their own, for trials in which clocks jump."""

from __future__ import annotations

from handfast_lab.clocks.clock import ShiftedClock, find_compiler
from handfast_lab.clocks.server import ClockedServer

__all__ = ["ClockedServer", "ShiftedClock", "find_compiler"]
