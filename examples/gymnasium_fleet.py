"""Fleets of twenty agents learn Gymnasium's FrozenLake, Taxi and CliffWalking.

    python examples/gymnasium_fleet.py            # simulated, from the environments' tables
    python examples/gymnasium_fleet.py --live     # live: agents that call env.step and know no table
    python examples/gymnasium_fleet.py --only CliffWalking

Every line gives the value of the recommended policy and the optimum of the table with the same horizon, in the
environment's own units, and how far the one falls short of the other, as a share of the optimum's absolute value and
as a share of the optimum in the algorithms' units, in which every step pays between 0 and 1.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any, NamedTuple

from fed_ucbvi import Caution, FedKLUCBVI, LiveFederation, Run, from_gymnasium, run

AGENTS = 20


class Task(NamedTuple):
    """An environment, and what it takes to learn it."""

    id: str
    kwargs: dict[str, Any]
    horizon: int
    episodes: int
    live: bool = True


TASKS = {
    "FrozenLake 4x4": Task("FrozenLake-v1", {}, 50, 8_000),
    "FrozenLake 8x8": Task("FrozenLake-v1", {"map_name": "8x8"}, 100, 15_000, live=False),
    "Taxi": Task("Taxi-v4", {}, 20, 3_000),
    "CliffWalking": Task("CliffWalking-v1", {}, 20, 1_000),
}


def learn(task: Task, live: bool, seed: int) -> Run:
    """One run; a live one knows the table only to say afterwards how good the policy is."""
    algorithm = FedKLUCBVI(stationary=True)
    table = from_gymnasium(task.id, AGENTS, horizon=task.horizon, kwargs=task.kwargs)
    if not live:
        return run(algorithm, table, task.episodes, seed=seed)
    bounds: Any = table.description["reward_range"]
    fleet = LiveFederation.from_gymnasium(
        task.id, AGENTS, horizon=task.horizon, kwargs=task.kwargs, reward_range=bounds
    )
    return run(algorithm, fleet, task.episodes, seed=seed, score_with=table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--live", action="store_true", help="call env.step instead of simulating")
    parser.add_argument("--only", choices=TASKS, help="this one alone")
    parser.add_argument("--seed", type=int, default=0)
    words = parser.parse_args()
    warnings.simplefilter("ignore", Caution)
    columns = ("H", "episodes", "rounds", "value", "optimum", "short by", "in [0, 1]", "CPU s")
    print(f"{'':16}" + "".join(f"{column:>10}" for column in columns))
    for name, task in TASKS.items():
        if words.only not in (None, name) or (words.live and not task.live and words.only is None):
            continue
        began = time.process_time()
        result = learn(task, words.live, words.seed)
        original, about = result.original_units, result.about
        value, optimum = original["value"], original["optimal_value"]
        own, ours = (optimum - value) / abs(optimum), 1 - result.value / about.optimal_value
        print(
            f"{name:16}{about.horizon:>10}{about.episodes:>10,}{result.rounds:>10,}{value:>10.3f}{optimum:>10.3f}"
            f"{own:>10.2%}{ours:>10.3%}{time.process_time() - began:>10.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
