"""Take the screenshots of ``handfast page`` in the documentation, of a real server on which something is wrong.

It takes 90 seconds, since what is wrong takes its time, and needs Chromium on the PATH and the dependency group ``browser``:

    python tools/draw_page.py
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from PIL import Image
from playwright.sync_api import Browser, Route, sync_playwright

from handfast.testing import ServerController
from scene import Scene

Theme: TypeAlias = Literal["light", "dark"]

ASSETS = Path(__file__).parents[1] / "docs/assets"

SHOWN_AS = "redis.internal:6379"
"""The address of the server in the pictures."""

SIZE = (1280, 800)

SCENE_S = 75.0

VIEWS = {"overview": "", "held": "held"}

NAME = "name/lock/nightly-export"

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]


def main() -> int:
    """Play the scene, and take the pictures."""
    with (
        ServerController("--maxmemory-policy", "allkeys-lru", "--maxmemory", "256mb") as server,
        sync_playwright() as driver,
    ):
        scene = Scene(server.url)
        scene.begin()
        scene.begin_more()
        scene.crowd(2000)
        words = [
            sys.executable,
            "-m",
            "handfast",
            "page",
            "--port",
            "0",
            "--url",
            server.url,
            "--allow",
            "release,hold,pause,forget",
        ]
        page = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        url = page.stderr.readline().split()[-1] if page.stderr else ""
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        warm = browser.new_page()
        warm.goto(url)
        scene.play(SCENE_S)
        warm.close()
        for theme in get_args(Theme):
            _take(browser, url, theme)
        browser.close()
        page.terminate()
        page.wait()
        sys.stdout.flush()
    os._exit(0)  # with all the threads that wait


def _take(browser: Browser, url: str, theme: Theme) -> None:
    """Take the pictures of a theme."""
    tab = browser.new_page(viewport={"width": SIZE[0], "height": SIZE[1]}, color_scheme=theme)
    tab.route("**/api/me", _rename)
    for name, view in VIEWS.items():
        tab.goto(f"{url}#/{view}")
        tab.locator("#live", has_text="Live").wait_for()
        tab.wait_for_timeout(1500)
        _save(tab.screenshot(), f"page-{name}-{theme}.png")
    tab.goto(f"{url}#/{NAME}")
    tab.locator("#act-release:not([disabled])").click()
    tab.fill("#ask-reason", "hangs since the deploy, INC-4411")
    _save(tab.screenshot(), f"page-release-{theme}.png")
    tab.close()


def _save(picture: bytes, name: str) -> None:
    """Write a picture with 256 colors: a third of the size, and no difference that is seen."""
    palette = Image.open(BytesIO(picture)).convert("RGB").quantize(256, dither=Image.Dither.NONE)
    palette.save(ASSETS / name, optimize=True)


def _rename(route: Route) -> None:
    """Answer with another address of the server."""
    answer = route.fetch()
    route.fulfill(response=answer, body=json.dumps(answer.json() | {"server": SHOWN_AS}))


if __name__ == "__main__":
    sys.exit(main())
