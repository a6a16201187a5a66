"""End a connection in trouble: nothing is to arrive later, or from another thread than the connection's own.

For minutes, the system goes on sending the undelivered bytes of a closed socket. A request arriving after its tombstone
is gone (20 s) would be granted to no one.
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
    """Have the system drop the undelivered bytes of this socket when it is closed.

    Does nothing where this is not possible.
    """
    with contextlib.suppress(OSError, AttributeError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)


def hang_up(end: Any) -> None:
    """Shut a connection down from any thread. The connection's own thread finds it closed by the server."""
    with contextlib.suppress(OSError, AttributeError), socket.socket(fileno=os.dup(end.fileno())) as copy:
        copy.shutdown(socket.SHUT_RDWR)
