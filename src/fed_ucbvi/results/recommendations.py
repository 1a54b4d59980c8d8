"""Policies that a run recommends while it learns: when, and the records, values and certificates of each.

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
Byzan-UCBVI's papers. Under the ``practical`` and ``simplified`` bonuses, and a ``bonus_scale`` below 1, the gap
describes how optimistic the server still is, and bounds nothing. The estimate comes from the data that chose the
policy, so it is a little too high on average; where agents differ, it is the value in a mixture of them. Its error
falls like ``1/sqrt(N)``.

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

PLANNED = "planned"
GREEDY = "greedy"
KINDS = (PLANNED, GREEDY)
"""Kinds of recommended policies: planned without bonus, or greedy in the estimates of an algorithm that does not
plan."""


class RecommendationRow(NamedTuple):
    """One row of the table of recommendations, as it is saved. Unknown numbers are NaN.

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
            return cls(
                policy=np.array(server.policy),
                V=np.full_like(server.V, np.nan),
                kind=GREEDY,
            )
        return cls(
            policy=np.array(planner.policy),
            V=np.array(planner.V),
            kind=PLANNED,
        )


GROWTH = 2.0
"""Factor by which the episodes grow between two recommendations, unless the run has promises."""


def is_due(episodes: int, rows: Sequence[RecommendationRow], growth: float = GROWTH) -> bool:
    """True if it is time for a recommendation: ``episodes`` are ``growth`` times those of the last one.

    >>> row = RecommendationRow(1, 3, 0.0, 0.0, 0.0, 0, 0, 0, 0)
    >>> [is_due(episodes, [row]) for episodes in (5, 6)]
    [False, True]
    """
    if not rows:
        return True
    return episodes >= growth * rows[-1].episodes


def last_gap(rows: Sequence[RecommendationRow]) -> float:
    """The gap of the last recommendation; NaN where there is none."""
    if not rows:
        return math.nan
    return rows[-1].optimistic - rows[-1].estimated


def table_of(rows: Sequence[tuple[float, ...]]) -> dict[str, Any]:
    return columns_of(rows, COLUMNS)


GAP = "gap"
PROMOTION = "promotion"
VALUE = "value"
"""Kinds of certificates: the policy is nearly the best, or better than the incumbent; or just its value."""


@dataclass(frozen=True)
class Certificate:
    """A guarantee for a policy, in the environment's own units, that holds with probability ``1 - delta``.

    Attributes:
        kind: ``gap``: the best policy is worth at most ``compared_with``. ``promotion``: the incumbent was.
            ``value``: the policy itself is.
        policy_sha256: digest of the policy; see :attr:`~fed_ucbvi.results.policy.LearntPolicy.digest`.
        delta: the probability that ``at_least`` or ``compared_with`` is wrong in this or another certificate of the
            run, or that the promise to an incumbent is broken.
        episodes: number of episodes of all agents in which the policy itself was played.
        at_least: lower bound on its value, from these episodes alone.
        model_at_least: lower bound on its value from the counts of all episodes, valid if the environment is Markov
            in the states. It is a separate statement, which fails with probability ``delta / 2`` of its own; NaN
            where it was not computed.
        rounds: number of rounds of the run when it was issued.
        played: number of episodes per agent then.
        date: the date, in UTC.
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
        """Largest possible loss of the policy against what it is compared with; below 0 if it is better."""
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
        return cls(
            kind=data["kind"],
            policy_sha256=data["policy_sha256"],
            delta=data["delta"],
            episodes=data["episodes"],
            at_least=nan_for_none(data["at_least"]),
            compared_with=nan_for_none(data["compared_with"]),
            model_at_least=nan_for_none(data["model_at_least"]),
            rounds=data["rounds"],
            played=data["played"],
            date=data["date"],
            assumed=tuple(map(str, data["assumed"])),
        )


def policy_digest(policy: PolicyArray) -> str:
    """The SHA-256 of a policy in row-major order, step by step, little endian.

    Actions are 32-bit integers, sets of actions bytes 0 and 1, probabilities 64-bit floats.
    """
    types = {ACTIONS: "<i4", SETS: "u1", PROBABILITIES: "<f8"}
    numbers = np.ascontiguousarray(policy, dtype=types[form_of(policy)])
    return hashlib.sha256(numbers.tobytes()).hexdigest()


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
            return cls(
                mean=np.nan,
                worst=np.nan,
                best=np.nan,
                worst_agent=-1,
                best_agent=-1,
                agents=0,
            )
        worst = int(np.nanargmin(by_agent))
        best = int(np.nanargmax(by_agent))
        return cls(
            mean=mean_of_known(by_agent),
            worst=float(by_agent[worst]),
            best=float(by_agent[best]),
            worst_agent=worst,
            best_agent=best,
            agents=known,
        )


def mean_of_known(by_agent: FloatArray) -> float:
    """The mean of the values that are not NaN; NaN if there are none."""
    known = by_agent[~np.isnan(by_agent)]
    if not len(known):
        return math.nan
    return float(known.mean())


def values_by_agent(federation: Federation, policy: PolicyArray) -> FloatArray:
    """``V^{i,pi}_1(mu^i)`` of every agent, ``(M,)``; NaN for liars."""
    values = np.full(federation.agents, np.nan)
    tables = federation.kind_tables
    _, kind_of_agent = federation.kinds
    V = np.zeros((len(policy) + 1, *tables.initial.shape))
    update_values(tables, policy, no_policy(policy), V)
    value_by_kind = (tables.initial * V[0]).sum(axis=0)
    values[federation.honest] = value_by_kind[kind_of_agent]
    return values


def initial_value(federation: Federation, V: FloatArray) -> float:
    """The mean over the honest agents of ``sum_s mu^i(s) V_1(s)``."""
    return float(federation.mean_initial @ V[0])


def mean_over(starts: CountArray | None, V: FloatArray) -> float:
    """The mean of ``V_1`` over episodes of which ``starts[s]`` began in s; NaN if there are none or it is unknown."""
    if starts is None:
        return math.nan
    episodes = int(starts.sum())
    if episodes == 0:
        return math.nan
    return float(starts @ V[0]) / episodes
