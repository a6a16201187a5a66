"""A client of django-redis whose locks are those of `handfast.compat`, on the same keys.

CACHES = {"default": {
    "BACKEND": "django_redis.cache.RedisCache",
    "LOCATION": "redis://localhost:6379/1",
    "OPTIONS": {"CLIENT_CLASS": "handfast.contrib.django.cache.CacheClient"},
}}
"""

from __future__ import annotations

from typing import Any

from django_redis.client import DefaultClient

from handfast.compat import RedisLock

__all__ = ["CacheClient"]


class CacheClient(DefaultClient):  # type: ignore[misc]
    """Gives ``cache.lock()`` as `handfast.compat.RedisLock`. Processes with either class exclude each other."""

    def lock(  # noqa: PLR0917 -- django-redis's signature
        self,
        key: str,
        version: int | None = None,
        timeout: float | None = None,
        sleep: float = 0.1,
        blocking: bool = True,  # noqa: FBT001, FBT002 -- django-redis's signature
        blocking_timeout: float | None = None,
        client: Any = None,
        thread_local: bool = True,  # noqa: FBT001, FBT002 -- django-redis's signature
    ) -> RedisLock:
        """Return a lock. The arguments are those of django-redis's own client, and of `RedisLock`."""
        server = client if client is not None else self.get_client(write=True)
        name = self.make_key(key, version=version)
        return RedisLock(server, name, timeout, sleep, blocking, blocking_timeout, thread_local)
