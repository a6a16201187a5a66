"""The application of Django, for ``INSTALLED_APPS``."""

from __future__ import annotations

from django.apps import AppConfig
from django.core import checks

__all__ = ["HandfastConfig"]


class HandfastConfig(AppConfig):  # type: ignore[misc]
    """Registers the system checks, and has the commands found."""

    name = "handfast.contrib.django"
    label = "handfast"
    verbose_name = "Handfast"

    def ready(self) -> None:
        """Register the checks."""
        from handfast.contrib.django.checks import check_servers, check_settings

        checks.register(check_settings, "handfast")
        checks.register(check_servers, "handfast", deploy=True)
