"""The rounds of a run that is on record, as the run told them while it went on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy.typing as npt

from fed_ucbvi.problem.units import Units
from fed_ucbvi.results.records import episodes_per_agent, rows_of
from fed_ucbvi.results.round_record import RoundRecord

Columns = Mapping[str, npt.NDArray[Any]]


def replay(
    records: Columns,
    recommendations: Columns,
    *,
    planned_episodes: int,
    rules: Sequence[str],
    units: Units,
    horizon: int,
) -> Iterator[RoundRecord]:
    """What ``on_round`` was called with, but for ``seconds``, which are not on record: NaN.

    Args:
        records: of :data:`fed_ucbvi.results.records.COLUMNS`.
        recommendations: of :data:`fed_ucbvi.results.recommendations.COLUMNS`.
        planned_episodes: T; a live run that agents have joined may have more per agent, and then that is said.
        rules: the algorithm's, by which agents request.
        units: of rewards.
        horizon: H.
    """
    recommended = zip(*(recommendations[name].tolist() for name in ("round", "optimistic", "estimated")), strict=True)
    values = {int(at): (optimistic, estimated) for at, optimistic, estimated in recommended}
    optimistic = estimated = math.nan
    regret, up, down, synchronisations = 0.0, 0, 0, 0
    ends = episodes_per_agent(records).astype(int).tolist()
    planned_episodes = max([planned_episodes, *ends[-1:]])
    for number, (row, end) in enumerate(zip(rows_of(records), ends, strict=True), start=1):
        one = dict(zip(records, row, strict=True))
        regret, up, down = regret + one["regret"], up + int(one["bytes_up"]), down + int(one["bytes_down"])
        synchronisations += one["askers"] > 0
        optimistic, estimated = values.get(number, (optimistic, estimated))
        yield RoundRecord(
            round=number,
            episodes=end,
            planned_episodes=planned_episodes,
            length=int(one["length"]),
            synchronisations=synchronisations,
            requests=int(one["askers"]),
            agent=int(one["agent"]),
            step=int(one["step"]),
            state=int(one["state"]),
            action=int(one["action"]),
            rule=rules[int(one["rule"])] if one["rule"] >= 0 else "",
            regret=regret,
            reward=one["reward"] * one["agents"] / one["agent_episodes"] if one["agent_episodes"] else math.nan,
            optimistic_value=optimistic,
            recommended_value=estimated,
            bytes_up=up,
            bytes_down=down,
            seconds=math.nan,
            reward_sd=one["reward_sd"],
            agents=int(one["agents"]),
        ).in_units(units, horizon)
