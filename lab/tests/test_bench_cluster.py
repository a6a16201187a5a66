"""``handfast bench cluster`` in small runs. No test depends on a measured figure."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from handfast_lab.bench import cluster
from handfast_lab.bench.cluster import LOADS, ONE, PLACES, SERVER, THREE, Place, Spread, SpreadRow
from handfast_lab.commands.bench import benches

pytestmark = pytest.mark.timeout(120)


MOST = 22
"""An upper bound on the frames that routing adds to a call."""


def spread(number, place, cycles, client_us=10.0, server_us=(6.0,)):
    return Spread(number, "sync", place, 2, 0.5, cycles, client_us, server_us, (2,) * len(server_us))


def test_every_load_is_measured_at_every_place(tmp_path):
    file = tmp_path / "raw.json"
    few = "--clients", "2", "--names", "20", "--rounds", "2", "--seconds", "0.1"
    result = CliRunner().invoke(benches.cluster, [*few, "--json", str(file)])
    assert (result.exit_code, result.exception) == (0, None)
    raw = json.loads(file.read_text())
    assert raw["settings"] == {"clients": 2, "names": 20, "loads": [*LOADS], "rounds": 2, "seconds": 0.1}
    assert {(row["load"], row["place"]) for row in raw["rows"]} == {(load, place) for load in LOADS for place in PLACES}
    assert [one["place"] for one in raw["measurements"][:9:3]] == [SERVER] * 3
    assert raw["measurements"][9]["place"] == ONE, "another place is the first in the second round"
    for one in raw["measurements"]:
        assert one["cycles"] > 0
        assert one["client_us"] > 0
        assert len(one["server_us"]) == len(one["connections"]) == (3 if one["place"] == THREE else 1)
        assert min(one["connections"]) >= one["clients"], "every client works at every primary"
        assert sum(one["server_us"]) > 0
    assert "x server" in result.output
    assert max(map(len, result.output.splitlines())) <= 100
    assert "Left out" not in result.output


def test_a_call_through_the_router_enters_more_frames(tmp_path):
    file = tmp_path / "raw.json"
    few = "--load", "sync", "--clients", "1", "--names", "2", "--rounds", "1", "--seconds", "0.05"
    assert CliRunner().invoke(benches.cluster, [*few, "--json", str(file)]).exit_code == 0
    raw = json.loads(file.read_text())
    assert {row["load"] for row in raw["rows"]} == {"sync"}
    plain, routed, aio_plain, aio_routed = raw["frames"]
    for few, many, api in ((plain, routed, "sync"), (aio_plain, aio_routed, "asyncio")):
        assert (few["api"], many["api"], few["place"], many["place"]) == (api, api, SERVER, THREE)
        assert 10 < few["acquire"] < many["acquire"] <= few["acquire"] + MOST
        assert 10 < few["release"] < many["release"] <= few["release"] + MOST


@pytest.mark.parametrize("load", LOADS)
def test_a_lock_is_handed_over_only_where_several_want_it(server, raw, load):
    raw.config_resetstat()
    (one,) = cluster.run({SERVER: Place(server.url, (server.url,))}, [load], clients=2, names=5, rounds=1, seconds=0.1)
    messages = raw.info("commandstats").get("cmdstat_publish", {"calls": 0})["calls"]
    if load == cluster.ASYNC_CONTENDED:
        assert messages >= one.cycles, "each release hands its lock over"
    else:
        assert messages <= 2, "one of each client to itself"
    assert one.cycles > 0


def test_a_failing_client_fails_the_run(server):
    nowhere = {SERVER: Place("redis://127.0.0.1:1", (server.url,))}
    with pytest.raises(RuntimeError, match=r"(?s)sync, one server: .*ConnectionError"):
        list(cluster.run(nowhere, ["sync"], clients=1, names=1, rounds=1, seconds=0.1))


def test_a_ratio_is_taken_within_a_round_and_the_busiest_server_in_each():
    rows = cluster.summarize(
        [
            *(spread(number, SERVER, cycles) for number, cycles in enumerate((100, 1000, 200))),
            spread(0, THREE, 50, 12.0, (1.0, 2.0, 3.0)),
            spread(1, THREE, 300, 14.0, (4.0, 2.0, 3.0)),
            spread(2, THREE, 100, 13.0, (9.0, 1.0, 1.0)),
        ]
    )
    assert rows[0] == SpreadRow("sync", SERVER, 400, 200, 2000, 1.0, 10.0, 6.0, 6.0, 1.0)
    assert rows[1] == SpreadRow("sync", THREE, 200, 100, 600, 0.5, 13.0, 9.0, 4.0, 1.0)
