"""Time of a plan with known dynamics: S = 300 states, A = 5 actions, H = 24 steps and W = 10 outcomes by default.

    python benchmarks/plan_with_known_dynamics.py

Prints JSON: milliseconds of one synchronisation of Fed-KL-UCBVI and of one plan without a bonus, the least of several
runs, for laws that were visited never, a few times and often.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np

from fed_ucbvi import Dynamics
from fed_ucbvi.algorithms.known_dynamics import tables_of_dynamics
from fed_ucbvi.algorithms.law_bounds import LawEstimates, induct_laws, radii_of_laws
from measuring import least_seconds


def storage(states: int, actions: int, horizon: int, outcomes: int) -> Dynamics:
    """A store and a market with 30 states: actions move the stock, and each hour and market has a law."""
    markets = 30
    stocks = states // markets
    follow = np.random.default_rng(0).integers(markets, size=(horizon, markets, outcomes))

    def next_state(h: Any, s: Any, a: Any, w: Any) -> Any:
        stock = np.clip(s // markets + a - actions // 2, 0, stocks - 1)
        return stock * markets + follow[h, s % markets, w]

    return Dynamics(
        laws=horizon * markets,
        outcomes=outcomes,
        law_of=lambda h, s, a: h * markets + s % markets,
        next_state=next_state,
        reward=lambda h, s, a, w: -(s % markets) * (a - actions // 2) / markets,
        horizon=horizon,
        states=states,
        actions=actions,
    )


def milliseconds(dynamics: Dynamics, visits: int, *, plain: bool) -> float:
    """Time of one plan after so many visits to each law."""
    rng = np.random.default_rng(1)
    counts = rng.multinomial(visits, rng.dirichlet(np.ones(dynamics.outcomes), dynamics.laws))
    tables = tables_of_dynamics(dynamics)
    estimates = LawEstimates.empty(dynamics.horizon, dynamics.states, dynamics.actions)
    beta = radii_of_laws(counts, np.log(2 * dynamics.states * dynamics.horizon / 0.05))[np.newaxis]
    induct_laws(tables, counts, beta, plain, estimates)  # compiled now
    return 1e3 * least_seconds(lambda: induct_laws(tables, counts, beta, plain, estimates), 20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--states", type=int, default=300)
    parser.add_argument("--actions", type=int, default=5)
    parser.add_argument("--horizon", type=int, default=24)
    parser.add_argument("--outcomes", type=int, default=10)
    options = parser.parse_args()
    dynamics = storage(options.states, options.actions, options.horizon, options.outcomes)
    report = {
        f"{visits} visits to each law": {
            "optimistic_ms": milliseconds(dynamics, visits, plain=False),
            "plain_ms": milliseconds(dynamics, visits, plain=True),
        }
        for visits in (0, 5, 50, 5_000)
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
