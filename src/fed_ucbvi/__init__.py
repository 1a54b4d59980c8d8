"""Federated regret minimisation in tabular Markov decision processes.

>>> from fed_ucbvi import FedUCBVI, run, synthetic
>>> run(FedUCBVI(nu=100), synthetic(agents=4, eps_p=0.1), episodes=100).rounds > 0
True

Names are imported when first used, so that ``import fed_ucbvi`` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from fed_ucbvi._version import __version__

if TYPE_CHECKING:
    from fed_ucbvi.algorithms.byzan_ucbvi import ByzanUCBVI
    from fed_ucbvi.algorithms.fed_ucbvi import FedUCBVI
    from fed_ucbvi.algorithms.fedq import FedQBernstein, FedQHoeffding
    from fed_ucbvi.algorithms.fedq_advantage import FedQAdvantage
    from fed_ucbvi.algorithms.fedq_early_settled import FedQEarlySettled
    from fed_ucbvi.algorithms.ucb_advantage import ConcurrentUCBAdvantage, UCBAdvantage
    from fed_ucbvi.algorithms.ucbvi import UCBVI, ConcurrentUCBVI
    from fed_ucbvi.checkpoint import resume
    from fed_ucbvi.environments import make_environment
    from fed_ucbvi.environments.gridworld import gridworld
    from fed_ucbvi.environments.synthetic import synthetic
    from fed_ucbvi.errors import InputError
    from fed_ucbvi.problem.federation import Federation
    from fed_ucbvi.problem.kernel import Kernel
    from fed_ucbvi.problem.mdp import MDP
    from fed_ucbvi.results.run import Run
    from fed_ucbvi.simulation import Caution, Interrupted, run
    from fed_ucbvi.sweeps.execution import run_sweep
    from fed_ucbvi.sweeps.specification import Sweep
    from fed_ucbvi.sweeps.store import load_runs

_HOME = {
    "MDP": "problem.mdp",
    "UCBVI": "algorithms.ucbvi",
    "ByzanUCBVI": "algorithms.byzan_ucbvi",
    "Caution": "simulation",
    "ConcurrentUCBVI": "algorithms.ucbvi",
    "ConcurrentUCBAdvantage": "algorithms.ucb_advantage",
    "FedUCBVI": "algorithms.fed_ucbvi",
    "FedQAdvantage": "algorithms.fedq_advantage",
    "FedQBernstein": "algorithms.fedq",
    "FedQEarlySettled": "algorithms.fedq_early_settled",
    "FedQHoeffding": "algorithms.fedq",
    "Federation": "problem.federation",
    "InputError": "errors",
    "Interrupted": "simulation",
    "Kernel": "problem.kernel",
    "Run": "results.run",
    "Sweep": "sweeps.specification",
    "UCBAdvantage": "algorithms.ucb_advantage",
    "gridworld": "environments.gridworld",
    "load_runs": "sweeps.store",
    "make_environment": "environments",
    "resume": "checkpoint",
    "run": "simulation",
    "run_sweep": "sweeps.execution",
    "synthetic": "environments.synthetic",
}

__all__ = [
    "MDP",
    "UCBVI",
    "ByzanUCBVI",
    "Caution",
    "ConcurrentUCBAdvantage",
    "ConcurrentUCBVI",
    "FedQAdvantage",
    "FedQBernstein",
    "FedQEarlySettled",
    "FedQHoeffding",
    "FedUCBVI",
    "Federation",
    "InputError",
    "Interrupted",
    "Kernel",
    "Run",
    "Sweep",
    "UCBAdvantage",
    "__version__",
    "gridworld",
    "load_runs",
    "make_environment",
    "resume",
    "run",
    "run_sweep",
    "synthetic",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'fed_ucbvi' has no attribute {name!r}")
    return getattr(importlib.import_module(f"fed_ucbvi.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
