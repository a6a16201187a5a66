"""``python -m handfast`` is the command ``handfast``."""

from __future__ import annotations

from handfast.cli import main

if __name__ == "__main__":
    main()
