"""The policies that a run recommends while it learns: when, what is recorded of each, what it is worth and promises.

The exploring policy is optimistic. The *recommended* policy is planned without bonus from all counts: after the first
round, whenever the number of episodes has at least doubled since, and at the end, about ``log2 T`` times. Each plan
is one more synchronisation, counted separately from those of the algorithm.

**The gap** of a row is ``optimistic - estimated``: the mean over the initial states of the server's optimistic values
minus that of the planner's values, which are those of the recommended policy on the estimated kernel. With ``V*`` the
optimum and ``V^pi`` the true value of the recommended policy::

    V* - V^pi  =  gap - (optimistic - V*) + (estimated - V^pi)

So the loss is at most the gap plus the error of the estimate, if ``optimistic >= V*``. That is so, with high
probability, under bonuses that have a proof, for agents that are alike or for the common MDP of Assumption 1: under
Fed-UCBVI's ``corrected``, its ``theory`` up to the factor that the printed formula lacks, and those of UCBVI's and
Byzan-UCBVI's papers. Under the ``practical`` and ``simplified`` bonuses, and a ``bonus_scale`` below 1, the gap says
how much the server still hopes for, and bounds nothing. The estimate comes from the data that chose the policy, so it
is a little too high on average; where agents differ, it is the value in a mixture of them. Its error falls like
``1/sqrt(N)``.

Initial states are weighted by their distribution if that is known. Otherwise the planner's values are weighted by how
often episodes began in each state, and the optimistic value is the largest mean of the server's values over all laws
of the first state that these episodes allow (:mod:`fed_ucbvi.algorithms.first_states`), so that the statement above
holds there too.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.numbers import nan_for_none, none_for_nan
from fed_ucbvi.core.types import CountArray, FloatArray, PolicyArray
from fed_ucbvi.problem.agent_tables import no_policy, update_values
from fed_ucbvi.problem.policies import ACTIONS, PROBABILITIES, SETS, form_of
from fed_ucbvi.results.round_record import column_types, columns_of

if TYPE_CHECKING:
    from fed_ucbvi.algorithms.base import ServerState
    from fed_ucbvi.problem.federation import Federation

PLANNED, GREEDY = KINDS = ("planned", "greedy")
"""How a recommended policy was made: planned without bonus, or greedy in the estimates of an algorithm that does not
plan."""


class RecommendationRow(NamedTuple):
    """What is kept of a recommendation, as it is saved. Unknown numbers are NaN.

    ``episodes`` are those of the agent that has played most, ``optimistic`` and ``estimated`` the values of the gap.
    ``value`` is the true one of the policy, averaged over agents, each in its own MDP. Messages and bytes are of the
    recommendation alone; the last row of a complete run includes the policy sent to all agents at the end.
    """

    round: int
    episodes: int
    optimistic: float
    estimated: float
    value: float
    messages_up: int
    messages_down: int
    bytes_up: int
    bytes_down: int


COLUMNS = column_types(RecommendationRow)


@dataclass(frozen=True)
class Recommended:
    """A policy, its kind, one of :data:`KINDS`, and the planner's values ``(H+1, S)``, NaN if nothing was planned.

    A policy that was learnt is one action for each step and state. An incumbent may draw its actions.
    """

    policy: PolicyArray
    V: FloatArray
    kind: str

    @classmethod
    def of(cls, server: ServerState, planner: ServerState | None) -> Recommended:
        """The policy of a planner that has planned, or the server's policy if there is no planner."""
        if planner is None:
            return cls(np.array(server.policy), np.full_like(server.V, np.nan), GREEDY)
        return cls(np.array(planner.policy), np.array(planner.V), PLANNED)


GROWTH = 2.0
"""Factor by which the episodes grow between two recommendations, unless the run has promises to keep."""


def is_due(episodes: int, rows: Sequence[RecommendationRow], growth: float = GROWTH) -> bool:
    """True if it is time for a recommendation: ``episodes`` are ``growth`` times those of the last one.

    >>> row = RecommendationRow(1, 3, 0.0, 0.0, 0.0, 0, 0, 0, 0)
    >>> [is_due(episodes, [row]) for episodes in (5, 6)]
    [False, True]
    """
    return episodes >= growth * (rows[-1].episodes if rows else 0)


def last_gap(rows: Sequence[RecommendationRow]) -> float:
    """The gap of the last recommendation; NaN where there is none."""
    return rows[-1].optimistic - rows[-1].estimated if rows else math.nan


def table_of(rows: Sequence[tuple[float, ...]]) -> dict[str, Any]:
    return columns_of(rows, COLUMNS)


GAP = "gap"
PROMOTION = "promotion"
VALUE = "value"
"""Whether the policy is nearly the best there is, or better than the incumbent; or just what it is worth."""


@dataclass(frozen=True)
class Certificate:
    """A guarantee for a policy, in the environment's own units, that holds with probability ``1 - delta``.

    Attributes:
        kind: ``gap``: the best policy is worth at most ``compared_with``. ``promotion``: the incumbent was.
            ``value``: the policy itself is.
        policy_sha256: which policy; see :attr:`~fed_ucbvi.results.policy.LearntPolicy.digest`.
        delta: the probability that ``at_least`` or ``compared_with`` is wrong in this or another certificate of the
            run, or that the promise to an incumbent is broken.
        episodes: of all agents in which the policy itself was played.
        at_least: what it is worth, from these episodes alone.
        model_at_least: what it is worth by the counts of all episodes, if the states are all that matters. It is a
            statement beside the others, which fails with probability ``delta / 2`` of its own; NaN where nobody has
            worked it out.
        rounds: of the run, when it was issued; likewise ``played``, episodes per agent, and ``date``, in UTC.
        assumed: sentences, each of which the owner of the environments can check.
    """

    kind: str
    policy_sha256: str
    delta: float
    episodes: int
    at_least: float
    compared_with: float
    model_at_least: float
    rounds: int
    played: int
    date: str
    assumed: tuple[str, ...]

    @property
    def gap(self) -> float:
        """What the policy can be worse than what it is compared with; below 0 if it is better."""
        return self.compared_with - self.at_least

    def __str__(self) -> str:
        others = {
            GAP: "the best policy at most",
            PROMOTION: "the incumbent at most",
            VALUE: "and at most",
        }
        return (
            f"worth at least {self.at_least:,.4g} (played {self.episodes:,} times), {others[self.kind]} "
            f"{self.compared_with:,.4g}, with probability {1 - self.delta:g}"
        )

    def to_data(self) -> dict[str, Any]:
        data: dict[str, Any] = none_for_nan(asdict(self))
        return data

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Certificate:
        if not isinstance(data["assumed"], list | tuple):
            raise InputError("the assumptions of a certificate must be a list of sentences.")
        assumed = tuple(map(str, data["assumed"]))
        numbers = ("at_least", "compared_with", "model_at_least")
        return cls(
            **{
                **data,
                **{name: nan_for_none(data[name]) for name in numbers},
                "assumed": assumed,
            }
        )


def policy_digest(policy: PolicyArray) -> str:
    """The SHA-256 of a policy in row-major order, step by step, little endian.

    Actions are 32-bit integers, sets of actions bytes 0 and 1, probabilities 64-bit floats.
    """
    types = {ACTIONS: "<i4", SETS: "u1", PROBABILITIES: "<f8"}
    return hashlib.sha256(np.ascontiguousarray(policy, dtype=types[form_of(policy)]).tobytes()).hexdigest()


class AgentsValue(NamedTuple):
    """The mean over the (honest) agents of ``V^{i,pi}_1(mu^i)``, and the worst and the best of them.

    If nothing is known, values are NaN and agents -1.

    >>> AgentsValue.of(np.array([2.0, np.nan, 1.0]))
    AgentsValue(mean=1.5, worst=1.0, best=2.0, worst_agent=2, best_agent=0, agents=2)
    """

    mean: float
    worst: float
    best: float
    worst_agent: int
    best_agent: int
    agents: int

    @classmethod
    def of(cls, by_agent: FloatArray) -> AgentsValue:
        """From the values of all agents; NaN marks agents that do not count."""
        known = int(np.count_nonzero(~np.isnan(by_agent)))
        if known == 0:
            return cls(np.nan, np.nan, np.nan, -1, -1, 0)
        worst = int(np.nanargmin(by_agent))
        best = int(np.nanargmax(by_agent))
        return cls(
            mean_of_known(by_agent),
            float(by_agent[worst]),
            float(by_agent[best]),
            worst,
            best,
            known,
        )


def mean_of_known(by_agent: FloatArray) -> float:
    """The mean of the values that are not NaN; NaN if there are none."""
    known = by_agent[~np.isnan(by_agent)]
    return float(known.mean()) if len(known) else math.nan


def values_by_agent(federation: Federation, policy: PolicyArray) -> FloatArray:
    """``V^{i,pi}_1(mu^i)`` of every agent, ``(M,)``; NaN for liars."""
    values = np.full(federation.agents, np.nan)
    tables = federation.kind_tables
    _, kind = federation.kinds
    V = np.zeros((len(policy) + 1, *tables.initial.shape))
    update_values(tables, policy, no_policy(policy), V)
    values[federation.honest] = (tables.initial * V[0]).sum(axis=0)[kind]
    return values


def initial_value(federation: Federation, V: FloatArray) -> float:
    """The mean over the honest agents of ``sum_s mu^i(s) V_1(s)``."""
    return float(federation.mean_initial @ V[0])


def mean_over(starts: CountArray | None, V: FloatArray) -> float:
    """The mean of ``V_1`` over episodes of which ``starts[s]`` began in s; NaN if there are none or it is unknown."""
    met = 0 if starts is None else int(starts.sum())
    if starts is not None and met:
        return float(starts @ V[0]) / met
    return math.nan
