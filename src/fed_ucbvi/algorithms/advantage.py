"""What FedQ-Advantage and UCB-Advantage share: stages, a reference function, and the least of the bounds.

Visits to a triplet (h,s,a) are divided into *stages*: y counts those of the current stage, y- those of the one before
it and N those of all completed ones. V are the optimistic values and ``V^R`` the reference, s' is the next state. The
rewards, ``V(s')``, ``(V - V^R)(s')`` and its square are summed over a stage; ``V^R(s')`` and its square are summed
over all visits. The values are those of the next step that are in force at the visit. When a stage ends, ``N += y``
and::

    Q1 = r + mean V + c1 H sqrt(iota / y)
    Q2 = r + mean V^R + mean (V - V^R) + 2 sqrt(iota Var(V^R) / N) + 2 sqrt(iota Var(V - V^R) / y)
         + c2 H [(iota/N)^(3/4) + (iota/y)^(3/4) + iota/N + iota/y]
    Q  = min(Q1, Q2, Q)

with means of ``V^R`` over N visits and all others over y. The reference ``V^R_h(s)`` is set to ``V_h(s)`` once, when
(h,s) has been visited ``N_0`` times, and then left alone. The two algorithms differ in c1, c2, ``N_0``, the length of
stages and in what ends them.

Rewards are deterministic in both papers, and r is the one observed. Where agents have rewards of their own, r is
their mean over the stage.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fed_ucbvi.algorithms.base import Setting, TableServer
from fed_ucbvi.algorithms.greedy import choose_action
from fed_ucbvi.algorithms.one_report import first_policy
from fed_ucbvi.algorithms.variance import variance_of
from fed_ucbvi.core.compiling import compiled
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray

CONSTANTS = ("practical", "published")
PRACTICAL_IOTA = 1.0
PRACTICAL_REFERENCE_AFTER = 200.0
"""What the experiments with FedQ-Advantage are reported to have used for iota and ``N_0``."""


class Rule(NamedTuple):
    """How the server learns, as numbers: iota, ``c1 H sqrt(iota)``, ``c2 H``, ``N_0``, and how ties are broken."""

    iota: float
    plain: float
    lower_order: float
    reference_after: float
    random_ties: bool
    seed: np.uint64


class Estimates(NamedTuple):
    """What the server knows.

    Attributes:
        N: ``[H,S,A]``, visits in completed stages.
        y: ``[H,S,A]``, visits in the current stage.
        y_previous: ``[H,S,A]``, visits in the stage before it; 0 in the first.
        stage: ``[H,S,A,4]``, sums over the current stage of r, ``V``, ``V - V^R`` and ``(V - V^R)^2``.
        overall: ``[H,S,A,2]``, sums over all visits of ``V^R`` and ``(V^R)^2``.
        Q: ``[H,S,A]``.
        V: ``[H+1,S]``.
        V_ref: ``[H+1,S]``, the reference function.
        settled: ``[H,S]``, whether the reference has been set.
        policy: ``[H,S]``.
        updates: how many synchronisations there were.
    """

    N: CountArray
    y: CountArray
    y_previous: CountArray
    stage: FloatArray
    overall: FloatArray
    Q: FloatArray
    V: FloatArray
    V_ref: FloatArray
    settled: npt.NDArray[np.bool_]
    policy: IndexArray
    updates: CountArray


class Server(TableServer[Estimates, Rule]):
    """The central server."""


def new_server(setting: Setting, rule: Rule, initial_policy: str, start: FloatArray, reference: FloatArray) -> Server:
    """No visits; ``Q_h = V_h = start[h]``, ``V^R_h = reference[h]``, and the initial policy."""
    H, S, A = setting.horizon, setting.states, setting.actions
    V, V_ref = np.zeros((H + 1, S)), np.zeros((H + 1, S))
    V[:H], V_ref[:H] = start[:, None], reference[:, None]
    Q = np.repeat(V[:H, :, None], A, axis=2)
    N, y, y_previous = (np.zeros((H, S, A), dtype=np.int64) for _ in range(3))
    estimates = Estimates(
        N=N,
        y=y,
        y_previous=y_previous,
        stage=np.zeros((H, S, A, 4)),
        overall=np.zeros((H, S, A, 2)),
        Q=Q,
        V=V,
        V_ref=V_ref,
        settled=np.zeros((H, S), dtype=np.bool_),
        policy=first_policy(setting, initial_policy),
        updates=np.zeros(1, dtype=np.int64),
    )
    return Server(estimates, rule)


def never_settles(setting: Setting, reference_after: float) -> list[str]:
    """A warning if no reference value can ever be set, because no (h,s) is visited more than ``M T`` times."""
    most = setting.agents * setting.episodes
    if reference_after <= most:
        return []
    return [
        f"the reference function can never be set: it needs N_0 = {reference_after:,.0f} visits to a state at a "
        f"step, but there are at most M T = {most:,}; the advantage decomposition will bring nothing. "
        "(Pass reference_after, or constants='practical'.)"
    ]


@compiled
def end_stage(h: int, s: int, a: int, rule: Rule, estimates: Estimates) -> None:
    """``Q``, ``V`` and the policy at the end of a stage of (h,s,a); see the module's text for the equations."""
    N, y, y_previous, stage, overall, Q, V, _, _, policy, updates = estimates
    N[h, s, a] += y[h, s, a]
    total, recent, iota = float(N[h, s, a]), float(y[h, s, a]), rule.iota
    r, v, d, d2 = stage[h, s, a] / recent
    ref, ref2 = overall[h, s, a] / total
    Q1 = r + v + rule.plain / math.sqrt(recent)
    Q2 = r + ref + d
    Q2 += 2.0 * math.sqrt(iota * variance_of(ref, ref2) / total) + 2.0 * math.sqrt(iota * variance_of(d, d2) / recent)
    if rule.lower_order > 0.0:
        one, two = iota / total, iota / recent
        Q2 += rule.lower_order * (one**0.75 + two**0.75 + one + two)
    Q[h, s, a] = min(Q1, Q2, Q[h, s, a])
    y_previous[h, s, a] = y[h, s, a]
    y[h, s, a] = 0
    stage[h, s, a] = 0.0
    best = choose_action(Q[h, s], rule.random_ties, rule.seed, updates[0], h * policy.shape[1] + s)
    policy[h, s] = best
    V[h, s] = Q[h, s, best]
