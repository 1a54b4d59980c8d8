"""Federations: mixtures are what Assumption 1 says, and eps_p and eps_r of any agents are the smallest there are."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.problem.federation import Federation
from fed_ucbvi.problem.kernel import Kernel
from fed_ucbvi.problem.mdp import MDP
from problems import dense_agents, random_dense_kernel, random_federation, random_mdp, random_rows

SEEDS = st.integers(0, 2**32 - 1)
EPS = st.floats(0, 1, exclude_max=True)
ZEROS = st.floats(0, 0.9)
STEPS = st.sampled_from([1, 3])
CLOSE = 1e-12


def agents_of(federation: Federation) -> list[MDP]:
    return [federation.agent(i) for i in range(federation.agents)]


def largest_common_share(agents: FloatArray) -> float:
    """The largest ``t = 1 - eps_p`` for which Assumption 1 holds, by linear programming.

    Unknowns: ``q = t P^c`` for every row and ``t``. Constraints: ``0 <= q <= P^i`` for every agent i, and the sum of
    ``q`` over next states is ``t`` in every row.
    """
    M = agents.shape[0]
    states = agents.shape[-1]
    rows = agents.reshape(M, -1, states)
    count = rows.shape[1] * states
    above = np.hstack([np.tile(np.eye(count), (M, 1)), np.zeros((M * count, 1))])
    sums = np.hstack(
        [
            np.kron(np.eye(rows.shape[1]), np.ones((1, states))),
            -np.ones((rows.shape[1], 1)),
        ]
    )
    cost = np.append(np.zeros(count), -1.0)
    zero = np.zeros(rows.shape[1])
    found = linprog(cost, above, rows.reshape(-1), sums, zero, bounds=(0, None), method="highs")
    assert found.success
    return -float(found.fun)


# Mixtures -------------------------------------------------------------------------------------------------------
@given(
    seed=SEEDS,
    eps_p=st.just(0.0) | EPS,
    agents=st.integers(1, 4),
    steps=st.tuples(STEPS, STEPS),
    zeros=ZEROS,
)
def test_a_mixture_is_the_weighted_sum(
    seed: int, eps_p: float, agents: int, steps: tuple[int, int], zeros: float
) -> None:
    rng = np.random.default_rng(seed)
    common = random_dense_kernel(rng, 4, 2, steps=steps[0], zeros=zeros)
    individual = [random_dense_kernel(rng, 4, 2, steps=steps[1], zeros=zeros) for _ in range(agents)]
    federation = Federation.mixture(common, individual, eps_p, rewards=np.zeros((4, 2)), initial=0, horizon=3)
    expected = np.stack([(1 - eps_p) * common + eps_p * own for own in individual])
    np.testing.assert_allclose(dense_agents(federation), expected, rtol=0, atol=1e-15)
    assert federation.eps_p == eps_p
    np.testing.assert_allclose(
        federation.common.kernel.dense(),
        np.broadcast_to(common, expected.shape[1:]),
        rtol=1e-15,
        atol=0,
    )
    kernel, *own = (Kernel.from_dense(table) for table in (common, *individual))
    by_support = Federation.mixture(kernel, own, eps_p, rewards=np.zeros((4, 2)), initial=0, horizon=3)
    np.testing.assert_array_equal(federation.successors, by_support.successors)
    np.testing.assert_allclose(federation.probabilities, by_support.probabilities, rtol=0, atol=1e-15)
    for i, table in enumerate(federation.probabilities):
        np.testing.assert_array_equal(federation.agent(i).kernel.probabilities, table, "to the last bit")
    for table in (
        federation.successors,
        federation.probabilities,
        federation.rewards,
        federation.initial,
    ):
        assert not table.flags.writeable


class Mixed(NamedTuple):
    """A federation of four agents, and the rewards and starts that it was made of."""

    federation: Federation
    rewards: FloatArray
    starts: FloatArray


@pytest.fixture(params=list(itertools.product([False, True], repeat=2)), ids=str)
def mixed(request: pytest.FixtureRequest) -> Mixed:
    """Agents with rewards, and with starts, of their own or the same for all."""
    own_rewards, own_starts = request.param
    rng = np.random.default_rng([3, own_rewards, own_starts])
    rewards = rng.random((4 if own_rewards else 1, 3, 3, 2))
    starts = random_rows(rng, (4, 3)) if own_starts else random_rows(rng, (3,))
    tables = [random_dense_kernel(rng, 3, 2) for _ in range(5)]
    federation = Federation.mixture(tables[0], tables[1:], 0.2, rewards=rewards, initial=starts)
    return Mixed(federation, rewards, starts)


def test_sizes_of_a_mixture_are_those_of_its_tables(mixed: Mixed) -> None:
    federation = mixed.federation
    assert (federation.agents, federation.states) == (4, 3)
    assert (federation.actions, federation.horizon) == (2, 3)


def test_agents_of_a_mixture_have_the_rewards_that_were_given(mixed: Mixed) -> None:
    for i in range(4):
        np.testing.assert_array_equal(mixed.federation.agent(i).rewards, mixed.rewards[i % len(mixed.rewards)])


def test_agents_of_a_mixture_have_the_starts_that_were_given(mixed: Mixed) -> None:
    starts = np.broadcast_to(mixed.starts, (4, 3))
    for i in range(4):
        np.testing.assert_allclose(mixed.federation.agent(i).initial, starts[i], atol=1e-15)


def test_the_common_mdp_has_the_mean_rewards_of_the_agents(mixed: Mixed) -> None:
    federation = mixed.federation
    mean_reward = sum(federation.agent(i).rewards for i in range(4)) / 4
    np.testing.assert_allclose(federation.common.rewards, mean_reward, rtol=0, atol=1e-15)


def test_the_common_mdp_has_the_mean_start_of_the_agents(mixed: Mixed) -> None:
    federation = mixed.federation
    mean_start = sum(federation.agent(i).initial for i in range(4)) / 4
    np.testing.assert_allclose(federation.common.initial, mean_start, rtol=0, atol=1e-15)


def test_eps_r_is_the_largest_difference_of_rewards(mixed: Mixed) -> None:
    pairs = itertools.product(mixed.rewards, repeat=2)
    largest = max(np.abs(one - other).max() for one, other in pairs)
    assert mixed.federation.eps_r == largest
    assert (largest > 0) == (len(mixed.rewards) > 1)


def coins(**options: Any) -> Federation:
    """Two agents with stationary rewards of their own."""
    rewards = np.random.default_rng(4).random((2, 1, 3, 2))
    table = np.full((3, 2, 3), 1 / 3)
    return Federation.mixture(table, [table, table], 0.1, rewards=rewards, initial=0, horizon=5, **options)


def test_rewards_of_agents_may_be_stationary() -> None:
    rewards = np.random.default_rng(4).random((2, 1, 3, 2))
    federation = coins()
    assert federation.horizon == 5
    np.testing.assert_array_equal(federation.agent(1).rewards, rewards[1])


def test_a_mixture_without_a_description_is_custom() -> None:
    assert coins().description == {"name": "custom"}
    assert coins().layout is None


def test_a_mixture_keeps_its_description() -> None:
    federation = coins(description={"name": "coin"}, layout={"rows": 1})
    assert federation.description == {"name": "coin"}
    assert federation.layout == {"rows": 1}


HALVES = np.full((2, 1, 2), 0.5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"rewards": np.ones((3, 1, 2, 1))},
            "rewards are given for 3 agents, kernels for 2",
        ),
        (
            {"initial": np.full((3, 2), 0.5)},
            "initial distributions are given for 3 agents, kernels for 2",
        ),
        (
            {"initial": np.full((1, 2), 0.5)},
            "initial distributions are given for 1 agents, kernels for 2",
        ),
        (
            {"rewards": np.ones((3, 1))},
            r"rewards must have shape \(S, A\) = \(2, 1\).*got \(3, 1\)",
        ),
        ({"rewards": np.ones(2)}, r"rewards must have shape \(S, A\) = \(2, 1\)"),
        ({"rewards": np.full((2, 1, 2, 1), 2.0)}, r"rewards must lie in \[0, 1\]"),
        ({"initial": [0.5, 0.2]}, "the initial distribution sums to 0.7"),
        ({"initial": [[0.5, 0.5], [0.5, 0.2]]}, "the initial distribution sums to 0.7"),
        ({"initial": 2}, "the initial state must be at most 1"),
        ({"rewards": np.ones((4, 2, 1))}, r"disagree on the number of steps: \[3, 4\]"),
        (
            {"individual": []},
            "at least one agent; individual kernels are an empty list",
        ),
        (
            {"individual": [np.full((3, 1, 3), 1 / 3)]},
            r"got \(S, A\) in \[\(2, 1\), \(3, 1\)\]",
        ),
        *(({"eps_p": x}, rf"eps_p must be a number.*, got {x}\.") for x in (-0.1, 1.0, 1.5, np.nan, np.inf)),
    ],
)
def test_what_makes_no_mixture_is_refused(changes: dict[str, Any], message: str) -> None:
    whole: dict[str, Any] = {"common": HALVES, "individual": [HALVES] * 2, "eps_p": 0.1}
    with pytest.raises(InputError, match=message):
        Federation.mixture(
            **{
                **whole,
                "rewards": np.ones((2, 1)),
                "initial": 0,
                "horizon": 3,
                **changes,
            }
        )


# Any agents: the smallest eps_p and eps_r ------------------------------------------------------------------------
@given(
    seed=SEEDS,
    eps_p=EPS,
    agents=st.integers(1, 5),
    zeros=st.floats(0, 0.9),
    stationary=st.booleans(),
)
def test_eps_p_is_never_above_the_given(seed: int, eps_p: float, agents: int, zeros: float, stationary: bool) -> None:
    rng = np.random.default_rng(seed)
    made = random_federation(rng, agents, 4, 2, 2, eps_p=eps_p, zeros=zeros, stationary=stationary)
    # with eps_p within rounding of 1 the common part may vanish from the stored numbers
    reference = "overlap" if eps_p < 1 - 1e-9 else "mean"
    found = Federation.from_mdps(agents_of(made), reference=reference)
    assert 0.0 <= found.eps_p <= eps_p + CLOSE
    np.testing.assert_allclose(dense_agents(found), dense_agents(made), rtol=0, atol=1e-15)


@given(seed=SEEDS, eps_p=st.floats(1e-6, 0.999))
def test_the_smallest_eps_p_made_the_agents_where_their_own_kernels_share_no_mass(seed: int, eps_p: float) -> None:
    rng = np.random.default_rng(seed)
    common = random_dense_kernel(rng, 3, 2)
    own = [random_dense_kernel(rng, 3, 2) for _ in range(3)]
    for i in range(3):
        own[i][0, 2, 1] = np.eye(3)[i]  # one row where agent i always moves to state i
    made = Federation.mixture(common, own, eps_p, rewards=np.zeros((3, 2)), initial=0, horizon=2)
    found = Federation.from_mdps(agents_of(made))
    assert found.eps_p == pytest.approx(eps_p, abs=CLOSE)
    shared = found.common.kernel.dense()[0, 2, 1]
    np.testing.assert_allclose(shared, common[0, 2, 1], rtol=0, atol=1e-11 / (1 - eps_p))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("agents", "states", "zeros"), [(2, 2, 0.0), (3, 3, 0.2), (5, 4, 0.0), (2, 4, 0.3)])
def test_the_smallest_eps_p_is_what_a_linear_program_finds(agents: int, states: int, zeros: float, seed: int) -> None:
    rng = np.random.default_rng([agents, states, seed])
    mdps = [random_mdp(rng, states, 2, 2, zeros=zeros, stationary_kernel=seed % 2 == 0) for _ in range(agents)]
    found = Federation.from_mdps(mdps, reference="mean")  # also where Assumption 1 fails
    tables = np.stack([mdp.kernel.dense() for mdp in mdps])
    assert found.eps_p == pytest.approx(1 - largest_common_share(tables), abs=1e-9)


@given(seed=SEEDS, agents=st.integers(1, 4))
def test_the_common_kernel_leaves_every_agent_a_kernel_of_its_own(seed: int, agents: int) -> None:
    rng = np.random.default_rng(seed)
    federation = Federation.from_mdps([random_mdp(rng, 3, 2, 2, zeros=0.0) for _ in range(agents)])
    common = federation.common.kernel.dense()
    np.testing.assert_allclose(common.sum(axis=-1), 1.0, rtol=0, atol=1e-15)
    rest = dense_agents(federation) - (1 - federation.eps_p) * common
    assert rest.min() >= -1e-15


@pytest.fixture
def copies() -> tuple[MDP, Federation]:
    """An MDP, and a federation of seven agents that all have it."""
    mdp = random_mdp(np.random.default_rng(12), 5, 3, 4)
    return mdp, Federation.from_mdps([mdp] * 7)


def test_equal_agents_are_not_heterogeneous(copies: tuple[MDP, Federation]) -> None:
    _, federation = copies
    assert federation.eps_p == 0.0
    assert federation.eps_r == 0.0


def test_equal_agents_share_one_table_of_rewards(copies: tuple[MDP, Federation]) -> None:
    _, federation = copies
    assert federation.rewards.shape[0] == 1


def test_the_common_mdp_of_equal_agents_is_theirs(copies: tuple[MDP, Federation]) -> None:
    mdp, federation = copies
    np.testing.assert_allclose(federation.common.kernel.dense(), mdp.kernel.dense(), rtol=0, atol=1e-15)
    np.testing.assert_allclose(federation.common.solve().V, mdp.solve().V, rtol=0, atol=CLOSE)


def two_agents_apart() -> list[MDP]:
    """From state 1 by action 0 at step 1 the first agent stays and the second leaves: nothing in common."""
    kernels = np.full((2, 2, 2, 1, 2), 0.5)
    kernels[0, 1, 1, 0] = [0.0, 1.0]
    kernels[1, 1, 1, 0] = [1.0, 0.0]
    return [MDP(kernel, [[0.0], [1.0]], 0) for kernel in kernels]


def test_the_mean_reference_is_the_mean_of_the_dense_kernels_with_the_same_eps_p() -> None:
    rng = np.random.default_rng(13)
    some = [random_mdp(rng, 4, 2, 3, zeros=0.0) for _ in range(3)]
    for mdps, eps_p in (
        (some, Federation.from_mdps(some).eps_p),
        (two_agents_apart(), 1.0),
    ):
        federation = Federation.from_mdps(mdps, reference="mean")
        mean = np.mean([mdp.kernel.dense() for mdp in mdps], axis=0)
        np.testing.assert_allclose(federation.common.kernel.dense(), mean, rtol=0, atol=1e-15)
        assert federation.eps_p == eps_p


@pytest.fixture
def unlike_mdps() -> list[MDP]:
    """Three MDPs, of which the first has stationary rewards and the second a fixed start."""
    rng = np.random.default_rng(14)
    mdps = []
    for i in range(3):
        mdps.append(random_mdp(rng, 3, 2, 4, zeros=0.0, stationary_rewards=i == 0, fixed_start=i == 1))
    return mdps


def test_agents_made_of_mdps_have_their_rewards(unlike_mdps: list[MDP]) -> None:
    federation = Federation.from_mdps(unlike_mdps)
    for i, mdp in enumerate(unlike_mdps):
        by_step = np.broadcast_to(mdp.rewards, (4, 3, 2))
        np.testing.assert_array_equal(federation.agent(i).rewards, by_step)


def test_agents_made_of_mdps_have_their_starts(unlike_mdps: list[MDP]) -> None:
    federation = Federation.from_mdps(unlike_mdps)
    for i, mdp in enumerate(unlike_mdps):
        np.testing.assert_allclose(federation.agent(i).initial, mdp.initial, rtol=0, atol=1e-15)


def test_common_rewards_are_the_mean_also_if_some_agents_have_stationary_rewards(unlike_mdps: list[MDP]) -> None:
    federation = Federation.from_mdps(unlike_mdps)
    by_step = [np.broadcast_to(mdp.rewards, (4, 3, 2)) for mdp in unlike_mdps]
    mean = (by_step[0] + by_step[1] + by_step[2]) / 3
    np.testing.assert_allclose(federation.common.rewards, mean, rtol=0, atol=1e-15)


def test_eps_r_of_mdps_is_the_largest_difference_at_any_step(unlike_mdps: list[MDP]) -> None:
    by_step = [np.broadcast_to(mdp.rewards, (4, 3, 2)) for mdp in unlike_mdps]
    largest = max(np.abs(one - other).max() for one, other in itertools.combinations(by_step, 2))
    assert Federation.from_mdps(unlike_mdps).eps_r == largest


@pytest.mark.parametrize(
    ("mdps", "options", "message"),
    [
        ([], {}, "at least one agent; the list of MDPs is empty"),
        (
            [MDP([[[1.0]]], [[1.0]], 0, horizon) for horizon in (3, 5)],
            {},
            r"same horizon; got \[3, 5\]",
        ),
        (
            [random_mdp(np.random.default_rng(15), S) for S in (2, 3)],
            {},
            r"got \(S, A\) in \[\(2, 2\), \(3, 2\)\]",
        ),
        (
            two_agents_apart(),
            {},
            r"Assumption 1 fails: at \(h=1, s=1, a=0\).*reference=\"mean\"",
        ),
        (
            two_agents_apart(),
            {"reference": "overlapp"},
            "unknown reference kernel .*; did you mean 'overlap'",
        ),
    ],
)
def test_mdps_that_make_no_federation_are_refused(mdps: list[MDP], options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Federation.from_mdps(mdps, **options)
