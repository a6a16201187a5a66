"""A connector whose connections a test makes."""

from __future__ import annotations

from handfast._drivers.connect import Connector
from handfast._drivers.events import Events

__all__ = ["ScriptedConnector"]


class ScriptedConnector(Connector):
    """Has been at its server before, and heard it. ``connect`` is what makes the connections."""

    def __init__(self, connect, *, response_timeout=5.0, heard=True):
        self.connect = connect
        self.response_timeout = response_timeout
        self.switches = 0
        self.heard = heard
        self._reached = True
        self.events = Events()
        self.is_known = True
