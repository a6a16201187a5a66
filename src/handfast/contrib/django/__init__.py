"""Handfast in Django: a client for each alias of the settings, locked views, and commands that run in one place.

    INSTALLED_APPS = [..., "handfast.contrib.django"]
    HANDFAST = {"default": {"URL": "redis://localhost:6379/0", "NAMESPACE": "shop"}}

    from handfast.contrib.django import client, locked

    @locked("order:{order_id}", timeout=2)
    def pay(request, order_id): ...

    with client().lock("report"): ...

It needs the extra ``handfast[django]``.

`clients` reads the settings, `views` has the locked view, `commands` the base of a command run once at a time, `checks` the
system checks, `management` the commands ``handfast`` and ``migrate_once``, `admin` the list of names in Django's admin, `models` the
permissions of the list, and `cache` a client for django-redis.
"""

from __future__ import annotations

try:
    import django as _  # noqa: F401 -- says which extra is missing, before a module that needs it
except ImportError:
    raise ImportError("handfast.contrib.django needs Django; install it with: pip install 'handfast[django]'") from None

from handfast._naming import name_publicly
from handfast.contrib.django.clients import async_client, client
from handfast.contrib.django.commands import SingleRunCommand
from handfast.contrib.django.views import locked

__all__ = ["SingleRunCommand", "async_client", "client", "locked"]

name_publicly(globals())
