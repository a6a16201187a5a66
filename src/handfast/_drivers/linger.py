"""End a connection in trouble: so that nothing of it arrives later, or from another thread than its own.

The system goes on sending what a closed socket has not delivered, for minutes. A request that arrives after its
tombstone is gone (20 s) would be granted to no one.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from typing import Any

__all__ = ["drop_undelivered", "hang_up"]

NO_LINGER = struct.pack("ii", 1, 0)
"""On, for 0 seconds: to close resets the connection."""


def drop_undelivered(end: Any) -> None:
    """Have the system drop what it has not delivered when this socket is closed.

    Does nothing where that is not possible.
    """
    with contextlib.suppress(OSError, AttributeError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)


def hang_up(end: Any) -> None:
    """Shut a connection down from any thread. Its own thread finds it closed by the server."""
    with contextlib.suppress(OSError, AttributeError), socket.socket(fileno=os.dup(end.fileno())) as copy:
        copy.shutdown(socket.SHUT_RDWR)
