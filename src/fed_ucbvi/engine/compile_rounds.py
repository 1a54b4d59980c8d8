"""``python -m fed_ucbvi.engine.compile_rounds``: compile the auto driver and a score, beside who needs them.

It plays a short and a long round in the smallest of MDPs; see :func:`fed_ucbvi.core.compiling.compile_beside`.
Functions are compiled for the types that runs of the default algorithm have, unless rewards are random or counters
need 64 bits.
"""

from __future__ import annotations

import numpy as np

from fed_ucbvi.core.own_process import claim_process
from fed_ucbvi.engine.drivers.auto import AutoDriver
from fed_ucbvi.engine.drivers.base import Fleet, starts_in
from fed_ucbvi.engine.regret import Scorer
from fed_ucbvi.problem.federation import Federation
from fed_ucbvi.problem.mdp import MDP


def main() -> None:
    federation = Federation.from_mdps([MDP([[[1.0]]], [[0.0]], initial=0, horizon=1)])
    fleet = Fleet.of(federation, 0, pooled=True, counters=np.int32)
    driver, visited, scorer = AutoDriver(fleet), fleet.touched.all_visits, Scorer(federation)
    policy = np.zeros(driver.visits.shape[1:], dtype=np.int32)
    for visits in (1, 1_000_000):
        driver.extend(policy, np.full((1, *policy.shape), visits, dtype=np.int32), 0, 1_000_000)
        scorer.score(policy, visited, starts_in(visited))


if __name__ == "__main__":
    claim_process()
    main()
