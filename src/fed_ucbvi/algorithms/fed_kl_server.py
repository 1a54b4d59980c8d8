"""The server of Fed-KL-UCBVI."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fed_ucbvi.algorithms.count_reporting import CountingServer
from fed_ucbvi.algorithms.exact_sums import Grid
from fed_ucbvi.algorithms.kl_bound import Estimates, Rule, induct
from fed_ucbvi.core.types import PolicyArray


@dataclass
class Server(CountingServer[Estimates, Rule]):
    """The central server: it knows the counts of all agents together."""

    grid: Grid

    @property
    def policy(self) -> PolicyArray:
        """Sets of actions ``(H, S, A)``; of a planner the first of each, ``(H, S)``."""
        best = self.estimates.best
        return np.asarray(best.argmax(axis=2).astype(np.int32)) if self.rule.plain else best

    def update(self) -> None:
        """Make the estimates from the table, where its counts have changed."""
        induct(self.table, self.rule, self.estimates)
        if not self.rule.plain:
            self.table.fresh[:] = False
