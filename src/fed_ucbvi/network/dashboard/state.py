"""The content of the page: written by a run, read by the server of the page, from any thread.

The content is a list of thinned points (:mod:`fed_ucbvi.network.dashboard.series`) and *parts*, each a small JSON
value by name: ``subject``, ``status``, ``now`` (the last round), ``recent`` (the last rounds), ``requests``, and as
far as there are any ``network``, ``nodes``, ``events``, ``policy``, ``certificates``, ``sweep``. A reader remembers a
:class:`Position` and is given what has changed since: the points from one on, and the parts that are others. Memory
does not grow with the number of rounds. A round costs the run one call of ``append``; the rest is done when a reader
asks, or every :data:`BATCH` rounds.
"""

from __future__ import annotations

import asyncio
import json
import math
import threading
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from fed_ucbvi.algorithms import algorithm_name, parameters_of
from fed_ucbvi.core.numbers import none_for_nan
from fed_ucbvi.core.text import shortened
from fed_ucbvi.core.types import PolicyArray
from fed_ucbvi.network.dashboard.series import COLUMNS, RoundSeries
from fed_ucbvi.problem.federation import Federation
from fed_ucbvi.problem.units import Units
from fed_ucbvi.results.grid import policy_arrows
from fed_ucbvi.results.recommendations import Recommended, table_of
from fed_ucbvi.results.round_record import RoundRecord, replay
from fed_ucbvi.results.run_data import Subscriber

if TYPE_CHECKING:
    from fed_ucbvi.algorithms.base import Algorithm
    from fed_ucbvi.engine.live import LiveFederation
    from fed_ucbvi.engine.rounds import Engine
    from fed_ucbvi.network.coordinator import Coordinator
    from fed_ucbvi.network.members import FederationStatus
    from fed_ucbvi.network.run_plan import RunPlan
    from fed_ucbvi.results.run_data import RunData

WAITING = "waiting"
RUNNING = "running"
OVER = "over"
STOPPED = "stopped"
"""The phases of a run: before its first round; in progress; all is played; ended early."""
BATCH = 8_192
"""Rounds that are processed at once, if no reader has asked before."""
RECENT = 12
"""Number of the last rounds that are listed."""
MAX_COUNTED = 10_000
"""Requests are counted by agent, and by state, up to this number of agents and of states."""
MAX_REQUESTERS = 8
"""Number of agents that are listed: those that requested most often."""


PRESENT = "present"
FINISHED = "finished"
AWAY = "away"
EXCLUDED = "excluded"
STATES = (PRESENT, FINISHED, AWAY, EXCLUDED)
"""The states of a node in a :class:`~fed_ucbvi.network.members.FederationStatus`."""
EXPECTED = "expected"
"""The state of a node that has not connected yet."""
CHANGES = {
    PRESENT: "connected",
    FINISHED: "has received the policy",
    AWAY: "disconnected",
}
"""The page's names of changes of a node's state; the server itself records exclusions."""
MAX_NODES = 200
"""Number of nodes that are listed: first those that are neither present nor finished."""
MAX_EVENTS = 100
"""Number of events that are listed: the latest."""
SECONDS_BETWEEN = 0.25
"""Seconds between two looks at a federation: nodes connect and leave also while no round is played."""
GRID = ("rows", "columns", "cells", "goals", "start")
"""The fields of a grid that the page gets."""
MAX_SQUARES = 2_500
"""Grids with more squares are not drawn: arrows would be too small to see."""


class Subject(NamedTuple):
    """The content of the page: of a sweep only a title.

    Attributes:
        layout: the grid that the states live on, if it can be drawn; see :mod:`fed_ucbvi.results.grid`.
        nodes: the expected nodes, if their names are known before they connect.
        units: units of rewards, as far as they are known.
        settings: settings of the run, by name.
    """

    title: str
    algorithm: Mapping[str, Any] = {}
    environment: Mapping[str, Any] = {}
    agents: int = 0
    states: int = 0
    actions: int = 0
    horizon: int = 0
    layout: Mapping[str, Any] | None = None
    nodes: Sequence[str] = ()
    units: Units = Units()
    settings: Mapping[str, Any] = {}

    @classmethod
    def of_run(
        cls,
        algorithm: Algorithm[Any, Any],
        problem: Federation | LiveFederation | None,
        sizes: Any = None,
        nodes: Sequence[str] = (),
        **settings: Any,
    ) -> Subject:
        """A run of an algorithm; the problem is None where only its sizes are known."""
        sizes = sizes or problem
        name = algorithm_name(algorithm)
        description: Mapping[str, Any] = {}
        place = "over the network"
        if problem is not None:
            description = problem.description
            place = f"on {description.get('name', 'custom')}"
        layout: Any = None
        if isinstance(problem, Federation) and problem.layout is not None:
            layout = problem.layout
            if layout["rows"] * layout["columns"] > MAX_SQUARES:
                layout = None
        return cls(
            title=f"{name} {place}",
            algorithm={"name": name, **parameters_of(algorithm)},
            environment=description,
            agents=sizes.agents or 0,
            states=sizes.states,
            actions=sizes.actions,
            horizon=sizes.horizon or 0,
            layout=layout,
            nodes=nodes,
            units=Units.of(description),
            settings=settings,
        )

    @classmethod
    def of_plan(cls, plan: RunPlan) -> Subject:
        settings = {
            "seed": plan.setting.seed,
            "collection": plan.rules.collection,
            "secure sums": plan.rules.secure_sums,
        }
        return cls.of_run(
            plan.algorithm,
            plan.federation,
            plan.setting,
            tuple(plan.rules.nodes or ()),
            **settings,
        )

    def content(self) -> dict[str, Any]:
        """Ready for JSON."""
        grid = None
        if self.layout is not None:
            grid = _integers({name: self.layout[name] for name in GRID})
        return {
            "title": self.title,
            "algorithm": _texts(self.algorithm),
            "environment": _texts(self.environment),
            "agents": self.agents,
            "states": self.states,
            "actions": self.actions,
            "horizon": self.horizon,
            "nodes": list(self.nodes),
            "units": None if self.units == Units() else str(self.units),
            "settings": _texts(self.settings),
            "grid": grid,
        }


def _texts(options: Mapping[str, Any]) -> dict[str, str]:
    """Options as short texts; those that are None are left out."""
    return {name: shortened(str(value)) for name, value in options.items() if value is not None}


def _integers(numbers: Any) -> Any:
    """The content in lists and mappings, with Python's own integers, ready for JSON."""
    return json.loads(json.dumps(numbers, default=int))


class Position(NamedTuple):
    """Position of a reader in the events."""

    version: int = -1
    stride: int = 0
    points: int = 0


class LiveState(Subscriber):
    """The content of a run's page."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self._last_status: FederationStatus | None = None
        self._waiting: deque[RoundRecord] = deque()
        self._lock = threading.RLock()
        self._series = RoundSeries()
        self._certificates: list[list[Any]] = []
        self._recent: deque[RoundRecord] = deque(maxlen=RECENT)
        self._rules: Counter[str] = Counter()
        self._requesters: Counter[int] = Counter()
        self._places: Counter[int] = Counter()
        self._events: deque[dict[str, Any]] = deque(maxlen=MAX_EVENTS)
        self._version = 0
        self._parts: dict[str, tuple[int, Any]] = {}
        self._put(subject=subject.content(), status={"phase": WAITING, "text": ""})

    # ------------------------------------------------------------------------------------------------------ the run's

    def __call__(self, record: RoundRecord) -> None:
        """Add a round: the state itself is given to ``run(..., on_round=...)``."""
        self._waiting.append(record)
        if len(self._waiting) >= BATCH:
            with self._lock:
                self._absorb()

    def take_earlier(self, engine: Engine) -> None:
        for record in replay(
            engine.records(),
            table_of(engine.recommendations),
            episodes=engine.setting.episodes,
            rules=engine.algorithm.rules,
            units=engine.units,
            horizon=engine.setting.horizon,
        ):
            self(record)

    @asynccontextmanager
    async def following(self, run: Coordinator) -> AsyncIterator[None]:
        """Add the nodes, events and policies of a federation while the block runs, in the loop of its server."""
        shown: Recommended | None = None

        def look() -> None:
            nonlocal shown
            self.take_status(run.status())
            if run.engine.units != self.subject.units:
                self.subject = self.subject._replace(units=run.engine.units)
                self._put(subject=self.subject.content())
            recommended = run.engine.recommended
            if recommended is not None and recommended is not shown:
                shown = recommended
                self.take_policy(recommended.policy)

        async def keep_looking() -> None:
            while True:
                look()
                await asyncio.sleep(SECONDS_BETWEEN)

        self.take_earlier(run.engine)
        task = asyncio.create_task(keep_looking())
        try:
            yield
        finally:
            task.cancel()
            look()

    def take_status(self, status: FederationStatus) -> None:
        with self._lock:
            self._absorb()
            self._note_events(status)
            self._last_status = status
            self._put(**_federation_parts(status, self.subject.nodes), events=[*self._events])

    def take_policy(self, policy: PolicyArray) -> None:
        """Show the recommended policy where there is a grid."""
        layout = self.subject.layout
        if layout is None:
            return
        arrows = []
        for cell, move in policy_arrows(layout, policy).items():
            arrows.append([*cell, *move])
        self._put(policy=_integers(arrows))

    def end(self, text: str = "", *, complete: bool = True) -> None:
        """Show that the run has ended, and why."""
        with self._lock:
            self._absorb()
            self._put(status={"phase": OVER if complete else STOPPED, "text": text})

    def finish(self, run: RunData, *, ended: bool | None = None) -> None:
        """Show the policy of a run that has ended, and how complete it is.

        ``ended``, if it is given, is true if nothing was left to play, though agents that were away have played less.
        """
        self.take_policy(run.policy)
        if run.certificates:
            dated = []
            for certificate in run.certificates:
                text = f"{certificate.kind}: {certificate} ({certificate.date})"
                dated.append([certificate.rounds, certificate.played, text])
            self._put(certificates=dated)
        complete = run.complete if ended is None else ended
        text = ""
        if not complete:
            text = f"Stopped after {run.episodes_played:,} episodes per agent."
        self.end(text, complete=complete)

    # --------------------------------------------------------------------------------------------------- the readers'

    @property
    def phase(self) -> str:
        return str(self._parts["status"][1]["phase"])

    def increment(self, position: Position) -> tuple[dict[str, Any], Position]:
        """The changes since a position, ready for JSON and perhaps none, and the position after them."""
        with self._lock:
            self._absorb()
            content = {}
            for name, (version, part) in self._parts.items():
                if version > position.version:
                    content[name] = part
            series = self._series
            points_read = position.points if position.stride == series.stride else 0
            after = Position(version=self._version, stride=series.stride, points=series.size)
            if after != position:
                first = max(0, points_read - 1)  # more rounds may have gone into the last point
                content["stride"] = series.stride
                content["first"] = first
                content["points"] = series.points(first)
            return content, after

    def snapshot(self) -> dict[str, Any]:
        content, _ = self.increment(Position())
        del content["first"]
        return {"columns": list(COLUMNS), **content}

    # --------------------------------------------------------------------------------------------------------- inside

    def _absorb(self) -> None:
        records = [self._waiting.popleft() for _ in range(len(self._waiting))]
        if not records:
            return
        self._series.extend(records)
        self._recent.extend(records)
        for record in records:
            if record.requests:
                self._rules[record.rule or "unknown"] += 1
                if record.agent >= 0 and self.subject.agents <= MAX_COUNTED:
                    self._requesters[record.agent] += 1
                if record.state >= 0 and self.subject.states <= MAX_COUNTED:
                    self._places[record.state] += 1
            if record.certificate:
                self._certificates.append([record.round, record.episodes, record.certificate])
        requests = {
            "rules": dict(self._rules),
            "agents": [list(pair) for pair in self._requesters.most_common(MAX_REQUESTERS)],
            "states": [list(pair) for pair in sorted(self._places.items())],
        }
        recent = []
        for record in reversed(self._recent):
            recent.append(none_for_nan({**record._asdict(), "gap": record.gap}))
        self._put(
            status={"phase": RUNNING, "text": ""},
            now=recent[0],
            recent=recent,
            requests=requests,
        )
        if self._certificates:
            self._put(certificates=list(self._certificates))

    def _note_events(self, status: FederationStatus) -> None:
        """Add new events: changes of nodes, and the server's own; those of an earlier server have no time."""
        last = self._last_status
        now = time.time()
        states_before = {}
        recorded = 0
        if last is not None:
            states_before = {node.name: node.state for node in last.nodes}
            recorded = len(last.events)
        rounds = self._recent[-1].round if self._recent else 0
        for node in status.nodes:
            is_news = last is not None or node.state == PRESENT  # others were absent before this server began
            changed = node.state != states_before.get(node.name)
            if is_news and changed and node.state in CHANGES:
                change = CHANGES[node.state]
                if node.state == PRESENT and node.name in states_before:
                    change += " again"
                event = {
                    "time": now,
                    "round": rounds,
                    "node": node.name,
                    "what": change,
                    "done": "",
                }
                self._events.append(event)
        for own_event in status.events[recorded:]:
            self._events.append({"time": None if last is None else now, **own_event})

    def _put(self, **parts: Any) -> None:
        """Set parts; unchanged ones keep their version."""
        with self._lock:
            changed = {}
            for name, part in parts.items():
                _, present = self._parts.get(name, (0, None))
                if part != present:
                    changed[name] = part
            if changed:
                self._version += 1
            for name, part in changed.items():
                self._parts[name] = (self._version, part)


def _federation_parts(status: FederationStatus, expected: Sequence[str]) -> dict[str, Any]:
    """Nodes and the traffic of the network, ready for JSON.

    Under secure sums a node has a name and a state, and nothing else.
    """
    rows: list[dict[str, Any]] = []
    for node in status.nodes:
        row: dict[str, Any] = {"name": node.name, "state": node.state}
        if not status.secure_sums:
            row["first_agent"] = node.first_agent
            row["agents"] = node.agents
            row["episodes"] = node.episodes
            row["latency"] = none_for_nan(node.latency)
            row["bytes_up"] = node.wire.bytes_up
            row["bytes_down"] = node.wire.bytes_down
        rows.append(row)
    connected = {node.name for node in status.nodes}
    for name in expected:
        if name not in connected:
            rows.append({"name": name, "state": EXPECTED})
    counts = dict.fromkeys([*STATES, EXPECTED], 0)
    for row in rows:
        counts[row["state"]] += 1
    if len(rows) > MAX_NODES:
        rows = sorted(rows, key=lambda row: row["state"] in (PRESENT, FINISHED))[:MAX_NODES]
    latencies = [node.latency for node in status.nodes if node.connected and not math.isnan(node.latency)]
    network = {
        "run": status.run,
        "secure_sums": status.secure_sums,
        "violations": status.violations,
        "bytes_up": status.wire.bytes_up,
        "bytes_down": status.wire.bytes_down,
        "nodes": counts,
        "messages": status.wire.messages_up + status.wire.messages_down,
        "latency": sum(latencies) / len(latencies) if latencies else None,
    }
    return {"nodes": rows, "network": network}
