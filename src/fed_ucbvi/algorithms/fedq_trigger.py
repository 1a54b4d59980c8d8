"""What FedQ and its early-settled relative share: when a round ends, and how they begin."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fed_ucbvi.algorithms.base import Setting
from fed_ucbvi.core.compiling import compiled
from fed_ucbvi.core.types import CountArray, FloatArray

RULES = ("first-visit", "growth")
"""Of the one rule for synchronisation, the two regimes: budget 1 (``N < i_0``), and a share of N."""


def second_case(setting: Setting) -> int:
    """``i_0 = 2 M H (H+1)``: from this number of visits on, budgets exceed one and the update takes plain means."""
    return 2 * setting.agents * setting.horizon * (setting.horizon + 1)


def trigger_cautions(setting: Setting) -> list[str]:
    """A warning where every episode ends a round."""
    if setting.episodes >= 2 * setting.horizon * (setting.horizon + 1):
        return []
    return [
        f"every episode will end with a synchronisation: one visit is enough to ask for it while N < 2 M H (H+1) = "
        f"{second_case(setting):,}, and N is at most M T = {setting.agents * setting.episodes:,}."
    ]


def initial_values(setting: Setting, *, remaining: bool = False) -> FloatArray:
    """``V = H`` for all steps, or what can still be earned from each; 0 after the last."""
    H = setting.horizon
    start = H - np.arange(H + 1.0) if remaining else np.append(np.full(H, float(H)), 0.0)
    return np.repeat(start[:, None], setting.states, axis=1)


@compiled
def fill_budgets(N: CountArray, M: int, out: CountArray, rule: npt.NDArray[np.int8]) -> None:
    """``max(1, floor(N/(M H (H+1))))`` for every agent; the rule is 0 while that is one because of ``N < i_0``."""
    m, H, S = out.shape
    share = M * H * (H + 1)
    for h in range(H):
        for s in range(S):
            rule[h, s] = 0 if N[h, s] < 2 * share else 1
            budget = max(1, N[h, s] // share)
            for i in range(m):
                out[i, h, s] = budget
