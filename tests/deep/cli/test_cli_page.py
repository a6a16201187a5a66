"""``handfast page`` as a process: its addresses, and how it ends."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import pytest

TOKEN = "correct horse battery"


@pytest.fixture
def serve(server, raw):
    """Return a function that starts the command, and returns it and the URL that it has printed."""
    started = []

    def start(*words, **env):
        command = [sys.executable, "-m", "handfast", "page", "--url", server.url, "--port", "0", *words]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | env)
        started.append(process)
        line = process.stderr.readline()
        return process, re.search(r"http://\S+", line)[0]

    yield start
    for process in started:
        process.kill()
        with process:
            pass


def get(url, **headers):
    """Return the status and the JSON of an answer, or its text."""
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            text = answer.read().decode()
            return answer.status, json.loads(text) if text.startswith("{") else text
    except urllib.error.HTTPError as error:
        return error.code, None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_at_any_moment(serve, number):
    for pause in (0.0, 0.001, 0.01, 0.1, 0.5):
        process, _ = serve()
        time.sleep(pause)
        process.send_signal(number)
        assert process.wait(5) == 0


def test_it_ends_though_pages_ask(serve):
    process, url = serve()
    ended = threading.Event()

    def ask():
        while not ended.is_set():
            try:
                get(f"{url}api/looks")
            except OSError:
                return

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(1)
    process.terminate()
    assert process.wait(5) == 0
    ended.set()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "localhost", "::1"])
def test_each_name_of_this_machine_is_served(serve, host):
    _, url = serve("--host", host)
    status, found = get(f"{url}api/me")
    assert (status, found["may"]) == (200, [])
    assert get(url, Host="evil.example")[0] == 421


def test_another_address_needs_the_token(serve):
    _, url = serve("--host", "0.0.0.0", "--allow", "hold", HANDFAST_PAGE_TOKEN=TOKEN)
    url = url.replace("0.0.0.0", "127.0.0.1")
    assert get(url)[0] == 401
    credentials = "Basic " + base64.b64encode(f"ann:{TOKEN}".encode()).decode()
    status, found = get(f"{url}api/me", Authorization=credentials, Host="ops.example")
    assert (status, found["label"], found["may"]) == (200, "ann@page", ["hold"])
