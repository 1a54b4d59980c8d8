"""A plan from counts alone, such as those of logs: the policy with the best guaranteed value, and what is not known.

The policy maximises the value with the worst kernels that the counts allow (:mod:`fed_ucbvi.algorithms.pessimism`):

    Q_h(s,a) = r_h(s,a) + inf { q.V_{h+1} : N KL(p, q) <= beta'(N) },    0 where N = 0,        V_h(s) = max_a Q_h(s,a)

So it is worth at least V, whoever collected the counts and by whatever rule. The optimistic values are those of
Fed-KL-UCBVI on the same counts. Counts are sums of integers, so the plan of hospitals, shops or nodes together is
that of their pooled logs, bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from fed_ucbvi.algorithms.count_table import CountTable
from fed_ucbvi.algorithms.fed_kl_server import Estimates, Rule, induct
from fed_ucbvi.algorithms.pessimism import pessimistic_values
from fed_ucbvi.core.elementary import log
from fed_ucbvi.core.errors import InputError, check_integer, check_number, check_positive_integer
from fed_ucbvi.core.types import FloatArray, IndexArray, MaskArray
from fed_ucbvi.problem.mdp import check_initial


@dataclass(frozen=True, eq=False)
class CautiousPlan:
    """What counts say of the best policy; bounds hold for all steps and states together.

    Attributes:
        policy: ``(H, S)``, the policy with the largest guaranteed value; of equals the action seen most.
        lower: ``(H+1, S)``, what it is worth at least, with probability ``1 - delta``.
        upper: ``(H+1, S)``, what the best policy is worth at most, with probability ``1 - delta``.
        thin: ``(H, S)``, where the counts cannot tell that the policy's action is best: another one may be better.
        seen: ``(H, S)``, where the state was visited at all (at any step, if counts are over all steps).
        delta: as given.
        support: K.
    """

    policy: IndexArray
    lower: FloatArray = field(repr=False)
    upper: FloatArray = field(repr=False)
    thin: MaskArray = field(repr=False)
    seen: MaskArray = field(repr=False)
    delta: float
    support: int

    def bounds(self, initial: npt.ArrayLike | int) -> tuple[float, float]:
        """What the policy is worth at least and the best policy at most, from a first state or its distribution."""
        start = check_initial(initial, self.policy.shape[1])
        return float(start @ self.lower[0]), float(start @ self.upper[0])

    def summary(self, initial: npt.ArrayLike | int | None = None) -> dict[str, Any]:
        """How many (step, state) were seen, at how many of them the best action is certain, and bounds."""
        H, S = self.policy.shape
        figures: dict[str, Any] = {
            "states": S,
            "horizon": H,
            "delta": self.delta,
            "support": self.support,
            "seen": int(self.seen.sum()),
            "certain": int((self.seen & ~self.thin).sum()),
            "best_lower_bound": float(self.lower[0].max()),
        }
        if initial is not None:
            figures["lower_bound"], figures["optimistic_value"] = self.bounds(initial)
        return figures

    def __repr__(self) -> str:
        told = self.summary()
        return (
            f"<CautiousPlan: S = {told['states']:,}, H = {told['horizon']:,}; of {told['seen']:,} (step, state) seen "
            f"the best action is certain at {told['certain']:,}>"
        )


def plan_from_counts(
    counts: CountTable, horizon: int | None = None, *, delta: float = 0.05, support: int | None = None
) -> CautiousPlan:
    """The policy with the largest value that counts guarantee, with bounds, and where they are too thin to judge.

    Causes that are not in the states (confounding) are not detected: if whoever acted saw more than the logged state,
    what the counts say of the actions may be wrong, and so may be the bounds.

    Args:
        counts: of logs (:func:`~fed_ucbvi.analysis.logs.counts_from_logs`) or of a run; several are merged by
            :meth:`CountTable.merge`. Tables that keep rewards by next state have random rewards.
        horizon: H, which is needed where visits were counted over all steps together.
        delta: the probability with which each of the two bounds may fail.
        support: how many next states a pair (h,s,a) may have, if that is known; the fewer, the tighter.

    >>> from fed_ucbvi.analysis.logs import counts_from_logs
    >>> visit = {"episode": range(300), "step": 0, "state": 0, "action": [0, 1, 1] * 100, "reward": [0, 1, 1] * 100}
    >>> counts = counts_from_logs({**visit, "next_state": 1}, (2, 2, 1))
    >>> plan = plan_from_counts(counts, horizon=1)
    >>> plan.policy[0, 0], plan.thin[0].tolist()
    (np.int32(1), [False, True])
    """
    steps, S, A = counts.visits.shape
    if horizon is None and steps == 1:
        raise InputError(
            "these counts are over all steps together, so they do not say how many there are: pass horizon=H."
        )
    H = steps if horizon is None else check_positive_integer("horizon", horizon)
    if steps not in (1, H):
        raise InputError(f"these counts are by step and have H = {steps}, got horizon = {H}.")
    check_number("delta", delta, above=0, below=1)
    K = S if support is None else check_integer("support", support, at_least=int(counts.seen.max()), at_most=S)
    random, chosen = counts.by_slot, np.zeros((H, S), dtype=np.int32)
    lower = pessimistic_values(counts, chosen, random, delta, K, True)
    optimistic = Estimates.start(H, S, A, plain=False)
    events = S * (2 * H - 1) if random else max(1, S * (H - 1))
    rule = Rule.new(1.0, log(2.0 * events / delta), random_rewards=random, bits=int(counts.bits[0]))
    table = counts.copy()
    table.fresh[:] = True
    induct(table, rule, optimistic)
    others = optimistic.Q.copy()
    np.put_along_axis(others, chosen[..., None].astype(np.int64), -np.inf, axis=2)
    thin = np.asarray(others.max(axis=2) > lower[:-1]) if A > 1 else np.zeros((H, S), dtype=np.bool_)
    seen = np.broadcast_to(counts.visits.any(axis=2), (H, S))
    return CautiousPlan(chosen, lower, optimistic.V, thin | ~seen, seen, delta, K)
