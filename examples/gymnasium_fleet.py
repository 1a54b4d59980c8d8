"""Fleets of twenty agents learn Gymnasium's FrozenLake, Taxi and CliffWalking.

    python examples/gymnasium_fleet.py            # simulated, from the environments' tables
    python examples/gymnasium_fleet.py --live     # live: agents that call env.step and know no table
    python examples/gymnasium_fleet.py --only CliffWalking
    python examples/gymnasium_fleet.py --live --random-rewards   # as if nobody knew that some rewards are fixed

Every line gives the mean of what an episode paid, the value of the recommended policy and the optimum of the table
with the same horizon, in the environment's own units, and the difference of value and optimum.
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
    random_rewards: bool = False
    """True if the same action in the same state may pay different rewards: whether it reaches the goal is chance."""


TASKS = {
    "FrozenLake 4x4": Task("FrozenLake-v1", {}, 50, 8_000, random_rewards=True),
    "FrozenLake 8x8": Task("FrozenLake-v1", {"map_name": "8x8"}, 100, 15_000, live=False, random_rewards=True),
    "Taxi": Task("Taxi-v4", {}, 20, 3_000),
    "CliffWalking": Task("CliffWalking-v1", {}, 20, 1_000),
}


def learn(task: Task, live: bool, seed: int, *, random_rewards: bool = False) -> Run:
    """One run; a live one knows the table only to say afterwards how good the policy is.

    With ``random_rewards`` rewards of live environments may be random, as by default, in all tasks.
    """
    algorithm = FedKLUCBVI(stationary=True)
    table = from_gymnasium(task.id, AGENTS, horizon=task.horizon, kwargs=task.kwargs)
    if not live:
        return run(algorithm, table, task.episodes, seed=seed)
    bounds: Any = table.description["reward_range"]
    fleet = LiveFederation.from_gymnasium(
        task.id,
        AGENTS,
        horizon=task.horizon,
        kwargs=task.kwargs,
        reward_range=bounds,
        random_rewards=random_rewards or task.random_rewards,
    )
    return run(algorithm, fleet, task.episodes, seed=seed, score_with=table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--live", action="store_true", help="call env.step instead of simulating")
    parser.add_argument("--only", choices=TASKS, help="this one alone")
    parser.add_argument("--random-rewards", action="store_true", help="do not state that rewards are fixed")
    parser.add_argument("--seed", type=int, default=0)
    words = parser.parse_args()
    warnings.simplefilter("ignore", Caution)
    columns = ("H", "episodes", "rounds", "paid", "value", "optimum", "short by", "CPU s")
    print(f"{'':16}" + "".join(f"{column:>10}" for column in columns))
    for name, task in TASKS.items():
        if words.only not in (None, name) or (words.live and not task.live and words.only is None):
            continue
        began = time.process_time()
        result = learn(task, words.live, words.seed, random_rewards=words.random_rewards)
        about = result.about
        value = result.value
        optimum = about.optimal_value
        print(
            f"{name:16}{about.horizon:>10}{about.episodes:>10,}{result.rounds:>10,}"
            f"{result.average_reward:>10.3f}{value:>10.3f}{optimum:>10.3f}"
            f"{result.simple_regret:>10.5f}{time.process_time() - began:>10.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
