"""Metrics of a run in progress, in Prometheus's text format; served on an address of their own, or by the page."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fed_ucbvi.core.errors import InputError, missing_package
from fed_ucbvi.core.version import __version__
from fed_ucbvi.dashboard.nodes import STATES
from fed_ucbvi.network.status import FederationStatus, NodeStatus
from fed_ucbvi.network.transport import check_address, is_loopback
from fed_ucbvi.network.wire_count import WireCount
from fed_ucbvi.results.round_record import RoundRecord

try:
    from prometheus_client import (
        CONTENT_TYPE_LATEST,
        CollectorRegistry,
        Histogram,
        Metric,
        ProcessCollector,
        generate_latest,
        start_http_server,
    )
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
    from prometheus_client.registry import Collector
except ImportError as error:
    raise missing_package("metrics need", "prometheus-client", "dashboard") from error

CONTENT_TYPE = CONTENT_TYPE_LATEST
"""Of what :meth:`Metrics.render` gives."""
NAME = "fed_ucbvi"
SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""Upper ends of the histogram's buckets."""

COUNTERS = {
    "round": ("rounds", "Rounds that have been played."),
    "synchronisations": ("synchronisations", "Rounds that ended with a synchronisation."),
    "episodes": ("episodes", "Episodes per agent."),
}
GAUGES = {
    "planned_episodes": ("planned_episodes", "Episodes per agent that the run will have at its end."),
    "length": ("round_length_episodes", "Episodes of the last round."),
    "seconds": ("run_seconds", "Since the run began, without the time between two servers."),
    "regret": ("regret", "So far, averaged over agents, in the environment's own units; absent where nobody knows."),
    "reward": ("reward", "Of an episode of the last round, averaged over agents, likewise."),
    "optimistic_value": ("optimistic_value", "The server's optimistic value of the initial states, likewise."),
    "recommended_value": ("recommended_value", "The estimated value of the recommended policy, likewise."),
    "gap": ("gap", "The optimistic value minus the recommended one, likewise."),
}
"""Of a round's record: name of the metric, and what it is."""


class Metrics:
    """The metrics of one run, with a registry of their own.

    Args:
        status: says how the federation stands, if there is one; asked when metrics are asked for.
    """

    def __init__(self, status: Callable[[], FederationStatus] | None = None) -> None:
        self._status = status
        self._record: RoundRecord | None = None
        self.registry = CollectorRegistry()
        self.registry.register(_Collector(self._families))
        ProcessCollector(registry=self.registry)
        self._exchanges = Histogram(
            f"{NAME}_exchange_seconds",
            "From a question to all nodes to the slowest answer; live nodes' playing is not in it.",
            buckets=SECONDS,
            registry=self.registry,
        )

    def on_round(self, record: RoundRecord) -> None:
        """To be called after every round."""
        self._record = record

    def on_exchange(self, seconds: float) -> None:
        """To be called after every exchange, with the time of its slowest answer."""
        self._exchanges.observe(seconds)

    def render(self) -> bytes:
        """All metrics as text."""
        return generate_latest(self.registry)

    def _families(self) -> Iterator[Metric]:
        yield InfoMetricFamily(f"{NAME}_build", "The program.", {"version": __version__})
        if self._record is not None:
            yield from _of_round(self._record)
        if self._status is not None:
            status = self._status()
            yield from _of_federation(status)
            if not status.secure_sums:
                yield from _of_nodes(status.nodes)


class _Collector(Collector):
    """Makes metrics when they are asked for, so that a run spends no time on them."""

    def __init__(self, families: Callable[[], Iterator[Metric]]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        """All metrics."""
        return self._families()

    def describe(self) -> Iterator[Metric]:
        """None are told before they are asked for."""
        return iter(())


def _of_round(record: RoundRecord) -> Iterator[Metric]:
    for field, (name, text) in COUNTERS.items():
        yield CounterMetricFamily(f"{NAME}_{name}", text, float(getattr(record, field)))
    for field, (name, text) in GAUGES.items():
        value = float(getattr(record, field))
        if not math.isnan(value):
            yield GaugeMetricFamily(f"{NAME}_{name}", text, value)
    counted = CounterMetricFamily(
        f"{NAME}_counted_bytes", "As the paper counts them, without recommendations.", labels=("direction",)
    )
    counted.add_metric(("up",), float(record.bytes_up))
    counted.add_metric(("down",), float(record.bytes_down))
    yield counted


def _of_federation(status: FederationStatus) -> Iterator[Metric]:
    yield InfoMetricFamily(
        f"{NAME}_run", "The run.", {"run": status.run, "secure_sums": str(status.secure_sums).lower()}
    )
    nodes = GaugeMetricFamily(
        f"{NAME}_nodes",
        "Nodes that are present, have heard of the end, are away (for a moment or longer), excluded, or have left.",
        labels=("state",),
    )
    states = [node.state for node in status.nodes]
    for state in STATES:
        nodes.add_metric((state,), states.count(state))
    yield nodes
    yield CounterMetricFamily(
        f"{NAME}_violations", "How often a node has broken the rules since this server began.", status.violations
    )
    yield CounterMetricFamily(f"{NAME}_events", "Events of the run that were not planned.", len(status.events))
    messages = CounterMetricFamily(
        f"{NAME}_wire_messages", "Over the wire since this server began.", labels=("direction",)
    )
    carried = CounterMetricFamily(
        f"{NAME}_wire_bytes", "Over the wire since this server began.", labels=("direction",)
    )
    _add_wire(messages, carried, (), status.wire)
    yield from (messages, carried)


def _of_nodes(nodes: tuple[NodeStatus, ...]) -> Iterator[Metric]:
    """What secure sums keep secret or what at least points at single nodes."""
    connected = GaugeMetricFamily(f"{NAME}_node_connected", "Whether a node has a stream.", labels=("node",))
    episodes = CounterMetricFamily(
        f"{NAME}_node_episodes", "Episodes of each of a node's agents in rounds that count.", labels=("node",)
    )
    latency = GaugeMetricFamily(
        f"{NAME}_node_answer_seconds", "From the last question to a node's answer.", labels=("node",)
    )
    both = ("node", "direction")
    messages = CounterMetricFamily(f"{NAME}_node_wire_messages", "Since this server began.", labels=both)
    carried = CounterMetricFamily(f"{NAME}_node_wire_bytes", "Since this server began.", labels=both)
    for node in nodes:
        connected.add_metric((node.name,), float(node.connected))
        episodes.add_metric((node.name,), float(node.episodes))
        if not math.isnan(node.latency):
            latency.add_metric((node.name,), node.latency)
        _add_wire(messages, carried, (node.name,), node.wire)
    yield from (connected, episodes, latency, messages, carried)


def _add_wire(
    messages: CounterMetricFamily, carried: CounterMetricFamily, labels: tuple[str, ...], wire: WireCount
) -> None:
    for direction in ("up", "down"):
        messages.add_metric((*labels, direction), getattr(wire, f"messages_{direction}"))
        carried.add_metric((*labels, direction), getattr(wire, f"bytes_{direction}"))


def check_metrics_address(address: str) -> str:
    """Return ``HOST:PORT``, or raise unless it is one of this machine: whoever can connect can read metrics."""
    if not is_loopback(check_address(address)):
        raise InputError(
            f"metrics are served on this machine only (127.0.0.1:PORT), not on {address}: they have no password. "
            "Have a collector on this machine fetch them, or an HTTPS proxy with a password pass them on."
        )
    return address


@contextmanager
def serving(metrics: Metrics, address: str) -> Iterator[int]:
    """Serve metrics at ``http://HOST:PORT/metrics`` while the block lasts; gives the port, a free one for port 0."""
    host, _, port = check_metrics_address(address).rpartition(":")
    try:
        server, thread = start_http_server(int(port), host.strip("[]"), metrics.registry)
    except OSError as error:
        raise InputError(f"metrics cannot be served at {address}: {error.strerror or error}.") from error
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
