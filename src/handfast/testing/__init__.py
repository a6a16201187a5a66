"""The fault kit: real servers and real connections that fail as they are told to, for tests of one's own code."""

from __future__ import annotations

from handfast.testing.commands import Command, Match, anything, command, containing, script
from handfast.testing.faults import Fault
from handfast.testing.injection import (
    Run,
    Stepper,
    calm,
    cancel_at,
    cancel_everywhere,
    interrupt_after,
    interrupt_at,
    interrupt_everywhere,
)
from handfast.testing.processes import ChildProcess, Parent, ProcessFailed, ProcessGroup, Report, run_in_subprocess
from handfast.testing.proxy import FaultProxy
from handfast.testing.scripted import FakeClock, ScriptedDriver
from handfast.testing.servers import ServerController

__all__ = [
    "ChildProcess",
    "Command",
    "FakeClock",
    "Fault",
    "FaultProxy",
    "Match",
    "Parent",
    "ProcessFailed",
    "ProcessGroup",
    "Report",
    "Run",
    "ScriptedDriver",
    "ServerController",
    "Stepper",
    "anything",
    "calm",
    "cancel_at",
    "cancel_everywhere",
    "command",
    "containing",
    "interrupt_after",
    "interrupt_at",
    "interrupt_everywhere",
    "run_in_subprocess",
    "script",
]
