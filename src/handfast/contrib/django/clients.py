"""The clients named by the setting ``HANDFAST``: one for each alias and process, made at the first use."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, TypeVar

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed

from handfast import AsyncHandfast, Handfast

__all__ = ["aliases", "async_client", "client", "url_of"]

C = TypeVar("C", Handfast, AsyncHandfast)

DEFAULT = "default"

KEYS = {"URL", "CACHE", "NAMESPACE", "LABEL", "OPTIONS"}

_MADE: dict[tuple[type, str], Any] = {}
_LOCK = threading.Lock()


def client(alias: str = DEFAULT) -> Handfast:
    """Return the client of the sync API for an alias of the setting ``HANDFAST``. No I/O.

    The setting is a mapping of aliases to mappings of:

    - ``URL``: as `Handfast` takes it. Or ``CACHE``: the alias of a cache in Redis, whose server is used.
    - ``NAMESPACE`` and ``LABEL``: those of the client.
    - ``OPTIONS``: further options of the client, such as ``retry_for``.

    Without the setting, the alias "default" has the server of ``$HANDFAST_URL``, else ``$REDIS_URL``.

    Raises:
        django.core.exceptions.ImproperlyConfigured: There is no such alias, or it is not as it has to be.
    """
    return _client(Handfast, alias)


def async_client(alias: str = DEFAULT) -> AsyncHandfast:
    """Return the client of the asyncio API, for async views. As `client`."""
    return _client(AsyncHandfast, alias)


def aliases() -> Mapping[str, Any]:
    """Return the setting."""
    found = getattr(settings, "HANDFAST", None)
    if found is None:
        return {DEFAULT: {}}
    if not isinstance(found, Mapping) or not all(isinstance(one, Mapping) for one in found.values()):
        raise ImproperlyConfigured(
            "HANDFAST must be a mapping of aliases to mappings, such as {'default': {'URL': '…'}}"
        )
    return found


def url_of(alias: str) -> str | None:
    """Return the URL of an alias; None for the URL of the environment."""
    found = aliases()
    if alias not in found:
        raise ImproperlyConfigured(f"HANDFAST has no alias {alias!r}; it has {', '.join(map(repr, found)) or 'none'}")
    options = found[alias]
    if unknown := set(options) - KEYS:
        raise ImproperlyConfigured(f"HANDFAST[{alias!r}] has the unknown {', '.join(sorted(map(repr, unknown)))}")
    if "CACHE" not in options:
        url: str | None = options.get("URL")
        return url
    if "URL" in options:
        raise ImproperlyConfigured(f"HANDFAST[{alias!r}] has a URL and a CACHE; give one of them")
    if options["CACHE"] not in settings.CACHES:
        raise ImproperlyConfigured(f"HANDFAST[{alias!r}] names the cache {options['CACHE']!r}, which CACHES has not")
    cache = settings.CACHES[options["CACHE"]]
    location = cache.get("LOCATION")
    # The first location is the primary. The others are replicas for reads, and a script needs the primary.
    location = location[0] if isinstance(location, list | tuple) and location else location
    if not isinstance(location, str) or "://" not in location:
        raise ImproperlyConfigured(
            f"HANDFAST[{alias!r}] names the cache {options['CACHE']!r}, whose LOCATION is no URL of a server"
        )
    return location.split(",", 1)[0]


def _client(kind: type[C], alias: str) -> C:
    made = _MADE.get((kind, alias))
    if made is None:
        with _LOCK:
            made = _MADE.get((kind, alias)) or _make(kind, alias)
            _MADE[kind, alias] = made
    found: C = made
    return found


def _make(kind: type[C], alias: str) -> C:
    url, options = url_of(alias), aliases()[alias]
    given = {key.lower(): options[key] for key in ("NAMESPACE", "LABEL") if key in options}
    try:
        return kind(url, **given, **options.get("OPTIONS", {}))
    except (TypeError, ValueError) as error:
        raise ImproperlyConfigured(f"HANDFAST[{alias!r}]: {error}") from error


def _forget(*, setting: str, **_: Any) -> None:
    """Make clients anew after ``override_settings`` of a test."""
    if setting in ("HANDFAST", "CACHES"):
        with _LOCK:
            _MADE.clear()


setting_changed.connect(_forget)
