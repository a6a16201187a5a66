"""What PyInstaller has to know of the package: its Lua scripts, and the modules that are imported by their names.

PyInstaller finds it by the entry point ``pyinstaller40``.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["get_hook_dirs"]


def get_hook_dirs() -> list[str]:
    """Return the folders with hooks."""
    return [str(Path(__file__).parent)]
