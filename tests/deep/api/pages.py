"""Programs of the how-to pages, for tests of their second day."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

HOW_TO = Path(__file__).parents[3] / "docs/how-to"


def first_program(page: str, url: str) -> dict[str, Any]:
    """Execute the first program of a page against a server, up to the first assertion. Return the names it defines."""
    text = (HOW_TO / page).read_text(encoding="utf-8")
    program, _, _ = re.search(r"```python\n(.*?)```", text, re.DOTALL)[1].partition("assert await")
    names: dict[str, Any] = {}
    exec(program.replace("redis://localhost:6379/0", url), names)
    return names
