"""Defaults of public parameters, each in this one place."""

from __future__ import annotations

__all__ = [
    "DEFAULT_KEEP_S",
    "DEFAULT_MAX_SESSIONS",
    "DEFAULT_MAX_WAITERS",
    "DEFAULT_REPLICA_TIMEOUT_S",
    "DEFAULT_RESPONSE_S",
    "DEFAULT_RETRY_S",
    "DEFAULT_TERM_S",
    "DEFAULT_TTL_S",
    "EMBEDDED",
    "NULL",
    "REFRESH_PAUSE_S",
    "VARIABLES",
]

DEFAULT_TTL_S = 30.0
"""``ttl``, in seconds: how long a name stays taken after its holder died. Renewals go out every third of it."""

DEFAULT_TERM_S = 15.0
"""``ttl`` of elections, groups and partitions, in seconds: for how long there is no leader after a death."""

DEFAULT_KEEP_S = 86_400.0
"""``keep`` of `once`, in seconds: a day, after which clients do not repeat a request any more."""

REFRESH_PAUSE_S = 5.0
"""How long, in seconds, no one makes a result of `once` anew after a run that failed to, unless ``keep_failure`` says
otherwise: what it needs is down, and each caller would ask for it."""

DEFAULT_RESPONSE_S = 5.0
"""Seconds to wait for a reply, unless the user's client sets ``socket_timeout``."""

DEFAULT_RETRY_S = 3.0
"""``retry_for``, in seconds: a server that restarts and a planned failover are back within it, and in a longer outage
the caller soon knows."""

DEFAULT_MAX_WAITERS = 100_000
"""``max_waiters``: queue length at which acquire raises QueueFull. It bounds the memory that one name takes on the
server."""

DEFAULT_REPLICA_TIMEOUT_S = 1.0
"""``replica_timeout``, in seconds: replicas that are well answer within milliseconds, and a server looks for them ten
times a second."""

DEFAULT_MAX_SESSIONS = 16
"""``max_sessions`` of the sync API: threads of one client that wait or call at the same time, each with a connection of
its own."""

EMBEDDED = "embedded:"
"""In place of a URL: the user's shared embedded server."""

NULL = "null:"
"""In place of a URL: no server, and nothing that is coordinated."""

VARIABLES = "HANDFAST_URL", "REDIS_URL"
"""What the URL of the server is taken from where none is passed: the first that is set."""
