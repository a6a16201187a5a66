"""The rivals, as the trials see them: each used as its documentation shows it, at its defaults but for a lease.

A rival's library is imported when the rival is used: what is not installed costs nothing.
"""

from __future__ import annotations

from handfast_lab.chaos.contender import Contender
from handfast_lab.chaos.rivals import coredis, pottery, py_redis_semaphore, python_redis_lock, redis_fifo_lock, redis_py

__all__ = ["RIVALS"]

_MODULES = redis_py, python_redis_lock, pottery, coredis, redis_fifo_lock, py_redis_semaphore

RIVALS: tuple[Contender, ...] = tuple(contender for module in _MODULES for contender in module.CONTENDERS)
"""In the order of the table."""
