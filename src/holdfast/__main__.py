"""``python -m holdfast`` is the command ``holdfast``."""

from __future__ import annotations

from holdfast.cli import main

if __name__ == "__main__":
    main()
