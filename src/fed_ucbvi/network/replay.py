"""Recompute a run from its server's log: whose reports were in which round, and what they add up to.

With nodes that come and go the result depends on which reports were in which round. The server's history records it,
with the sums, so that everything that follows from them can be computed again: the policy and the values of every
round, the records and the recommended policies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fed_ucbvi.algorithms import recorded_algorithm
from fed_ucbvi.algorithms.base import Array, Setting
from fed_ucbvi.algorithms.count_table import NewCounts
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.files import check_version, manifest_digest, read_manifest, reading
from fed_ucbvi.core.types import MaskArray
from fed_ucbvi.engine.drivers.base import RoundEnd
from fed_ucbvi.engine.extension import planned, planned_in
from fed_ucbvi.engine.rounds import Paid, PlayedRound, Synchronise
from fed_ucbvi.engine.state_store import SavedState, StateStore, named
from fed_ucbvi.network.network_engine import NetworkEngine
from fed_ucbvi.network.run_plan import RunPlan
from fed_ucbvi.network.server_checkpoint import FORMAT, FORMAT_VERSION, HISTORY, kept_counts
from fed_ucbvi.results.round_record import columns_of

SENDS = 4
"""The most answers to one round of the engine: played, synchronised, planned, and one to spare."""
NOT_RECOMPUTED = ("regret", "value")
"""Columns that take the problem, which the log does not have."""


class Replayed(NamedTuple):
    """A run that was computed again.

    Attributes:
        rounds: how many.
        reports: for each round the nodes whose reports were used.
        differs: names of what is not as the server has kept it; empty if everything is, bit for bit.
    """

    rounds: int
    reports: list[list[str]]
    differs: list[str]


def told_in_round(
    plan: RunPlan,
    played: PlayedRound,
    present: Sequence[MaskArray],
    sums: Mapping[bool, NewCounts],
    used: list[str],
) -> tuple[dict[str, Any], dict[str, Array]]:
    """What came back in a round, for the log."""
    paid = played.paid
    squares = None if paid is None or math.isnan(paid.squares) else paid.squares
    about: dict[str, Any] = {
        "end": [int(part) for part in played.stop],
        "rule": int(played.rule),
        "paid": None if paid is None else [paid.episodes, paid.total, squares],
        "planned": planned(plan.setting),
        "used": used,
    }
    told: dict[str, Array] = {
        "lengths": np.array(played.lengths),
        "present": np.zeros((SENDS, plan.setting.agents), dtype=np.bool_),
        "starts": np.zeros(plan.setting.states, dtype=np.int64) if paid is None else np.array(paid.starts),
    }
    told["present"][: len(present)] = present
    return about, told | listed_sums(plan, sums)


def listed_sums(plan: RunPlan, sums: Mapping[bool, NewCounts]) -> dict[str, Array]:
    """What reports add up to, for the log: what was visited, so that it can be read without the problem."""
    listed: dict[str, Array] = {}
    for planning, new in sums.items():
        listed |= {f"sum.{planning:d}.{name}": array for name, array in plan.with_counts(new).listed().items()}
    return listed


def replay(folder: Path) -> Replayed:
    """Compute the run in a server's checkpoint again, and compare it with what is kept there."""
    manifest = read_manifest(folder, FORMAT)
    check_version(folder, manifest, FORMAT_VERSION)
    with reading(folder):
        task, digest = manifest["task"], manifest_digest(folder)
        algorithm = recorded_algorithm(task["algorithm"], task["parameters"])
        if task["secure_sums"]:
            algorithm = algorithm.with_increments()
        kept = StateStore(folder, digest).read()
        if "promises" in task:
            raise InputError(f"{folder} holds a run with an incumbent or a certified gap, which cannot be replayed.")
        if not algorithm.server_counts:
            raise InputError(f"a run of {algorithm.name} cannot be replayed: its reports are not what is new.")
        history = StateStore(folder / HISTORY, digest, kept=None)
        first = 0 if 0 in history.rounds else 1  # round 0 has the nodes' logs
        if history.rounds[: kept.round + 1 - first] != tuple(range(first, kept.round + 1)):
            raise InputError(f"{folder / HISTORY} does not have all of the run's {kept.round} rounds.")
        engine: NetworkEngine | None = None
        reports = []
        for state in history.between(first, kept.round):
            setting = Setting(**{**task["setting"], **planned_in(state.about)})
            if engine is None or engine.setting != setting:
                plan = RunPlan(algorithm, setting, collection=task["collection"], counts=kept_counts(folder))
                before, engine = engine, NetworkEngine(plan)
                if before is not None:
                    engine.restore(_copied(before.saved()))
            if state.round == 0:
                _aggregate(plan, engine.server, state, planning=False)
                continue
            _advance(plan, engine, state)
            reports.append(list(state.about["used"]))
    return Replayed(kept.round, reports, [] if engine is None else _differences(engine.saved(), kept))


def _copied(saved: SavedState) -> SavedState:
    return saved._replace(arrays={name: np.array(array) for name, array in saved.arrays.items()})


def _advance(plan: RunPlan, engine: NetworkEngine, state: SavedState) -> None:
    """One round of the engine, answered from the log."""
    about, arrays = state.about, state.arrays
    paid = None
    if about["paid"] is not None:
        episodes, total, squares = about["paid"]
        paid = Paid(episodes, total, np.array(arrays["starts"]), math.nan if squares is None else squares)
    played = PlayedRound(RoundEnd(*about["end"]), about["rule"], lengths=np.array(arrays["lengths"]), paid=paid)
    steps, sends = engine.round(), 0
    next(steps)
    reply: Any = played
    while True:
        engine.present[:] = arrays["present"][sends]
        sends += 1
        try:
            request = steps.send(reply)
        except StopIteration:
            return
        assert isinstance(request, Synchronise)
        _aggregate(plan, request.server, state, planning=request.planning)
        reply = None if request.planning else paid


def _aggregate(plan: RunPlan, server: Any, state: SavedState, *, planning: bool) -> None:
    """What the reports of a round add up to, if there were any."""
    listed = named(f"sum.{planning:d}.", state.arrays)
    if listed:
        plan.algorithm.add_counts(server, plan.table_of(listed).as_new())


def _differences(now: SavedState, kept: SavedState) -> list[str]:
    """What of the server's state, clocks and records is not the same."""
    wrong = []
    for name, array in now.arrays.items():
        if name.startswith(("server.", "recommended.")) or name in ("clock", "starts"):
            other = kept.arrays.get(name)
            if other is None or array.tobytes() != other.tobytes():
                wrong.append(name)
    mine, theirs = (columns_of(saved.rows.get("records", ())) for saved in (now, kept))
    for name, column in mine.items():
        if name not in NOT_RECOMPUTED and not np.array_equal(
            column, theirs[name], equal_nan=column.dtype.kind == "f"
        ):
            wrong.append(f"records.{name}")
    return wrong
