"""No server, for threads."""

from __future__ import annotations

from handfast._drivers.null import NullDriver
from handfast._drivers.sync.driver import SyncDriver

__all__ = ["SyncNullDriver"]


class SyncNullDriver(NullDriver):
    """What a client has behind its API that coordinates nothing."""

    caller, is_over = staticmethod(SyncDriver.caller), staticmethod(SyncDriver.is_over)
