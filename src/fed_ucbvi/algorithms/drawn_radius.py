"""The server of Fed-KL-UCBVI with a drawn radius: one policy per level of optimism.

Level j plans with the radius ``min(x_j, beta(N)) / N``, where ``x_0, ..., x_8 = 0, 1, ..., 7, infinity``. Level 0
plans without a bonus, and level 8 is Fed-KL-UCBVI with its proved radius. Every agent draws the level that it plays
(:mod:`fed_ucbvi.core.sampling.levels`), so most episodes are played with a radius far below the proved one. A fixed
share of all episodes draws a fresh level, whatever was observed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from fed_ucbvi.algorithms.base import Array, Setting
from fed_ucbvi.algorithms.fed_kl_server import Server
from fed_ucbvi.algorithms.kl_bound import Estimates, Rule, induct
from fed_ucbvi.core.sampling.levels import LEVELS, LevelLaw
from fed_ucbvi.core.types import PolicyArray

LEAST_SHARE = 0.1
"""Least probability with which an episode draws a fresh level."""
SHARE_OF_FEW = 2.0
"""With M agents the probability is at least this number divided by M, and at most 1."""


def level_law(agents: int, share: float | None) -> LevelLaw:
    """Law by which M agents draw levels; without a given ``share`` it is ``min(1, max(0.1, 2 / M))``.

    >>> level_law(agents=5, share=None).share, level_law(agents=100, share=None).share
    (0.4, 0.1)
    """
    if share is None:
        share = min(1.0, max(LEAST_SHARE, SHARE_OF_FEW / agents))
    return LevelLaw(number=LEVELS, share=share)


@dataclass
class DrawnServer(Server):
    """A server with estimates for each level; those of level 8 are ``estimates``.

    Attributes:
        lower: estimates of levels 0 to 7.
        lower_rules: their rules.
    """

    lower: list[Estimates]
    lower_rules: list[Rule]

    @classmethod
    def of(cls, certain: Server, setting: Setting) -> Self:
        """The levels of a server before its first round, which is level 8."""
        levels = range(LEVELS - 1)
        sizes = (setting.horizon, setting.states, setting.actions)
        return cls(
            estimates=certain.estimates,
            rule=certain.rule,
            table=certain.table,
            grid=certain.grid,
            lower=[Estimates.start(*sizes, plain=False) for _ in levels],
            lower_rules=[certain.rule.with_limit(float(level)) for level in levels],
        )

    @property
    def policy(self) -> PolicyArray:
        """Sets of actions ``(9, H, S, A)``, one for each level."""
        return np.stack([*(estimates.best for estimates in self.lower), self.estimates.best])

    def update(self) -> None:
        """Make the estimates of all levels from the table."""
        for estimates, rule in zip(self.lower, self.lower_rules, strict=True):
            induct(self.table, rule, estimates)
        super().update()

    def arrays(self) -> dict[str, Array]:
        arrays = super().arrays()
        for level, estimates in enumerate(self.lower):
            for name, array in estimates._asdict().items():
                arrays[f"level{level}_{name}"] = array
        return arrays

    def certain(self) -> Server:
        """Level 8 as a server of its own, with the same table."""
        return Server(estimates=self.estimates, rule=self.rule, table=self.table, grid=self.grid)
