"""System checks: of the setting, and with ``check --deploy`` of the servers."""

from __future__ import annotations

from typing import Any

from django.core.checks import CheckMessage, Error
from django.core.checks import Warning as CheckWarning
from django.core.exceptions import ImproperlyConfigured
from redis.exceptions import RedisError

from handfast import HandfastError
from handfast.contrib.django.clients import aliases, client

__all__ = ["check_servers", "check_settings"]


def check_settings(**_: Any) -> list[CheckMessage]:
    """Return an error for each wrong alias of the settings (``handfast.E001``)."""
    found = []
    try:
        names = list(aliases())
    except ImproperlyConfigured as error:
        return [Error(str(error), id="handfast.E001")]
    for alias in names:
        try:
            client(alias)
        except (ImproperlyConfigured, HandfastError) as error:
            found.append(Error(str(error), id="handfast.E001"))
    return found


def check_servers(**_: Any) -> list[CheckMessage]:
    """Return the findings of `Handfast.check_server`.

    ``handfast.E002``: the server grants nothing, or may evict leases; ``handfast.W001``: a restart or a failover may lose a lease, or
    a limit is near; ``handfast.W002``: it can't be reached from here.
    """
    found: list[CheckMessage] = []
    for alias in () if check_settings() else aliases():
        try:
            findings = client(alias).check_server()
        except (HandfastError, RedisError) as error:
            found.append(CheckWarning(f"HANDFAST[{alias!r}]: {error}", id="handfast.W002"))
            continue
        for one in findings:
            hint = " ".join(filter(None, (one.advice, one.command))) or None
            if one.severity == "failure":
                found.append(Error(f"HANDFAST[{alias!r}]: {one.text}", hint, id="handfast.E002"))
            elif one.severity == "warning":
                found.append(CheckWarning(f"HANDFAST[{alias!r}]: {one.text}", hint, id="handfast.W001"))
    return found
