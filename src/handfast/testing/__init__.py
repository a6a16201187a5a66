"""Fault injection for tests: real servers and connections that fail on command, cancellations and interrupts.

`FaultProxy` stands between clients and a server and loses, delays, repeats or cuts single commands. `ServerController`
runs a server that can be killed, paused, restarted, starved of memory or given a replica. `cancel_everywhere` and
`interrupt_everywhere` stop a piece of code at each point where it can be stopped.

    with ServerController() as server, FaultProxy(server.url) as proxy:
        fault = proxy.lose_reply(script("permit_acquire"))
        with Handfast(proxy.url) as hf, hf.lock("a"):
            assert fault.happened == 1
"""

from __future__ import annotations

from handfast._naming import name_publicly
from handfast.testing.commands import Command, Match, Scripted, anything, command, containing, script
from handfast.testing.expiry import expire_now
from handfast.testing.faults import Direction, Fault
from handfast.testing.injection import (
    Points,
    Run,
    Stepper,
    Within,
    calm,
    cancel_at,
    cancel_everywhere,
    interrupt_after,
    interrupt_at,
    interrupt_everywhere,
)
from handfast.testing.off import busy, deactivate
from handfast.testing.proxy import FaultProxy
from handfast.testing.servers import ServerController

__all__ = [
    "Command",
    "Direction",
    "Fault",
    "FaultProxy",
    "Match",
    "Points",
    "Run",
    "Scripted",
    "ServerController",
    "Stepper",
    "Within",
    "anything",
    "busy",
    "calm",
    "cancel_at",
    "cancel_everywhere",
    "command",
    "containing",
    "deactivate",
    "expire_now",
    "interrupt_after",
    "interrupt_at",
    "interrupt_everywhere",
    "script",
]

name_publicly(globals())
