"""The engine of a run over the network, and the events that were not planned."""

from __future__ import annotations

from typing import Any

from fed_ucbvi.engine.rounds import Engine
from fed_ucbvi.network.run_plan import LIVE, RunPlan

DRIVER = "network"


class Records(Engine):
    """One row for each round, and the events that were not planned.

    Regret is recorded where the server knows the problem. Rewards are known to the nodes alone.
    """

    def __init__(self, plan: RunPlan) -> None:
        super().__init__(plan.algorithm, plan.setting, plan.federation, DRIVER, together=plan.collection != LIVE)
        self.events: list[dict[str, Any]] = []
