"""A client that counts how often EXEC refused because somebody had touched what was watched.

The listings are measured as they are: what their loops do is seen from below, by the client that they are given.
"""

from __future__ import annotations

from typing import Any

import redis
import redis.client
from redis.exceptions import WatchError

__all__ = ["WatchCounted"]


class WatchCounted(redis.Redis):
    """A client whose ``retries`` is the number of WatchErrors that its pipelines have raised."""

    retries = 0

    def pipeline(self, transaction: Any = True, shard_hint: Any = None) -> Any:  # noqa: FBT002 -- redis-py's signature
        """The pipelines of redis-py, but counted."""
        pipe = _Pipeline(self.connection_pool, self.response_callbacks, transaction, shard_hint)
        pipe.counter = self
        return pipe


class _Pipeline(redis.client.Pipeline):
    counter: WatchCounted

    def execute(self, raise_on_error: bool = True) -> Any:  # noqa: FBT001, FBT002 -- redis-py's signature
        try:
            return super().execute(raise_on_error)
        except WatchError:
            self.counter.retries += 1
            raise
