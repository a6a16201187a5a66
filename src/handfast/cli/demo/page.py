"""The page about the demo, in a thread of the demo."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import webbrowser
from collections.abc import Iterator

from handfast._api.sync.client import Handfast
from handfast._watch.acts import ACTS
from handfast.cli.page import address_of, server_of

__all__ = ["page_of"]

ENDS_S = 3.0
"""How long the demo waits for the end of the page, in seconds."""

HAS_SCREEN = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
"""Variables of which one is set where a browser can be opened, but on macOS."""


@contextlib.contextmanager
def page_of(client: Handfast) -> Iterator[str]:
    """Serve the page for a while, and open it where there is a screen. Yields the URL. Raises ImportError without the extra."""
    server = server_of(client, ACTS)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(
            target=server.run, kwargs={"sockets": [listener]}, name="handfast-demo-page", daemon=True
        )
        thread.start()
        url = address_of(listener)
        if sys.platform == "darwin" or any(os.environ.get(name) for name in HAS_SCREEN):
            webbrowser.open(url)
        try:
            yield url
        finally:
            server.should_exit = True
            thread.join(ENDS_S)
