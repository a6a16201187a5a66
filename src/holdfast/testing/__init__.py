"""The fault kit: real servers and real connections that fail as they are told to, for tests of one's own code."""

from __future__ import annotations

from holdfast.testing.commands import Command, Match, anything, command, containing, script
from holdfast.testing.faults import Fault
from holdfast.testing.proxy import FaultProxy
from holdfast.testing.scripted import FakeClock, ScriptedDriver
from holdfast.testing.servers import ServerController
from holdfast.testing.stepping import (
    Run,
    Stepper,
    calm,
    cancel_at,
    cancel_everywhere,
    interrupt_after,
    interrupt_at,
    interrupt_everywhere,
)

__all__ = [
    "Command",
    "FakeClock",
    "Fault",
    "FaultProxy",
    "Match",
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
    "script",
]
