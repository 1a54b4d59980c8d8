"""The best policy that all agents of a federation can share, and what sharing costs them."""

from __future__ import annotations

from fed_ucbvi.core.bracket import Bracket
from fed_ucbvi.core.errors import check_positive_integer
from fed_ucbvi.environments import FederationLike, as_federation
from fed_ucbvi.problem.common_policy import TOLERANCE, WORK, CommonOptimum, search_common_policy


def best_common_policy(federation: FederationLike, *, work: int = WORK) -> CommonOptimum:
    """Bracket the best common policy of the honest agents; the result depends on nothing but the arguments.

    ``Federation.common_optimum`` is this with the default ``work``, found once and kept.

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
    return search_common_policy(known.differing_tables, known.common.solve().policy, allowance)


def price_of_sharing(federation: FederationLike) -> Bracket:
    """What agents lose on average by sharing one policy: the mean of their own optima minus the best common value.

    >>> from fed_ucbvi import synthetic
    >>> price_of_sharing(synthetic(agents=4))
    Bracket(lower=0.0, upper=0.0)
    """
    known = as_federation(federation)
    optimum = known.common_optimum
    lower, upper = (optimum.own - end for end in reversed(optimum.value))
    slack = TOLERANCE * known.horizon
    return Bracket(lower if lower > slack else 0.0, upper if upper > slack else 0.0)
