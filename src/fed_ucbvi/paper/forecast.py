"""Forecasts from the theory before any run: rounds, bytes, regret, and whether to federate at all."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from fed_ucbvi.algorithms.base import Setting
from fed_ucbvi.algorithms.communication import Meter, Traffic
from fed_ucbvi.algorithms.fed_ucbvi import FedUCBVI
from fed_ucbvi.algorithms.threshold import threshold_nu
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.numbers import number_text
from fed_ucbvi.core.text import Tabled
from fed_ucbvi.environments import FederationLike, as_federation
from fed_ucbvi.paper import bounds
from fed_ucbvi.paper.bounds import LowerBound, RegretBound, most_rounds
from fed_ucbvi.problem.units import Units


class Promise(NamedTuple):
    """Proved bounds for Fed-KL-UCBVI.

    Attributes:
        rounds: upper bound on rounds, with probability ``1 - delta``.
        regret: upper bound on regret, with probability ``1 - 2 delta``; None where agents differ, as it is proved for
            agents that are all alike.
    """

    rounds: int
    regret: RegretBound | None


@dataclass(frozen=True)
class Forecast(Tabled):
    """The theory's answers at one setting, for Fed-UCBVI unless said otherwise.

    Regret is federated, averaged over agents, and in the environment's own units.

    Attributes:
        states: S, and so on for actions, horizon, agents, episodes, eps_p, eps_r and delta.
        nu: the threshold between the two synchronisation rules.
        global_rule_from: the smallest T at which the global rule can fire; None if it never can.
        rounds: synchronisations at most.
        rounds_max_log2: the paper's ``R_max`` with ``log2 nu``, as its proof counts; it prints ``log nu``.
        one_synchronisation: messages and bytes of a round that ends with one agent's request.
        all_rounds: messages and bytes of the whole run at most (all agents make a request in every round).
        bound: the regret bound, term by term.
        bound_paper: its sum with the constants printed in the paper.
        trivial: ``H T`` times the range of a reward.
        nontrivial_from: the smallest T at which the bound is below ``H T``; None if never.
        lower: a lower bound on the regret of any algorithm.
        alone: the bound for one agent that learns by itself, in its own MDP.
        federation_wins_below: the eps_p below which the bound for M agents is below ``alone`` and below ``H T``; None
            if there is no such eps_p.
        alone_wins_from: the T from which the bound of one agent alone is lower, and below ``H T``; None if never.
        alone_wins_in_order: that T without constants and logarithms: the T from which ``T H (H eps_p + eps_r)``
            exceeds ``sqrt(H^3 S A T) - sqrt(H^3 S A T / M)``; None if never.
        kl: bounds for ``FedKLUCBVI()``.
        kl_stationary: bounds with ``stationary=True``, where kernel and rewards do not depend on the step.
        reward_range: of one step, in the environment's own units; 1 where only sizes are known.
    """

    states: int
    actions: int
    horizon: int
    agents: int
    episodes: int
    eps_p: float
    eps_r: float
    delta: float
    nu: float
    global_rule_from: int | None
    rounds: int
    rounds_max_log2: float
    one_synchronisation: Traffic
    all_rounds: Traffic
    bound: RegretBound
    bound_paper: float
    trivial: float
    nontrivial_from: int | None
    lower: LowerBound
    alone: float
    federation_wins_below: float | None
    alone_wins_from: int | None
    alone_wins_in_order: float | None
    kl: Promise
    kl_stationary: Promise
    reward_range: float = 1.0

    @property
    def trivial_formula(self) -> str:
        """The formula of :attr:`trivial`, in words."""
        return "H T" if self.reward_range == 1 else f"H T {self.reward_range:g}"

    @property
    def global_rule_reachable(self) -> bool:
        """True if N, at most M T, can reach nu."""
        return self.agents * self.episodes >= self.nu

    @property
    def verdict(self) -> str:
        """Verdict of the bounds on federating: ``yes``, ``no``, or ``undecided`` if both bounds exceed ``H T``."""
        together = self.bound.federated
        if min(together, self.alone) >= self.trivial:
            return "undecided"
        return "yes" if together < self.alone else "no"

    def __repr__(self) -> str:
        return (
            f"<Forecast at S = {self.states:,}, A = {self.actions:,}, H = {self.horizon:,}, M = {self.agents:,}, "
            f"T = {self.episodes:,}, eps_p = {number_text(self.eps_p)}, eps_r = {number_text(self.eps_r)}: at most "
            f"{self.rounds:,} rounds, regret at most {number_text(self.bound.federated)} "
            f"({self.trivial_formula} = {number_text(self.trivial)}); federate: {self.verdict}>"
        )

    def summary(self) -> dict[str, Any]:
        content = {name: value for name, value in vars(self).items() if not isinstance(value, tuple)}
        content["global_rule_reachable"] = self.global_rule_reachable
        content["one_synchronisation"] = self.one_synchronisation._asdict()
        content["all_rounds"] = self.all_rounds._asdict()
        content["bound"] = _by_term(self.bound)
        for name, promise in (("kl", self.kl), ("kl_stationary", self.kl_stationary)):
            content[name] = {"rounds": promise.rounds, "regret": _by_term(promise.regret)}
        content["lower_bound"] = {"value": self.lower.value, "unmet": list(self.lower.unmet)}
        content["federate"] = self.verdict
        return content


def _by_term(bound: RegretBound | None) -> dict[str, float] | None:
    if bound is None:
        return None
    return {**bound._asdict(), "common": bound.common, "federated": bound.federated}


def plan(
    problem: FederationLike | None = None,
    *,
    episodes: int,
    states: int | None = None,
    actions: int | None = None,
    horizon: int | None = None,
    agents: int = 20,
    eps_p: float = 0.0,
    eps_r: float = 0.0,
    delta: float = 0.05,
) -> Forecast:
    """Compute a :class:`Forecast` for sizes or a federation; an environment's name, an MDP or a list of MDPs will do.

    A federation brings its sizes, its number of agents, eps_p and eps_r along.

    >>> plan(states=8, actions=4, horizon=10, agents=20, episodes=30_000, eps_p=0.1).global_rule_reachable
    False
    """
    M = agents
    T = episodes
    units = Units()
    if problem is not None:
        if (states, actions, horizon) != (None, None, None):
            raise InputError("a federation (--env) brings its sizes along; leave out states, actions and horizon.")
        known = as_federation(problem)
        S = known.states
        A = known.actions
        H = known.horizon
        M = known.agents
        eps_p = known.eps_p
        eps_r = known.eps_r
        units = Units.of(known.description)
    elif states is None or actions is None or horizon is None:
        raise InputError("a plan needs states, actions and horizon, or a federation (--env).")
    else:
        S = states
        A = actions
        H = horizon
    rounds = math.floor(bounds.rounds_bound(S, A, H, M, T, eps_p, delta))
    # Traffic: of a round with one request, of a round with requests of all agents, and of the end.
    setting = Setting(states=S, actions=A, horizon=H, agents=M, episodes=T, eps_p=eps_p, seed=0)
    meter = Meter(FedUCBVI().message_sizes(setting), H)
    one_synchronisation = meter.round(M, requesters=1, last=False, episodes=1)
    busy_round = meter.round(M, requesters=M, last=False, episodes=1)
    end = meter.round(M, requesters=0, last=True, episodes=1)
    all_rounds = {name: rounds * getattr(busy_round, name) + getattr(end, name) for name in Traffic._fields}
    # Regret: together, and of one agent alone.
    bound = bounds.regret_bound_terms(S, A, H, M, T, eps_p, eps_r, delta)
    alone = bounds.regret_bound(S, A, H, 1, T, 0.0, 0.0, delta)
    per_eps_p = bounds.regret_bound_terms(S, A, H, M, T, 1.0, 0.0, delta).heterogeneity
    if_alike = bounds.regret_bound(S, A, H, M, T, 0.0, eps_r, delta)
    room_for_eps_p = min(alone, bounds.trivial_bound(H, T)) - if_alike
    differences = H * eps_p + eps_r
    alone_wins_in_order = None
    if differences > 0:
        alone_wins_in_order = H * S * A * ((1 - M**-0.5) / differences) ** 2

    def promise(*, stationary: bool) -> Promise:
        most_rounds_kl = bounds.rounds_bound(S, A, H, M, T, eps_p, delta, rule="global", stationary=stationary)
        regret = None
        if not differences:
            regret = _in_units(bounds.kl_regret_bound(S, A, H, M, T, delta, stationary=stationary), units)
        return Promise(rounds=math.floor(most_rounds_kl), regret=regret)

    def alone_wins(t: int) -> bool:
        alone_then = bounds.regret_bound(S, A, H, 1, t, 0.0, 0.0, delta)
        together_then = bounds.regret_bound(S, A, H, M, t, eps_p, eps_r, delta)
        return alone_then < min(together_then, bounds.trivial_bound(H, t))

    lower = bounds.regret_lower_bound(S, A, H, M, T)
    convert = units.original_difference
    return Forecast(
        states=S,
        actions=A,
        horizon=H,
        agents=M,
        episodes=T,
        eps_p=eps_p,
        eps_r=eps_r,
        delta=delta,
        nu=threshold_nu(S, A, H, M, T, eps_p, delta),
        global_rule_from=bounds.global_rule_from(S, A, H, M, eps_p, delta),
        rounds=rounds,
        rounds_max_log2=most_rounds(S, A, H, M, T, eps_p, delta),
        one_synchronisation=one_synchronisation,
        all_rounds=Traffic(**all_rounds),
        bound=_in_units(bound, units),
        bound_paper=convert(bounds.regret_bound(S, A, H, M, T, eps_p, eps_r, delta, proof="printed")),
        trivial=convert(bounds.trivial_bound(H, T)),
        nontrivial_from=bounds.nontrivial_from(S, A, H, M, eps_p, eps_r, delta),
        lower=lower._replace(value=convert(lower.value)),
        alone=convert(alone),
        federation_wins_below=room_for_eps_p / per_eps_p if room_for_eps_p > 0 else None,
        alone_wins_from=bounds.first_episode(alone_wins),
        alone_wins_in_order=alone_wins_in_order,
        kl=promise(stationary=False),
        kl_stationary=promise(stationary=True),
        reward_range=units.scale,
    )


def _in_units(bound: RegretBound, units: Units) -> RegretBound:
    """Every term of a bound in own units."""
    terms = {name: units.original_difference(term) for name, term in bound._asdict().items()}
    return RegretBound(**terms)
