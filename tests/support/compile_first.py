"""``python tests/support/compile_first.py PART``: compile what half of the algorithms need, with every driver."""

from __future__ import annotations

import sys
import warnings

from fed_ucbvi import gridworld, run
from fed_ucbvi.algorithms import ALGORITHMS, make_algorithm
from fed_ucbvi.engine.drivers import DRIVERS, episodes

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    usual, episodes.STEPS_BEFORE_THREADS = episodes.STEPS_BEFORE_THREADS, 1  # the first also plays on threads
    for name in list(ALGORITHMS)[int(sys.argv[1]) :: 2]:
        agents = 1 if make_algorithm(name, {}).single_agent else 3
        for driver in DRIVERS:
            run(name, gridworld(agents=agents, eps_p=0.1), 40, driver=driver, progress=False)
        episodes.STEPS_BEFORE_THREADS = usual
