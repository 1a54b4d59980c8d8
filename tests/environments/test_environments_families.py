"""Heterogeneity of agents in well-known environments: individual kernels, natural parameters, and bad input."""

from __future__ import annotations

import itertools
import json
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fed_ucbvi import FedUCBVI, run
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.engine.simulation import Caution
from fed_ucbvi.environments import make_environment
from fed_ucbvi.problem.federation import Federation
from fed_ucbvi.results.grid import first_steps, moves_from
from picture_texts import badly_placed
from problems import SMALL_ENVIRONMENTS, dense_agents, individual_kernels, law_of_a_share

FALSE_ALARM = 1e-3
KNOWN = sorted(set(SMALL_ENVIRONMENTS) - {"gridworld", "synthetic"})
every_one = pytest.mark.parametrize("name", KNOWN)


def small(name: str, **options: object) -> Federation:
    return make_environment(name, **{**SMALL_ENVIRONMENTS.get(name, {}), **options})


def log_odds(p: FloatArray) -> FloatArray:
    return np.asarray(np.log(p) - np.log1p(-p))


# spread ----------------------------------------------------------------------------------------------------------
@every_one
def test_agents_are_alike_by_default(name: str) -> None:
    federation = small(name, agents=3)
    assert federation.eps_p == federation.eps_r == 0.0
    assert federation.rewards.shape[0] == 1
    for kernel in dense_agents(federation):
        np.testing.assert_array_equal(kernel, federation.common.kernel.dense())


EVERY_SPREAD = pytest.mark.parametrize("spread", [0.05, 0.5, 3.0, 10.0])


@every_one
@EVERY_SPREAD
def test_a_spread_does_not_change_supports(name: str, spread: float) -> None:
    published = small(name, agents=1, seed=2).common.kernel.dense()
    for kernel in dense_agents(small(name, agents=4, spread=spread, seed=2)):
        np.testing.assert_array_equal(kernel > 0, published > 0)
        np.testing.assert_allclose(kernel.sum(axis=-1), 1.0, rtol=0, atol=1e-12)


@every_one
@EVERY_SPREAD
def test_a_spread_bounds_the_factor_by_which_probabilities_change(name: str, spread: float) -> None:
    published = small(name, agents=1, seed=2).common.kernel.dense()
    for kernel in dense_agents(small(name, agents=4, spread=spread, seed=2)):
        ratio = kernel[published > 0] / published[published > 0]
        assert math.exp(-2 * spread) <= ratio.min() * (1 + 1e-9)
        assert ratio.max() <= math.exp(2 * spread) * (1 + 1e-9)


@every_one
@EVERY_SPREAD
def test_a_spread_bounds_eps_p(name: str, spread: float) -> None:
    federation = small(name, agents=4, spread=spread, seed=2)
    overlap = dense_agents(federation).min(axis=0).sum(axis=-1)
    assert federation.eps_p == pytest.approx(1.0 - overlap.min(), abs=1e-12)
    assert 0 < federation.eps_p <= 1 - math.exp(-2 * spread) + 1e-12


@every_one
@EVERY_SPREAD
def test_agents_with_a_spread_satisfy_assumption_1(name: str, spread: float) -> None:
    federation = small(name, agents=4, spread=spread, seed=2)
    share_of_common = (1 - federation.eps_p) * federation.common.kernel.dense()
    assert (dense_agents(federation) - share_of_common).min() > -1e-12


@every_one
def test_the_displacement_of_an_agent_does_not_depend_on_the_number_of_agents(name: str) -> None:
    few, many = (small(name, agents=M, spread=0.5, seed=8) for M in (2, 6))
    np.testing.assert_array_equal(dense_agents(many)[:2], dense_agents(few))


@every_one
def test_the_displacement_of_an_agent_depends_on_the_seed(name: str) -> None:
    one, other = (small(name, agents=2, spread=0.5, seed=seed) for seed in (8, 9))
    assert np.abs(dense_agents(other) - dense_agents(one)).max() > 1e-4


@every_one
def test_agents_with_a_spread_all_differ(name: str) -> None:
    kernels = dense_agents(small(name, agents=6, spread=0.5, seed=8))
    for one, other in itertools.combinations(kernels, 2):
        assert np.abs(one - other).max() > 1e-6


@pytest.mark.parametrize("name", sorted(set(KNOWN) - {"hard_instance"}))
def test_twice_the_spread_is_twice_the_displacement(name: str) -> None:
    """Displacements of the log-odds of two next states are linear in the spread.

    Not so in the hard instance, where the odds of twice the gap are displaced and not those of the good state.
    """
    published = small(name, agents=1, seed=3).common.kernel.dense()
    shifts = []
    for spread in (0.2, 0.4):
        kernel = small(name, agents=3, seed=3, spread=spread).agent(2).kernel.dense()
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.log(kernel / published)
        row = np.argwhere((published > 0) & (published < 1) & (np.abs(ratio) > 1e-6))[0][:3]
        used = np.flatnonzero(published[tuple(row)])
        shifts.append(ratio[(*row, used[1])] - ratio[(*row, used[0])])
    assert shifts[0] != 0
    assert shifts[1] == pytest.approx(2 * shifts[0], rel=1e-9)


PARAMETERS: dict[str, tuple[float, Callable[[FloatArray], float]]] = {
    "riverswim": (0.4, lambda P: P[0, 0, 1, 0]),
    "chain": (0.1, lambda P: P[0, 1, 1, 0]),
    "deep_sea": (0.25, lambda P: P[0, 0, :, 4].min()),
    "six_arms": (0.05, lambda P: P[0, 0, 3, 4]),
    "n_room": (0.95, lambda P: P[0, 0, 1, 1]),
    "hard_instance": (0.5, lambda P: 2 * (P[P < 1].max() - 0.5)),
    "two_state_chain": (0.2, lambda P: P[0, 0, 0, 1]),
    "windy_cliff": (0.5 / 3, lambda P: P[0, 4, 0, 7]),
}
"""A probability as published and where to read an agent's. RiverSwim's is that of staying in the first state, where
swimming either stays or gets up; DeepSea's the smaller one of getting from the first square straight down."""


@pytest.mark.parametrize("name", sorted(PARAMETERS))
def test_log_odds_of_the_natural_parameter_are_displaced_uniformly(name: str) -> None:
    """Hypothesis: displacements of 300 agents are independent and uniform on [-spread, spread].

    One Kolmogorov-Smirnov test for each environment, at false-alarm rate 1e-3.
    """
    spread = 0.4
    federation = small(name, agents=300, spread=spread, seed=1)
    published, read = PARAMETERS[name]
    drawn = np.array([read(P) for P in dense_agents(federation)])
    shifts = (log_odds(drawn) - log_odds(np.array(published))) / spread
    assert np.abs(shifts).max() <= 1 + 1e-9
    assert stats.kstest(shifts, stats.uniform(-1, 2).cdf).pvalue > FALSE_ALARM


@pytest.mark.parametrize(
    "name",
    ["chain", "deep_sea", "n_room", "two_state_chain", "windy_cliff", "hard_instance"],
)
def test_eps_p_is_the_range_of_the_one_probability_that_varies(name: str) -> None:
    """In the hard instance that is 1/2 and the gap, and its optimum is known."""
    federation = small(name, agents=9, spread=0.7, seed=4)
    hard = name == "hard_instance"
    drawn = [PARAMETERS[name][1](P) / (2 if hard else 1) for P in dense_agents(federation)]
    assert federation.eps_p == pytest.approx(max(drawn) - min(drawn), abs=1e-12)
    for i, gap in enumerate(drawn if hard else ()):
        assert 0 < gap < 0.5
        assert federation.agent(i).solve().V[0, 0] == pytest.approx((7 - 2 - 2) * (0.5 + gap))


def test_a_stronger_current_is_worse_for_the_swimmer() -> None:
    federation = small("riverswim", agents=8, spread=0.5)
    kernels = dense_agents(federation)[:, 0]
    up, stay, down = (kernels[:, 1, 1, s] for s in (2, 1, 0))
    current = np.log(down / stay) - math.log(0.05 / 0.6)
    np.testing.assert_allclose(np.log(up / stay) - math.log(0.35 / 0.6), -current, rtol=0, atol=1e-12)
    values = np.array([federation.agent(i).solve().V[0, 0] for i in range(8)])
    assert (np.diff(values[np.argsort(current)]) < 0).all()


# Individual kernels ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", sorted(set(KNOWN) - {"garnet", "n_room", "two_state_chain", "windy_cliff"}))
def test_an_individual_kernel_moves_wherever_some_action_leads(name: str) -> None:
    federation = small(name, agents=3, eps_p=0.5, seed=6)
    common = federation.common.kernel.dense()
    by_some_action = (common > 0).any(axis=2, keepdims=True)
    for individual in individual_kernels(federation):
        np.testing.assert_array_equal(individual > 1e-9, np.broadcast_to(by_some_action, common.shape))


def test_an_individual_kernel_of_a_garnet_has_the_next_states_of_the_common_one() -> None:
    federation = small("garnet", agents=3, eps_p=0.5, seed=6)
    possible = federation.common.kernel.dense() > 0
    for individual in individual_kernels(federation):
        np.testing.assert_array_equal(individual > 1e-9, possible)


def test_an_individual_kernel_of_n_room_moves_to_the_free_neighbours() -> None:
    federation = small("n_room", agents=3, eps_p=0.5, seed=6)
    layout: Any = federation.layout
    cells = layout["cells"]
    goal = cells.index([1, 7])
    for individual in individual_kernels(federation)[:, 0]:
        for s, (r, c) in enumerate(cells):
            near = {t for t, (x, y) in enumerate(cells) if abs(x - r) + abs(y - c) == 1}
            for row in individual[s]:
                if s != goal:
                    assert set(np.flatnonzero(row > 1e-9).tolist()) == near


def test_the_goal_of_n_room_ends_the_episode_under_every_kernel() -> None:
    federation = small("n_room", agents=3, eps_p=0.5, seed=6)
    layout: Any = federation.layout
    goal = layout["cells"].index([1, 7])
    end = len(layout["cells"])
    for individual in individual_kernels(federation)[:, 0]:
        for row in individual[goal]:
            assert np.flatnonzero(row > 1e-9).tolist() == [end]
    for kernel in dense_agents(federation)[:, 0]:
        assert (kernel[end, :, end] == 1).all()


@pytest.mark.parametrize("name", ["chain", "gridworld"])
def test_individual_weights_are_uniform_on_the_unit_interval(name: str) -> None:
    """Hypothesis: weights of two next states are independent U(0,1); one Kolmogorov-Smirnov test each at 1e-3.

    They are the two sides of a chain, or the two free neighbours that every square of the paper's grid has.
    """
    own = individual_kernels(small(name, agents=100, eps_p=0.9, seed=1))
    shares = [row[row > 1e-9] for row in own.reshape(-1, own.shape[-1])]
    assert {len(share) for share in shares} == {2}
    assert stats.kstest([share[0] for share in shares], law_of_a_share).pvalue > FALSE_ALARM


# Bad input, descriptions, pictures -------------------------------------------------------------------------------
OF_ANY: list[tuple[dict[str, object], str]] = [
    ({"agents": 0}, "agents must be at least 1, got 0"),
    ({"agents": 2.5}, "agents must be a whole number, got 2.5"),
    ({"agents": "many"}, "agents must be a whole number, got 'many'"),
    ({"seed": -1}, "seed must be at least 0, got -1"),
    ({"seed": 0.5}, "seed must be a whole number, got 0.5"),
    ({"eps_p": 1.0}, r"must be a number in \[0, 1\) \(Assumption 1\), got 1.0"),
    ({"eps_p": float("nan")}, "must be a number, got nan"),
    ({"eps_p": -0.5}, r"must be a number in \[0, 1\) \(Assumption 1\), got -0.5"),
    ({"eps_p": None}, "must be a number, got None"),
    (
        {"horizon": -3},
        "horizon must be at least 1, got -3|unknown option of deep_sea 'horizon'",
    ),
]
SPREADS: list[tuple[object, str]] = [
    (-0.1, r"spread must be .*in \[0, 10\], got -0.1"),
    *((x, f"spread must be .*got {x}") for x in (11, float("nan"))),
    ("much", "spread must be .*a number, got 'much'"),
    (0.2, "eps_p = 0.1 and spread = 0.2 are two ways to make agents differ"),
]
NOTHING_VARIES: dict[str, tuple[dict[str, object], str]] = {
    "chain": ({"fail": 0.0}, "the probability of failing"),
    "deep_sea": ({"stochastic": False}, "the probability of slipping"),
    "n_room": ({"success": 1.0}, "the probability of success"),
    "hard_instance": ({"gap": 0.5}, "twice the gap"),
    "two_state_chain": ({"leave": 0.0}, "the probability of leaving"),
    "garnet": ({"branching": 1}, "every probability"),
    "windy_cliff": ({"wind": 0.0}, "the probability of being blown down"),
}


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        *((name, *case) for name in SMALL_ENVIRONMENTS for case in OF_ANY),
        *((name, {"eps_p": 0.1, "spread": spread}, message) for name in KNOWN for spread, message in SPREADS),
        *(
            (
                name,
                {"spread": 0.5, **options},
                f"spread = 0.5 changes nothing: {what} is 0 or 1 in this {name}",
            )
            for name, (options, what) in NOTHING_VARIES.items()
        ),
        ("riverswim", {"states": 2}, "states must be at least 3, got 2"),
        (
            "riverswim",
            {"variant": "tabular"},
            "unknown variant 'tabular'; did you mean 'tabularl'",
        ),
        ("chain", {"length": 1}, "length must be at least 2, got 1"),
        ("chain", {"fail": 1.1}, r"fail must be a number in \[0, 1\], got 1.1"),
        ("chain", {"variant": "rlbery"}, "did you mean 'rlberry'"),
        ("deep_sea", {"size": 1}, "size must be at least 2, got 1"),
        ("deep_sea", {"stochastic": 1}, "stochastic must be true or false, got 1"),
        (
            "deep_sea",
            {"action_map": "no"},
            "action_map must be true or false, got 'no'",
        ),
        ("six_arms", {"arms": 5}, "unknown option of six_arms 'arms'"),
        ("n_room", {"rooms": 2}, "rooms must be at least 3, got 2"),
        ("n_room", {"room_size": 0}, "room_size must be at least 1, got 0"),
        (
            "n_room",
            {"success": -0.1},
            r"success must be a number in \[0, 1\], got -0.1",
        ),
        ("hard_instance", {"actions": 1}, "actions must be at least 2, got 1"),
        ("hard_instance", {"depth": 1}, "depth must be at least 2, got 1"),
        (
            "hard_instance",
            {"depth": 3, "horizon": 8},
            r"horizon must be at least 3 \* depth = 9, got 8",
        ),
        (
            "hard_instance",
            {"horizon": 12, "waiting": 11},
            "waiting must be at most 10, got 11",
        ),
        ("hard_instance", {"waiting": 0}, "waiting must be at least 1, got 0"),
        ("hard_instance", {"gap": 0.6}, r"gap must be a number in \[0, 0.5\], got 0.6"),
        (
            "hard_instance",
            {"best": [1, 0, 0]},
            "best: the step must be at least 2, got 1",
        ),
        (
            "hard_instance",
            {"best": [6, 0, 0]},
            "best: the step must be at most 5, got 6",
        ),
        (
            "hard_instance",
            {"best": [2, 2, 0]},
            "best: the leaf must be at most 1, got 2",
        ),
        (
            "hard_instance",
            {"best": [2, 0, 2]},
            "best: the action must be at most 1, got 2",
        ),
        (
            "hard_instance",
            {"best": [2, 0]},
            "best must be a step, a leaf and an action",
        ),
        ("hard_instance", {"best": 3}, "best must be a step, a leaf and an action"),
        ("two_state_chain", {"leave": 2}, r"leave must be a number in \[0, 1\], got 2"),
        ("garnet", {"states": 0}, "states must be at least 1"),
        ("garnet", {"actions": 0}, "actions must be at least 1"),
        ("garnet", {"branching": 21}, "branching must be at most 20, got 21"),
        ("windy_cliff", {"rows": 1}, "rows must be at least 2, got 1"),
        ("windy_cliff", {"columns": 2}, "columns must be at least 3, got 2"),
        ("windy_cliff", {"wind": 1.5}, r"wind must be a number in \[0, 1\], got 1.5"),
        ("random_mdps", {"states": 1}, "states must be at least 2, got 1"),
        ("random_mdps", {"variant": "disjont"}, "did you mean 'disjoint'"),
        ("gridworld", {"start": (1, 1)}, r"start \(1, 1\) lies in a wall"),
        ("gridworld", {"goals": [(0, 0), (1, 1)]}, r"goals \(1, 1\) lies in a wall"),
        (
            "gridworld",
            {"walls": [(3, 0)]},
            r"walls: \(3, 0\) lies outside the 3 x 3 grid",
        ),
        (
            "gridworld",
            {"goals": [(0, -1)]},
            r"goals: \(0, -1\) lies outside the 3 x 3 grid",
        ),
        ("gridworld", {"start": (0, 3)}, r"start: \(0, 3\) lies outside"),
        (
            "gridworld",
            {"walls": [(1, 1, 1)]},
            r"walls: \(1, 1, 1\) is not a \(row, column\) pair",
        ),
        (
            "gridworld",
            {"walls": [(0.5, 1)]},
            "walls: a coordinate must be a whole number",
        ),
        (
            "gridworld",
            {"success": 1.5},
            r"success must be a number in \[0, 1\], got 1.5",
        ),
        ("gridworld", {"rows": 0}, "rows must be at least 1"),
        ("gridworld", {"columns": 0}, "columns must be at least 1"),
        ("gridworld", {"goals": (2, 2)}, r"goals: 2 is not a \(row, column\) pair"),
        *(("synthetic", {"eps_r": x}, rf"eps_r must be a number.*, got {x}\.") for x in (-0.1, 1.0, float("nan"))),
        *(
            (
                name,
                {option: 1},
                f"unknown option of {name} '{option}'; did you mean '{nearest}'",
            )
            for name, option, nearest in (
                ("gridworld", "wall", "walls"),
                ("gridworld", "eps", "eps_p"),
                ("synthetic", "state", "states"),
            )
        ),
        (
            "grid-world",
            {},
            r"'grid-world'; did you mean 'gridworld'\? Known: chain, .*gridworld, .*synthetic",
        ),
    ],
)
def test_a_bad_option_is_refused_with_the_reason(name: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_environment(name, **options)


GRID = {"rows": 2, "columns": 4, "walls": {(0, 1)}, "goals": [(1, 3), (0, 3)]}
DESCRIBED: list[tuple[str, dict[str, Any]]] = [
    *((name, differ) for name in KNOWN for differ in ({"eps_p": 0.2}, {"spread": 0.3})),
    *(("gridworld", options) for options in ({"eps_p": 0.2}, GRID)),
    ("synthetic", {"eps_p": 0.2, "eps_r": 0.1}),
    ("from_gymnasium", {"vary": {"success_rate": [0.6, 0.9]}, "reward_range": (-1, 3)}),
]


@pytest.mark.parametrize(("name", "options"), DESCRIBED)
def test_a_description_as_json_makes_the_same_environment_again(name: str, options: dict[str, object]) -> None:
    made = small(name, agents=2, seed=5, **options)
    described = json.loads(json.dumps(made.description))
    assert described.pop("name") == name
    units = {described.pop(key) for key in ("reward_scale", "reward_offset") if key in described}
    assert units <= {0.0, 1.0, 6000.0, -0.01 / 4, 200.0, -100.0, -1.0, 4.0}
    again = make_environment(name, **described)
    for field in ("successors", "probabilities", "rewards", "initial"):
        np.testing.assert_array_equal(getattr(again, field), getattr(made, field))
    assert again.horizon == made.horizon
    assert again.eps_p == made.eps_p
    assert again.description == made.description


@pytest.mark.parametrize("name", ["riverswim", "chain", "deep_sea", "n_room"])
def test_a_layout_moves_as_the_common_kernel_most_likely_does(name: str) -> None:
    """Where an action is free to move, its arrow points to the likeliest next square."""
    federation = small(name, agents=1)
    layout: Any = federation.layout
    cells = layout["cells"]
    P = federation.common.kernel.dense()[0]
    for s, (row, column) in enumerate(cells):
        for a, (down, right) in enumerate(moves_from(layout, s)):
            aim = [row + down, column + right]
            if aim in cells and P[s, a, : len(cells)].sum() == pytest.approx(1) and P[s, a, s] < 0.5:
                assert P[s, a, cells.index(aim)] == P[s, a].max()


def test_a_square_of_deep_sea_is_first_reached_in_its_row_or_never() -> None:
    sea = make_environment("deep_sea", agents=1, size=5)
    assert sea.horizon == 5
    assert sea.layout is not None
    for s, step in enumerate(first_steps(sea.layout)):
        row, column = divmod(s, 5)
        assert step == (None if column > row else row)


@pytest.mark.parametrize("name", ["deep_sea", "n_room", "riverswim"])
def test_the_picture_of_a_run_shows_the_policy(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Caution)
        panels = run(FedUCBVI(), small(name, agents=2, eps_p=0.1), 30).plot()
    assert "Recommended policy" in [ax.get_title("left") for ax in panels]
    assert badly_placed(panels.figure) == []
