"""Shares of certificates that are false, on live problems whose first states are random and whose law nobody knows.

Every certificate that ``until_gap`` asks for may be false with probability 0.05. ::

    python benchmarks/false_certificates.py first           # H = 1: one first state in ten pays
    python benchmarks/false_certificates.py corridor        # H = 6: one first state in ten is near the end
    python benchmarks/false_certificates.py logs            # the corridor, begun with the counts of logs
    python benchmarks/false_certificates.py noise           # rewards of 0 or 1, drawn at random
    python benchmarks/false_certificates.py noise --fixed   # the same, with random_rewards=False
    python benchmarks/false_certificates.py first --runs 100 --jobs 2

The figures are the number of runs, of certificates, and of those in which the best policy is worth more than
certified (*at most*), the recommended one less (*at least*; *model*: by the counts alone), or the loss is
larger (*gap*).
"""

from __future__ import annotations

import statistics
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium
import numpy as np

from fed_ucbvi import MDP, FedKLUCBVI, InputError, LiveFederation, counts_from_logs, run
from fed_ucbvi.core.types import IndexArray
from fed_ucbvi.results.recommendations import Certificate
from measuring import read_options, show

MOST = 20_000
"""Episodes of each agent at most."""
LOGGED = 3000
"""Episodes of the logs."""
ROUNDING = 1e-9
STATEMENTS = ("at most", "at least", "model", "gap")


@dataclass(frozen=True)
class Problem:
    """A small problem, whose values are computed exactly."""

    initial: Any
    kernel: Any
    rewards: Any
    horizon: int
    noisy: bool = False
    """True if rewards are 0 or 1, with the means ``rewards``."""

    @property
    def mdp(self) -> MDP:
        return MDP(self.kernel, self.rewards, self.initial, self.horizon)

    def best(self) -> float:
        return float(self.initial @ self.mdp.solve().V[0])

    def worth(self, policy: Any) -> float:
        return float(self.initial @ self.mdp.evaluate(policy[:, : len(self.initial)])[0])


class Played(gymnasium.Env[Any, Any]):
    """The problem as an environment that only resets and steps."""

    def __init__(self, problem: Problem) -> None:
        states, actions = problem.rewards.shape
        self.problem = problem
        self.observation_space = gymnasium.spaces.Discrete(states)
        self.action_space = gymnasium.spaces.Discrete(actions)
        self._first = np.cumsum(problem.initial)
        self._next = np.cumsum(problem.kernel, axis=-1)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self._state = int(np.searchsorted(self._first, self.np_random.random(), side="right"))
        self._step = 0
        return self._state, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        reward = float(self.problem.rewards[self._state, action])
        if self.problem.noisy:
            reward = float(self.np_random.random() < reward)
        drawn = self.np_random.random()
        self._state = int(np.searchsorted(self._next[self._state, action], drawn, side="right"))
        self._step += 1
        return self._state, reward, False, self._step >= self.problem.horizon, {}


def one_decision() -> Problem:
    """H = 1: a state pays 1 for one of two actions; an episode begins in it one time in ten."""
    rewards = np.array([[0.0, 0.0], [0.0, 1.0]])
    return Problem(np.array([0.9, 0.1]), np.full((2, 2, 2), 0.5), rewards, 1)


def corridor() -> Problem:
    """H = 6: three states in a row, of which the last pays; one episode in ten begins there."""
    kernel = np.zeros((3, 2, 3))
    rewards = np.zeros((3, 2))
    for state in range(3):
        kernel[state, 0, max(0, state - 1)] = 1.0
        kernel[state, 1, min(2, state + 1)] = 1.0
    rewards[2, 1] = 1.0
    return Problem(np.array([0.9, 0.0, 0.1]), kernel, rewards, 6)


def noise() -> Problem:
    """H = 1: eight states, in each of which one action pays 1 with probability 0.3 and the other with 0.6."""
    return Problem(np.full(8, 0.125), np.full((8, 2, 8), 0.125), np.tile([0.3, 0.6], (8, 1)), 1, noisy=True)


PROBLEMS = {"first": one_decision, "corridor": corridor, "logs": corridor, "noise": noise}


def logs_of(problem: Problem, seed: int) -> dict[str, Any]:
    """Episodes in which actions were drawn alike; the person who wrote them down began everywhere equally often."""
    rng = np.random.default_rng([seed, 1])
    rows = []
    states, actions = problem.rewards.shape
    later = np.cumsum(problem.kernel, axis=-1)
    for episode in range(LOGGED):
        state = int(rng.integers(states))
        for step in range(problem.horizon):
            action = int(rng.integers(actions))
            after = int(np.searchsorted(later[state, action], rng.random(), side="right"))
            rows.append((episode, step, state, action, problem.rewards[state, action], after))
            state = after
    names = ("episode", "step", "state", "action", "reward", "next_state")
    return dict(zip(names, map(np.array, zip(*rows, strict=True)), strict=True))


def live(problem: Problem, agents: int, **options: Any) -> LiveFederation:
    """The problem as environments whose rewards are taken for what they are."""
    if not problem.noisy:
        options.setdefault("random_rewards", False)
    return LiveFederation(lambda i: Played(problem), agents, problem.horizon, (0.0, 1.0), **options)


@dataclass(frozen=True)
class Judged:
    """The certificate of one run, and by name the statements in it: True if it is false."""

    certificate: Certificate
    policy: IndexArray
    played: int
    false: dict[str, bool]


def judged(case: str, seed: int, *, fixed: bool = False, most: int = MOST) -> Judged | None:
    """One run until a gap is certified; None if it ends without a certificate."""
    problem = PROBLEMS[case]()
    gap = 0.05 if case == "first" else 0.2
    agents = 4 if problem.horizon == 1 else 1
    states, actions = problem.rewards.shape
    options: dict[str, Any] = {"random_rewards": False} if fixed else {}
    counts = None
    if case == "logs":
        counts = counts_from_logs(logs_of(problem, seed), (states + 1, actions, problem.horizon), stationary=True)
    made = run(
        FedKLUCBVI(stationary=True),
        live(problem, agents, **options),
        most,
        seed=seed,
        until_gap=gap,
        warm_start=counts,
        progress=False,
    )
    one = made.certificate
    if one is None:
        return None
    best = problem.best()
    worth = problem.worth(made.policy)
    false = {
        "at most": one.compared_with < best - ROUNDING,
        "at least": one.at_least > worth + ROUNDING,
        "model": one.model_at_least > worth + ROUNDING,
        "gap": best - worth > one.gap + ROUNDING,
    }
    return Judged(one, made.policy, made.episodes_played, false)


def outcome(case: str, fixed: bool, seed: int) -> Judged | str | None:
    """The judged certificate of one run, or the reason for which the run was refused."""
    try:
        return judged(case, seed, fixed=fixed)
    except InputError as error:
        return str(error)


def main() -> None:
    options = read_options(__doc__, tuple(PROBLEMS), runs=400, jobs=1, fixed=False)
    work = partial(outcome, options.what, options.fixed)
    if options.jobs == 1:
        found = [work(seed) for seed in range(options.runs)]
    else:
        with ProcessPoolExecutor(options.jobs) as pool:
            found = list(pool.map(work, range(options.runs)))
    refused = [one for one in found if isinstance(one, str)]
    judged = [one for one in found if isinstance(one, Judged)]
    false = {name: sum(one.false[name] for one in judged) for name in STATEMENTS}
    figures: dict[str, object] = {"case": options.what, "runs": options.runs, "refused": len(refused)}
    figures["certificates"] = len(judged)
    figures |= {f"false: {name}": number for name, number in false.items()}
    if judged:
        figures["episodes of each agent, median"] = statistics.median(one.played for one in judged)
    if refused:
        figures["why"] = refused[0]
    show(figures, as_json=False)


if __name__ == "__main__":
    main()
