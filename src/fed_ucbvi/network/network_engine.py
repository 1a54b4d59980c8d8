"""The engine of a run over the network, and the events that were not planned."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from fed_ucbvi.algorithms.count_reporting import as_count_reporting
from fed_ucbvi.algorithms.count_table import CountTable
from fed_ucbvi.engine.rounds import Engine
from fed_ucbvi.engine.state_arrays import SavedState, named
from fed_ucbvi.network.run_plan import RunPlan
from fed_ucbvi.problem.units import Units
from fed_ucbvi.results.run import Run

DRIVER = "network"
HELD = "held."


class NetworkEngine(Engine):
    """One row for each round, and the events that were not planned.

    Regret is recorded where the server knows the problem, rewards where nodes tell them.
    """

    def __init__(self, plan: RunPlan) -> None:
        known = plan.federation
        super().__init__(
            plan.algorithm,
            plan.setting,
            known=known,
            environment={"name": "custom"} if known is None else known.description,
            units=plan.units or Units(),
            driver=DRIVER,
            together=not plan.rules.live,
            counts=plan.counts,
            promises=plan.promises,
        )
        self.events: list[dict[str, Any]] = []
        self.held: CountTable | None = None
        """Under secure sums: counts that were summed in rounds without a request, until the next synchronisation."""
        self._plan = plan

    def hold(self, new: CountTable) -> None:
        """Keep counts until the next synchronisation."""
        self.held = new if self.held is None else self.held.merge(new)

    def add_held(self, server: Any, *, planning: bool) -> None:
        """Add the counts that are held to a server, or with ``planning`` to a planner, which leaves them held."""
        if self.held is not None:
            algorithm = as_count_reporting(self._plan.algorithm, "has no secure sums.")
            algorithm.add_counts(server, self.held)
        if not planning:
            self.held = None

    def saved(self) -> SavedState:
        saved = super().saved()
        if self.held is not None:
            saved.arrays.update({HELD + name: array for name, array in self.held.listed().items()})
        return saved

    def restore(self, saved: SavedState) -> None:
        held = named(HELD, saved.arrays)
        self.held = self._plan.table_of(held) if held else None
        super().restore(saved)

    def result(self) -> Run:
        """The run as it stands.

        Its environment's description has the units of rewards, and the bins, without which its states mean nothing.
        """
        made = super().result()
        bins = {} if self._plan.bins is None else {"bins": json.loads(self._plan.bins.text)}
        about = {**made.about.environment, **bins, **self.units.description()}
        return replace(made, about=replace(made.about, environment=about))
