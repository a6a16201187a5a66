"""Defaults of public parameters, each in this one place."""

from __future__ import annotations

__all__ = ["DEFAULT_MAX_SESSIONS", "DEFAULT_MAX_WAITERS", "DEFAULT_TTL_S", "EMBEDDED"]

DEFAULT_TTL_S = 30.0
"""``ttl``, in seconds: how long a name stays taken after its holder died. Renewals go out every third of it."""

DEFAULT_MAX_WAITERS = 100_000
"""``max_waiters``: queue length at which acquire raises QueueFull. It bounds the memory that one name takes on the server."""

DEFAULT_MAX_SESSIONS = 64
"""``max_sessions`` of the sync API: threads of one client that wait at the same time, each with a connection of its own."""

EMBEDDED = "embedded:"
"""In place of a URL: the user's shared embedded server."""
