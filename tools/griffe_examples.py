"""An extension of griffe for the API reference: the code below ``Example:`` in a docstring is shown as code."""

from __future__ import annotations

import re
import textwrap
from typing import Any

import griffe  # type: ignore[import-not-found, unused-ignore]  # comes with the group docs alone

EXAMPLE = re.compile(r"^Example:\n((?:    .*\n?|\n)+)", re.MULTILINE)


class Examples(griffe.Extension):  # type: ignore[misc, unused-ignore]  # see above
    """Turn each example into a block of Python."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of one object, before it is parsed."""
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub(_block, obj.docstring.value)


def _block(match: re.Match[str]) -> str:
    return f"```python\n{textwrap.dedent(match[1]).strip()}\n```\n\n"
