# Generated from _api/aio/__init__.py by tools/unasync.py: edit that file and run the tool.
"""The sync API."""

from __future__ import annotations

from handfast._api.sync.client import Handfast
from handfast._api.sync.lease import Lease
from handfast._api.sync.lock import Lock
from handfast._api.sync.lock_all import LeaseOfAll, LockAll
from handfast._api.sync.rlock import RLease, RLock
from handfast._api.sync.rwlock import ReadLock, RWLease, RWLock, WriteLock
from handfast._api.sync.semaphore import Semaphore
from handfast._naming import name_publicly

__all__ = [
    "Handfast",
    "Lease",
    "LeaseOfAll",
    "Lock",
    "LockAll",
    "RLease",
    "RLock",
    "RWLease",
    "RWLock",
    "ReadLock",
    "Semaphore",
    "WriteLock",
]

name_publicly(globals(), "handfast")
