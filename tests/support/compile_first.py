"""``python tests/support/compile_first.py NAME``: compile what runs of an algorithm need, with every driver."""

from __future__ import annotations

import sys

from fed_ucbvi import gridworld, run
from fed_ucbvi.engine.drivers import DRIVERS

if __name__ == "__main__":
    for driver in DRIVERS:
        run(sys.argv[1], gridworld(agents=3, eps_p=0.1), 40, driver=driver, progress=False)
