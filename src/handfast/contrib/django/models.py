"""A model without a table: the permissions of the admin belong to it."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import models

__all__ = ["Name"]


class Name(models.Model):  # type: ignore[misc]
    """A name with holders or waiters. The server of the settings has it, and no database."""

    shown: Any = models.CharField(max_length=4096, primary_key=True)

    class Meta:
        """Permissions of the model: to see the list, and to do an operator's acts there."""

        managed = False
        default_permissions: ClassVar[tuple[str, ...]] = ("view",)
        permissions: ClassVar[tuple[tuple[str, str], ...]] = (
            ("release_name", "Can take names from those who hold them"),
            ("hold_name", "Can put names on hold, and end that"),
        )

    def __str__(self) -> str:
        """Return the name."""
        return str(self.shown)
