"""Array types. Axis order is (agent, step, state, action, next state) everywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
"""Probabilities, rewards and values."""
CountArray = npt.NDArray[np.int64]
"""Visits, transitions and budgets."""
IndexArray = npt.NDArray[np.int32]
"""States and actions, policies among them."""
MaskArray = npt.NDArray[np.bool_]
"""Yes or no; ``(H, S, A)`` where a policy is a set of actions for each step and state."""
PolicyArray = npt.NDArray[Any]
"""A policy: actions ``(H, S)``, sets of actions or probabilities of actions ``(H, S, A)``.

:mod:`fed_ucbvi.problem.policies` describes the three forms."""
WordArray = npt.NDArray[np.uint64]
"""Raw 64-bit words of the random generator."""
