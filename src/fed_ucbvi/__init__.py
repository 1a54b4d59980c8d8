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
    from fed_ucbvi.environments.chain import chain
    from fed_ucbvi.environments.deep_sea import deep_sea
    from fed_ucbvi.environments.garnet import garnet
    from fed_ucbvi.environments.gridworld import gridworld
    from fed_ucbvi.environments.gymnasium_tables import from_gymnasium
    from fed_ucbvi.environments.hard_instance import hard_instance
    from fed_ucbvi.environments.n_room import n_room
    from fed_ucbvi.environments.riverswim import riverswim
    from fed_ucbvi.environments.six_arms import six_arms
    from fed_ucbvi.environments.synthetic import synthetic
    from fed_ucbvi.environments.two_state_chain import two_state_chain
    from fed_ucbvi.errors import InputError
    from fed_ucbvi.live import LiveFederation, resume_live, run_live
    from fed_ucbvi.problem.estimation import EpsEstimate, estimate_eps_p
    from fed_ucbvi.problem.federation import Federation
    from fed_ucbvi.problem.inspection import Inspection, inspect_federation
    from fed_ucbvi.problem.kernel import Kernel
    from fed_ucbvi.problem.mdp import MDP
    from fed_ucbvi.results.comparison import Comparison, compare_runs
    from fed_ucbvi.results.plotting import plot_runs
    from fed_ucbvi.results.policy import load_policy
    from fed_ucbvi.results.run import Run
    from fed_ucbvi.results.run_table import runs_frame
    from fed_ucbvi.simulation import Caution, Interrupted, run
    from fed_ucbvi.sweeps.execution import run_sweep
    from fed_ucbvi.sweeps.specification import Sweep
    from fed_ucbvi.sweeps.store import load_runs
    from fed_ucbvi.theory.bounds import regret_bound, regret_bound_terms, regret_lower_bound, rounds_bound
    from fed_ucbvi.theory.common_policy import best_common_policy, price_of_sharing
    from fed_ucbvi.theory.planning import Plan, plan
    from fed_ucbvi.theory.proved import proved_regret_bound, proved_rounds_bound

_HOME = {
    "ByzanUCBVI": "algorithms.byzan_ucbvi",
    "Caution": "simulation",
    "Comparison": "results.comparison",
    "ConcurrentUCBAdvantage": "algorithms.ucb_advantage",
    "ConcurrentUCBVI": "algorithms.ucbvi",
    "EpsEstimate": "problem.estimation",
    "FedQAdvantage": "algorithms.fedq_advantage",
    "FedQBernstein": "algorithms.fedq",
    "FedQEarlySettled": "algorithms.fedq_early_settled",
    "FedQHoeffding": "algorithms.fedq",
    "FedUCBVI": "algorithms.fed_ucbvi",
    "Federation": "problem.federation",
    "InputError": "errors",
    "Inspection": "problem.inspection",
    "Interrupted": "simulation",
    "Kernel": "problem.kernel",
    "LiveFederation": "live",
    "MDP": "problem.mdp",
    "Plan": "theory.planning",
    "Run": "results.run",
    "Sweep": "sweeps.specification",
    "UCBAdvantage": "algorithms.ucb_advantage",
    "UCBVI": "algorithms.ucbvi",
    "best_common_policy": "theory.common_policy",
    "chain": "environments.chain",
    "compare_runs": "results.comparison",
    "deep_sea": "environments.deep_sea",
    "estimate_eps_p": "problem.estimation",
    "from_gymnasium": "environments.gymnasium_tables",
    "garnet": "environments.garnet",
    "gridworld": "environments.gridworld",
    "hard_instance": "environments.hard_instance",
    "inspect_federation": "problem.inspection",
    "load_policy": "results.policy",
    "load_runs": "sweeps.store",
    "make_environment": "environments",
    "n_room": "environments.n_room",
    "plan": "theory.planning",
    "plot_runs": "results.plotting",
    "price_of_sharing": "theory.common_policy",
    "proved_regret_bound": "theory.proved",
    "proved_rounds_bound": "theory.proved",
    "regret_bound": "theory.bounds",
    "regret_bound_terms": "theory.bounds",
    "regret_lower_bound": "theory.bounds",
    "resume": "checkpoint",
    "resume_live": "live",
    "riverswim": "environments.riverswim",
    "rounds_bound": "theory.bounds",
    "run": "simulation",
    "run_live": "live",
    "run_sweep": "sweeps.execution",
    "runs_frame": "results.run_table",
    "six_arms": "environments.six_arms",
    "synthetic": "environments.synthetic",
    "two_state_chain": "environments.two_state_chain",
}

__all__ = [
    "MDP",
    "UCBVI",
    "ByzanUCBVI",
    "Caution",
    "Comparison",
    "ConcurrentUCBAdvantage",
    "ConcurrentUCBVI",
    "EpsEstimate",
    "FedQAdvantage",
    "FedQBernstein",
    "FedQEarlySettled",
    "FedQHoeffding",
    "FedUCBVI",
    "Federation",
    "InputError",
    "Inspection",
    "Interrupted",
    "Kernel",
    "LiveFederation",
    "Plan",
    "Run",
    "Sweep",
    "UCBAdvantage",
    "__version__",
    "best_common_policy",
    "chain",
    "compare_runs",
    "deep_sea",
    "estimate_eps_p",
    "from_gymnasium",
    "garnet",
    "gridworld",
    "hard_instance",
    "inspect_federation",
    "load_policy",
    "load_runs",
    "make_environment",
    "n_room",
    "plan",
    "plot_runs",
    "price_of_sharing",
    "proved_regret_bound",
    "proved_rounds_bound",
    "regret_bound",
    "regret_bound_terms",
    "regret_lower_bound",
    "resume",
    "resume_live",
    "riverswim",
    "rounds_bound",
    "run",
    "run_live",
    "run_sweep",
    "runs_frame",
    "six_arms",
    "synthetic",
    "two_state_chain",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'fed_ucbvi' has no attribute {name!r}")
    return getattr(importlib.import_module(f"fed_ucbvi.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
