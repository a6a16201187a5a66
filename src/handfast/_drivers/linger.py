"""Close a connection in trouble so that nothing of it arrives later.

The system goes on sending what a closed socket has not delivered, for minutes. A request that arrives after its
tombstone is gone (20 s) would be granted to no one.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from typing import Any

__all__ = ["drop_undelivered"]

NO_LINGER = struct.pack("ii", 1, 0)
"""On, for 0 seconds: to close resets the connection."""


def drop_undelivered(end: Any) -> None:
    """Have the system drop what it has not delivered when this socket is closed.

    Does nothing where that is not possible.
    """
    with contextlib.suppress(OSError, AttributeError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
