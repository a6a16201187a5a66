"""``handfast exporter``: what the server knows of all names, as a scrape gets it."""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
import time
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from redis.exceptions import ConnectionError as RedisConnectionError

from handfast import Handfast, Holder, LockStatus, NameStatus, ServerFinding, ServerRefused
from handfast._protocol.names import Search
from handfast._watch.exposition import CONTENT_TYPE, METRICS, Exposition
from handfast._watch.live import Live, View
from handfast._watch.looker import Looker
from handfast._watch.problems import find_problems
from handfast._watch.rows import rows_of
from handfast._watch.survey import SLOW_S, Survey
from handfast.cli.operate.exporter import MetricsServer, command
from handfast.metrics import Labels, prometheus
from tests._support.helpers import eventually

CONTRIB = Path(__file__).parents[3] / "contrib"


@pytest.fixture
def exposition():
    return Exposition(Labels(keeping=lambda name: name.startswith("gpu")))


@pytest.fixture
def survey(hf):
    return Survey(hf)


@pytest.fixture
def looker(survey, exposition):
    return Looker("test", survey.step, exposition.take, every=lambda: 0.001, rests=0, slow=SLOW_S)


def view_of(*names, findings=()):
    now = time.monotonic()
    return View(now, 0.1, tuple(rows_of(names, now)), findings, is_whole=True)


def values(text):
    """Return the samples of a scrape, by metric and labels."""
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def of(found, metric, kind, name):
    return found.get((f"handfast_{metric}", ("kind", kind), ("name", name)))


def test_a_look_shows_who_holds_and_waits(other, survey, exposition, looker):
    waiters = [threading.Thread(target=lambda: other.lock("order:2").acquire().release()) for _ in range(2)]
    with other.lock("order:1"), other.semaphore("s", 4).acquire(permits=3), other.lock("gpu:1"):
        lease = other.lock("order:2").acquire()
        for waiter in waiters:
            waiter.start()
        eventually(lambda: other.lock("order:2").status().waiting == 2)
        other.hold("night", 60, reason="a test")
        exposition.take(survey.step())
        found = values(exposition.text(looker))
    lease.release()
    for waiter in waiters:
        waiter.join()
    assert [found[f"handfast_{name}",] for name in ("up", "names")] == [1, 5]
    assert 0 < found["handfast_look_seconds",] < SLOW_S > found["handfast_look_age_seconds",] >= 0
    assert [of(found, name, "lock", "order:*") for name in ("held", "waiting", "on_hold")] == [2, 2, 0]
    assert of(found, "held", "semaphore", "s") == 1
    assert of(found, "held", "lock", "gpu:1") == 1
    assert of(found, "on_hold", "lock", "night") == 1
    assert of(found, "oldest_hold_seconds", "lock", "order:*") > of(found, "oldest_wait_seconds", "lock", "order:*") > 0
    assert any(key[0] == "handfast_finding" for key in found)


def test_counters_only_grow(other, survey, exposition, looker, raw):
    def grants(name):
        exposition.take(survey.step())
        return of(values(exposition.text(looker)), "grants_total", "lock", name)

    def use(name, times):
        for _ in range(times):
            with other.lock(name):
                pass

    use("order:1", 3)
    assert grants("order:*") == 0
    use("order:1", 2)
    use("order:2", 4)
    assert grants("order:*") == 6
    raw.flushall()
    assert grants("order:*") == 6
    use("order:1", 1)
    assert grants("order:*") == 7
    use("new", 2)
    assert grants("new") == 2


def test_of_a_look_that_failed_or_hangs_no_figure_of_names_is_left(other, survey, exposition, looker):
    with other.lock("a"):
        exposition.take(survey.step())
        seen = values(exposition.text(looker))
        looker.looked_at, looker._began_at = time.monotonic(), time.monotonic() - SLOW_S - 1
        hung = values(exposition.text(looker))
        looker._began_at = None
        looker._note(RedisConnectionError("gone"), time.monotonic())
        failed = values(exposition.text(looker))
        exposition.take(survey.step())
        looker._note(None, time.monotonic())
    assert of(seen, "held", "lock", "a") == 1
    assert of(seen, "grants_total", "lock", "a") == 0
    for blind in (hung, failed):
        assert {key[0] for key in blind} == {"handfast_up", "handfast_look_age_seconds"}
        assert blind["handfast_up",] == 0
    again = values(exposition.text(looker))
    assert (again["handfast_up",], of(again, "held", "lock", "a")) == (1, 1)
    assert of(again, "grants_total", "lock", "a") == 0


@pytest.mark.parametrize(
    "key",
    [
        "{hf:lock:" + "x" * 20_000 + "}:state",
        "{hf:once:a|" + "x" * 20_000 + "}:state",
        b"{hf:lock:\xff%ff}:state",
        "{hf:lock:%00%ed%a0%80}:state",
        "{hf:lock:a%7cb|}:state",
    ],
    ids=["a long name", "a long part", "no text", "no text, encoded", "an empty part"],
)
def test_a_key_with_an_odd_name_costs_itself(other, survey, exposition, raw, key):
    with other.lock("good"):
        raw.hset(key, "a", "b")
        for _ in range(2):
            look = survey.step()
            assert [row.name for row in look.rows] == ["good"]
        view = Live(other, results=True).step()
        assert [row.name for row in view.rows] == ["good"]
        assert [one.name for one in other.names()] == ["good"]
        raw.delete(key)
    exposition.take(look)
    count = int("x" * 20_000 in str(key))
    assert values(exposition._text)["handfast_passed_over",] == view.passed_over == count
    assert ["passed over" in one.id for one in find_problems(view) if one.level == "note"] == [True] * count


@pytest.mark.parametrize(
    "write",
    [
        lambda raw: raw.zadd("{hf:limiter:bad}:window:60000", {"a": 1}),
        lambda raw: raw.hset("{hf:limiter:bad}:settings", mapping={"rates": "x", "first": "x", "limits": "x"}),
        lambda raw: raw.zadd("{hf:latch:bad}:parts", {b"\xff": 1}),
        lambda raw: raw.zadd("{hf:latch:bad}:parts", {"a": 1e30}),
        lambda raw: raw.hset("{hf:lock:bad}:state", "s", "x"),
        lambda raw: raw.rpush("{hf:lock:bad}:state", "x"),
    ],
    ids=["a window", "settings", "a latch", "a time", "a state", "a list"],
)
def test_a_record_that_cannot_be_read_costs_itself(other, survey, raw, write, caplog):
    limiters = [other.limiter(f"good:{number}", "5/min") for number in range(3)]
    for limiter in limiters:
        limiter.try_acquire()
    write(raw)
    look, live = survey.step(), Live(survey._client)
    assert {row.name for row in look.rows} == {limiter.name for limiter in limiters}
    for _ in range(2):
        view = live.step([("limiter", "bad"), ("latch", "bad")])
        assert {row.name for row in view.rows} == {limiter.name for limiter in limiters}
    assert not caplog.records
    assert {one.name for one in other.names()} == {limiter.name for limiter in limiters}
    assert [record.lock for record in caplog.records] == ["bad"]
    raw.flushall()
    assert view.passed_over == look.passed_over == 1


def test_a_user_without_the_right_is_no_unreadable_record(hf, survey, monkeypatch):
    refused = ServerRefused("refused", name="a", changed_nothing=True, reply="NOPERM this user has no permissions")
    monkeypatch.setattr(Search, "_inspected", lambda *_: (_ for _ in ()).throw(refused))
    with hf.lock("a"), pytest.raises(ServerRefused) as raised:
        survey.step()
    assert raised.value is refused


def test_looks_go_on_whatever_one_of_them_raises(hf, survey, looker, monkeypatch):
    views, changes, errors = [], [], [ZeroDivisionError("mine"), RedisConnectionError("gone")]
    looker.on_view, looker.on_change = views.append, changes.append
    monkeypatch.setattr(hf, "check_server", lambda: (_ for _ in ()).throw(errors.pop()) if errors else ())
    looker.start()
    eventually(lambda: len(changes) > 1)
    looker.end()
    assert not errors
    assert [type(error) for error in changes[:2]] == [RedisConnectionError, type(None)]
    assert views


def test_looks_go_on_when_one_cannot_be_shown_and_it_counts_as_failed(looker, caplog):
    shown, changes, outages = [], [], []

    def show(view):
        outages.append(looker.outage)
        shown.append(view)
        if len(shown) == 1:
            raise ZeroDivisionError

    def tell(error):
        changes.append(error)
        raise OSError("standard error is closed")

    looker.on_view, looker.on_change = show, tell
    looker.start()
    eventually(lambda: len(changes) > 1)
    looker.end()
    assert [type(error) for error in changes] == [ZeroDivisionError, type(None)]
    assert [outage and type(outage.error) for outage in outages[:2]] == [None, ZeroDivisionError]
    assert looker.outage is None
    assert "no one could be told" in caplog.text


def test_a_series_is_in_a_scrape_once(exposition, looker):
    """Of a cluster whose primaries differ, or of a server with several replicas."""
    findings = [
        ServerFinding("warning", topic, f"{topic}: {port}")
        for topic, port in (("eviction", 1), ("eviction", 2), ("replicas", 1))
    ]
    exposition.take(view_of(findings=(*findings, ServerFinding("info", "eviction", "fine"))))
    families = text_string_to_metric_families(exposition.text(looker))
    found = [sample for family in families for sample in family.samples if sample.name == "handfast_finding"]
    assert [(sample.labels["topic"], sample.value) for sample in found] == [("eviction", 2), ("replicas", 1)]


def test_the_oldest_awaited_hold_is_of_a_name_that_is_waited_for(exposition, looker):
    """Of two names that share a label, one held for long, and the other waited for."""

    def name(name, held_for, *, waiting, released=False):
        holder = Holder("t", 1, 1, 10.0, held_for, "web-1", True, "o", released=released, lock_all=False)
        return NameStatus("lock", name, LockStatus((holder,), (), 1, 1, waiting, 1, 0, 1, 0.0, None))

    def oldest(*names):
        exposition.take(view_of(*names))
        found = values(exposition.text(looker))
        return [of(found, f"oldest_{what}_seconds", "lock", "order:*") for what in ("hold", "awaited_hold")]

    long, short = name("order:1", 7200.0, waiting=0), name("order:2", 1.0, waiting=1)
    assert oldest(long) == [7200, 0]
    assert oldest(long, short) == [7200, 1]
    assert oldest(name("order:3", 7200.0, waiting=1)) == [7200, 7200]
    assert oldest(name("order:3", 7200.0, waiting=1, released=True)) == [7200, 0]


def test_alerts_leave_elections_out():
    """Candidates stand by for as long as another one leads."""
    rules = {
        rule["alert"]: rule["expr"]
        for rule in yaml.safe_load((CONTRIB / "alerts.yml").read_text())["groups"][0]["rules"]
    }
    for alert in ("HandfastWaitingLong", "HandfastHeldLong"):
        assert 'kind!="election"' in rules[alert]
    assert "handfast_oldest_awaited_hold_seconds{" in rules["HandfastHeldLong"]
    assert rules["HandfastEvicting"].endswith("> 0"), "the value is the number of findings"


def test_a_server_that_is_gone_ends_the_look_with_its_error(tmp_path):
    with Handfast(f"unix://{tmp_path}/nowhere", retry_for=0) as client, pytest.raises(RedisConnectionError):
        Survey(client).step()


def test_looks_follow_each_other_until_the_end(looker):
    views, changes = [], []
    looker.on_view, looker.on_change = views.append, changes.append
    looker.start()
    looker.start()
    eventually(lambda: len(views) > 2)
    looker.end()
    looker._thread.join(10)
    assert looker.outage is None
    assert changes == [None]
    assert not looker._thread.is_alive()


def test_names_of_others_break_no_line(other, survey, exposition, looker):
    strange = 'a"} 1\n# TYPE fake counter\nfake{x="\\'
    with other.lock(strange):
        exposition.take(survey.step())
    found = values(exposition.text(looker))
    assert of(found, "held", "lock", strange.replace("1", "*")) == 1
    assert not any("fake" in key[0] for key in found)


def test_every_metric_has_a_type_and_a_meaning(other, survey, exposition, looker):
    other.limiter("b", "5/min").try_acquire()
    with other.lock("a"), other.budget("llm", "5/month").keyed("x").reserve(4):
        exposition.take(survey.step())
    text = exposition.text(looker)
    assert of(values(text), "budget_used_ratio", "budget", "llm|x") == 0.8
    assert set(re.findall(r"^# TYPE (\w+) (?:gauge|counter)$", text, re.MULTILINE)) == {*METRICS}
    assert {key[0] for key in values(text)} == {*METRICS}


def test_it_answers_get_and_head_only():
    with MetricsServer(("127.0.0.1", 0), lambda: "handfast_up 1\n") as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            connection = http.client.HTTPConnection(*server.server_address, timeout=30)
            answers = []
            for method, path in (("GET", "/metrics"), ("HEAD", "/metrics?x=1"), ("GET", "/etc"), ("POST", "/metrics")):
                connection.request(method, path)
                answer = connection.getresponse()
                answers.append((answer.status, answer.getheader("Content-Type"), answer.read()))
            connection.close()
        finally:
            server.shutdown()
            thread.join()
    assert answers[:2] == [(200, CONTENT_TYPE, b"handfast_up 1\n"), (200, CONTENT_TYPE, b"")]
    assert [status for status, *_ in answers[2:]] == [404, 501]


def test_what_is_wrong_is_said_at_once(server):
    def call(*words):
        return CliRunner().invoke(command, [*words, "--url", server.url])

    assert call("--port", "99999").exit_code == 64
    assert call("--every", "0").exit_code == 64
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = call("--port", str(taken.getsockname()[1]))
    assert done.exit_code == 69
    assert re.fullmatch(r"handfast: cannot listen on 127\.0\.0\.1:\d+: Address already in use\n", done.stderr)


def known_metrics():
    registry = CollectorRegistry()
    with Handfast("null:") as client:
        prometheus.install(client, registry=registry)
    names = {*METRICS, "up"}
    for family in registry.collect():
        suffixes = {"histogram": ("_bucket", "_count", "_sum"), "counter": ("_total",)}.get(family.type, ("",))
        names |= {family.name + suffix for suffix in suffixes}
    return names


def expressions():
    """Yield the expressions of the alerts and of the dashboard."""
    for group in yaml.safe_load((CONTRIB / "alerts.yml").read_text())["groups"]:
        yield from (rule["expr"] for rule in group["rules"])
    board = json.loads((CONTRIB / "grafana.json").read_text())
    for panel in board["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    yield from (one["query"]["query"] for one in board["templating"]["list"] if one["type"] == "query")


def test_alerts_and_dashboard_name_metrics_that_exist():
    found = {name for one in expressions() for name in re.findall(r"\b(?:handfast_\w+|up\b(?=\{))", one)}
    assert found <= known_metrics()
    unused = known_metrics() - found - {f"handfast_{name}_seconds_sum" for name in ("acquire", "hold")}
    assert unused == {"handfast_hold_seconds_count", "handfast_passed_over"}
