"""``manage.py migrate_once``: ``migrate`` in the start of each replica, a single replica at a time."""

from __future__ import annotations

import logging
from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.migrations.executor import MigrationExecutor

from handfast import AcquireTimeout
from handfast.contrib._common import Holding
from handfast.contrib.django.clients import DEFAULT, client

__all__ = ["Command"]

LOG = logging.getLogger("handfast.django")


class Command(BaseCommand):  # type: ignore[misc]
    """Migrates if something is to be migrated; waits while another process does."""

    help = "Runs migrate once in a deploy: one process migrates, and the others wait for it."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add those of the command."""
        parser.add_argument("--database", default=DEFAULT_DB_ALIAS)
        parser.add_argument("--timeout", type=float, default=600.0, help="Seconds to wait for another process; 600.")
        parser.add_argument("--alias", default=DEFAULT, help="The alias of HANDFAST.")

    def handle(self, *_: Any, **options: Any) -> None:
        """Migrate. A later replica finds nothing to do, and takes no lock."""
        database = options["database"]
        if not self._is_behind(database):
            self.stdout.write("Nothing is to be migrated.")
            return
        lock = client(options["alias"]).lock(f"migrate:{database}")
        status = lock.status()
        if status.holders or status.hold:
            self.stdout.write(f"Waits for {lock.name!r}: {status}")
        try:
            with Holding(lock.acquire(timeout=options["timeout"]), LOG):
                # What another process has migrated meanwhile is looked up anew.
                call_command("migrate", database=database, interactive=False, verbosity=options["verbosity"])
        except AcquireTimeout as error:
            raise CommandError(
                f"Nothing was migrated within {options['timeout']:g} s; see --timeout: {error}"
            ) from error

    @staticmethod
    def _is_behind(database: str) -> bool:
        executor = MigrationExecutor(connections[database])
        return bool(executor.migration_plan(executor.loader.graph.leaf_nodes()))
