"""Small random problems, and brute force to check the package against.

Nothing here uses the package's own recursions: values and occupancies are sums over all paths, optimal values are
maxima over all deterministic policies, both listed by :mod:`itertools` from the dense tables.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fed_ucbvi.algorithms.base import Budgets, Counting
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray, PolicyArray
from fed_ucbvi.problem.federation import Federation
from fed_ucbvi.problem.kernel import Kernel
from fed_ucbvi.problem.mdp import MDP

SMALL_ENVIRONMENTS: dict[str, dict[str, object]] = {
    "gridworld": {},
    "synthetic": {"states": 4, "actions": 3, "horizon": 4},
    "riverswim": {"states": 4, "horizon": 6},
    "chain": {"length": 4, "horizon": 6},
    "deep_sea": {"size": 4, "stochastic": True},
    "six_arms": {"horizon": 5},
    "n_room": {"rooms": 3, "room_size": 2, "horizon": 6},
    "hard_instance": {"horizon": 7},
    "two_state_chain": {"leave": 0.2, "horizon": 5},
    "garnet": {"states": 6, "actions": 2, "horizon": 5},
    "windy_cliff": {"rows": 3, "columns": 3, "horizon": 5},
    "random_mdps": {"states": 3, "actions": 2, "horizon": 4},
}
"""For every environment of our own, options that make it small and in which ``spread`` has something to vary."""


OF_OTHER_PACKAGES = ("from_gymnasium", "icu_sepsis")
"""Environments whose tables other packages hold."""


class Path(NamedTuple):
    """One way an episode can go: its probability and the states at steps ``0, 1, ...``."""

    probability: float
    states: tuple[int, ...]


def random_rows(rng: np.random.Generator, shape: tuple[int, ...], *, zeros: float = 0.0) -> FloatArray:
    """Probability vectors along the last axis; each entry is zero with probability ``zeros``, never all of a row."""
    weights = rng.random(shape) + 0.05
    keep = rng.random(shape) >= zeros
    spared = rng.integers(shape[-1], size=shape[:-1])
    keep |= np.arange(shape[-1]) == spared[..., None]
    weights = np.where(keep, weights, 0.0)
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def random_dense_kernel(
    rng: np.random.Generator,
    states: int,
    actions: int,
    *,
    steps: int = 1,
    zeros: float = 0.0,
) -> FloatArray:
    """A table ``P[steps,S,A,S]``."""
    return random_rows(rng, (steps, states, actions, states), zeros=zeros)


def random_mdp(
    rng: np.random.Generator,
    states: int = 3,
    actions: int = 2,
    horizon: int = 3,
    *,
    stationary_kernel: bool = False,
    stationary_rewards: bool = False,
    fixed_start: bool = False,
    zeros: float = 0.3,
) -> MDP:
    """A small MDP with about a share ``zeros`` of impossible transitions."""
    kernel = random_dense_kernel(rng, states, actions, steps=1 if stationary_kernel else horizon, zeros=zeros)
    rewards = rng.random((1 if stationary_rewards else horizon, states, actions))
    initial: int | FloatArray
    if fixed_start:
        initial = int(rng.integers(states))
    else:
        initial = random_rows(rng, (states,))
    return MDP(kernel, rewards, initial, horizon)


def random_federation(
    rng: np.random.Generator,
    agents: int = 3,
    states: int = 3,
    actions: int = 2,
    horizon: int = 3,
    *,
    eps_p: float = 0.2,
    stationary: bool = False,
    own_rewards: bool = False,
    own_starts: bool = False,
    zeros: float = 0.3,
) -> Federation:
    """A small federation made as a mixture, with rewards and starts shared or one for each agent."""
    steps = 1 if stationary else horizon
    tables = [random_dense_kernel(rng, states, actions, steps=steps, zeros=zeros) for _ in range(agents + 1)]
    rewards = rng.random((agents if own_rewards else 1, steps, states, actions))
    if own_starts:
        initial = random_rows(rng, (agents, states))
    else:
        initial = random_rows(rng, (states,))
    return Federation.mixture(tables[0], tables[1:], eps_p, rewards=rewards, initial=initial, horizon=horizon)


def any_federation(rng: np.random.Generator, agents: int, states: int, actions: int, horizon: int) -> Federation:
    """One of random kind, too: with tables for each step or one for all, and what agents have of their own."""
    stationary, own_rewards, own_starts = (bool(rng.integers(2)) for _ in range(3))
    kind = {
        "stationary": stationary,
        "own_rewards": own_rewards,
        "own_starts": own_starts,
    }
    return random_federation(rng, agents, states, actions, horizon, **kind)


def policies_in(sets: npt.NDArray[np.bool_]) -> Iterator[IndexArray]:
    """Every deterministic policy ``[H,S]`` whose actions are in ``sets[H,S,A]``.

    A place is visited at most once in an episode, so a policy that draws from its sets at every visit is one that
    draws such a policy for every episode.
    """
    choices = [np.flatnonzero(row).tolist() for row in sets.reshape((-1, sets.shape[2]))]
    for choice in itertools.product(*choices):
        yield np.reshape(np.array(choice, dtype=np.int32), sets.shape[:2])


def random_policy(rng: np.random.Generator, mdp: MDP) -> IndexArray:
    """A deterministic policy ``[H,S]``."""
    return rng.integers(mdp.actions, size=(mdp.horizon, mdp.states), dtype=np.int32)


def random_sets(
    rng: np.random.Generator,
    horizon: int,
    states: int,
    actions: int,
    share: float = 0.5,
) -> npt.NDArray[np.bool_]:
    """A policy that is a set of actions ``[H,S,A]``, each action in it with this probability, never none."""
    sets = rng.random((horizon, states, actions)) < share
    spared = rng.integers(actions, size=(horizon, states))
    return np.asarray(sets | (spared[..., None] == np.arange(actions)))


def random_probabilities(
    rng: np.random.Generator,
    horizon: int,
    states: int,
    actions: int,
    share: float = 0.7,
) -> FloatArray:
    """A policy of probabilities ``[H,S,A]``, each action possible with probability ``share``, never none."""
    return random_rows(rng, (horizon, states, actions), zeros=1 - share)


def random_play(
    rng: np.random.Generator,
    counting: Counting,
    horizon: int,
    states: int,
    actions: int,
) -> PolicyArray:
    """Policy that is played under a way of counting: sets of actions, or the first action of each."""
    sets = random_sets(rng, horizon, states, actions)
    if counting is Counting.POLICY:
        first_actions: PolicyArray = sets.argmax(axis=2).astype(np.int32)
        return first_actions
    return sets


def budgets_of(visits: CountArray, rest: float = 0.0) -> Budgets:
    """Budgets ``[m or 1, *place]`` by the first rule."""
    return Budgets(visits, np.zeros(visits.shape[1:], dtype=np.int8), rest)


def row_of(kernel: Kernel, h: int, s: int, a: int) -> dict[int, float]:
    """The successors of ``(h,s,a)`` with positive probability, read slot by slot."""
    step = h if kernel.steps > 1 else 0
    row: dict[int, float] = {}
    for k in range(kernel.width):
        mass = float(kernel.probabilities[step, s, a, k])
        if mass > 0:
            successor = int(kernel.successors[step, s, a, k])
            row[successor] = row.get(successor, 0.0) + mass
    return row


def reward_of(mdp: MDP, h: int, s: int, a: int) -> float:
    """``r_h(s,a)``."""
    return float(mdp.rewards[h if mdp.rewards.shape[0] > 1 else 0, s, a])


def paths_from(mdp: MDP, policy: IndexArray, h: int, s: int) -> list[Path]:
    """All paths with positive probability from ``s`` at step ``h`` to the end of the episode."""
    found = []
    for rest in itertools.product(range(mdp.states), repeat=mdp.horizon - h - 1):
        states = (s, *rest)
        steps = [
            row_of(mdp.kernel, h + j, here, int(policy[h + j, here])).get(there, 0.0)
            for j, (here, there) in enumerate(itertools.pairwise(states))
        ]
        if (probability := math.prod(steps)) > 0:
            found.append(Path(probability, states))
    return found


def all_paths(mdp: MDP, policy: IndexArray) -> list[Path]:
    """All paths of an episode with positive probability, the first state drawn from ``mdp.initial``."""
    return [
        Path(start * path.probability, path.states)
        for s, start in enumerate(mdp.initial.tolist())
        if start > 0
        for path in paths_from(mdp, policy, 0, s)
    ]


def brute_force_value(mdp: MDP, policy: IndexArray, h: int, s: int) -> float:
    """``V^pi_h(s)`` as the sum over all paths of probability times collected reward."""
    return math.fsum(
        path.probability
        * math.fsum(reward_of(mdp, h + j, x, int(policy[h + j, x])) for j, x in enumerate(path.states))
        for path in paths_from(mdp, policy, h, s)
    )


def brute_force_occupancy(mdp: MDP, policy: IndexArray) -> FloatArray:
    """``d_h(s)`` as the total probability of the paths that are in ``s`` at step ``h``."""
    occupancy = np.zeros((mdp.horizon, mdp.states))
    for path in all_paths(mdp, policy):
        for h, s in enumerate(path.states):
            occupancy[h, s] += path.probability
    return occupancy


def all_policies(mdp: MDP, first: int = 0) -> Iterator[IndexArray]:
    """Every deterministic policy ``[H,S]``; before step ``first`` it plays action 0."""
    sets = np.ones((mdp.horizon, mdp.states, mdp.actions), dtype=np.bool_)
    sets[:first, :, 1:] = False
    return policies_in(sets)


def dense_agents(federation: Federation) -> FloatArray:
    """``P^i_h(s'|s,a)`` of all agents, read from the agents' MDPs."""
    return np.stack([federation.agent(i).kernel.dense() for i in range(federation.agents)])


def individual_kernels(federation: Federation) -> FloatArray:
    """``P^{ind,i}``, by solving Assumption 1 for it."""
    eps_p = federation.eps_p
    return np.asarray((dense_agents(federation) - (1 - eps_p) * federation.common.kernel.dense()) / eps_p)


def law_of_a_share(x: FloatArray) -> FloatArray:
    """P(X <= x) for the share X of one of two independent U(0,1): x / (2 (1 - x)) for x <= 1/2, and symmetric."""
    low = np.minimum(x, 1 - x)
    below = low / (2 * (1 - low))
    return np.asarray(np.where(x <= 0.5, below, 1 - below))


def worth(P: FloatArray, r: FloatArray, policy: IndexArray, start: int) -> float:
    """``V^pi_1(start)`` by backward induction with dense arrays; P is ``[S,A,S]``, r ``[S,A]``."""
    states = np.arange(len(P))
    V = np.zeros(len(P))
    for actions in policy[::-1]:
        V = r[states, actions] + P[states, actions] @ V
    return float(V[start])
