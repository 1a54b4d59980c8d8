"""The best policy that all agents of a federation can share, and what runs lose against it (``def:regret``).

No run needs this policy, and finding it takes a search. So it is computed from the federation on request.
"""

from __future__ import annotations

import math
from dataclasses import replace
from weakref import WeakKeyDictionary

import numpy as np

from fed_ucbvi.core.errors import InputError, check_positive_integer
from fed_ucbvi.core.numbers import Bracket
from fed_ucbvi.environments import FederationLike, as_federation
from fed_ucbvi.paper.common_policy import TOLERANCE, WORK, CommonOptimum, search_common_policy
from fed_ucbvi.problem.federation import Federation
from fed_ucbvi.problem.units import OWN_UNITS, Units
from fed_ucbvi.results.recommendations import values_by_agent
from fed_ucbvi.results.run_data import RunData

SAME_VALUE = 1e-9
"""Largest difference, due to rounding, between the value of a policy in the run and in its federation."""

_FOUND: WeakKeyDictionary[Federation, dict[int, CommonOptimum]] = WeakKeyDictionary()
"""Results of earlier searches, by federation and work, in the environment's own units."""


def best_common_policy(federation: FederationLike, *, work: int = WORK) -> CommonOptimum:
    """Bracket the best common policy of the honest agents; the result depends on nothing but the arguments.

    Values are in the environment's own units. The result is kept as long as the federation exists, so the same search
    is made once.

    Args:
        federation: the agents; an environment's name, an MDP or a list of MDPs will do.
        work: table entries to read, at most (a few passes over the tables are always made). More may narrow a bracket
            that is not exact.

    >>> from fed_ucbvi import gridworld
    >>> optimum = best_common_policy(gridworld(agents=5, eps_p=0.1))
    >>> optimum.value.exact, round(optimum.value.lower, 4), round(optimum.own, 4)
    (True, 3.7528, 3.7897)
    """
    allowance = check_positive_integer("work", work)
    known = as_federation(federation)
    found = _FOUND.setdefault(known, {})
    if allowance not in found:
        found[allowance] = _in_own_units(search_common_policy(known, allowance), known)
    return found[allowance]


def _in_own_units(optimum: CommonOptimum, federation: Federation) -> CommonOptimum:
    """The optimum with its values in the environment's own units."""
    units = Units.of(federation.description)
    H = federation.horizon
    lower = units.original_return(optimum.value.lower, H)
    upper = units.original_return(optimum.value.upper, H)
    return replace(
        optimum,
        value=Bracket(lower, upper),
        history_upper=units.original_return(optimum.history_upper, H),
        own=units.original_return(optimum.own, H),
    )


def price_of_sharing(federation: FederationLike) -> Bracket:
    """Mean of the agents' own optima minus the best common value, in the environment's own units.

    >>> from fed_ucbvi import synthetic
    >>> price_of_sharing(synthetic(agents=4))
    Bracket(lower=0.0, upper=0.0)
    """
    known = as_federation(federation)
    optimum = best_common_policy(known)
    lower = optimum.own - optimum.value.upper
    upper = optimum.own - optimum.value.lower
    slack = Units.of(known.description).original_difference(TOLERANCE * known.horizon)
    return Bracket(lower if lower > slack else 0.0, upper if upper > slack else 0.0)


def federated_regret(run: RunData, federation: FederationLike) -> Bracket:
    """The regret of a run against the best common policy (``def:regret``), in expectation over initial states.

    It is in the units of the run.

    ``sum_t [max_pi 1/M sum_i V^{i,pi}_1(mu^i)] - 1/M sum_i V^{i,pi_t}_1(mu^i)``, over the honest agents. The maximum
    is known as a bracket (:func:`best_common_policy`), so the regret is one too. If a policy that was played is
    better than the lower end of that bracket, it raises the lower end. The maximum is that of all M agents, so the
    regret is NaN where agents differ and some did not take part in every round. It is also NaN where the values of
    the played policies are unknown, as in a live run.

    Args:
        run: a run on the federation.
        federation: the one that was run on; another one is refused as far as it can be recognised.

    >>> from fed_ucbvi import FedUCBVI, gridworld, run
    >>> world = gridworld(agents=3, eps_p=0.1)
    >>> federated_regret(run(FedUCBVI(), world, episodes=100), world).exact
    True
    """
    best = _best_value_for(run, federation)
    values = run.records["value"]
    agents = run.records["agents"]
    if not run.about.alike and (agents != run.about.agents).any():
        return Bracket(math.nan, math.nan)
    weights = run.records["agent_episodes"] / np.maximum(agents, 1)
    lower = float(values.max(initial=best.lower))
    upper = max(lower, best.upper)
    return Bracket(
        float((weights * (lower - values)).sum()),
        float((weights * (upper - values)).sum()),
    )


def federated_simple_regret(run: RunData, federation: FederationLike) -> Bracket:
    """The agents' mean loss per episode with the recommended policy, against the best common policy.

    ``[max_pi' 1/M sum_i V^{i,pi'}_1(mu^i)] - 1/M sum_i V^{i,pi}_1(mu^i)``, as a bracket, because the maximum is one.
    The arguments are those of :func:`federated_regret`.
    """
    best = _best_value_for(run, federation)
    mean = run.agents_value.mean
    if math.isnan(mean):
        return Bracket(math.nan, math.nan)
    return Bracket(max(0.0, best.lower - mean), max(0.0, best.upper - mean))


def _best_value_for(run: RunData, federation: FederationLike) -> Bracket:
    """The value of the best common policy, in the units of the run; raise if it was made on another federation."""
    known = as_federation(federation)
    for size in ("agents", "states", "actions", "horizon"):
        of_run = getattr(run.about, size)
        of_federation = getattr(known, size)
        if of_run != of_federation:
            raise InputError(
                f"the run has {size} = {of_run:,} and the federation has {size} = {of_federation:,}; pass the "
                "federation of the run."
            )
    units = Units.of(known.description)
    stated = run.in_units(OWN_UNITS).by_agent
    found = units.original_return(values_by_agent(known, run.policy), known.horizon)
    both = ~np.isnan(stated) & ~np.isnan(found)
    differing = np.flatnonzero(both & ~np.isclose(stated, found, rtol=SAME_VALUE, atol=SAME_VALUE))
    if len(differing):
        i = int(differing[0])
        raise InputError(
            f"the run's policy is worth {stated[i]:.6g} to agent {i} in the run and {found[i]:.6g} in the "
            "federation; pass the federation of the run, made with the same options and the same seed."
        )
    best = best_common_policy(known).value
    if run.units == OWN_UNITS:
        return best
    return Bracket(
        units.rescaled_return(best.lower, known.horizon),
        units.rescaled_return(best.upper, known.horizon),
    )
