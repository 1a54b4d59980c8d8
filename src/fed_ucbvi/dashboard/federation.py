"""The page of a federation over the network: its nodes, its events and its policy, looked at a few times a second."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fed_ucbvi.dashboard.state import LiveState
from fed_ucbvi.dashboard.subject import Subject
from fed_ucbvi.network.coordinator import Coordinator
from fed_ucbvi.network.run_plan import RunPlan
from fed_ucbvi.network.status import status_of
from fed_ucbvi.results.recommendations import Recommended, table_of
from fed_ucbvi.results.replay import replay

SECONDS_BETWEEN = 0.25
"""Between two looks. Nodes come and go also while no round is played."""


def subject_of(plan: RunPlan) -> Subject:
    """What the page of a federation is about."""
    return Subject.of_plan(plan.algorithm, plan.setting, plan.federation, plan.names)


@asynccontextmanager
async def following(state: LiveState, run: Coordinator) -> AsyncIterator[None]:
    """Keep ``state`` up to date while the block runs, in the loop in which the server itself runs."""
    shown: Recommended | None = None

    def look() -> None:
        nonlocal shown
        state.take_status(status_of(run))
        if run.records.units != state.subject.units:
            state.take_subject(state.subject._replace(units=run.records.units))
        recommended = run.records.recommended
        if recommended is not None and recommended is not shown:
            shown = recommended
            state.take_policy(recommended.policy)

    async def keep_looking() -> None:
        while True:
            look()
            await asyncio.sleep(SECONDS_BETWEEN)

    for record in replay(
        run.records.records(),
        table_of(run.records.recommendations),
        planned_episodes=run.plan.setting.episodes,
        rules=run.plan.algorithm.rules,
        units=run.records.units,
        horizon=run.plan.setting.horizon,
    ):  # rounds that an earlier server has played
        state(record)
    task = asyncio.create_task(keep_looking())
    try:
        yield
    finally:
        task.cancel()
        look()
