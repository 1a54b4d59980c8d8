"""Metrics of a run in progress, in Prometheus's text format."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from fed_ucbvi.core.errors import missing_package
from fed_ucbvi.core.version import __version__
from fed_ucbvi.network.dashboard.server import PageServer, check_local
from fed_ucbvi.network.dashboard.state import STATES
from fed_ucbvi.network.members import FederationStatus, Member
from fed_ucbvi.network.transport import WireCount
from fed_ucbvi.results.round_record import RoundRecord
from fed_ucbvi.results.run_data import Subscriber

try:
    from prometheus_client import CollectorRegistry, Histogram, Metric, ProcessCollector, generate_latest
    from prometheus_client.core import CounterMetricFamily as Counter
    from prometheus_client.core import GaugeMetricFamily as Gauge
    from prometheus_client.core import InfoMetricFamily
    from prometheus_client.registry import Collector
except ImportError as error:
    raise missing_package("metrics need", "prometheus-client", "dashboard") from error

NAME = "fed_ucbvi"
METRICS = "the metrics endpoint"
"""The name of what is served, in errors."""
SECONDS = (
    0.001,
    0.002,
    0.005,
    0.01,
    0.02,
    0.05,
    0.1,
    0.2,
    0.5,
    1.0,
    2.0,
    5.0,
    10.0,
    30.0,
    60.0,
)
"""Upper ends of the histogram's buckets."""

OF_ROUND = {
    "round": (Counter, "rounds", "Rounds that have been played."),
    "synchronisations": (
        Counter,
        "synchronisations",
        "Rounds that ended with a synchronisation.",
    ),
    "episodes": (Counter, "episodes", "Episodes per agent."),
    "planned_episodes": (
        Gauge,
        "planned_episodes",
        "Episodes per agent that the run will have at its end.",
    ),
    "length": (Gauge, "round_length_episodes", "Episodes of the last round."),
    "seconds": (
        Gauge,
        "run_seconds",
        "Since the run began, without the time between two servers.",
    ),
    "regret": (
        Gauge,
        "regret",
        "So far, averaged over agents, in the environment's own units; absent if unknown.",
    ),
    "reward": (
        Gauge,
        "reward",
        "Of an episode of the last round, averaged over agents, likewise.",
    ),
    "optimistic_value": (
        Gauge,
        "optimistic_value",
        "The server's optimistic value of the initial states, likewise.",
    ),
    "recommended_value": (
        Gauge,
        "recommended_value",
        "The estimated value of the recommended policy, likewise.",
    ),
    "gap": (Gauge, "gap", "The optimistic value minus the recommended one, likewise."),
}
"""By field of a round's record: kind, name and help of the metric."""


class Metrics(Subscriber, Collector):
    """The metrics of one run, with their own registry, computed at each request.

    Args:
        status: gives the state of the federation, if there is one; called at each request.
    """

    def __init__(self, status: Callable[[], FederationStatus] | None = None) -> None:
        self._status = status
        self._record: RoundRecord | None = None
        self.registry = CollectorRegistry()
        self.registry.register(self)
        ProcessCollector(registry=self.registry)
        self._exchanges = Histogram(
            f"{NAME}_exchange_seconds",
            "From a question to all nodes to the slowest answer; live nodes' playing is not in it.",
            buckets=SECONDS,
            registry=self.registry,
        )

    def __call__(self, record: RoundRecord) -> None:
        self._record = record

    def on_exchange(self, seconds: float) -> None:
        self._exchanges.observe(seconds)

    def render(self) -> bytes:
        return generate_latest(self.registry)

    @contextmanager
    def served(self, address: str) -> Iterator[str]:
        """Serve metrics at ``HOST:PORT`` while the block lasts; gives their address, with a free port for port 0."""
        with PageServer(None, check_local(address, METRICS), self.render) as server:
            yield f"{server.url}metrics"

    def collect(self) -> Iterator[Metric]:
        yield InfoMetricFamily(f"{NAME}_build", "The program.", {"version": __version__})
        if self._record is not None:
            yield from _of_round(self._record)
        if self._status is not None:
            status = self._status()
            yield from _of_federation(status)
            if not status.secure_sums:  # they keep secret what points at single nodes
                yield from _of_nodes(status.nodes)


Samples = Iterable[tuple[tuple[str, ...], float]]
"""Values of labels, and a figure, which is left out if it is NaN."""


def _metric(kind: type[Counter | Gauge], name: str, text: str, samples: Samples, *labels: str) -> Metric:
    family = kind(f"{NAME}_{name}", text, labels=labels)
    for values, figure in samples:
        if not math.isnan(figure):
            family.add_metric(values, float(figure))
    return family


def _of_round(record: RoundRecord) -> Iterator[Metric]:
    for field, (kind, name, text) in OF_ROUND.items():
        yield _metric(kind, name, text, [((), getattr(record, field))])
    text = "As the paper counts them, without recommendations."
    carried = [(("up",), record.bytes_up), (("down",), record.bytes_down)]
    yield _metric(Counter, "counted_bytes", text, carried, "direction")


def _of_federation(status: FederationStatus) -> Iterator[Metric]:
    about = {"run": status.run, "secure_sums": str(status.secure_sums).lower()}
    yield InfoMetricFamily(f"{NAME}_run", "The run.", about)
    text = "Nodes that are present, have received the end of the run, are away (for a moment or longer), or excluded."
    states = [node.state for node in status.nodes]
    yield _metric(
        Gauge,
        "nodes",
        text,
        [((state,), states.count(state)) for state in STATES],
        "state",
    )
    text = "How often a node has broken the rules since this server began."
    yield _metric(Counter, "violations", text, [((), status.violations)])
    yield _metric(
        Counter,
        "events",
        "Events of the run that were not planned.",
        [((), len(status.events))],
    )
    yield from _of_wire("", [((), status.wire)])


def _of_nodes(nodes: tuple[Member, ...]) -> Iterator[Metric]:
    for kind, figure, name, text in (
        (Gauge, "connected", "node_connected", "Whether a node has a stream."),
        (
            Counter,
            "episodes",
            "node_episodes",
            "Episodes of each of a node's agents in rounds that count.",
        ),
        (
            Gauge,
            "latency",
            "node_answer_seconds",
            "From the last question to a node's answer.",
        ),
    ):
        yield _metric(
            kind,
            name,
            text,
            [((node.name,), getattr(node, figure)) for node in nodes],
            "node",
        )
    yield from _of_wire("node_", [((node.name,), node.wire) for node in nodes], "node")


def _of_wire(prefix: str, wires: list[tuple[tuple[str, ...], WireCount]], *labels: str) -> Iterator[Metric]:
    text = "Messages since this server began, and their bytes before compression."
    for what in ("messages", "bytes"):
        samples = [
            ((*name, direction), getattr(wire, f"{what}_{direction}"))
            for name, wire in wires
            for direction in ("up", "down")
        ]
        yield _metric(Counter, f"{prefix}wire_{what}", text, samples, *labels, "direction")
