"""``python tests/support/compile_first.py``: compile what the algorithms need, with every driver, on two cores."""

from __future__ import annotations

import warnings
from multiprocessing import get_context

from fed_ucbvi import gridworld, run
from fed_ucbvi.algorithms import ALGORITHMS, make_algorithm
from fed_ucbvi.engine.drivers import DRIVERS, episodes


def compile_for(name: str) -> None:
    warnings.simplefilter("ignore")
    agents = 1 if make_algorithm(name, {}).single_agent else 3
    for driver in DRIVERS:
        run(name, gridworld(agents=agents, eps_p=0.1), 40, driver=driver, progress=False)


if __name__ == "__main__":
    first, *others = ALGORITHMS
    # the first also plays on threads
    usual = episodes.STEPS_BEFORE_THREADS
    episodes.STEPS_BEFORE_THREADS = 1
    compile_for(first)  # and what all need; each process would compile it for itself
    episodes.STEPS_BEFORE_THREADS = usual
    with get_context("spawn").Pool(2) as processes:
        processes.map(compile_for, others, chunksize=1)
