"""Drivers against the exact law of a round, listed path by path, and against each other.

False alarms: a chi-square comparison with the exact law alarms below p = 4 x 10^-6; there are fewer than 250 of them,
so that all together alarm falsely for about one choice of seeds in a thousand. The seeds are fixed.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Hashable, Mapping
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from fed_ucbvi import MDP, Federation, InputError, gridworld, synthetic
from fed_ucbvi.algorithms.base import Budgets, Counting
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray, PolicyArray
from fed_ucbvi.engine.drivers import auto, episodes, make_driver
from fed_ucbvi.engine.drivers.base import Driver, Fleet, RoundEnd, collect
from fed_ucbvi.engine.drivers.counts import CountsDriver
from fed_ucbvi.engine.drivers.episodes import EpisodesDriver
from fed_ucbvi.problem.policies import by_action
from matrices import first_of, in_turn
from problems import (
    budgets_of,
    random_dense_kernel,
    random_federation,
    random_play,
    random_probabilities,
    random_rows,
    random_sets,
)

ALARM = 4e-6
ROUNDS = 5_000
NEVER = 10**15
DRIVERS = ("episodes", "counts", "auto")

Outcome = tuple[Hashable, ...]
Counts = tuple[int, ...]
"""One agent's counts of the round in C order; see :meth:`Situation.counts_on`."""


# -------------------------------------------------------------------------------------- the exact law of a round


class Situation(NamedTuple):
    """A round about to be played.

    Attributes:
        kernels: ``[M,steps,S,A,S]``, dense.
        initial: ``[M,S]``, laws of the first state.
        policy: one action, a set of actions or probabilities of actions for each step and state.
        budgets: ``[M or 1,*cell]``.
        most: largest number of episodes.
        calm: number of episodes before which agents make no request.
        counting: how visits are counted.
    """

    kernels: FloatArray
    initial: FloatArray
    policy: PolicyArray
    budgets: CountArray
    most: int
    calm: int = 0
    counting: Counting = Counting.POLICY

    @property
    def sizes(self) -> tuple[int, int, int]:
        """H, S and A."""
        return len(self.policy), self.kernels.shape[2], self.kernels.shape[3]

    @property
    def cells(self) -> tuple[int, ...]:
        return self.counting.shape(*self.sizes)

    @property
    def federation(self) -> Federation:
        H, S, A = self.sizes
        rewards = np.zeros((S, A))
        mdps = []
        for kernel, mu in zip(self.kernels, self.initial, strict=True):
            mdps.append(MDP(kernel, rewards, mu, horizon=H))
        return Federation.from_mdps(mdps, reference="mean")

    def fleet(self, seed: int) -> Fleet:
        return Fleet.of(self.federation, seed, counting=self.counting)

    def budgets_at(self, first: int) -> Budgets:
        """The budgets of a round that begins after ``first`` episodes, of which ``calm`` are calm."""
        return budgets_of(self.budgets, max(0.0, self.calm - 0.5) / max(1, first))

    def asking(self, length: int) -> bool:
        """True if agents make requests once the round has so many episodes."""
        return length >= self.calm

    @property
    def small(self) -> bool:
        """True if transitions are compared; otherwise visits are."""
        H, S, _ = self.sizes
        return math.prod(self.cells) * S <= 8 and (H == 1 or self.counting is not Counting.STATIONARY)

    def paths(self, i: int) -> dict[Counts, float]:
        """The law of the counts of one episode of agent i: all its trajectories, one by one."""
        H, S, A = self.sizes
        law: dict[Counts, float] = {}
        for states in itertools.product(range(S), repeat=H + 1):
            for actions in itertools.product(range(A), repeat=H):
                probability = self.probability(i, states, actions)
                if probability > 0:
                    counts = self.counts_on(states, actions)
                    law[counts] = law.get(counts, 0.0) + probability
        return law

    def probability(self, i: int, states: tuple[int, ...], actions: tuple[int, ...]) -> float:
        """The probability of a trajectory of agent i."""
        probability = float(self.initial[i, states[0]])
        for h, a in enumerate(actions):
            s = states[h]
            probability *= self.row(i, h, s, a)[states[h + 1]] * self.action_probability(h, s, a)
        return probability

    def action_probability(self, h: int, s: int, a: int) -> float:
        """The probability of an action under the policy."""
        weights = by_action(self.policy, self.sizes[2])[h, s]
        return float(weights[a] / weights.sum())

    def row(self, i: int, h: int, s: int, a: int) -> list[float]:
        return [float(p) for p in self.kernels[i, h if self.kernels.shape[1] > 1 else 0, s, a]]

    def counts_on(self, states: tuple[int, ...], actions: tuple[int, ...]) -> Counts:
        """Transitions by cell and next state (in large problems visits by cell), and by state the starts."""
        H, S, A = self.sizes
        transitions = np.zeros((H, S, A, S), dtype=np.int64)
        for h, a in enumerate(actions):
            transitions[h, states[h], a, states[h + 1]] += 1
        starts = np.bincount([states[0]], minlength=S)
        return self.flat(self.by_cell(transitions)[None], starts[None])[0]

    def by_cell(self, transitions: CountArray) -> CountArray:
        """Counts ``[H,S,A,S]`` as counts ``[*cell,S]``."""
        if self.counting is Counting.POLICY:
            return np.asarray(transitions.sum(axis=2))
        return transitions if self.counting is Counting.PAIRS else np.asarray(transitions.sum(axis=0, keepdims=True))

    def flat(self, transitions: CountArray, starts: CountArray) -> list[Counts]:
        """Counts ``[n,*cell,S]`` and starts ``[n,S]`` as ``n`` keys; starts only if visits do not show them."""
        counts = transitions if self.small else transitions.sum(axis=-1)
        table = counts.reshape((len(transitions), -1))
        if self.counting is Counting.STATIONARY:
            table = np.concatenate([table, starts], axis=1)
        return [tuple(row) for row in table.tolist()]

    def visits_in(self, counts: Counts) -> Counts:
        """Visits by cell."""
        P = math.prod(self.cells)
        S = self.sizes[1]
        if not self.small:
            return counts[:P]
        return tuple(sum(counts[j * S : (j + 1) * S]) for j in range(P))

    def reaches(self, i: int, counts: Counts, length: int) -> bool:
        """True if agent i makes a request, with these counts after so many episodes."""
        if not self.asking(length):
            return False
        budgets = self.budgets[i if len(self.budgets) > 1 else 0].reshape(-1)
        return bool((np.array(self.visits_in(counts)) >= budgets).any())


def plus(one: Counts, other: Counts) -> Counts:
    return tuple(a + b for a, b in zip(one, other, strict=True))


class Reached(NamedTuple):
    """True if an agent makes a request, and the probability of getting here without an earlier one."""

    asked: bool
    probability: float


Played = list[dict[Counts, Reached]]
"""Counts after each number of episodes, if there was no request before the last of them."""


def play_alone(paths: Mapping[Counts, float], asks: Callable[[Counts, int], bool], most: int) -> Played:
    """Episodes with the law ``paths``, until ``asks(counts, length)``."""
    nothing = (0,) * len(next(iter(paths)))
    quiet: dict[Counts, float] = {nothing: 1.0}
    found: Played = []
    while quiet and len(found) < most:
        length = len(found) + 1
        probabilities: dict[Counts, float] = defaultdict(float)
        for counts, probability in quiet.items():
            for path, p in paths.items():
                probabilities[plus(counts, path)] += probability * p
        reached = {}
        quiet = {}
        for counts, probability in probabilities.items():
            asked = asks(counts, length)
            reached[counts] = Reached(asked, probability)
            if not asked:
                quiet[counts] = probability
        found.append(reached)
    return found


def brute_force_law(situation: Situation) -> dict[Outcome, float]:
    """P(length, who asks, all counts), by playing all joint trajectories of all agents, as if they were one."""
    M = len(situation.kernels)
    laws = [situation.paths(i) for i in range(M)]
    size = len(next(iter(laws[0])))
    joint: dict[Counts, float] = {}
    for paths in itertools.product(*laws):
        counts = tuple(itertools.chain.from_iterable(paths))
        joint[counts] = math.prod(law[path] for law, path in zip(laws, paths, strict=True))

    def apart(counts: Counts) -> tuple[Counts, ...]:
        return tuple(counts[i * size : (i + 1) * size] for i in range(M))

    def asking(counts: Counts, length: int) -> tuple[bool, ...]:
        return tuple(situation.reaches(i, own, length) for i, own in enumerate(apart(counts)))

    def anyone_asks(counts: Counts, length: int) -> bool:
        return any(asking(counts, length))

    law: dict[Outcome, float] = {}
    for length, played in enumerate(play_alone(joint, anyone_asks, situation.most), 1):
        for counts, reached in played.items():
            if reached.asked or length == situation.most:
                law[length, asking(counts, length), apart(counts)] = reached.probability
    return law


def play_agents_alone(situation: Situation) -> list[Played]:
    """Each agent of a situation, as if there were no others."""
    alone = []
    for i in range(len(situation.kernels)):
        asks = partial(situation.reaches, i)
        alone.append(play_alone(situation.paths(i), asks, situation.most))
    return alone


@cache
def agents_alone(name: str) -> list[Played]:
    """Each agent of a situation by name, computed once for all drivers and agents."""
    return play_agents_alone(ALL_SITUATIONS[name])


@cache
def exact_law_of(name: str, seen: tuple[int, ...]) -> dict[Outcome, float]:
    return exact_law(ALL_SITUATIONS[name], seen, agents_alone(name))


def exact_law(situation: Situation, seen: Container[int], alone: list[Played]) -> dict[Outcome, float]:
    """P(length, who asks, the counts of the agents that are ``seen``).

    Agents are independent until the round stops, so each is played alone, path by path, and the round stops at L if
    all have been quiet before L and not all are quiet at L.
    """
    law: dict[Outcome, float] = {}
    for length, of_agents in enumerate(zip(*alone, strict=False), 1):
        laws = [law_of_one(played, is_seen=i in seen) for i, played in enumerate(of_agents)]
        for joint in itertools.product(*(one.items() for one in laws)):
            asks = tuple(own.asked for own, _ in joint)
            counts = tuple(own.counts for own, _ in joint)
            if any(asks) or length == situation.most:
                law[length, asks, counts] = math.prod(probability for _, probability in joint)
    return law


class OwnOutcome(NamedTuple):
    """True if an agent makes a request, and its counts if they are seen."""

    asked: bool
    counts: Counts | None


def law_of_one(played: Mapping[Counts, Reached], *, is_seen: bool) -> dict[OwnOutcome, float]:
    """The law of an agent's outcome after some number of episodes."""
    law: dict[OwnOutcome, float] = defaultdict(float)
    for counts, reached in played.items():
        law[OwnOutcome(reached.asked, counts if is_seen else None)] += reached.probability
    return law


# ---------------------------------------------------------------------------------------------- playing rounds


class Sample(NamedTuple):
    """Many rounds: lengths ``[n]``, who asked ``[n,M]``, and all agents' counts, ``M`` keys each."""

    lengths: CountArray
    asked: npt.NDArray[np.bool_]
    counts: list[tuple[Counts, ...]]


def by_next_state(transitions: CountArray, successors: IndexArray, situation: Situation) -> CountArray:
    """Counts ``[...,*cell,K]`` by slot as counts ``[...,*cell,S]`` by next state."""
    dense = np.zeros((*transitions.shape[:-1], situation.sizes[1]), dtype=np.int64)
    for cell in np.ndindex(*situation.cells):
        h, s = cell[:2]
        a = int(situation.policy[h, s]) if situation.counting is Counting.POLICY else cell[2]
        for k, successor in enumerate(successors[h if len(successors) > 1 else 0, s, a].tolist()):
            dense[(..., *cell, successor)] += transitions[(..., *cell, k)]
    return dense


def play(driver: Driver, situation: Situation, rounds: int) -> Sample:
    """Independent rounds: each starts at an episode number of its own."""
    stops = np.zeros((rounds, len(RoundEnd._fields)), dtype=np.int64)
    transitions = np.zeros((rounds, *driver.transitions.shape), dtype=np.int64)
    visits = np.zeros((rounds, *driver.visits.shape), dtype=np.int64)
    starts = np.zeros((rounds, *driver.starts[:, 0].shape), dtype=np.int64)
    for k in range(rounds):
        first = (k + 1) * situation.most
        stops[k] = collect(driver, situation.policy, situation.budgets_at(first), first, situation.most)
        transitions[k] = driver.transitions
        visits[k] = driver.visits
        starts[k] = driver.starts[:, 0]
    lengths = stops[:, 0]
    asking = lengths >= situation.calm
    reached = visits >= situation.budgets
    reached[~asking] = False
    assert np.array_equal(stops, expected_stops(lengths, reached, situation))
    assert np.array_equal(transitions.sum(axis=-1), visits)
    assert (starts.sum(axis=-1) == lengths[:, None]).all()
    dense = by_next_state(transitions, situation.federation.successors, situation)
    keys = [situation.flat(dense[:, i], starts[:, i]) for i in range(visits.shape[1])]
    asked = np.asarray(reached.reshape((*reached.shape[:2], -1)).any(axis=2))
    return Sample(lengths, asked, list(zip(*keys, strict=True)))


def expected_stops(lengths: CountArray, reached: npt.NDArray[np.bool_], situation: Situation) -> CountArray:
    """Who is on record: the lowest-numbered requester, at its earliest step, there at the lowest state and action."""
    by_agent = reached.reshape((*reached.shape[:2], -1)).any(axis=2)
    requesters = by_agent.sum(axis=1)
    first = reached.reshape(len(reached), -1).argmax(axis=1)
    agent, step, state, *action = np.unravel_index(first, reached.shape[1:])
    played = action[0] if action else situation.policy[step, state]
    if situation.counting is Counting.STATIONARY:
        step = np.full_like(step, -1)
    rule = np.zeros_like(agent)
    record = np.stack([agent, step, state, played, rule], axis=1)
    record[requesters == 0] = -1
    return np.column_stack([lengths, requesters, record])


def outcomes(sample: Sample, seen: Container[int]) -> Counter[Outcome]:
    """The number of occurrences of each outcome."""
    numbers: Counter[Outcome] = Counter()
    rounds = zip(sample.lengths.tolist(), sample.asked.tolist(), sample.counts, strict=True)
    for length, asks, counts in rounds:
        seen_counts = tuple(count if i in seen else None for i, count in enumerate(counts))
        numbers[length, tuple(asks), seen_counts] += 1
    return numbers


def chi_square(found: Mapping[Outcome, int], law: Mapping[Outcome, float]) -> float:
    """The p-value of Pearson's test; outcomes expected fewer than 10 times are taken together."""
    assert math.fsum(law.values()) == pytest.approx(1.0, abs=1e-9)
    impossible = {outcome for outcome in found if law.get(outcome, 0.0) <= 0.0}
    assert not impossible, f"outcomes of probability zero were seen: {sorted(map(str, impossible))[:3]}"
    rounds = sum(found.values())
    expected = rounds * np.array(list(law.values()))
    seen = np.array([found.get(outcome, 0) for outcome in law])
    order = np.lexsort((seen, expected))
    expected = expected[order]
    seen = seen[order]

    # outcomes that are expected less than 10 times are one cell, which joins the next one if it is rare itself
    rare = int((expected < 10).sum())
    edges = [0, *range(rare, len(expected))]
    if rare == 0 or math.fsum(expected[:rare]) < 10:
        edges = [0, *range(rare + 1, len(expected))]
    cells_expected = np.add.reduceat(expected, edges)
    cells_seen = np.add.reduceat(seen, edges)
    if len(edges) == 1:
        return 1.0
    statistic = ((cells_seen - cells_expected) ** 2 / cells_expected).sum()
    return float(stats.chi2.sf(statistic, len(edges) - 1))


# --------------------------------------------------------------------------------------------------- situations


def situation_of(
    seed: int,
    budgets: npt.ArrayLike,
    most: int,
    *,
    states: int = 2,
    actions: int = 2,
    steps: int = 1,
    zeros: float = 0.0,
    chance: float | None = None,
    calm: int = 0,
) -> Situation:
    """Random kernels and starts, each agent's own, and a random policy; ``budgets[M,H,S]`` as given.

    With ``chance`` there are two states, and the next one is state 1 with that probability, always.
    """
    rng = np.random.default_rng([100, seed])
    table = np.array(budgets, dtype=np.int64)
    M, H, S = table.shape
    assert states == S
    kernels = np.stack([random_dense_kernel(rng, S, actions, steps=steps, zeros=zeros) for _ in range(M)])
    initial = random_rows(rng, (M, S))
    if chance is not None:
        kernels[:] = (1 - chance, chance)
        initial[:] = (1 - chance, chance)
    policy = rng.integers(actions, size=(H, S), dtype=np.int32)
    return Situation(kernels, initial, policy, table, most, calm)


def with_sets(
    seed: int,
    counting: Counting,
    sizes: tuple[int, int, int, int],
    budgets: tuple[int, ...],
    most: int,
    *,
    rows: int | None = None,
    calm: int = 0,
    ties: float = 0.8,
    zeros: float = 0.0,
    steps: int = 1,
) -> Situation:
    """Sets of actions for ``(M, H, S, A)``; each action is in a set with probability ``ties``, budgets are drawn."""
    rng = np.random.default_rng([101, seed])
    M, H, S, A = sizes
    kernels = np.stack([random_dense_kernel(rng, S, A, steps=steps, zeros=zeros) for _ in range(M)])
    shape = (M if rows is None else rows, *counting.shape(H, S, A))
    table = rng.choice(np.array(budgets, dtype=np.int64), size=shape)
    return Situation(kernels, random_rows(rng, (M, S)), random_sets(rng, H, S, A, ties), table, most, calm, counting)


def with_probabilities(
    seed: int, counting: Counting, sizes: tuple[int, int, int, int], budgets: tuple[int, ...], most: int, **more: Any
) -> Situation:
    """Probabilities of actions in the place of sets, some of them 0; see :func:`with_sets`."""
    _, H, S, A = sizes
    policy = random_probabilities(np.random.default_rng([102, seed]), H, S, A)
    return with_sets(seed, counting, sizes, budgets, most, **more)._replace(policy=policy)


def flat(agents: int, budget: int, *, horizon: int = 2, states: int = 2) -> CountArray:
    return np.full((agents, horizon, states), budget, dtype=np.int64)


SITUATIONS: dict[str, Situation] = {
    "one agent": situation_of(0, flat(1, 3), 20),
    "two agents alike": situation_of(1, flat(2, 2), 20),
    "step-dependent kernels with gaps": situation_of(
        2, [[[3, 2, 4], [2, 5, 3]], [[4, 3, 2], [3, 3, 3]]], 20, states=3, steps=2, zeros=0.4
    ),
    "first visits to rare pairs": situation_of(3, [[[9, 9], [9, 1]], [[9, 9], [7, 1]]], 20, steps=2),
    "a round that is longer than expected": situation_of(11, [[[9, 9], [5, 1]], [[9, 9], [4, 1]]], 20, chance=0.26),
    "a round that is cut although it was expected to be short": situation_of(
        12, [[[NEVER, NEVER], [NEVER, 1]], [[NEVER, NEVER], [NEVER, 1]]], 4, chance=0.26
    ),
    "budgets never reached": situation_of(4, flat(2, NEVER), 3),
    "a request at the last episode, or none": situation_of(5, flat(2, 3), 3),
    "a request of one agent within the search of another": situation_of(
        6, [[[5, 6], [6, 5]], [[NEVER, 3], [NEVER, 3]]], 30
    ),
    "three steps": situation_of(7, flat(2, 3, horizon=3), 20),
}

COMPETING: dict[str, Situation] = {
    "three agents alike": situation_of(8, flat(3, 2, horizon=1), 20, chance=0.5),
    "three agents, the last one with small budgets": situation_of(
        9, [[[3, 3], [3, 3]], [[NEVER, NEVER], [2, 2]], [[NEVER, NEVER], [NEVER, 1]]], 30, chance=0.5
    ),
    "two agents, the first at the limit": situation_of(
        10, [[[2, 2], [NEVER, NEVER]], [[NEVER, NEVER], [NEVER, 1]]], 3, chance=0.5
    ),
}
"""An agent asks at the last episode of the block it was given, and another then asks earlier."""

PAIRS = Counting.PAIRS
STATIONARY = Counting.STATIONARY
TIED: dict[str, Situation] = {
    "sets of actions": with_sets(0, PAIRS, (2, 2, 2, 2), (2, 3), 6, steps=2),
    "sets of three actions": with_sets(1, PAIRS, (1, 1, 2, 3), (2, 3, 4), 10, ties=0.9),
    "sets of actions, the same budgets for all": with_sets(2, PAIRS, (3, 1, 2, 2), (2, 3), 8, rows=1),
    "sets of actions, a request within the search of another agent": with_sets(
        3, PAIRS, (2, 1, 2, 2), (3, 5, NEVER), 12
    ),
    "sets of actions, no request": with_sets(4, PAIRS, (2, 2, 2, 2), (NEVER,), 2),
    "all steps together": with_sets(5, STATIONARY, (2, 2, 2, 2), (3, 5), 6),
    "all steps together, the same budgets for all": with_sets(6, STATIONARY, (2, 3, 2, 2), (4, 6), 4, rows=1),
    "all steps together, one action each": with_sets(7, STATIONARY, (2, 3, 2, 2), (5, 7), 6, ties=0.0),
    "all steps together, one step": with_sets(8, STATIONARY, (2, 1, 2, 2), (3,), 8),
    "all steps together, no request": with_sets(9, STATIONARY, (2, 2, 2, 2), (NEVER,), 2),
}
"""Sets of actions, by step and over all steps together."""

DRAWN: dict[str, Situation] = {
    "probabilities of actions": with_probabilities(40, PAIRS, (2, 2, 2, 2), (2, 3), 6, steps=2),
    "probabilities of three actions": with_probabilities(41, PAIRS, (1, 1, 2, 3), (2, 3, 4), 10),
    "probabilities, a request within the search of another agent": with_probabilities(
        42, PAIRS, (2, 1, 2, 3), (3, 5, NEVER), 8
    ),
    "probabilities, no request": with_probabilities(43, PAIRS, (2, 2, 2, 2), (NEVER,), 2),
    "probabilities, all steps together": with_probabilities(44, STATIONARY, (2, 2, 2, 2), (3, 5), 6),
}
"""Probabilities of actions, by step and over all steps together."""

RESTING: dict[str, Situation] = {
    "rest, one action each": situation_of(20, flat(2, 2), 8, calm=4),
    "rest, ended by a request": situation_of(21, flat(2, 1, horizon=1), 14, calm=12),
    "rest, cut short": situation_of(22, flat(2, 1), 3, calm=5),
    "rest, sets of actions": with_sets(23, PAIRS, (2, 1, 2, 2), (1, 2), 12, calm=4, rows=1),
    "rest, sets of actions, ended by a request": with_sets(
        24, PAIRS, (2, 1, 2, 2), (1, NEVER), 14, calm=12, ties=0.6
    ),
    "rest, all steps together": with_sets(25, STATIONARY, (2, 2, 2, 2), (1, 2), 7, calm=6, rows=1),
    "rest, all steps together, no request": with_sets(26, STATIONARY, (1, 2, 2, 2), (5, 6), 6, calm=2),
}
"""Rounds that go on for some episodes unless someone reaches eight times its budget."""

ALL_SITUATIONS = {**SITUATIONS, **COMPETING, **TIED, **DRAWN, **RESTING}


@pytest.fixture
def eager_auto(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the auto driver think counts pay after one episode per state, so that it takes all its ways here."""
    monkeypatch.setattr(auto, "EPISODES_PER_STATE", 1)


@pytest.mark.parametrize(
    "name",
    [
        "two agents alike",
        "a request at the last episode, or none",
        "sets of actions, no request",
        "probabilities, no request",
        "all steps together, one step",
        "rest, one action each",
    ],
)
def test_playing_agents_apart_gives_the_law_of_playing_them_together(name: str) -> None:
    situation = ALL_SITUATIONS[name]
    if situation.calm:
        situation = situation._replace(calm=2, most=3)
    else:
        situation = situation._replace(most=min(situation.most, 5))
    everyone = range(len(situation.kernels))
    together = brute_force_law(situation)
    apart = exact_law(situation, everyone, play_agents_alone(situation))
    possible = {outcome for outcome, probability in apart.items() if probability > 0}
    assert together.keys() == possible
    for outcome, probability in together.items():
        assert apart[outcome] == pytest.approx(probability, rel=1e-9)


@pytest.mark.usefixtures("eager_auto")
@pytest.mark.parametrize(("name", "driver"), in_turn([(name,) for name in ALL_SITUATIONS], list(DRIVERS)))
def test_a_round_has_the_law_of_the_enumerated_trajectories(driver: str, name: str) -> None:
    """H0: (length, who asks) has the exact law, alone and with the counts of each agent; 5 000 rounds."""
    situation = ALL_SITUATIONS[name]
    agents = range(len(situation.kernels))
    sample = play(make_driver(driver, situation.fleet(seed=1)), situation, ROUNDS)
    nobody: tuple[int, ...] = ()
    for seen in [nobody, *[(i,) for i in agents]]:
        p = chi_square(outcomes(sample, seen), exact_law_of(name, seen))
        assert p > ALARM, f"agents {seen}: p = {p:.2g}"


def kind_of_end(length: int, calm: int, *, asked: bool) -> str:
    """The end of a round relative to the length before which agents make no request."""
    if not asked:
        return "no request"
    if length == calm:
        return "at the least length"
    return "later" if length > calm else "too early"


def test_rounds_with_a_least_length_end_in_every_possible_way() -> None:
    """Each kind of end has a probability above 0.05 in some situation, by the exact law."""
    ends: Counter[str] = Counter()
    for name, situation in RESTING.items():
        for (length, asks, _), probability in exact_law_of(name, ()).items():
            assert isinstance(length, int)
            assert isinstance(asks, tuple)
            if probability > 0.05:
                ends[kind_of_end(length, situation.calm, asked=any(asks))] += 1
    assert set(ends) == {"at the least length", "later", "no request"}


def test_the_auto_driver_uses_both_drivers_in_these_situations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Episodes only, counts only, episodes first and counts for the rest."""
    monkeypatch.setattr(auto, "EPISODES_PER_STATE", 1)
    rounds: Counter[tuple[type, ...]] = Counter()
    calls: list[type] = []

    def record_calls(kind: type[EpisodesDriver] | type[CountsDriver]) -> None:
        plain = kind.extend

        def extend(self: Any, *arguments: Any) -> Any:
            calls.append(kind)
            return plain(self, *arguments)

        monkeypatch.setattr(kind, "extend", extend)

    record_calls(EpisodesDriver)
    record_calls(CountsDriver)
    for situation in [*SITUATIONS.values(), *COMPETING.values(), *TIED.values()]:
        driver = make_driver("auto", situation.fleet(seed=1))
        for k in range(100):
            calls.clear()
            collect(driver, situation.policy, situation.budgets_at(0), k * situation.most, situation.most)
            rounds[tuple(calls)] += 1
    assert set(rounds) == {(EpisodesDriver,), (CountsDriver,), (EpisodesDriver, CountsDriver)}
    assert min(rounds.values()) >= 25


# ------------------------------------------------------------------------------- two drivers on the same problem


TWO_SAMPLES: dict[str, tuple[Federation, int, bool]] = {
    "grid, budget 3": (gridworld(agents=3, eps_p=0.3), 3, True),
    "grid, budget 10": (gridworld(agents=3, eps_p=0.3), 10, True),
    "grid, budget 3 after the start": (gridworld(agents=3, eps_p=0.3), 3, False),
    "grid, budget 10 after the start": (gridworld(agents=3, eps_p=0.3), 10, False),
    "large support, budget 2": (synthetic(agents=3, eps_p=0.3, states=12, actions=2, horizon=3), 2, True),
    "large support, budget 7": (synthetic(agents=3, eps_p=0.3, states=12, actions=2, horizon=3), 7, True),
}


class TwoSamples(NamedTuple):
    """Rounds under two drivers: their lengths ``[n]`` and visits ``[n,M,H,S]``, and the budgets."""

    lengths: list[CountArray]
    visits: list[CountArray]
    budgets: CountArray


@cache
def two_samples(driver: str, name: str) -> TwoSamples:
    """4000 rounds with a driver, and 4000 with the episodes driver."""
    federation, budget, start = TWO_SAMPLES[name]
    M = federation.agents
    H = federation.horizon
    S = federation.states
    policy = np.random.default_rng(200).integers(federation.actions, size=(H, S), dtype=np.int32)
    budgets = np.full((M, H, S), budget, dtype=np.int64)
    if not start:  # where all agents come in every episode
        budgets[:, 0] = NEVER
    all_lengths = []
    all_visits = []
    for kind, seed in ((driver, 1), ("episodes", 2)):
        party = make_driver(kind, Fleet.of(federation, seed))
        lengths = np.zeros(4000, dtype=np.int64)
        visits = np.zeros((4000, M, H, S), dtype=np.int64)
        for k in range(4000):
            end = collect(party, policy, budgets_of(budgets), 1000 * k, 1000)
            lengths[k] = end.length
            visits[k] = party.visits
        all_lengths.append(lengths)
        all_visits.append(visits)
    return TwoSamples(all_lengths, all_visits, budgets)


two_sample_cases = pytest.mark.parametrize(
    ("name", "driver"), in_turn([(name,) for name in TWO_SAMPLES], ["counts", "auto"])
)


@pytest.mark.usefixtures("eager_auto")
@two_sample_cases
def test_competing_agents_stop_alike_under_two_drivers(driver: str, name: str) -> None:
    """H0: (length, who asks) has the law of the episodes driver. Chi-square alarms at 4 x 10^-6; six cases."""
    sample = two_samples(driver, name)
    numbers: list[Counter[tuple[int, bytes]]] = []
    for lengths, visits in zip(sample.lengths, sample.visits, strict=True):
        asked = np.asarray((visits >= sample.budgets).any(axis=(2, 3)))
        who = [asked[k].tobytes() for k in range(len(asked))]
        numbers.append(Counter(zip(lengths.tolist(), who, strict=True)))
    ends = sorted(numbers[0] | numbers[1])
    table = np.array([[number[end] for number in numbers] for end in ends])
    common = table[table.sum(axis=1) >= 20]
    rare = table.sum(axis=0) - common.sum(axis=0)
    table = np.vstack([common, rare])
    table = table[table.sum(axis=1) > 0]
    if len(table) > 1:
        assert stats.chi2_contingency(table).pvalue > ALARM


@pytest.mark.usefixtures("eager_auto")
@two_sample_cases
def test_competing_agents_have_the_same_mean_counts_under_two_drivers(driver: str, name: str) -> None:
    """H0: all mean counts are those of the episodes driver.

    The largest of some 100 to 250 normal deviates exceeds 5.5 with probability below 10^-5; six cases.
    """
    one, other = two_samples(driver, name).visits
    difference = one.mean(axis=0) - other.mean(axis=0)
    error = np.sqrt((one.var(axis=0) + other.var(axis=0)) / 4000)
    seen = one.sum(axis=0) + other.sum(axis=0) >= 100
    deviates = difference[seen & (error > 0)] / error[seen & (error > 0)]
    assert seen.sum() > 50
    assert (difference[seen & (error == 0)] == 0).all()
    assert np.abs(deviates).max() < 5.5


def transition_rows(
    federation: Federation, driver: Driver, policy: PolicyArray, counting: Counting
) -> list[tuple[FloatArray, CountArray]]:
    """Laws and counts, row by row: of starts, of transitions and, if visits are counted by step, of drawn actions."""
    rows = []
    for i in range(federation.agents):
        rows.append((federation.initial[i], driver.starts[i, 0]))
    for place in np.ndindex(*driver.visits.shape):
        i, h, s = place[:3]
        a = int(policy[h, s]) if counting is Counting.POLICY else place[3]
        step = h if federation.probabilities.shape[1] > 1 else 0
        rows.append((federation.probabilities[i, step, s, a], driver.transitions[place]))
    if counting is Counting.PAIRS:
        for i, h, s in np.ndindex(*driver.visits.shape[:3]):
            law = policy[h, s] / policy[h, s].sum()
            rows.append((law, driver.visits[i, h, s]))
    return rows


def pearson(rows: list[tuple[FloatArray, CountArray]]) -> tuple[float, int]:
    """The p-value of one chi-square over all rows, given their sums, and its degrees of freedom."""
    statistic = 0.0
    freedom = 0
    for law, found in rows:
        possible = law > 0
        assert not found[~possible].any()
        if found.sum() > 0:
            expected = law[possible] * found.sum()
            statistic += float(((found[possible] - expected) ** 2 / expected).sum())
            freedom += int(possible.sum()) - 1
    return float(stats.chi2.sf(statistic, freedom)), freedom


@pytest.mark.parametrize(
    ("counting", "states", "most", "driver"),
    [
        *in_turn([(counting, 6, 60_000) for counting in Counting], list(DRIVERS)),
        *first_of(list(itertools.product(Counting, [20], [60_000], DRIVERS)), 0),
        *itertools.product(Counting, [4], [10**10], ["counts"]),
    ],
)
def test_long_rounds_have_the_kernels_frequencies(driver: str, counting: Counting, states: int, most: int) -> None:
    """H0: given the visits, transitions are multinomial; starts, and actions drawn from a set, too.

    With 6 states a draw is by comparing with all of the distribution function, with 20 by bisection. In a block of
    ten thousand million episodes errors of 10^-5 in a probability would show.
    """
    rng = np.random.default_rng([300, states])
    stationary = counting is Counting.STATIONARY
    federation = random_federation(rng, 2, states, 3, 3, zeros=0.2, own_starts=True, stationary=stationary)
    assert (federation.successors.shape[3] > 8) == (states > 8)
    policy = random_play(rng, counting, 3, states, 3)
    budgets = np.full((2, *counting.shape(3, states, 3)), NEVER, dtype=np.int64)
    party = make_driver(driver, Fleet.of(federation, seed=3, counting=counting))
    assert collect(party, policy, budgets_of(budgets), 0, most) == RoundEnd(most)
    p, freedom = pearson(transition_rows(federation, party, policy, counting))
    assert freedom > 30
    assert ALARM < p < 1 - ALARM


# ------------------------------------------------------------------------------------------------- conservation


@pytest.mark.usefixtures("eager_auto")
@pytest.mark.parametrize("driver", DRIVERS)
def test_counts_are_conserved(driver: str) -> None:
    """Every step sees as many visits as episodes, what leaves a state came there, and nothing impossible happens."""
    rng = np.random.default_rng(400)
    ends: Counter[tuple[Counting, bool]] = Counter()
    for k, counting in itertools.product(range(40), Counting):
        M, S, A, H = (int(rng.integers(1, high)) for high in (5, 5, 4, 5))
        stationary = bool(rng.integers(2)) or counting is Counting.STATIONARY
        federation = random_federation(rng, M, S, A, H, stationary=stationary, own_starts=bool(rng.integers(2)))
        party = make_driver(driver, Fleet.of(federation, seed=k, counting=counting))
        shape = counting.shape(H, S, A)
        for first in (0, 1000):
            policy = random_play(rng, counting, H, S, A)
            rows = M if rng.integers(2) else 1
            limits = rng.choice([2, 5, 30, 1000, NEVER], size=(rows, *shape)).astype(np.int64)
            budgets = budgets_of(limits, float(rng.choice([0.0, 0.01])))
            most = int(rng.choice([1, 2, 7, 300]))
            stop = collect(party, policy, budgets, first, most)
            visits = party.visits
            transitions = party.transitions
            starts = party.starts[:, 0]
            assert 1 <= stop.length <= most
            assert stop.requests > 0 or stop.length == most
            asking = stop.length >= budgets.min_length(first)
            assert stop.requests == (asking & (visits >= limits)).reshape((M, -1)).any(axis=1).sum()
            assert np.array_equal(transitions.sum(axis=-1), visits)
            assert (starts.sum(axis=1) == stop.length).all()
            assert not starts[federation.initial == 0].any()
            step_by_step = visits.reshape((M, shape[0], -1)).sum(axis=2)
            assert (step_by_step == stop.length * (H if counting is Counting.STATIONARY else 1)).all()
            arrived = np.zeros((M, shape[0], S), dtype=np.int64)
            for cell in np.ndindex(*shape):
                h, s = cell[:2]
                a = int(policy[h, s]) if counting is Counting.POLICY else cell[2]
                step = 0 if stationary else h
                moved = transitions[(slice(None), *cell)]
                assert not moved[federation.probabilities[:, step, s, a] == 0].any()
                for slot, there in enumerate(federation.successors[step, s, a].tolist()):
                    arrived[:, h, there] += moved[:, slot]
            if counting is not Counting.POLICY:
                never = ~(policy if counting is Counting.PAIRS else policy.any(axis=0, keepdims=True))
                assert not visits[:, never].any()
            by_state = visits if counting is Counting.POLICY else visits.sum(axis=3)
            if counting is Counting.STATIONARY:  # whoever is somewhere began there or arrived, but for the ends
                ended = (starts + arrived[:, 0]) - by_state[:, 0]
                assert (ended >= 0).all()
                assert (ended.sum(axis=1) == stop.length).all()
            else:
                assert np.array_equal(starts, by_state[:, 0])
                assert np.array_equal(arrived[:, :-1], by_state[:, 1:])
            ends[counting, stop.requests > 0] += 1
    assert len(ends) == 6
    assert min(ends.values()) > 10


reproducible = pytest.mark.parametrize(
    "name", ["step-dependent kernels with gaps", "sets of actions", "probabilities of actions", "all steps together"]
)


def counts_of_round(driver: str, name: str, seed: int, first: int, before: int = 0) -> bytes:
    """The transitions of one round that begins with episode ``first``, after some other rounds."""
    situation = ALL_SITUATIONS[name]
    party = make_driver(driver, situation.fleet(seed))
    for k in range(before):
        collect(party, situation.policy, situation.budgets_at(0), 100 * k, 20)
    collect(party, situation.policy, situation.budgets_at(0), first, 20)
    return party.transitions.tobytes()


@pytest.mark.parametrize("driver", DRIVERS)
@reproducible
def test_a_round_with_the_same_seed_from_the_same_episode_is_the_same(driver: str, name: str) -> None:
    assert counts_of_round(driver, name, 1, 500) == counts_of_round(driver, name, 1, 500)


@pytest.mark.parametrize("driver", DRIVERS)
@reproducible
def test_a_round_does_not_depend_on_earlier_rounds(driver: str, name: str) -> None:
    assert counts_of_round(driver, name, 1, 500, before=3) == counts_of_round(driver, name, 1, 500)


@pytest.mark.parametrize("driver", DRIVERS)
@reproducible
def test_rounds_from_different_episodes_differ(driver: str, name: str) -> None:
    rounds = {counts_of_round(driver, name, 1, first) for first in range(0, 2000, 20)}
    assert len(rounds) > 30


@pytest.mark.parametrize("driver", DRIVERS)
@reproducible
def test_rounds_with_different_seeds_differ(driver: str, name: str) -> None:
    rounds = {counts_of_round(driver, name, seed, 0) for seed in range(100)}
    assert len(rounds) > 30


def test_an_unknown_driver_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(InputError, match="did you mean 'episodes'"):
        make_driver("episode", Fleet.of(gridworld(agents=1), seed=0))


# ------------------------------------------------------------------------------------------------- exact episodes


class Setup(NamedTuple):
    """A round of seven agents for the episodes driver, that begins at episode 5000."""

    federation: Federation
    policy: PolicyArray
    limits: CountArray
    counting: Counting
    rest: float
    most: int = 400

    @property
    def budgets(self) -> Budgets:
        return budgets_of(self.limits, self.rest)

    def fleet(self, begin: int = 0, end: int | None = None, *, pooled: bool = False) -> Fleet:
        return Fleet(
            successors=self.federation.successors,
            probabilities=self.federation.probabilities[begin:end],
            initial=self.federation.initial[begin:end],
            horizon=self.federation.horizon,
            seed=77,
            first_agent=begin,
            pooled=pooled,
            counting=self.counting,
        )

    def collect(self, driver: EpisodesDriver, begin: int = 0, end: int | None = None) -> RoundEnd:
        limits = self.limits[begin:end] if len(self.limits) > 1 else self.limits
        return collect(driver, self.policy, budgets_of(limits.copy(), self.rest), 5000, self.most)


def setups() -> list[Setup]:
    rng = np.random.default_rng(500)
    found = []
    for counting, stationary in itertools.product(Counting, (True, False)):
        for budget, rest in ((1, 0.0), (4, 0.0), (40, 0.0), (NEVER, 0.0), (1, 0.01), (4, 0.002), (2, 0.06)):
            if counting is Counting.STATIONARY and not stationary:
                continue
            federation = random_federation(rng, 7, 4, 3, 6, stationary=stationary, own_starts=True)
            policy = random_play(rng, counting, 6, 4, 3)
            rows = 7 if rng.integers(2) else 1
            spread = rng.integers(1, 4, size=(rows, *counting.shape(6, 4, 3)))
            limits = np.minimum(spread * budget, NEVER).astype(np.int64)
            found.append(Setup(federation, policy, limits, counting, rest))
    return found


def same_round(one: EpisodesDriver, other: EpisodesDriver) -> bool:
    """True if two drivers have counted the same."""
    return (
        np.array_equal(one.visits, other.visits)
        and np.array_equal(one.transitions, other.transitions)
        and np.array_equal(one.starts, other.starts)
    )


def test_setups_end_in_every_possible_way() -> None:
    ends = set()
    for setup in setups():
        stop = setup.collect(EpisodesDriver(setup.fleet()))
        calm = setup.budgets.min_length(5000)
        ends.add((setup.counting, kind_of_end(stop.length, calm, asked=stop.requests > 0)))
    assert ends == set(itertools.product(Counting, ["at the least length", "later", "no request"]))


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("cores", [3, 2, 16])
def test_threads_do_not_change_the_episodes(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(episodes, "STEPS_BEFORE_THREADS", 0)
    for setup, pooled in itertools.product(setups(), (False, True)):
        alone = EpisodesDriver(setup.fleet(pooled=pooled), cores=1)
        threaded = EpisodesDriver(setup.fleet(pooled=pooled), cores=cores)
        assert setup.collect(alone) == setup.collect(threaded)
        assert same_round(alone, threaded)


@pytest.mark.parametrize("steps", [1, 42, 100, 1000])
def test_the_number_of_steps_per_call_does_not_change_the_episodes(
    steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for setup in setups():
        whole = EpisodesDriver(setup.fleet())
        pieces = EpisodesDriver(setup.fleet())
        stop = setup.collect(whole)
        with monkeypatch.context() as patch:
            patch.setattr(episodes, "STEPS_PER_CALL", steps)
            assert setup.collect(pieces) == stop
        assert same_round(whole, pieces)


splits = pytest.mark.parametrize("cuts", [(0, 1, 7), (0, 3, 5, 7), (0, 1, 2, 3, 4, 5, 6, 7)])


@splits
def test_splitting_a_federation_into_fleets_does_not_change_the_episodes(cuts: tuple[int, ...]) -> None:
    for setup in setups():
        whole = EpisodesDriver(setup.fleet())
        stop = setup.collect(whole)
        for begin, end in itertools.pairwise(cuts):
            part = EpisodesDriver(setup.fleet(begin, end))
            cut = setup._replace(most=stop.length).collect(part, begin, end)
            assert cut.length == stop.length
            assert np.array_equal(part.starts, whole.starts[begin:end])
            assert np.array_equal(part.visits, whole.visits[begin:end])
            assert np.array_equal(part.transitions, whole.transitions[begin:end])


@splits
def test_the_shortest_round_of_the_fleets_is_that_of_the_federation(cuts: tuple[int, ...]) -> None:
    for setup in setups():
        stop = setup.collect(EpisodesDriver(setup.fleet()))
        lengths = []
        for begin, end in itertools.pairwise(cuts):
            part = EpisodesDriver(setup.fleet(begin, end))
            lengths.append(setup.collect(part, begin, end).length)
        assert min(lengths) == stop.length


@splits
def test_requests_of_fleets_are_those_of_the_federation(cuts: tuple[int, ...]) -> None:
    """The number of requests, and the first of them by agent."""
    for setup in setups():
        stop = setup.collect(EpisodesDriver(setup.fleet()))
        ends = []
        for begin, end in itertools.pairwise(cuts):
            part = EpisodesDriver(setup.fleet(begin, end))
            ends.append(setup._replace(most=stop.length).collect(part, begin, end))
        with_request = [end for end in ends if end.requests]
        first = with_request[0] if with_request else RoundEnd(stop.length)
        assert sum(end.requests for end in ends) == stop.requests
        assert first._replace(requests=stop.requests) == stop


def test_counting_together_is_the_sum_of_counting_apart() -> None:
    for setup in setups():
        apart = EpisodesDriver(setup.fleet(pooled=False))
        together = EpisodesDriver(setup.fleet(pooled=True))
        assert setup.collect(apart) == setup.collect(together)
        assert np.array_equal(apart.visits, together.visits)
        assert np.array_equal(apart.transitions.sum(axis=0), together.transitions[0])
        assert np.array_equal(apart.starts, together.starts)


def test_there_is_no_request_before_the_last_episode_of_a_round() -> None:
    for setup in setups():
        driver = EpisodesDriver(setup.fleet())
        length = setup.collect(driver).length
        if length > 1:
            assert setup._replace(most=length - 1).collect(driver) == RoundEnd(length - 1)


def visited_cells(driver: EpisodesDriver, agent: int) -> list[int]:
    touched = driver.fleet.touched
    cells: list[int] = touched.cells[agent, : touched.numbers[agent]].tolist()
    return sorted(cells)


@pytest.mark.parametrize("pooled", [False, True])
def test_episodes_that_are_taken_back_leave_no_trace(pooled: bool) -> None:
    for setup in setups():
        if setup.rest > 0.0:
            continue
        never = np.full_like(setup.limits, NEVER)
        ahead = EpisodesDriver(setup.fleet(pooled=pooled))
        straight = EpisodesDriver(setup.fleet(pooled=pooled))
        collect(ahead, setup.policy, budgets_of(never), 5000, 50)
        ahead.rewind(setup.policy, never, 5020, 30)
        collect(straight, setup.policy, budgets_of(never), 5000, 20)
        assert same_round(ahead, straight)
        for i in range(7):
            assert visited_cells(ahead, i) == visited_cells(straight, i)


class Replay(NamedTuple):
    """Trajectories of a fleet, replayed with NumPy's own generator."""

    federation: Federation
    policy: PolicyArray
    counting: Counting
    seed: int

    def action(self, h: int, state: int, u: float) -> int:
        """The action that a number in [0, 1) draws: of a set the k-th of n, of probabilities by inversion."""
        if self.counting is Counting.POLICY:
            return int(self.policy[h, state])
        if self.policy.dtype == np.bool_:
            possible = np.flatnonzero(self.policy[h, state])
            return int(possible[int(u * len(possible))])
        return inverted(self.policy[h, state], u)

    def add(self, i: int, t: int, transitions: CountArray, starts: CountArray) -> None:
        """Add episode t of agent i to the counts."""
        f = self.federation
        blocks = range((f.horizon + 4) // 4)
        uniforms = [u for block in blocks for u in unit_numbers(self.seed, i, t, block, purpose=1)]
        ties = [u for block in blocks for u in unit_numbers(self.seed, i, t, block, purpose=5)]
        state = inverted(f.initial[i], uniforms[0])
        starts[i, state] += 1
        for h in range(f.horizon):
            step = h if f.probabilities.shape[1] > 1 else 0
            action = self.action(h, state, ties[h])
            slot = inverted(f.probabilities[i, step, state, action], uniforms[h + 1])
            if self.counting is Counting.POLICY:
                transitions[i, h, state, slot] += 1
            else:
                row = h if self.counting is Counting.PAIRS else 0
                transitions[i, row, state, action, slot] += 1
            state = int(f.successors[step, state, action, slot])


def inverted(probabilities: FloatArray, u: float) -> int:
    """The outcome that a number in [0, 1) draws by inversion."""
    return int(np.searchsorted(np.cumsum(probabilities), u, side="right"))


@pytest.mark.parametrize("states", [4, 12])
@pytest.mark.parametrize("counting", Counting)
@pytest.mark.parametrize("form", ["sets", "probabilities"])
def test_a_trajectory_is_a_function_of_seed_agent_episode_with_step(
    counting: Counting, states: int, form: str
) -> None:
    """By NumPy's own Philox: word (h+1) mod 4 of block (h+1) // 4; key (seed, agent), counter (episode, block).

    An action is drawn by word h mod 4 of block h // 4, for the purpose 5.
    """
    rng = np.random.default_rng([600, states])
    H = 9
    M = 3
    A = 3
    seed = 2**63 + 5
    first = 2**40
    most = 50
    federation = random_federation(
        rng, M, states, A, H, own_starts=True, zeros=0.1, stationary=counting is Counting.STATIONARY
    )
    policy = random_play(rng, counting, H, states, A)
    if form == "probabilities" and counting is not Counting.POLICY:
        policy = random_probabilities(rng, H, states, A)
    shape = counting.shape(H, states, A)
    replay = Replay(federation, policy, counting, seed)
    transitions = np.zeros((M, *shape, federation.successors.shape[3]), dtype=np.int64)
    starts = np.zeros((M, states), dtype=np.int64)
    for i, t in itertools.product(range(M), range(first, first + most)):
        replay.add(i, t, transitions, starts)
    never = np.full((M, *shape), NEVER, dtype=np.int64)
    driver = EpisodesDriver(Fleet.of(federation, seed, counting=counting))
    collect(driver, policy, budgets_of(never), first, most)
    assert np.array_equal(driver.transitions, transitions)
    assert np.array_equal(driver.starts[:, 0], starts)


def unit_numbers(seed: int, agent: int, episode: int, block: int, purpose: int) -> list[float]:
    """Four numbers in [0, 1); NumPy steps its counter before the first block, so it starts one below."""
    counter = (episode | block << 64 | purpose << 128) - 1
    words = [counter >> 64 * j & (2**64 - 1) for j in range(4)]
    generator = np.random.Philox(
        key=np.array([seed, agent], dtype=np.uint64),
        counter=np.array(words, dtype=np.uint64),
    )
    return [int(word >> np.uint64(11)) / 2**53 for word in generator.random_raw(4)]
