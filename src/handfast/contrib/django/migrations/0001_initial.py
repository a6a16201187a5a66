"""The model without a table."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):  # type: ignore[misc]
    """Makes the model known, so the permissions of the model are made."""

    initial = True
    dependencies: ClassVar[list[tuple[str, str]]] = []
    operations: ClassVar[list[Any]] = [
        migrations.CreateModel(
            name="Name",
            fields=[("shown", models.CharField(max_length=4096, primary_key=True, serialize=False))],
            options={
                "managed": False,
                "default_permissions": ("view",),
                "permissions": (
                    ("release_name", "Can take names from those who hold them"),
                    ("hold_name", "Can put names on hold, and end that"),
                ),
            },
        )
    ]
