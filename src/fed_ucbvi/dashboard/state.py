"""What the page shows: fed by a run, read by the server of the page; any thread may do either.

The content is a list of thinned points (:mod:`fed_ucbvi.dashboard.series`) and *parts*, each a small JSON value by
name: ``subject``, ``status``, ``now`` (the last round), ``recent`` (the last rounds), ``requests``, and as far as
there are any ``network``, ``nodes``, ``events``, ``policy``, ``sweep``. A reader remembers a :class:`Position` and is
given what has changed since: the points from one on, and the parts that are others. Memory does not grow with the
number of rounds. A round costs the run one call of ``append``; the rest is done when somebody looks, or every so many
rounds.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from fed_ucbvi.core.types import IndexArray
from fed_ucbvi.core.unknown import none_for_nan
from fed_ucbvi.dashboard.nodes import federation_parts
from fed_ucbvi.dashboard.series import COLUMNS, Series
from fed_ucbvi.dashboard.subject import MOST_SQUARES, Subject
from fed_ucbvi.results.grid import policy_arrows
from fed_ucbvi.results.round_record import RoundRecord

if TYPE_CHECKING:
    from fed_ucbvi.network.status import FederationStatus

WAITING, RUNNING, OVER, STOPPED = "waiting", "running", "over", "stopped"
"""The phases of a run: before its first round; then; all is played; ended early."""
BATCH = 8_192
"""Rounds that are taken in at once, if nobody has looked before."""
RECENT = 12
"""Rounds that are listed."""
MOST_COUNTED = 10_000
"""Requests are counted by agent, and by state, up to so many agents and states."""
MOST_ASKERS = 8
"""Agents that are listed: those that requested most often."""


class Position(NamedTuple):
    """Up to where a reader has read."""

    version: int = -1
    stride: int = 0
    points: int = 0


class LiveState:
    """What there is to see of a run.

    Attributes:
        subject: what is shown.
        last_record: the last round that was taken in.
        last_status: how the federation stood when it was asked last; None for other runs.
    """

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.last_record: RoundRecord | None = None
        self.last_status: FederationStatus | None = None
        self._waiting: deque[RoundRecord] = deque()
        self._lock = threading.Lock()
        self._series = Series()
        self._recent: deque[RoundRecord] = deque(maxlen=RECENT)
        self._rules: Counter[str] = Counter()
        self._askers: Counter[int] = Counter()
        self._places: Counter[int] = Counter()
        self._version = 0
        self._parts: dict[str, tuple[int, Any]] = {}
        self._put(subject=subject.content(), status={"phase": WAITING, "text": ""})

    # ------------------------------------------------------------------------------------------------------ the run's

    def __call__(self, record: RoundRecord) -> None:
        """Take a round: the state itself is given to ``run(..., on_round=...)``."""
        self._waiting.append(record)
        if len(self._waiting) >= BATCH:
            with self._lock:
                self._absorb()

    def take_status(self, status: FederationStatus) -> None:
        """Take how a federation stands."""
        with self._lock:
            self.last_status = status
            self._put(**federation_parts(status, self.subject.nodes))

    def take_policy(self, policy: IndexArray) -> None:
        """Take the recommended policy, ``(H, S)``; it is drawn where there is a grid."""
        layout = self.subject.layout
        if layout is None or layout["rows"] * layout["columns"] > MOST_SQUARES:
            return
        arrows = [[*cell, *move] for cell, move in policy_arrows(layout, policy).items()]
        with self._lock:
            self._put(policy=[[int(part) for part in arrow] for arrow in arrows])

    def take_subject(self, subject: Subject) -> None:
        """Take what is shown, where that was not known before."""
        with self._lock:
            self.subject = subject
            self._put(subject=subject.content())

    def take_sweep(self, sweep: Mapping[str, Any], phase: str = RUNNING, text: str = "") -> None:
        """Take how a sweep stands, ready for JSON."""
        with self._lock:
            self._put(sweep=sweep, status={"phase": phase, "text": text})

    def end(self, text: str = "", *, complete: bool = True) -> None:
        """Say that there is nothing more to come, and why."""
        with self._lock:
            self._absorb()
            self._put(status={"phase": OVER if complete else STOPPED, "text": text})

    # --------------------------------------------------------------------------------------------------- the readers'

    @property
    def phase(self) -> str:
        """Waiting, running, over or stopped."""
        return str(self._parts["status"][1]["phase"])

    def increment(self, position: Position) -> tuple[dict[str, Any], Position]:
        """What has changed since a position, ready for JSON, and the position after it; empty if nothing has."""
        with self._lock:
            self._absorb()
            content = {name: part for name, (version, part) in self._parts.items() if version > position.version}
            series, read = self._series, position.points if position.stride == self._series.stride else 0
            after = Position(self._version, series.stride, series.size)
            if after != position:
                first = max(0, read - 1)  # more rounds may have gone into the last point
                content |= {"stride": series.stride, "first": first, "points": series.points(first)}
            return content, after

    def snapshot(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return apply(new_mirror(), self.increment(Position())[0])

    # --------------------------------------------------------------------------------------------------------- inside

    def _absorb(self) -> None:
        records = [self._waiting.popleft() for _ in range(len(self._waiting))]
        if not records:
            return
        self._series.extend(records)
        self._recent.extend(records[-RECENT:])
        self.last_record = records[-1]
        asked = [record for record in records if record.requests]
        self._rules.update(record.rule or "unknown" for record in asked)
        if self.subject.agents <= MOST_COUNTED:
            self._askers.update(record.agent for record in asked if record.agent >= 0)
        if self.subject.states <= MOST_COUNTED:
            self._places.update(record.state for record in asked if record.state >= 0)
        requests = {
            "rules": dict(self._rules),
            "agents": [list(pair) for pair in self._askers.most_common(MOST_ASKERS)],
            "states": [list(pair) for pair in sorted(self._places.items())],
        }
        recent = [_content(record) for record in reversed(self._recent)]
        self._put(status={"phase": RUNNING, "text": ""}, now=recent[0], recent=recent, requests=requests)

    def _put(self, **parts: Any) -> None:
        """Set parts; those that are as they were keep their version."""
        changed = {name: part for name, part in parts.items() if self._parts.get(name, (0, None))[1] != part}
        self._version += bool(changed)
        self._parts.update({name: (self._version, part) for name, part in changed.items()})


def new_mirror() -> dict[str, Any]:
    """What a reader starts with."""
    return {"columns": list(COLUMNS), "stride": 1, "points": []}


def apply(mirror: dict[str, Any], increment: Mapping[str, Any]) -> dict[str, Any]:
    """The content after an increment, as the page's script works it out; changes ``mirror``."""
    first: int = increment.get("first", len(mirror["points"]))
    points: Sequence[Any] = increment.get("points", ())
    mirror["points"][first:] = points
    mirror.update({name: part for name, part in increment.items() if name not in ("first", "points")})
    return mirror


def _content(record: RoundRecord) -> dict[str, Any]:
    content: dict[str, Any] = none_for_nan({**record._asdict(), "gap": record.gap})
    return content
