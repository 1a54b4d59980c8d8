"""Environments people know have the tables of their definitions, and the values that have closed forms."""

from __future__ import annotations

import itertools
import math
import tracemalloc
from collections import Counter
from typing import Any

import numpy as np
import pytest
from scipy import stats

import fed_ucbvi
from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.environments import ENVIRONMENTS, make_environment, random_problems
from fed_ucbvi.environments.chains import chain, hard_instance, riverswim, six_arms, two_state_chain
from fed_ucbvi.environments.family import RandomPart, generator
from fed_ucbvi.environments.gridworlds import deep_sea, n_room, windy_cliff
from fed_ucbvi.environments.random_problems import garnet, random_mdps
from fed_ucbvi.problem.federation import Federation
from fed_ucbvi.problem.mdp import MDP
from problems import individual_kernels, law_of_a_share
from repository import ROOT

FALSE_ALARM = 1e-3


def value(mdp: MDP) -> float:
    return float(mdp.initial @ mdp.solve().V[0])


def check_tables(federation: Federation, P: FloatArray, R: FloatArray, start: FloatArray | int = 0) -> None:
    """The common tables are P and R, and so are every agent's, in a federation without heterogeneity.

    ``V*`` is that of the Bellman equations on these tables, without the package, where they are stationary.
    """
    assert federation.eps_p == federation.eps_r == 0.0
    first = np.eye(P.shape[-1])[start] if isinstance(start, int) else start
    for mdp in (
        federation.common,
        *(federation.agent(i) for i in range(federation.agents)),
    ):
        np.testing.assert_allclose(mdp.kernel.dense(), P.reshape(-1, *P.shape[-3:]), rtol=0, atol=1e-15)
        np.testing.assert_allclose(mdp.rewards, R.reshape(-1, *R.shape[-2:]), rtol=0, atol=1e-15)
        np.testing.assert_array_equal(mdp.initial, first)
    if P.ndim == 3:
        V = np.zeros(len(first))
        for _ in range(federation.horizon):
            V = (R + P @ V).max(axis=1)
        assert value(federation.common) == pytest.approx(float(first @ V), abs=1e-12)


# RiverSwim -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("S", [3, 6, 9])
@pytest.mark.parametrize("variant", ["tabularl", "strehl-littman"])
def test_riverswim_is_its_definition(S: int, variant: Any) -> None:
    P = np.zeros((S, 2, S))
    R = np.zeros((S, 2))
    for s in range(S):
        P[s, 0, max(0, s - 1)] = 1.0
    if variant == "tabularl":
        between, ends, R[0, 0], start = (
            (0.05, 0.6, 0.35),
            (0.4, 0.6),
            0.005,
            np.eye(S)[0],
        )
    else:
        between, ends, R[0, 0], start = (
            (0.1, 0.6, 0.3),
            (0.7, 0.3),
            5 / 10000,
            (np.eye(S)[1] + np.eye(S)[2]) / 2,
        )
    for s in range(1, S - 1):
        P[s, 1, s - 1 : s + 2] = between
    P[0, 1, :2] = P[S - 1, 1, S - 2 :] = ends
    R[S - 1, 1] = 1.0
    river = riverswim(agents=2, states=S, variant=variant)
    check_tables(river, P, R, start)
    assert river.horizon == 20
    assert river.description["reward_scale"] == (1.0 if variant == "tabularl" else 10000.0)


# Chain -----------------------------------------------------------------------------------------------------------
RLBERRY_CHAIN = [
    [[0.9, 0.1, 0.0, 0.0, 0.0], [0.1, 0.9, 0.0, 0.0, 0.0]],
    [[0.9, 0.0, 0.1, 0.0, 0.0], [0.1, 0.0, 0.9, 0.0, 0.0]],
    [[0.0, 0.9, 0.0, 0.1, 0.0], [0.0, 0.1, 0.0, 0.9, 0.0]],
    [[0.0, 0.0, 0.9, 0.0, 0.1], [0.0, 0.0, 0.1, 0.0, 0.9]],
    [[0.0, 0.0, 0.0, 0.9, 0.1], [0.0, 0.0, 0.0, 0.1, 0.9]],
]
RLBERRY_REWARDS = [[0.05, 0.05], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [1.0, 1.0]]
"""``Chain().P`` and ``Chain().R`` as rlberry-scool 0.7.3 prints them."""


def test_the_default_chain_is_the_one_that_rlberry_scool_prints() -> None:
    check_tables(chain(agents=2), np.array(RLBERRY_CHAIN), np.array(RLBERRY_REWARDS))


@pytest.mark.parametrize(("L", "fail"), [(2, 0.3), (3, 0.0), (7, 0.25)])
def test_a_chain_of_any_length_moves_as_intended_or_the_other_way(L: int, fail: float) -> None:
    P = np.zeros((L, 2, L))
    R = np.zeros((L, 2))
    for s in range(L):
        sides = max(s - 1, 0), min(s + 1, L - 1)
        for a in (0, 1):
            P[s, a, sides[a]] += 1 - fail
            P[s, a, sides[1 - a]] += fail
        if s == 0:
            R[s] = 0.05
        elif s == L - 1:
            R[s] = 1.0
        else:
            R[s] = 0.0
    federation = chain(agents=2, length=L, fail=fail)
    assert federation.horizon == 2 * L
    check_tables(federation, P, R)


@pytest.mark.parametrize("N", [2, 5, 12])
def test_the_stochastic_chain_of_tabularl_is_its_definition(N: int) -> None:
    P = np.zeros((N, 2, N))
    R = np.zeros((N, 2))
    for s in range(N):
        P[s, 0, max(0, s - 1)] = 1.0
        P[s, 1, min(N - 1, s + 1)] = 1 - 1 / N
        P[s, 1, max(0, s - 1)] += 1 / N
    R[N - 1, 1] = 1.0
    federation = chain(agents=2, length=N, variant="tabularl")
    check_tables(federation, P, R)
    assert federation.horizon == N
    assert value(federation.common) == pytest.approx((1 - 1 / N) ** (N - 1), abs=1e-14)


# DeepSea ---------------------------------------------------------------------------------------------------------
def dive(N: int, row: int, column: int, right: bool, slip: float) -> tuple[dict[tuple[int, int], float], float]:
    """bsuite's step from a square: the next squares and their probabilities, and the (mean) reward."""
    reward = 0.0
    if column == N - 1 and right:
        reward += 1.0
    if right:
        reward -= 0.01 / N
    moved = min(max(column + (1 if right else -1), 0), N - 1)
    outcomes: dict[tuple[int, int], float] = {}
    for to, probability in ((moved, 1 - slip), (column, slip)) if right else ((moved, 1.0),):
        if probability > 0:
            outcomes[row + 1, to] = outcomes.get((row + 1, to), 0.0) + probability
    return outcomes, reward


@pytest.mark.parametrize("N", [2, 3, 7])
@pytest.mark.parametrize("stochastic", [False, True])
@pytest.mark.parametrize("action_map", [False, True])
def test_deep_sea_is_its_definition(N: int, stochastic: bool, action_map: bool) -> None:
    sea = deep_sea(agents=2, seed=5, size=N, stochastic=stochastic, action_map=action_map)
    P = sea.common.kernel.dense()
    R = sea.common.rewards
    offset = float(str(sea.description["reward_offset"]))
    assert sea.states == N * N
    assert sea.actions == 2
    assert sea.horizon == N
    rightward = []
    for s in range(N * N):
        row, column = divmod(s, N)
        # where both meanings of an action differ, the reward tells which it is: moving left costs nothing
        right = int(np.flatnonzero(R[0, s] != 0.01 / N)[0])
        rightward.append(right)
        for a in (0, 1):
            outcomes, reward = dive(N, row, column, a == right, 1 / N if stochastic else 0.0)
            assert offset + R[0, s, a] == pytest.approx(reward, abs=1e-15)
            if row < N - 1:
                expected = np.zeros((N, N))
                for square, probability in outcomes.items():
                    expected[square] = probability
                np.testing.assert_allclose(P[0, s, a], expected.ravel(), rtol=0, atol=1e-15)
            else:
                assert P[0, s, a, s] == 1.0
    assert rightward == [1] * N * N or action_map


def test_in_deep_sea_either_action_is_right_equally_often() -> None:
    """Hypothesis: the squares' maps are independent fair coins. One binomial test at false-alarm rate 1e-3."""
    R = deep_sea(agents=1, seed=1, size=40).common.rewards[0]
    zero_is_left = int((R[:, 0] == 0.01 / 40).sum())
    assert stats.binomtest(zero_is_left, 1600).pvalue > FALSE_ALARM


@pytest.mark.parametrize("N", [2, 5, 10, 30])
def test_the_optimum_of_deep_sea_is_that_of_the_straight_course(N: int) -> None:
    """Without slips 1 here, 0.99 as published; with slips the left, which is free, is best after the first slip."""
    sure = deep_sea(agents=1, size=N)
    assert value(sure.common) == pytest.approx(1.0, abs=1e-14)
    assert value(sure.common) + N * float(str(sure.description["reward_offset"])) == pytest.approx(0.99, abs=1e-14)
    q = 1 - 1 / N
    cost = 0.01 / N
    expected = q ** (N - 1) + sum(q**k * (1 / N) * cost * (N - 1 - k) for k in range(N - 1))
    assert value(deep_sea(agents=1, size=N, stochastic=True).common) == pytest.approx(expected, abs=1e-14)


# SixArms ---------------------------------------------------------------------------------------------------------
def test_six_arms_is_its_definition() -> None:
    P = np.zeros((7, 6, 7))
    R = np.zeros((7, 6))
    for a, p in enumerate((1.0, 0.15, 0.10, 0.05, 0.03, 0.01)):
        P[0, a, a + 1] = p
        P[0, a, 0] += 1 - p
    P[1, [0, 1, 2, 3, 5], 1] = P[1, 4, 0] = 1.0
    R[1, [0, 1, 2, 3, 5]] = 50
    for i, reward in ((2, 133), (3, 300), (4, 800), (5, 1660), (6, 6000)):
        P[i, :, 0] = 1.0
        P[i, i - 1] = np.eye(7)[i]
        R[i, i - 1] = reward
    arms = six_arms(agents=2)
    check_tables(arms, P, R / 6000)
    assert arms.horizon == 20
    assert arms.description["reward_scale"] == 6000.0


# NRoom -----------------------------------------------------------------------------------------------------------
SEVEN_ROOMS = """
...#...#...#...#...
.f...........s.....
...#...#...#...#...
#################.#
############...#...
############.g.....
############...#...
"""
MOVES = {0: (0, -1), 1: (0, 1), 2: (1, 0), 3: (-1, 0)}


def test_n_room_is_the_plan_of_seven_rooms() -> None:
    plan = SEVEN_ROOMS.split()
    cells = [(r, c) for r, line in enumerate(plan) for c, sign in enumerate(line) if sign != "#"]
    rooms = n_room(agents=2, room_size=3, success=0.9)
    assert rooms.layout is not None
    assert rooms.layout["cells"] == [list(cell) for cell in cells]
    assert rooms.layout["rows"] == len(plan)
    assert rooms.layout["columns"] == len(plan[0])
    end = len(cells)
    where = {plan[r][c]: s for s, (r, c) in enumerate(cells) if plan[r][c] != "."}
    P = np.zeros((end + 1, 4, end + 1))
    R = np.zeros((end + 1, 4))
    R[where["f"]] = 0.1
    R[where["s"]] = 0.01
    R[where["g"]] = 1.0
    for s, (r, c) in enumerate(cells):
        near = {a: cells.index((r + dr, c + dc)) for a, (dr, dc) in MOVES.items() if (r + dr, c + dc) in cells}
        for a in MOVES:
            if s == where["g"]:
                P[s, a, end] = 1.0
            elif a not in near:
                P[s, a, s] = 1.0
            else:
                for b, to in near.items():
                    P[s, a, to] = 0.9 if a == b else 0.1 / (len(near) - 1)
    P[end, :, end] = 1.0
    assert rooms.horizon == 25
    check_tables(rooms, P, R, where["s"])


@pytest.mark.parametrize(
    ("rooms", "size", "states"),
    [(7, 5, 181), (3, 3, 29), (11, 4, 186), (5, 1, 9), (6, 2, 29)],
)
def test_n_room_has_as_many_squares_as_rlberry_gives(rooms: int, size: int, states: int) -> None:
    """Numbers of states of rlberry 0.7.3's NRoom; here there is one more, where episodes end."""
    assert n_room(agents=1, rooms=rooms, room_size=size).states == states + 1


@pytest.mark.parametrize(("rooms", "size"), [(3, 3), (7, 5), (8, 3)])
def test_a_sure_walk_to_the_last_room_pays_once(rooms: int, size: int) -> None:
    walk = (rooms - 1 - rooms // 2) * (size + 1)
    for H in (
        walk + 1,
        walk + 2,
    ):  # the start pays on leaving it, and there is no time to come back to it
        sure = n_room(agents=1, rooms=rooms, room_size=size, success=1.0, horizon=H)
        assert value(sure.common) == pytest.approx(0.01 + 1.0)


# The hard instance -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("A", "d", "H", "waiting"),
    [(2, 2, 6, None), (2, 3, 12, 5), (3, 2, 9, 7), (4, 3, 10, 1)],
)
def test_the_hard_instance_is_its_definition(A: int, d: int, H: int, waiting: int | None) -> None:
    """Written with the paper's steps from 1, the tree as words over the actions."""
    eps = 0.2
    hard = hard_instance(agents=2, seed=4, actions=A, depth=d, horizon=H, waiting=waiting, gap=eps)
    last = H // 3 if waiting is None else waiting
    best = hard.description["best"]
    assert isinstance(best, list)
    step = best[0] + 1
    leaf = best[1]
    action = best[2]
    assert 1 + d <= step <= last + d
    words = [tuple(word) for k in range(d) for word in np.ndindex(*[A] * k)]
    number: dict[Any, int] = {"wait": 0} | {word: 1 + k for k, word in enumerate(words)}
    number |= {"good": len(number), "bad": len(number) + 1}
    S = len(number)
    assert hard.states == S == 3 + (A**d - 1) // (A - 1)
    leaves = [word for word in words if len(word) == d - 1]
    P = np.zeros((H, S, A, S))
    R = np.zeros((H, S, A))
    for h in range(1, H + 1):
        for a in range(A):
            P[h - 1, 0, a, number["wait"] if a == 0 and h <= last else number[()]] = 1.0
            for word in words:
                if len(word) < d - 1:
                    P[h - 1, number[word], a, number[(*word, a)]] = 1.0
            for k, word in enumerate(leaves):
                good = 0.5 + (eps if (h, k, a) == (step, leaf, action) else 0.0)
                P[h - 1, number[word], a, number["good"]] = good
                P[h - 1, number[word], a, number["bad"]] = 1 - good
            for state in ("good", "bad"):
                P[h - 1, number[state], a, number[state]] = 1.0
        R[h - 1, number["good"]] = 1.0 if h >= last + d + 1 else 0.0
    check_tables(hard, P, R)


@pytest.mark.parametrize("gap", [0.0, 0.1, 0.5])
@pytest.mark.parametrize(
    ("A", "d", "H", "waiting"),
    [(2, 2, 6, 2), (2, 3, 12, 9), (3, 2, 15, 5), (2, 5, 15, 4)],
)
def test_the_optimum_of_the_hard_instance_is_known(A: int, d: int, H: int, waiting: int, gap: float) -> None:
    for seed in (0, 1):
        hard = hard_instance(agents=1, seed=seed, actions=A, depth=d, horizon=H, waiting=waiting, gap=gap)
        assert value(hard.common) == pytest.approx((H - waiting - d) * (0.5 + gap), abs=1e-13)


def test_the_needle_can_be_put_anywhere() -> None:
    for best in ([2, 0, 0], [5, 1, 1], [3, 1, 0]):
        hard = hard_instance(agents=1, best=best)
        assert hard.description["best"] == best
        needle = np.argwhere(np.isclose(hard.common.kernel.dense(), 0.75)).tolist()
        assert needle == [[best[0], 2 + best[1], best[2], 4]]


# The two-state chain ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("H", [2, 5, 10, 50])
@pytest.mark.parametrize("share", [0.05, 0.5, 0.99])
def test_the_pair_of_the_lemma_has_the_values_of_the_lemma(H: int, share: float) -> None:
    eps = share * 2 / H
    pair = two_state_chain(eps_p=eps, horizon=H)
    stays, leaves = (value(pair.agent(i)) for i in (0, 1))
    assert stays == H
    assert leaves == pytest.approx((1 - (1 - eps) ** H) / eps, rel=1e-12)
    assert stays - leaves >= eps * H**2 / 4 - 1e-9
    assert (value(pair.common), pair.eps_p) == (H, eps)
    P = [pair.agent(i).kernel.dense()[0, 0, 0] for i in (0, 1)]
    np.testing.assert_allclose(np.stack(P), np.array([[1.0, 0.0], [1 - eps, eps]]), rtol=0, atol=1e-15)
    assert np.abs(P[0] - P[1]).sum() == pytest.approx(2 * eps)  # the lemma's construction has twice the l1 distance


@pytest.mark.parametrize("leave", [0.0, 0.2, 1.0])
def test_the_two_state_chain_is_its_definition(leave: float) -> None:
    federation = two_state_chain(leave=leave, horizon=7)
    check_tables(
        federation,
        np.array([[[1 - leave, leave]], [[0.0, 1.0]]]),
        np.array([[1.0], [0.0]]),
    )
    assert value(federation.common) == pytest.approx(math.fsum((1 - leave) ** h for h in range(7)))


# Garnet ----------------------------------------------------------------------------------------------------------
def test_a_garnet_leads_to_as_many_different_states_as_it_branches_drawn_evenly() -> None:
    """Hypothesis: each next state is among a row's b with probability b/S, rows independent. Chi-square at 1e-3.

    Drawn without replacement, the counts of the states over n rows have covariance
    ``n b (S-b) / (S (S-1)) (I - J/S)`` with J all ones, so their squared distance from n b/S over that factor is
    chi-square with S - 1 degrees of freedom in the limit.
    """
    S = 12
    A = 200
    b = 4
    problem = garnet(agents=1, seed=3, states=S, actions=A, branching=b)
    successors = problem.successors[0].reshape(-1, b)
    assert (np.diff(successors, axis=1) > 0).all()
    counts = np.bincount(successors.ravel(), minlength=S)
    n = S * A
    statistic = ((counts - n * b / S) ** 2).sum() / (n * b / S * (S - b) / (S - 1))
    assert stats.chi2(S - 1).sf(statistic) > FALSE_ALARM


def test_rows_of_a_garnet_are_uniform_on_the_simplex() -> None:
    """Hypothesis: every entry is Beta(1, b-1). Kolmogorov-Smirnov on the first of every row, false alarm 5e-4."""
    problem = garnet(agents=1, seed=2, states=20, actions=60, branching=3)
    rows = problem.common.kernel.probabilities[0].reshape(-1, 3)
    assert stats.kstest(rows[:, 0], stats.beta(1, 2).cdf).pvalue > FALSE_ALARM / 2


def test_rewards_of_a_garnet_are_uniform() -> None:
    """Hypothesis: rewards are uniform on [0,1]. Kolmogorov-Smirnov, false alarm 5e-4."""
    problem = garnet(agents=1, seed=2, states=20, actions=60, branching=3)
    assert stats.kstest(problem.rewards.ravel(), stats.uniform.cdf).pvalue > FALSE_ALARM / 2


@pytest.mark.parametrize(
    ("S", "A", "b", "seed"),
    [(20, 4, 3, 0), (7, 2, 7, 1), (300, 3, 5, 2), (1, 1, 1, 3), (9, 3, 1, 4)],
)
def test_a_garnet_takes_the_lowest_ranks(S: int, A: int, b: int, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In whatever blocks the ranks are drawn, they are those of one table (1, S, A, S), sorted whole."""
    monkeypatch.setattr(random_problems, "AT_ONCE", 1000)
    ranks = generator(seed, RandomPart.STRUCTURE).random((1, S, A, S)).argsort(axis=-1)[..., :b]
    problem = garnet(agents=1, seed=seed, states=S, actions=A, branching=b)
    np.testing.assert_array_equal(problem.successors, np.sort(ranks, axis=-1))
    np.testing.assert_allclose(problem.initial, 1 / S)


def test_a_garnet_of_twenty_thousand_states_needs_no_table_of_all_pairs_of_states() -> None:
    """S² A = 1.6e9 numbers would take 13 GB."""
    tracemalloc.start()
    try:
        problem = garnet(agents=2, states=20_000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert problem.successors.shape == (1, 20_000, 4, 3)
    assert (np.diff(problem.successors, axis=-1) > 0).all()
    assert peak < 200e6


def test_next_states_drawn_one_by_one_are_every_subset_equally_often() -> None:
    """Hypothesis: all 20 subsets of 3 of 6 are equally likely; chi-squared with a false-alarm rate of 1e-6."""
    subsets = random_problems._drawn_subsets(np.random.default_rng(3), 40_000, 6, 3)
    counts = Counter(map(tuple, subsets.tolist()))
    assert set(counts) == set(itertools.combinations(range(6), 3))
    assert stats.chisquare(list(counts.values())).pvalue > 1e-6


# WindyCliff ------------------------------------------------------------------------------------------------------
def cliff_tables(X: int, Y: int, theta: float) -> tuple[FloatArray, FloatArray]:
    """WindyCliffs as Jin et al. (2022) describe them: square (x, y) is state x + y X, with y = 0 along the cliff.

    Actions are up, down, left and right. The result has our numbering: rows from above, and left, right, down, up.
    """
    P = np.zeros((X * Y, 4, X * Y))
    R = np.full((X * Y, 4), -1.0)
    for x, y in itertools.product(range(X), range(Y)):
        s = x + y * X
        if y == 0 and x > 0:
            P[s, :, 0] = 1.0
            R[s] = 100.0 if x == X - 1 else -100.0
            continue
        down = x + max(y - 1, 0) * X
        for a, (dx, dy) in enumerate([(0, 1), (0, -1), (-1, 0), (1, 0)]):
            aim = min(max(x + dx, 0), X - 1) + min(max(y + dy, 0), Y - 1) * X
            P[s, a, aim] += 1.0 if a == 1 else 1.0 - theta / 3
            P[s, a, down] += 0.0 if a == 1 else theta / 3
    ours = [x + y * X for y in reversed(range(Y)) for x in range(X)]
    return P[np.ix_(ours, [2, 3, 1, 0], ours)], R[np.ix_(ours, [2, 3, 1, 0])]


@pytest.mark.parametrize(("X", "Y", "theta"), [(4, 4, 0.5), (3, 2, 1.0), (6, 3, 0.0)])
def test_windy_cliff_is_its_definition(X: int, Y: int, theta: float) -> None:
    cliff = windy_cliff(agents=2, rows=Y, columns=X, wind=theta)
    P, R = cliff_tables(X, Y, theta)
    check_tables(cliff, P, (R + 100) / 200, (Y - 1) * X)
    described = (
        cliff.horizon,
        cliff.description["reward_scale"],
        cliff.description["reward_offset"],
    )
    assert described == (20, 200.0, -100.0)


def test_individual_cliffs_have_a_wind_of_their_own_drawn_evenly() -> None:
    """Hypothesis: the winds of 300 agents are uniform on (0,1); Kolmogorov-Smirnov at false-alarm rate 1e-3."""
    kappa = 0.4
    theta = 0.5
    cliffs = windy_cliff(agents=300, eps_p=kappa, wind=theta, seed=5)
    winds = []
    for i in range(300):
        kernel = cliffs.agent(i).kernel.dense()[0]
        mixed = 3 * kernel[0, 1, 4]  # from the upper left corner, to the right, and blown down
        np.testing.assert_allclose(kernel, cliff_tables(4, 4, mixed)[0], rtol=0, atol=1e-12)
        winds.append((mixed - (1 - kappa) * theta) / kappa)
    assert stats.kstest(winds, stats.uniform.cdf).pvalue > FALSE_ALARM


# RandomMDPs ------------------------------------------------------------------------------------------------------
def test_rows_of_random_mdps_are_normalised_uniform_weights() -> None:
    """Hypothesis: weights of two states are independent U(0,1). Kolmogorov-Smirnov, false alarm 1e-3 per kernel."""
    problem = random_mdps(agents=1, eps_p=0.3, seed=4, states=2, actions=300)
    for rows in (problem.common.kernel.dense()[0], individual_kernels(problem)[0, 0]):
        assert stats.kstest(rows[..., 0].ravel(), law_of_a_share).pvalue > FALSE_ALARM


def test_rewards_of_random_mdps_are_uniform() -> None:
    """Hypothesis: rewards are independent U(0,1). Kolmogorov-Smirnov, false alarm 1e-3."""
    problem = random_mdps(agents=1, eps_p=0.3, seed=4, states=2, actions=300)
    assert stats.kstest(problem.common.rewards.ravel(), stats.uniform.cdf).pvalue > FALSE_ALARM


def test_episodes_of_random_mdps_begin_in_a_uniform_state() -> None:
    problem = random_mdps(agents=1, eps_p=0.3, seed=4, states=2, actions=300)
    np.testing.assert_array_equal(problem.common.initial, [0.5, 0.5])


def test_in_disjoint_random_mdps_agents_go_with_probability_kappa_where_the_common_kernel_never_goes() -> None:
    kappa = 0.2
    S = 6
    problem = random_mdps(agents=4, eps_p=kappa, seed=1, states=S, variant="disjoint")
    common = problem.common.kernel.dense()[0]
    assert problem.eps_p == kappa
    assert ((common > 0).sum(axis=-1) < S).all()
    for i in range(4):
        kernel = problem.agent(i).kernel.dense()[0]
        np.testing.assert_allclose(kernel[common > 0], (1 - kappa) * common[common > 0], rtol=1e-12)
        np.testing.assert_allclose(kernel.sum(axis=-1, where=common == 0), kappa, rtol=1e-12)
        assert (kernel > 0).all()


def test_every_next_state_of_disjoint_random_mdps_is_drawn_by_a_coin() -> None:
    """Hypothesis: the number of next states of (s,a) is binomial, S = 4, with 0 counted as 1 and 4 as 3.

    Chi-squared on 2 000 pairs at false-alarm rate 1e-3.
    """
    rows = random_mdps(agents=1, seed=2, states=4, actions=500, variant="disjoint").common.kernel.dense()[0]
    numbers = Counter((rows > 0).sum(axis=-1).ravel().tolist())
    observed = [numbers[k] for k in (1, 2, 3)]
    assert sum(observed) == 2000
    assert stats.chisquare(observed, [2000 * share / 16 for share in (5, 6, 5)]).pvalue > FALSE_ALARM


# The documentation -----------------------------------------------------------------------------------------------
PAGE = (ROOT / "docs" / "environments.md").read_text(encoding="utf-8")


def rows_of(table: str) -> list[list[str]]:
    """The cells of the rows of the first table after ``table``, without its heading."""
    lines = PAGE[PAGE.index(table) :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]


def test_the_table_of_environments_in_the_documents_is_printed_by_its_code(
    capsys: pytest.CaptureFixture[str],
) -> None:
    exec(
        compile(
            PAGE.partition("```python\n")[2].partition("```")[0],
            "environments.md",
            "exec",
        ),
        {},
    )
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    documented = [[name, S, A, H, best] for name, S, A, H, _, _, best in rows_of("| name | S |")]
    assert documented == printed
    assert [getattr(fed_ucbvi, row[0]) for row in rows_of("| name | S |")] == list(ENVIRONMENTS.values())[:-2]


def test_the_documented_eps_p_of_each_spread_is_what_is_computed() -> None:
    options: dict[str, dict[str, object]] = {
        "deep_sea": {"stochastic": True},
        "two_state_chain": {"leave": 0.1},
    }
    names = list(ENVIRONMENTS)[2:-2]
    for spread, *documented in rows_of("| spread | riverswim"):
        for name, eps_p in zip(names, documented, strict=True):
            made = make_environment(name, agents=20, spread=float(spread), **options.get(name, {}))
            assert f"{made.eps_p:.4f}" == eps_p
