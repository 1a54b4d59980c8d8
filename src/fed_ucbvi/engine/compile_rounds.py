"""``python -m fed_ucbvi.engine.compile_rounds``: compile a score and the counts driver, beside who needs them later.

It scores a policy and draws a long round in the smallest of MDPs; see
:func:`fed_ucbvi.core.compiling.compile_beside`. Functions are compiled for the types that runs of the default
algorithm have, unless rewards are random or counters need 64 bits. What a run needs first, it compiles itself
meanwhile, and neither waits long for the other.
"""

from __future__ import annotations

import numpy as np

from fed_ucbvi.core.own_process import claim_process
from fed_ucbvi.engine.drivers.base import Fleet, starts_in
from fed_ucbvi.engine.drivers.counts import CountsDriver
from fed_ucbvi.engine.regret import Scorer
from fed_ucbvi.problem.federation import Federation
from fed_ucbvi.problem.mdp import MDP


def main() -> None:
    federation = Federation.from_mdps([MDP([[[1.0]]], [[0.0]], initial=0, horizon=1)])
    fleet = Fleet.of(federation, 0, pooled=True, counters=np.int32)
    policy, visited = np.zeros((1, 1), dtype=np.int32), fleet.touched.all_visits
    Scorer(federation).score(policy, visited, starts_in(visited))
    CountsDriver(fleet).extend(policy, np.full((1, 1, 1), 1_000_000, dtype=np.int32), 0, 1_000_000)


if __name__ == "__main__":
    claim_process()
    main()
