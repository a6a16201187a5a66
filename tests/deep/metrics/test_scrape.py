"""A real Prometheus scrapes the exporter and a program, checks the rules, and runs every query of the dashboard.

Debian's package of Prometheus is fetched into a temporary folder. Nothing is installed.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from handfast.testing import ServerController
from tests._support.helpers import eventually
from tests._support.running import starting
from tests.gate.metrics.test_exporter import CONTRIB, expressions

pytestmark = pytest.mark.timeout(300)

ROOT = Path(__file__).parents[3]

PROGRAM = """
import sys, time
from prometheus_client import start_http_server
from handfast import AcquireTimeout, Handfast
from handfast.metrics import prometheus

hf, other = Handfast(sys.argv[1]), Handfast(sys.argv[1])
prometheus.install(hf)
server, _ = start_http_server(0, "127.0.0.1")
print(server.server_address[1], flush=True)
gone = hf.lock("gone").acquire()
other.lock("gone").force_release(reason="a test")
while True:
    with hf.lock("order:1"):
        try:
            hf.lock("order:1").acquire(timeout=0)
        except AcquireTimeout:
            pass
        time.sleep(0.05)
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """The folder of ``prometheus`` and ``promtool``."""
    spec = importlib.util.spec_from_file_location("debian_server", ROOT / "tools/debian_server.py")
    debian_server = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(debian_server)
    folder = tmp_path_factory.mktemp("prometheus")
    debian_server.fetch("bookworm", "prometheus", folder)
    return folder / "root/usr/bin"


def test_the_rules_pass(programs):
    for words in (["check", "rules", CONTRIB / "alerts.yml"], ["test", "rules", CONTRIB / "alerts_test.yml"]):
        done = subprocess.run([programs / "promtool", *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def asked(port, path, **query):
    url = f"http://127.0.0.1:{port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.loads(answer.read())["data"]


def test_prometheus_scrapes_the_exporter_and_a_program(programs, tmp_path):
    with ServerController() as server, starting() as start:
        exporter = start(
            sys.executable, "-m", "handfast", "exporter", "--port", "0", "--every", "1", "--url", server.url
        )
        exporter_at = exporter.stderr.readline().split("//")[1].split("/")[0]
        program = start(sys.executable, "-c", PROGRAM, server.url)
        program_at = f"127.0.0.1:{program.stdout.readline().strip()}"
        config = tmp_path / "prometheus.yml"
        config.write_text(
            json.dumps(
                {
                    "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                    "rule_files": [str(CONTRIB / "alerts.yml")],
                    "scrape_configs": [
                        {"job_name": "handfast", "static_configs": [{"targets": [exporter_at]}]},
                        {"job_name": "program", "static_configs": [{"targets": [program_at]}]},
                    ],
                }
            )
        )
        prometheus = start(
            str(programs / "prometheus"),
            f"--config.file={config}",
            f"--storage.tsdb.path={tmp_path}/data",
            "--web.listen-address=127.0.0.1:0",
            "--log.format=json",
        )
        port = None
        while True:
            said = json.loads(prometheus.stderr.readline())
            if said.get("msg", "") == "Listening on":
                port = said["address"].rpartition(":")[2]
            if said.get("msg", "").startswith("Server is ready"):
                break
        eventually(
            lambda: (
                len(targets := asked(port, "targets")["activeTargets"]) == 2
                and all(target["health"] == "up" for target in targets)
            ),
            60,
        )
        grants = 'sum(rate(handfast_grants_total{name="order:*"}[5s]))'
        eventually(lambda: any(float(one["value"][1]) > 1 for one in asked(port, "query", query=grants)["result"]), 60)
        for metric in ("handfast_up", "handfast_held", "handfast_acquire_seconds_count", "handfast_leases_lost_total"):
            assert asked(port, "query", query=metric)["result"], metric
        rules = [rule for group in asked(port, "rules")["groups"] for rule in group["rules"]]
        assert {rule["health"] for rule in rules} == {"ok"}
        assert len(rules) == 6
        for expression in expressions():
            plain = expression.replace("$__rate_interval", "1m").replace("$kind", ".*").replace("$name", ".*")
            if not plain.startswith("label_values"):
                asked(port, "query", query=plain)
        assert not [alert for alert in asked(port, "alerts")["alerts"] if alert["state"] == "firing"]
