"""The engine of a run over the network, and the events that were not planned."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from fed_ucbvi.engine.rounds import Engine
from fed_ucbvi.network.run_plan import LIVE, RunPlan
from fed_ucbvi.problem.units import Units
from fed_ucbvi.results.run import Run

DRIVER = "network"


class Records(Engine):
    """One row for each round, and the events that were not planned.

    Regret is recorded where the server knows the problem. Rewards are known to the nodes alone.
    """

    def __init__(self, plan: RunPlan) -> None:
        super().__init__(plan.algorithm, plan.setting, plan.federation, DRIVER, together=plan.collection != LIVE)
        self.events: list[dict[str, Any]] = []
        self._bins = plan.bins

    def result(self) -> Run:
        """The run as it stands; its environment's description has the bins, without which its states mean nothing."""
        made = super().result()
        if self._bins is None:
            return made
        about: dict[str, Any] = {**made.about.environment, "bins": json.loads(self._bins.text)}
        if self._bins.reward_range is not None:
            units = Units.spanning(*self._bins.reward_range)
            about |= {"reward_offset": units.offset, "reward_scale": units.scale}
        return replace(made, about=replace(made.about, environment=about))
