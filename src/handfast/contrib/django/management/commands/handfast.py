"""``manage.py handfast …``: the command ``handfast``, with the server of the settings."""

from __future__ import annotations

import os
from typing import Any

from django.core.management.base import BaseCommand

from handfast.contrib.django.clients import DEFAULT, aliases, url_of

__all__ = ["Command"]


class Command(BaseCommand):  # type: ignore[misc]
    """Runs the command ``handfast``."""

    help = "The command handfast with the server of the settings: manage.py handfast ls."
    requires_system_checks: tuple[()] = ()

    def run_from_argv(self, argv: list[str]) -> None:
        """Hand all words over; $HANDFAST_ALIAS names another alias than "default"."""
        from handfast.cli import main

        alias = os.environ.get("HANDFAST_ALIAS", DEFAULT)
        given = {"url": url_of(alias), "namespace": aliases()[alias].get("NAMESPACE")}
        main(argv[2:], program="manage.py handfast", defaults={name: value for name, value in given.items() if value})

    def handle(self, *args: Any, **options: Any) -> None:
        """Do nothing: see `run_from_argv`."""
