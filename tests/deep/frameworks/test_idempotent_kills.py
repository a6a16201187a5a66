"""Charges that are sent ten times each to two workers of uvicorn, of which one is killed every two seconds."""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from tests._support.helpers import eventually
from tests.deep.frameworks.test_frameworks import answers, free_port, running

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

APP = "tests.deep.frameworks.charging_app:app"

LASTS_S = 14
"""In which time the charges are sent, each of them within three seconds."""


@pytest.mark.parametrize("path", ["/charges", "/strict/charges"])
def test_a_charge_has_one_answer_and_no_effect_is_doubled_but_by_a_kill(server, raw, tmp_path, monkeypatch, path):
    monkeypatch.setenv("STEPS", str(tmp_path / "steps"))

    def start(port):
        return running(server, "-m", "uvicorn", APP, "--port", str(port), log=tmp_path / f"log {time.monotonic()}")

    replies, kills = charged(start, path)
    runs = read(tmp_path / "steps")
    assert (len(replies), len(kills) >= LASTS_S / 4) == (40, True)
    for charge, found in replies.items():
        assert found == [found[0]] * 10, "the same status, headers and body, ten times"
        (status, headers, body), ended = found[0], runs.get(charge, [])
        if status == 201:
            *ended, answered = ended
            assert json.loads(body) == {"run": answered["run"], "user": charge[0], "cents": 10}
            assert dict(headers)["location"] == f"/charges/{answered['run']}"
        else:
            assert (status, path) == (500, "/strict/charges")
        assert all(was_killed(run, kills) for run in ended), (ended, kills)
        assert len(runs.get(charge, [])) <= 1 or path == "/charges"


def charged(start, path):
    """Send the charges of two callers who use the same keys.

    Return the replies to each charge, and when which process was killed.
    """
    ports, kills, over = [free_port(), free_port()], {}, threading.Event()
    begin = {(user, f"k{number}"): random.uniform(0, LASTS_S - 3) for number in range(20) for user in ("ann", "bob")}
    posts = sorted((at + random.uniform(0, 3), charge) for charge, at in begin.items() for _ in range(10))

    def kill_in_turn():
        while not over.wait(2):
            port = random.choice(ports)
            workers[port].kill()
            kills[workers[port].pid] = time.monotonic()
            workers[port].wait()
            workers[port] = stack.enter_context(start(port))

    def post(due, charge):
        time.sleep(max(0, zero + due - time.monotonic()))
        return posted(ports, path, *charge)

    replies = defaultdict(list)
    with ExitStack() as stack, ThreadPoolExecutor(1) as killer, ThreadPoolExecutor(16) as pool:
        workers = {port: stack.enter_context(start(port)) for port in ports}
        eventually(lambda: all(answers(port, "/docs") for port in ports), within=30)
        zero, killing = time.monotonic(), killer.submit(kill_in_turn)
        try:
            for (_, charge), reply in zip(posts, pool.map(post, *zip(*posts, strict=True)), strict=True):
                replies[charge].append(reply)
        finally:
            over.set()
        killing.result()
    return replies, kills


def posted(ports, path, user, key):
    """Post until there is an answer other than that one should come again; return its status, headers and body."""
    headers, until = {"content-type": "application/json", "user": user, "idempotency-key": key}, time.monotonic() + 25
    while time.monotonic() < until:
        connection = http.client.HTTPConnection("127.0.0.1", random.choice(ports), timeout=30)
        try:
            connection.request("POST", path, '{"cents": 10}', headers)
            response = connection.getresponse()
            body = response.read()
        except (OSError, http.client.HTTPException):
            time.sleep(0.05)
            continue
        finally:
            connection.close()
        if response.status not in (409, 503):
            return response.status, [pair for pair in response.getheaders() if pair[0] != "date"], body
        time.sleep(min(float(response.headers["retry-after"]), 1))
    return pytest.fail(f"no answer to {key} of {user} in 25 s")


def read(steps):
    """Return the runs of each charge, in their order: when each step was."""
    runs = defaultdict(dict)
    for line in steps.read_text().splitlines():
        step, user, key, run, pid, at = line.split()
        runs[user, key].setdefault(run, {"run": run, "pid": int(pid)})[step] = float(at)
    return {charge: list(found.values()) for charge, found in runs.items()}


def was_killed(run, kills):
    """Whether the process of a run was killed before its end, or so soon after it that its answer may not be recorded."""
    return run["pid"] in kills and ("end" not in run or kills[run["pid"]] - run["end"] < 0.1)
