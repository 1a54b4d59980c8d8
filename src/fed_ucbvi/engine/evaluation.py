"""What a policy is worth, from episodes in which it is played, with a guarantee that needs no model."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

import numpy as np

from fed_ucbvi.algorithms.base import Counting, as_sets
from fed_ucbvi.algorithms.return_bounds import Interval, interval_of, new_histogram
from fed_ucbvi.core.errors import check_integer, check_number, check_positive_integer
from fed_ucbvi.core.sampling.philox import MAX_SEED
from fed_ucbvi.core.types import CountArray, PolicyArray
from fed_ucbvi.engine.assurance import checked_range, stated_range
from fed_ucbvi.engine.drivers.base import Fleet
from fed_ucbvi.engine.drivers.live import LiveDriver, LiveTables
from fed_ucbvi.engine.drivers.returns import SimulatedReturns
from fed_ucbvi.engine.live import LiveFederation
from fed_ucbvi.environments import FederationLike, as_federation
from fed_ucbvi.problem.units import Units
from fed_ucbvi.results.policy import PolicyLike, policy_sets


def evaluate(
    policy: PolicyLike,
    where: FederationLike | LiveFederation,
    episodes: int,
    *,
    delta: float = 0.05,
    seed: int = 0,
    return_range: Sequence[float] | None = None,
) -> Interval:
    """Let every agent play ``policy`` for some episodes; the interval of its value, in the environment's own units.

    The value is the mean over agents, each in its own environment. The interval holds with probability ``1 - delta``,
    also if one goes on until one likes what one sees. Nothing is assumed but that episodes are drawn alike: the
    states need not be enough to tell the future.

    Args:
        policy: actions ``(S,)`` or ``(H, S)``, a :class:`~fed_ucbvi.results.policy.LearntPolicy`, or a function of
            step and state; or by action, ``(S, A)`` or ``(H, S, A)``: probabilities, or truth values for sets of
            actions that are equally likely.
        where: a federation, or whatever :func:`fed_ucbvi.run` takes for one; or live environments.
        episodes: how many each agent plays.
        delta: the probability that the value lies outside.
        return_range: between which the return of every episode lies, in own units, if that is narrower than what
            rewards allow; a return outside is an error.
        seed: of the episodes. Those that a policy was learnt from are not to be used again: take another seed.

    >>> from fed_ucbvi import evaluate, gridworld
    >>> interval = evaluate(lambda step, state: 1, gridworld(agents=4), episodes=500)
    >>> interval.lower <= interval.mean <= interval.upper
    True
    """
    n, root = check_positive_integer("episodes", episodes), check_integer("seed", seed, at_most=MAX_SEED)
    delta = check_number("delta", delta, above=0, below=1)
    stated, live = checked_range(return_range), isinstance(where, LiveFederation)
    place = where if isinstance(where, LiveFederation) else as_federation(where)
    units = place.units if isinstance(place, LiveFederation) else Units.of(place.description)
    H = int(place.horizon or 0)
    within = None if stated is None else stated_range(stated, units, H)
    played = policy_sets(policy, H, place.states, place.actions, name="the policy", ends=live)
    if isinstance(place, LiveFederation):
        histogram = _live_returns(played, place, n, root, within)
    else:
        histogram = new_histogram()
        fleet = Fleet.of(place, root, random_rewards=place.reward_variances is not None)
        SimulatedReturns(fleet, place).add(as_sets(played, place.actions), 0, n, histogram, within)
    low, high = within or (0.0, float(H))
    return in_units(interval_of(histogram, high, delta, low), units, H)


def in_units(interval: Interval, units: Units, horizon: int) -> Interval:
    """An interval of values in the environment's own units."""
    low, high, mean = (units.original_return(value, horizon) for value in interval[:3])
    return Interval(low, high, mean, *interval[3:])


def _live_returns(
    policy: PolicyArray, live: LiveFederation, episodes: int, seed: int, within: tuple[float, float] | None
) -> CountArray:
    """The histogram of what live environments pay."""
    H, S, A = int(live.horizon or 0), live.states, live.actions
    counting = Counting.PAIRS if policy.ndim == 3 else Counting.POLICY
    tables = LiveTables(live.agents, H, S, A, counting=counting)
    tables.within = within
    driver = LiveDriver(tables, range(live.agents), live.make, live.vectorisation, live.units, seed)
    with closing(driver):
        driver.extend(policy, np.ones((1, *tables.visits.shape[1:]), dtype=np.int64), 0, episodes, asking=False)
    return tables.returns
