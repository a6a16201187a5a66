"""No server, for threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from handfast._drivers.null import NullDriver
from handfast._drivers.sync.driver import SyncDriver

__all__ = ["SyncNullDriver"]


class SyncNullDriver(NullDriver):
    """The driver behind the sync API of a client that coordinates nothing."""

    @staticmethod
    def _later(seconds: float, function: Callable[[], object]) -> Any:
        alarm = threading.Timer(seconds, function)
        alarm.daemon = True
        alarm.start()
        return alarm

    caller, is_over = staticmethod(SyncDriver.caller), staticmethod(SyncDriver.is_over)
