"""Metrics, read by Prometheus's own parser, are what the run's own record says."""

from __future__ import annotations

import json
import re
import signal
import socket
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from prometheus_client.parser import text_string_to_metric_families

from commands import refusal
from events import events_in
from fed_ucbvi import FedKLUCBVI, FedUCBVI, InputError, RoundRecord, run, synthetic
from fed_ucbvi.core.version import __version__
from fed_ucbvi.network.dashboard.metrics import Metrics
from fed_ucbvi.network.dashboard.state import STATES
from fed_ucbvi.network.members import FederationStatus
from fed_ucbvi.network.run_plan import RunPlan, plan_for
from fed_ucbvi.network.server import FederationServer
from fed_ucbvi.network.transport import WireCount
from fed_ucbvi.results.run_data import CallbackList
from federation_processes import SERVER, Processes
from network import LOOPBACK, Served, TLSByName, make_nodes, tell
from rounds import made_up_node

WORLD = synthetic(agents=4, eps_p=0.2, states=3, actions=2, horizon=3)
ALGORITHM = FedUCBVI(nu=30)

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def read(text: str) -> Samples:
    """All samples, by name and labels."""
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    found = {(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples}
    assert len(found) == len(samples), "a sample stands there twice"
    return found


def sample(samples: Samples, name: str, **labels: str) -> float:
    return samples[f"fed_ucbvi_{name}", frozenset(labels.items())]


def federated(
    plan: RunPlan, split: tuple[int, ...], tls_files: TLSByName | None = None
) -> tuple[Metrics, FederationServer, Any]:
    """The metrics of a run over the network, when it is over and nodes have been told, and the last record."""

    async def story() -> tuple[Metrics, FederationServer, Any]:
        seen: list[RoundRecord] = []
        metrics = Metrics(lambda: served.coordinator.status())
        expected: dict[str, Any] = {
            "on_round": CallbackList(metrics, seen.append),
            "on_exchange": metrics.on_exchange,
        }
        served = Served(plan, tls_files=tls_files, address=LOOPBACK, **expected)
        served.join(*make_nodes(WORLD, split))
        await served.finish()
        return metrics, served.server, seen[-1]

    return tell(story())


def test_metrics_of_a_federation_are_what_its_result_says() -> None:
    metrics, service, last = federated(plan_for(ALGORITHM, WORLD, 40, seed=1), (1, 3))
    outcome = service.outcome()
    samples = read(metrics.render().decode())
    records = outcome.run.records
    wire = outcome.wire
    assert sample(samples, "rounds_total") == len(records["start"]) > 3
    assert sample(samples, "synchronisations_total") == outcome.run.rounds
    assert sample(samples, "episodes_total") == sample(samples, "planned_episodes") == 40
    assert sample(samples, "round_length_episodes") == records["length"][-1]
    assert sample(samples, "gap") == pytest.approx(outcome.run.gap, rel=1e-12)
    assert sample(samples, "optimistic_value") == outcome.run.optimistic_value
    assert sample(samples, "regret") == pytest.approx(outcome.run.regret, rel=1e-12)
    assert sample(samples, "run_seconds") == last.seconds
    for direction in ("up", "down"):
        counted = getattr(outcome.run, f"bytes_{direction}")
        assert sample(samples, "counted_bytes_total", direction=direction) == counted
        for what in ("bytes", "messages"):
            carried = getattr(wire, f"{what}_{direction}")
            assert sample(samples, f"wire_{what}_total", direction=direction) == carried
            of_nodes = [
                sample(samples, f"node_wire_{what}_total", node=name, direction=direction)
                for name in ("node-0", "node-1")
            ]
            assert 0 < sum(of_nodes) < carried, "handshakes are in the whole only"
    assert sample(samples, "violations_total") == sample(samples, "events_total") == 0
    exchanges = (wire.messages_up - 2 * 2) / 2  # each node said hello and ready, then one answer an exchange
    assert sample(samples, "exchange_seconds_count") == exchanges
    assert sample(samples, "exchange_seconds_bucket", le="+Inf") == exchanges
    slowest = max(sample(samples, "node_answer_seconds", node=name) for name in ("node-0", "node-1"))
    assert sample(samples, "exchange_seconds_sum") >= slowest > 0
    assert sample(samples, "run_info", run=service.plan.run, secure_sums="false") == 1
    assert sample(samples, "build_info", version=__version__) == 1
    assert sample(samples, "reward") == pytest.approx(service.coordinator.engine.last_round().reward)
    assert ("process_cpu_seconds_total", frozenset()) in samples


def test_nothing_about_single_nodes_is_told_under_secure_sums(
    tls_files: TLSByName,
) -> None:
    plan = plan_for(
        FedKLUCBVI(),
        WORLD,
        20,
        seed=1,
        nodes=("node-0", "node-1", "node-2"),
        secure_sums=True,
    )
    metrics, service, _ = federated(plan, (1, 1, 2), tls_files)
    text = metrics.render().decode()
    assert "node-" not in text
    assert "node=" not in text
    samples = read(text)
    assert sample(samples, "rounds_total") == service.coordinator.round > 0
    assert sample(samples, "run_info", run=service.plan.run, secure_sums="true") == 1
    assert sum(sample(samples, "nodes", state=state) for state in STATES) == 3


def test_nodes_are_counted_by_state() -> None:
    expected = {"present": 2, "away": 3, "excluded": 3, "finished": 1}
    states = [state for state, number in expected.items() for _ in range(number)]
    nodes = tuple(made_up_node(f"n{i}", state, i, episodes=5) for i, state in enumerate(states))
    events = ({"round": 1, "node": "n5", "what": "away", "done": "excluded for good"},)
    status = FederationStatus("run", False, nodes, WireCount(), 3, events)
    samples = read(Metrics(lambda: status).render().decode())
    assert {state: sample(samples, "nodes", state=state) for state in STATES} == expected
    assert [sample(samples, "node_connected", node=f"n{number}") for number in range(4)] == [1, 1, 0, 0]
    assert sample(samples, "violations_total") == 3
    assert sample(samples, "events_total") == 1
    assert not any(name == "fed_ucbvi_node_answer_seconds" for name, _ in samples), "none has answered yet"


def test_a_simulation_has_metrics_without_nodes() -> None:
    metrics = Metrics()
    assert ("fed_ucbvi_rounds_total", frozenset()) not in read(metrics.render().decode()), "nothing has been played"
    result = run(ALGORITHM, WORLD, 40, seed=1, on_round=metrics)
    samples = read(metrics.render().decode())
    assert sample(samples, "rounds_total") == len(result.records["start"])
    assert sample(samples, "regret") == pytest.approx(result.regret, rel=1e-12)
    assert not any("node" in name for name, _ in samples)


def test_metrics_are_served_on_this_machine_only() -> None:
    metrics = Metrics()
    with metrics.served("127.0.0.1:0") as url:
        port = urlsplit(url).port
        with urllib.request.urlopen(url, timeout=300) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=")
            text = answer.read().decode()
        assert sample(read(text), "build_info", version=__version__) == 1
        rebound = urllib.request.Request(url, headers={"Host": "evil.example"})
        with pytest.raises(urllib.error.HTTPError, match="421"):
            urllib.request.urlopen(rebound, timeout=300)
        with pytest.raises(InputError, match=f"metrics cannot be served at 127.0.0.1:{port}: .*in use"):
            metrics.served(f"127.0.0.1:{port}").__enter__()
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind(("127.0.0.1", port))  # nobody listens there any more
    for address in ("0.0.0.0:9464", "10.0.0.7:9464", "[::]:9464", "example.org:9464"):
        with pytest.raises(InputError, match="the metrics endpoint is served on this machine only"):
            metrics.served(address).__enter__()
    with pytest.raises(InputError, match="HOST:PORT"):
        metrics.served("9464").__enter__()
    words = refusal("serve", "--insecure", "--sizes", "3,2,3", "--metrics", "0.0.0.0:9464")
    assert "the metrics endpoint is served on this machine only" in words


def test_without_its_package_metrics_are_refused_with_advice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "fed_ucbvi.network.dashboard.metrics")
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    words = refusal("serve", "--insecure", "--sizes", "3,2,3", "--metrics", "127.0.0.1:0")
    assert "metrics need prometheus-client" in words
    assert "pip install 'fed-ucbvi[dashboard]'" in words


@pytest.mark.slow
@pytest.mark.network
def test_metrics_of_a_server_in_its_own_process(
    tmp_path: Path,
) -> None:
    def fetch(url: str) -> Samples:
        with urllib.request.urlopen(url, timeout=300) as answer:
            return read(answer.read().decode())

    rules = (
        "--metrics",
        "127.0.0.1:0",
        "--log-format",
        "json",
        "--track",
        f"tensorboard:{tmp_path / 'events'}",
    )
    with Processes(tmp_path, "--episodes", "1000000000", *rules) as parties:  # it does not end by itself
        parties.start(SERVER)
        parties.hear(SERVER, r"metrics at (http://\S+/metrics)")
        found = re.search(r"metrics at (http://[^\s\"]+)", parties.parties[SERVER].words())
        assert found is not None
        assert sample(fetch(found[1]), "nodes", state="present") == 0
        parties.start("node-0", "node-1")
        parties.reach(20)
        early = fetch(found[1])
        assert sample(early, "rounds_total") >= 19, "a round is on disk just before it is counted"
        assert sample(early, "nodes", state="present") == 2
        parties.kill("node-1")
        parties.hear(SERVER, "node-1: stream closed|node-1: connection lost")
        away = fetch(found[1])
        assert sample(away, "nodes", state="away") == 1
        assert sample(away, "node_connected", node="node-1") == 0
        parties.signal(SERVER, signal.SIGTERM)
        assert parties.parties[SERVER].end() == 130
        lines = [json.loads(line) for line in parties.parties[SERVER].words().splitlines()]
    summary = json.loads("".join(parties.parties[SERVER].said["stdout"]))
    assert summary["rounds"] >= sample(away, "synchronisations_total") >= sample(early, "synchronisations_total")
    assert {line["level"] for line in lines} == {"info", "warning"}
    lost = [line for line in lines if line["level"] == "warning"]
    assert lost[0].items() >= {"logger": "fed_ucbvi.federation", "node": "node-1"}.items()
    assert "stopped after" in lines[-1]["message"]
    events = events_in(tmp_path / "events")
    assert [one.value for one in events.Scalars("round")] == list(range(1, len(events.Scalars("round")) + 1))
    assert events.Scalars("synchronisations")[-1].value == summary["rounds"]
    assert events.Scalars("final_wall_seconds")
