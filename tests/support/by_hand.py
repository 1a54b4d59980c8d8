"""Values by plain loops."""

from __future__ import annotations

import numpy as np

from fed_ucbvi.core.types import FloatArray, IndexArray


def worth(P: FloatArray, r: FloatArray, policy: IndexArray, start: int) -> float:
    """``V^pi_1(start)`` by backward induction with dense arrays; P is ``[S,A,S]``, r ``[S,A]``."""
    states = np.arange(len(P))
    V = np.zeros(len(P))
    for actions in policy[::-1]:
        V = r[states, actions] + P[states, actions] @ V
    return float(V[start])
