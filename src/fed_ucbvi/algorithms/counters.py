"""Counters of single agents: their integer type, and the (h,s,a) that a cell stands for."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fed_ucbvi.algorithms.base import Setting
from fed_ucbvi.core.compiling import inner
from fed_ucbvi.core.types import PolicyArray

Counters = npt.NDArray[Any]
"""An agent's own counters; see :func:`counter_type`."""

MAX_IN_CACHES = 1 << 21
"""Counters of 32 bits that fit the caches of a core and of its neighbours, roughly."""


def counter_type(setting: Setting, *, stationary: bool = False, rows: int = 0) -> type[np.signedinteger[Any]]:
    """Integer type for one agent's visits and budgets, in tables of that many ``rows``.

    A budget is at most T (or T H, over all steps together) and one more, or N/M, where a warm start has brought more.
    It is 32 bits where that fits. Where tables of 32 bits would not fit the caches it is 16 bits, if that fits.
    """
    earlier = -(-setting.earlier_visits // setting.agents)
    most = setting.episodes * (setting.horizon if stationary else 1) + earlier
    numbers = rows * (1 if stationary else setting.horizon) * setting.states * setting.actions
    kinds = (np.int16, np.int32) if numbers > MAX_IN_CACHES else (np.int32,)
    return next((kind for kind in kinds if most < np.iinfo(kind).max), np.int64)


@inner
def pair_of(cell: int, policy: PolicyArray, states: int, actions: int) -> tuple[int, int, int]:
    """Step, state and action of a cell (see :class:`~fed_ucbvi.algorithms.base.Counting`)."""
    if policy.ndim == 2:
        h, s = divmod(cell, states)
        return h, s, policy[h, s]
    rest, a = divmod(cell, actions)
    h, s = divmod(rest, states)
    return h, s, a
