"""The classic listings: the functions that people copy from "Redis in Action" and from notes of that time.

They are here under the names and signatures that people know, written afresh, for two reasons: whoever uses them can
import instead of copy, and `holdfast bench` has something to be measured against. This package has the Lua forms of
chapter 11; `holdfast.classic.watch` has the first forms of chapter 6, with SETNX or WATCH/MULTI/EXEC. ``conn`` is a
``redis.Redis``, with ``decode_responses`` on or off.

Each docstring says what is wrong with its function and what to use instead. For new code that is `holdfast.Holdfast`.
"""

from __future__ import annotations

from holdfast.classic.locks import acquire_lock_with_timeout, release_lock
from holdfast.classic.script import script_load

__all__ = ["acquire_lock_with_timeout", "release_lock", "script_load"]
