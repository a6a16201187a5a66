"""An extension of griffe for the API reference: examples in docstrings are shown as code, and hidden parameters not at all."""

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

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Leave out parameters that callers do not pass: that of ``undoing``, and those that refuse all other arguments."""
        hidden = {"_args", "_options"}
        if any(str(decorator.value) == "undoing" for decorator in func.decorators):
            hidden |= {"attempt", "/"}
        func.parameters = griffe.Parameters(*(one for one in func.parameters if one.name not in hidden))


def _block(match: re.Match[str]) -> str:
    return f"```python\n{textwrap.dedent(match[1]).strip()}\n```\n\n"
