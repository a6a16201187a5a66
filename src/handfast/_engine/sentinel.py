"""The answers of a Sentinel about a service: which server is the primary, and from when on another server is.

After a planned failover the old primary takes writes for ten seconds more, and cuts no connection. A client which
stayed there would acquire the locks that others acquire at the new primary. So each client has a Sentinel tell it of
the change.
"""

from __future__ import annotations

from typing import Any

from handfast._engine.resp import Push
from handfast._engine.script import pack

__all__ = ["address_in", "question", "subscription"]

CHANNEL = "+switch-master"
"""Where a Sentinel publishes ``<service> <old host> <old port> <new host> <new port>``."""


def question(service: str) -> bytes:
    """Return the command that asks for the address of the primary."""
    return b"*3\r\n" + pack(("SENTINEL", "GET-MASTER-ADDR-BY-NAME", service))


def subscription() -> bytes:
    """Return the command after which the Sentinel tells of each change."""
    return b"*2\r\n" + pack(("SUBSCRIBE", CHANNEL))


def address_in(frame: Any, service: str) -> str | None:
    """Return ``host:port`` of the service's primary, if a frame names it: a message, or the answer to the question."""
    words: list[Any] = []
    # A Push is a list as well, so its type is asked first: a confirmation of a subscription is no answer.
    if type(frame) is Push:
        if len(frame) == 3 and frame[0] == b"message" and isinstance(frame[2], bytes):
            words = frame[2].split(b" ")
            # One Sentinel watches many services, and publishes the changes of all to one channel.
            words = words[3:] if len(words) == 5 and words[0] == service.encode() else []
    elif isinstance(frame, list):
        words = frame
    if len(words) != 2 or not all(isinstance(word, bytes) for word in words):
        return None
    return ":".join(word.decode(errors="replace") for word in words)
