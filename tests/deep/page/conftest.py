"""A browser, and the page on a server where things are wrong."""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
import subprocess
import sys
import time

import pytest
from tools.scene import Scene

from handfast.testing import ServerController

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
OPTIONS += ["--disable-component-update", "--disable-sync"]

CROWD = 2000


class Page:
    """The command ``handfast page``, in a process of its own."""

    def __init__(self, url, *words):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.words = [sys.executable, "-m", "handfast", "page", "--url", url, "--port", str(self.port), *words]
        self.url = f"http://127.0.0.1:{self.port}/"
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.words, stderr=subprocess.PIPE, text=True)
        assert self.url in self.process.stderr.readline()

    def end(self):
        """End it as a service manager does. Return its exit code."""
        self.process.terminate()
        with self.process:
            return self.process.wait(20)


@contextlib.contextmanager
def served(url, *words):
    """Serve the page."""
    page = Page(url, *words)
    yield page
    assert page.end() == 0


@pytest.fixture(scope="session")
def chromium():
    """A browser. The tests are skipped where there is none: ``nox -s browser`` installs the rest."""
    playwright = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium on the PATH")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def scene(chromium):
    """A server with more than 2,000 names."""
    with ServerController("--maxmemory-policy", "allkeys-lru", "--maxmemory", "256mb") as server:
        scene = Scene(server.url)
        scene.pid = server.pid
        scene.begin()
        scene.begin_more()
        scene.crowd(CROWD)
        for number in range(20):
            scene.wait_for_export(number)
        time.sleep(1)
        yield scene
        scene.end()


@pytest.fixture(scope="session")
def site(scene):
    with served(scene.url, "--allow", "release,hold,pause,forget") as page:
        yield page


class Tab:
    """A tab, and all that its console and its dialogs have said."""

    def __init__(self, browser, url, size=(1280, 800), theme="light"):
        self.said, self.url = [], url
        self.page = browser.new_page(viewport={"width": size[0], "height": size[1]}, color_scheme=theme)
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.said.append(f"dialog {dialog.message}"), dialog.dismiss()))
        self.go("")

    def go(self, view):
        self.page.goto(f"{self.url}#/{view}")

    def text(self, selector):
        return self.page.locator(selector).inner_text()

    def wait(self, selector, text, timeout=8.0):
        """Wait until an element has a text."""
        self.page.locator(selector, has_text=re.compile(text)).wait_for(timeout=timeout * 1000)

    def live(self):
        self.wait("#live", "^Live$")

    def run(self, script, *args):
        return self.page.evaluate(script, *args)


@pytest.fixture
def open_tab(chromium, site):
    """Return a function that opens a tab. No console may have said anything in the end."""
    tabs = []

    def opened(url=site.url, **options):
        tabs.append(Tab(chromium, url, **options))
        return tabs[-1]

    yield opened
    said = [text for tab in tabs for text in tab.said]
    for tab in tabs:
        tab.page.close()
    assert not said
