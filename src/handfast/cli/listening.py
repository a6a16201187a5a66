"""The options of commands that listen on a port, and how they print the address."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

__all__ = ["listen_options", "shown"]


def listen_options(port: int) -> Callable[[Any], Any]:
    """Add the options ``--host`` and ``--port``, with this default."""

    def add(command: Any) -> Any:
        kind = click.IntRange(0, 65535)
        command = click.option(
            "--port", default=port, show_default=True, type=kind, help="Port to listen on; 0 for any."
        )(command)
        return click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")(command)

    return add


def shown(address: Sequence[object]) -> str:
    """Return the address of a socket as a URL has it."""
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"
