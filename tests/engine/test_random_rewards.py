"""Random rewards: their law, sums and means by cell, optimism, and the same bits however they are counted."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, chi2
from shops import HIGH, LOW, shops, variance_of_money

import fed_ucbvi.gymnasium_environments  # noqa: F401 (registers)
from commands import call
from fed_ucbvi import (
    MDP,
    AlgorithmSpec,
    Federation,
    FedUCBVI,
    InputError,
    Interrupted,
    ProblemSpec,
    Run,
    best_common_policy,
    resume,
    run,
    synthetic,
)
from fed_ucbvi.algorithms import make_algorithm
from fed_ucbvi.algorithms.base import Array, Budgets, Counting, Setting
from fed_ucbvi.algorithms.exact_sums import make_grid
from fed_ucbvi.algorithms.fed_kl_ucbvi import FedKLUCBVI
from fed_ucbvi.engine.drivers import make_driver
from fed_ucbvi.engine.drivers.base import Fleet, collect
from fed_ucbvi.engine.drivers.rewards import SimulatedRewards
from fed_ucbvi.engine.simulated_party import SimulatedParty
from fed_ucbvi.engine.simulation import Simulation
from fed_ucbvi.environments import ENVIRONMENTS, make_environment
from fed_ucbvi.network.federation_spec import FederationRules
from fed_ucbvi.network.run_plan import RunPlan, plan_for
from fed_ucbvi.network.sources import LiveSource
from fed_ucbvi.problem.liars import ATTACKS
from fed_ucbvi.problem.reward_law import payments
from fed_ucbvi.reference import Known, fed_kl_ucbvi
from fed_ucbvi.sweeps.job import Job
from gymnasium_problems import Corridors
from naive_fed_ucbvi import NaiveAgent, Options, Sizes, synchronise
from network import assert_same, federate, make_nodes
from problems import random_federation
from runs import counted_apart, federation_of, finished, interrupt_after, same_bits, without_cautions
from saved_states import saved_in

pytestmark = without_cautions


def random_world(
    seed: int, agents: int = 3, *, own: bool = False, stationary: bool = False, eps_p: float = 0.0
) -> Federation:
    """A small federation with rewards of any variance, shared or ``own``."""
    rng = np.random.default_rng([13, seed])
    world = random_federation(rng, agents, eps_p=eps_p, stationary=stationary, own_rewards=own)
    share = rng.choice([0.0, 0.5, 1.0], size=world.rewards.shape)
    return dataclasses.replace(world, reward_variances=share * world.rewards * (1 - world.rewards))


# ------------------------------------------------------------------------------------------------- the problem


@given(st.floats(0, 1), st.floats(0, 1))
def test_two_outcomes_have_the_moments_of_the_reward(mean: float, share: float) -> None:
    variance = share * mean * (1 - mean)
    paid = payments(np.array([mean]), np.array([variance]))
    y = float(paid.amounts[0])
    q = float(paid.chances[0])
    assert 0 <= y <= 1
    assert 0 <= q <= 1
    assert q * y == pytest.approx(mean, abs=1e-12)
    assert q * y * y - mean**2 == pytest.approx(variance, abs=1e-12)


@pytest.mark.parametrize(
    ("variances", "reason"),
    [
        ([[0.3]], "from 0 to 0.5"),
        ([[-0.1]], "is -0.1"),
        ([[math.nan]], "finite"),
        ([0.1], "shape"),
        (np.zeros((2, 2, 1, 1)), "shape"),
        ("gaussian", "bernoulli"),
    ],
)
def test_impossible_variances_are_refused(variances: Any, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        MDP([[[1.0]]], [[0.5]], 0, 3, variances)


def test_variances_of_another_number_of_agents_are_refused() -> None:
    kernel = [[[1.0]]]
    variances = np.zeros((2, 1, 1, 1))
    with pytest.raises(InputError, match="2 agents"):
        Federation.mixture(
            kernel, [kernel] * 3, 0.0, rewards=[[0.5]], initial=0, horizon=2, reward_variances=variances
        )


def test_a_federation_with_variances_of_0_is_one_with_fixed_rewards() -> None:
    world = synthetic(agents=2)
    again = Federation.mixture(
        world.common.kernel,
        [world.agent(i).kernel for i in range(2)],
        0.0,
        rewards=world.rewards,
        initial=world.initial,
        reward_variances=np.zeros(world.rewards.shape),
    )
    assert again.reward_variances is None
    assert again.digest == world.digest


def test_the_file_of_a_federation_with_fixed_rewards_has_no_variances(tmp_path: Path) -> None:
    synthetic(agents=2).save(tmp_path / "plain.npz")
    with np.load(tmp_path / "plain.npz") as data:
        assert "reward_variances" not in data
        assert '"format_version": 1' in str(data["about"])


@pytest.mark.parametrize("own", [False, True])
def test_a_saved_federation_keeps_its_variances(own: bool, tmp_path: Path) -> None:
    world = random_world(1, own=own)
    world.save(tmp_path / "random.npz")
    loaded = Federation.load(tmp_path / "random.npz")
    assert np.array_equal(loaded.reward_variances, world.reward_variances)  # type: ignore[arg-type]
    assert loaded.digest == world.digest


@pytest.mark.parametrize("own", [False, True])
def test_the_digest_of_a_federation_depends_on_its_variances(own: bool) -> None:
    world = random_world(1, own=own)
    assert dataclasses.replace(world, reward_variances=None).digest != world.digest


def test_a_file_with_impossible_variances_is_refused(tmp_path: Path) -> None:
    random_world(1).save(tmp_path / "random.npz")
    with np.load(tmp_path / "random.npz") as data:
        tables = {name: data[name] for name in data.files}
    tables["reward_variances"] = tables["reward_variances"] + 0.3
    with (tmp_path / "damaged.npz").open("wb") as file:
        np.savez(file, **tables)
    with pytest.raises(InputError, match="variance"):
        Federation.load(tmp_path / "damaged.npz")


def test_a_federation_of_agents_has_their_variances() -> None:
    world = random_world(2, own=True)
    agents = [world.agent(i) for i in range(3)]
    again = Federation.from_mdps(agents, reference="mean")
    assert np.array_equal(again.reward_variances, world.reward_variances)  # type: ignore[arg-type]


def test_agents_with_fixed_rewards_may_be_in_a_federation_with_others() -> None:
    world = random_world(2, own=True)
    agents = [world.agent(i) for i in range(3)]
    fixed = MDP(agents[0].kernel, agents[0].rewards, agents[0].initial)
    mixed = Federation.from_mdps([fixed, *agents[1:]], reference="mean")
    assert mixed.agent(0).reward_variances is None
    assert np.array_equal(mixed.agent(1).reward_variances, agents[1].reward_variances)  # type: ignore[arg-type]


def test_an_added_absorbing_state_has_a_fixed_reward() -> None:
    longer = random_world(2, own=True).agent(1).with_end()
    assert longer.reward_variances is not None
    assert (longer.reward_variances[:, -1] == 0).all()


def test_variances_by_step_make_rewards_by_step() -> None:
    agent = random_world(2, own=True).agent(0)
    by_step = MDP(agent.kernel, np.full((3, 2), 0.5), 0, reward_variances=np.full((3, 3, 2), 0.1))
    assert by_step.rewards.shape == (3, 3, 2)


every_environment = pytest.mark.parametrize(
    "name", sorted(set(ENVIRONMENTS) - {"icu_sepsis"})
)  # icu_sepsis needs a package and a second


@every_environment
def test_bernoulli_rewards_of_an_environment_have_its_means(name: str) -> None:
    plain = ENVIRONMENTS[name](agents=2)
    random = ENVIRONMENTS[name](agents=2, bernoulli_rewards=True)
    assert random.digest == plain.with_bernoulli_rewards().digest
    if random.payments is not None:
        y, q = random.payments
        assert np.allclose(y * q, plain.rewards, rtol=0, atol=1e-15)
        assert (y[q > 0] == 1).all() or name == "riverswim"


@every_environment
def test_the_description_of_an_environment_states_its_bernoulli_rewards(name: str) -> None:
    random = ENVIRONMENTS[name](agents=2, bernoulli_rewards=True)
    is_random = random.payments is not None
    assert random.description["bernoulli_rewards"] is True
    assert ("random rewards" in repr(random)) == is_random


@every_environment
def test_an_environment_without_bernoulli_rewards_is_the_plain_one(name: str) -> None:
    plain = ENVIRONMENTS[name](agents=2)
    assert make_environment(name, agents=2, bernoulli_rewards=False).digest == plain.digest


@every_environment
def test_bernoulli_rewards_must_be_true_or_false(name: str) -> None:
    for make in (ENVIRONMENTS[name], partial(make_environment, name)):
        with pytest.raises(InputError, match="true or false"):
            make(agents=2, bernoulli_rewards="yes")


def job(**more: bool) -> Job:
    """A job of a sweep in a synthetic environment, with more options of the environment."""
    problem = ProblemSpec(environment="synthetic", environment_options={"states": 3, **more}, agents=2)
    return Job(problem=problem.complete(), algorithm=AlgorithmSpec().complete(), episodes=30, seed=1)


def test_a_job_of_a_sweep_can_have_random_rewards() -> None:
    result = job(bernoulli_rewards=True).run()
    assert result.about.random_rewards
    assert Run.from_bytes(result.to_bytes()).about.random_rewards


def test_a_job_with_random_rewards_recognises_its_run() -> None:
    random = job(bernoulli_rewards=True)
    assert random.made(random.run())
    assert not random.made(job().run())


def test_random_rewards_are_part_of_the_id_of_a_job() -> None:
    assert job(bernoulli_rewards=True).id != job().id
    assert job(bernoulli_rewards=False) == job()


# ------------------------------------------------------------------------------------------------------ the law


def never(shape: tuple[int, ...]) -> Budgets:
    return Budgets(np.full((1, *shape), 2**62, dtype=np.int64), np.zeros(shape, dtype=np.int8))


@pytest.mark.parametrize("own", [False, True])
def test_every_next_state_has_two_slots_with_the_law_of_the_payment(own: bool) -> None:
    """The first is without and the second with a payment, which is independent of the next state."""
    world = random_world(4, own=own, stationary=own)
    assert world.payments is not None
    fleet = Fleet.of(world, 9, random_rewards=True)
    K = world.successors.shape[-1]
    unpaid = fleet.probabilities[..., :K]
    paid = fleet.probabilities[..., K:]
    expected = world.probabilities * world.payments.chances[..., None]
    assert np.array_equal(fleet.successors, np.tile(world.successors, 2))
    assert np.allclose(unpaid + paid, world.probabilities, rtol=0, atol=1e-15)
    assert np.allclose(paid, expected, rtol=0, atol=1e-15)


@pytest.mark.parametrize("driver", ["episodes", "counts", "auto"])
def test_payments_of_long_rounds_are_binomial_given_the_visits(driver: str) -> None:
    """Payments by (h,s,a,k) given visits are binomial(n_k, q), whatever k.

    Hypothesis: chi-square of all cells with enough visits; the false-alarm rate is 1e-4 per driver.
    """
    world = random_world(6, agents=2, own=True, eps_p=0.3)
    assert world.payments is not None
    sets = np.ones((3, 3, 2), dtype=np.bool_)
    fleet = Fleet.of(world, 3, counting=Counting.PAIRS, random_rewards=True)
    player = make_driver(driver, fleet)
    K = world.successors.shape[-1]
    collect(player, sets, never((3, 3, 2)), 0, 20_000)
    paid = player.transitions[..., K:]
    n = player.transitions[..., :K] + paid
    q = np.broadcast_to(world.payments.chances[..., None], n.shape)
    variance = n * q * (1 - q)
    always = q == 1
    enough = variance > 5
    z = (paid[enough] - n[enough] * q[enough]) / np.sqrt(variance[enough])
    assert (paid[always] == n[always]).all()
    assert (paid[q == 0] == 0).all()
    assert enough.sum() > 20
    assert 5e-5 < chi2.sf(float((z**2).sum()), int(enough.sum())) < 1 - 5e-5


# ----------------------------------------------------------------------------------------- sums and means by cell


class Observed:
    """Every visit of every round of a simulation, with its reward and next state."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.agents = [NaiveAgent() for _ in simulation.driver.transitions]
        self.round: list[NaiveAgent] = []

    def advance(self) -> None:
        simulation = self.simulation
        world = federation_of(simulation)
        policy = simulation.server.policy.copy()
        K = world.successors.shape[-1]
        simulation.advance()
        drawn = simulation.driver.transitions
        amounts = world.payments.amounts  # type: ignore[union-attr]
        self.round = [NaiveAgent() for _ in drawn]
        for i, h, s, *rest, slot in np.argwhere(drawn).tolist():
            a = rest[0] if rest else int(policy[h, s])
            steps = world.successors.shape[0]
            y = float(amounts[i if len(amounts) > 1 else 0, h if amounts.shape[1] > 1 else 0, s, a])
            successor = int(world.successors[h if steps > 1 else 0, s, a, slot % K])
            for told in (self.agents[i], self.round[i]):
                told.observe(h, s, a, y if slot >= K else 0.0, successor, int(drawn[(i, h, s, *rest, slot)]))

    def found(self, *, ever: bool = False) -> Iterator[tuple[int, int, int, int, Counter[tuple[float, int]]]]:
        """Numbers of each reward with each next state by agent and (h,s,a): in the last round, or ``ever``."""
        for i, agent in enumerate(self.agents if ever else self.round):
            yield from ((i, *at, seen) for at, seen in agent.seen.items())


@pytest.mark.parametrize("own", [False, True], ids=["shared amounts", "own amounts"])
@pytest.mark.parametrize("scale", [1.0, 0.05])
def test_every_synchronisation_is_that_of_a_naive_server(own: bool, scale: float) -> None:
    """The grid rounds up, by less than 1e-9 in all."""
    algorithm = FedUCBVI(bonus_scale=scale)
    simulation = Simulation(algorithm, random_world(7, own=own), 400, 3, "episodes")
    assert (len(simulation.driver.transitions) == 1) == (not own)
    watched = Observed(simulation)
    below_cap = 0
    sizes = Sizes(3, 2, 3, len(watched.agents))
    options = Options("practical", scale)
    while not simulation.done:
        rounds = simulation.rounds
        watched.advance()
        if simulation.rounds > rounds and simulation.rounds % 5 == 0:
            expected = synchronise(watched.agents, sizes, options)
            expected.assert_equals(simulation.server.estimates, 1e-9)
            below_cap += int((expected.Q < 3).sum())
    assert below_cap > 20


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("algorithm", [FedKLUCBVI(), FedKLUCBVI.fast(), FedKLUCBVI(stationary=True)], ids=repr)
def test_counts_with_random_rewards_give_the_plan_of_the_reading_copy(algorithm: FedKLUCBVI, own: bool) -> None:
    """And the plan is that of the reading copy; the grid rounds up, by less than 1e-8 in all."""
    world = random_world(7, own=own, stationary=algorithm.stationary)
    simulation = Simulation(algorithm, world, 400, 3, "episodes")
    assert (len(simulation.driver.transitions) == 1) == (not own)
    watched = Observed(simulation)
    below_cap = 0
    caps = 3 - np.arange(3)[:, None, None]
    n = np.zeros((1, 1 if algorithm.stationary else 3, 3, 2, 3), dtype=np.int64)
    paid = np.zeros(n.shape[:4])
    known = (Known.stationary if algorithm.stationary else Known.by_step)(3, 3, 2)
    while not simulation.done:
        rounds = simulation.rounds
        watched.advance()
        for _, h, s, a, found in watched.found():
            for (reward, successor), times in found.items():
                paid[0, h, s, a] += times * reward
                n[0, h, s, a, successor] += times
        if simulation.rounds > rounds:
            by_law = n.reshape(1, -1, 3)
            expected = fed_kl_ucbvi(
                by_law,
                paid.reshape(1, -1),
                known,
                radius=algorithm.radius,
                random_rewards=True,
            )
            assert np.array_equal(simulation.server.table.dense(), n[0])
            assert np.allclose(simulation.server.V, expected.V, rtol=0, atol=1e-8)
            estimates = simulation.server.estimates
            assert np.allclose(estimates.Q[estimates.best], expected.Q[estimates.best], rtol=0, atol=1e-8)
            assert (estimates.Q >= expected.Q - 1e-8).all()
            below_cap += int((caps > expected.Q).sum())
    assert below_cap > 20


def mean_reward(found: Counter[tuple[float, int]]) -> float:
    """The mean of rewards that were observed with next states so often."""
    total = sum(reward * times for (reward, _), times in found.items())
    return total / found.total()


@pytest.mark.parametrize("name", ["fed-ucbvi", "byzan-ucbvi", "fedq-hoeffding"])
def test_agents_read_the_mean_rewards_of_the_round(name: str) -> None:
    simulation = Simulation(make_algorithm(name, {}), random_world(8, own=True), 30, 2, "episodes")
    watched = Observed(simulation)
    assert isinstance(simulation.party, SimulatedParty)
    rewards = simulation.party.random_rewards
    assert rewards is not None
    while not simulation.done:
        watched.advance()
        for i, h, s, a, found in watched.found():
            assert rewards.means[i, h, s, a] == pytest.approx(mean_reward(found), abs=1e-12)


def test_agents_of_byzan_ucbvi_keep_mean_rewards_over_all_rounds() -> None:
    simulation = Simulation(make_algorithm("byzan-ucbvi", {}), random_world(8, own=True), 30, 2, "episodes")
    watched = Observed(simulation)
    while not simulation.done:
        watched.advance()
        rewards = simulation.agents.experience.rewards
        for i, h, s, a, found in watched.found(ever=True):
            assert rewards[i, h, s, a] == pytest.approx(mean_reward(found), abs=1e-12)


# ----------------------------------------------------------------------------------------------------- optimism


class MeansOnly(FedKLUCBVI):
    """Means in place of random rewards, as if they were known; the proof does not cover it."""

    def rule(self, setting: Any) -> Any:
        return super().rule(setting)._replace(random_rewards=False)


def lowest_margin(algorithm: FedKLUCBVI, world: Federation, seed: int) -> tuple[float, float]:
    """The least of V - V* at any synchronisation, and how far below its cap V ends."""
    best = world.common.solve().V
    simulation = Simulation(algorithm, world, 20_000, seed, "auto")
    least = math.inf
    while not simulation.done:
        simulation.advance()
        least = min(least, float((simulation.server.V - best).min()))
    return least, float((world.horizon - np.arange(world.horizon + 1)[:, None] - simulation.server.V).max())


@pytest.mark.parametrize("stationary", [False, True])
def test_the_proved_radius_is_optimistic_at_every_synchronisation(stationary: bool) -> None:
    """Bernoulli rewards. With delta = 0.05 it may fail once in 20 runs at most; these seeds are fixed."""
    for seed in range(3):
        world = random_world(20 + seed, stationary=stationary).with_bernoulli_rewards()
        least, below_cap = lowest_margin(FedKLUCBVI(stationary=stationary), world, seed)
        assert least >= 0
        assert below_cap > 0.5


def test_means_as_if_they_were_known_are_not_optimistic() -> None:
    world = random_world(20).with_bernoulli_rewards()
    assert lowest_margin(MeansOnly(), world, 0)[0] < -0.05


# ------------------------------------------------------------------------- the same bits however they are counted


ALIKE: dict[str, FedUCBVI | FedKLUCBVI] = {
    "published": FedUCBVI(nu=40),
    "sets of actions": FedKLUCBVI(),
    "stationary": FedKLUCBVI(stationary=True),
}


def bernoulli_world(case: str) -> Federation:
    return random_world(9, 4, stationary=case == "stationary", eps_p=0.2).with_bernoulli_rewards()


@pytest.mark.parametrize("case", ALIKE)
def test_random_rewards_counted_agent_by_agent_give_the_same_bits(case: str) -> None:
    algorithm = ALIKE[case]
    world = bernoulli_world(case)
    pooled = Simulation(algorithm, world, 150, 4, "episodes")
    apart = Simulation(algorithm, counted_apart(world), 150, 4)
    assert len(pooled.driver.transitions) == 1
    assert len(apart.driver.transitions) > 1
    while not pooled.done:
        pooled.advance()
        apart.advance()
        assert same_bits(pooled.server, apart.server)


@pytest.mark.parametrize("case", ALIKE)
def test_random_rewards_over_the_network_give_the_same_bits(case: str) -> None:
    algorithm = ALIKE[case]
    world = bernoulli_world(case)
    simulated = run(algorithm, world, 150, seed=4, driver="episodes", progress=False)
    outcome = federate(plan_for(algorithm, world, 150, seed=4), make_nodes(world, [3, 1]))
    assert_same(outcome.run, simulated, regret=False)
    assert outcome.run.about.random_rewards


@pytest.mark.parametrize("name", ["byzan-ucbvi", "fedq-bernstein"])
def test_means_of_rewards_are_the_same_over_the_network(name: str) -> None:
    algorithm = make_algorithm(name, {})
    world = random_world(10, 4, own=True, eps_p=0.2)
    simulated = run(algorithm, world, 40, seed=4, driver="episodes", progress=False)
    outcome = federate(plan_for(algorithm, world, 40, seed=4), make_nodes(world, [3, 1]))
    assert_same(outcome.run, simulated, regret=False)


def test_a_node_with_random_rewards_refuses_a_run_without() -> None:
    world = random_world(9)
    plain = dataclasses.replace(world, reward_variances=None)
    node = make_nodes(world, [3])[0]
    with pytest.raises(InputError, match="--random-rewards"):
        node.enter(plan_for(FedUCBVI(), plain, 10).welcome())


class RepeatedRound:
    """A party that plays rounds of ten episodes, each of them twice."""

    def __init__(self) -> None:
        world = random_world(10, 3, own=True)
        algorithm = FedUCBVI()
        setting = plan_for(algorithm, world, 50, seed=2).setting
        self.party = SimulatedParty(algorithm, setting, world, pooled=False)
        self.broadcast = algorithm.broadcast(algorithm.new_server(setting))

    def play(self, first: int) -> dict[str, Array]:
        """The state after a round from episode ``first`` on."""
        self.party.start(self.broadcast, first)
        self.party.stop(10)
        return self.state()

    def state(self) -> dict[str, Array]:
        return {name: array.copy() for name, array in self.party.state().items()}


@pytest.mark.parametrize("rounds_before", [0, 1])
def test_a_round_that_is_played_again_has_the_same_rewards(rounds_before: int) -> None:
    """Counts and sums after a round that was played, taken back and played again."""
    repeated = RepeatedRound()
    for number in range(rounds_before):
        repeated.play(10 * number)
    before = repeated.state()
    once = repeated.play(10 * rounds_before)
    repeated.party.restore(before)
    again = repeated.play(10 * rounds_before)
    assert (once["agents.table_rewards"] > 0).any()
    for name, array in once.items():
        assert np.array_equal(again[name], array), name


def test_the_sums_of_rewards_grow_with_every_round() -> None:
    repeated = RepeatedRound()
    first = repeated.play(0)
    second = repeated.play(10)
    assert not np.array_equal(first["agents.table_rewards"], second["agents.table_rewards"])


@pytest.mark.parametrize("algorithm", [FedKLUCBVI(), FedUCBVI()], ids=lambda one: one.name)
def test_a_resumed_run_with_random_rewards_equals_an_uninterrupted_one(algorithm: Any, tmp_path: Path) -> None:
    world = random_world(11)
    whole = run(algorithm, world, 300, seed=4, progress=False)
    stop = interrupt_after(rounds=whole.rounds // 2)
    with pytest.raises(Interrupted):
        run(algorithm, world, 300, seed=4, on_round=stop, checkpoint=tmp_path / "kept", checkpoint_every=3)
    assert resume(tmp_path / "kept", progress=False).same_outcome(whole)


def test_counts_by_step_are_refused_where_the_algorithm_counts_steps_together() -> None:
    with pytest.raises(InputError, match="rewards depend on"):
        Simulation(FedKLUCBVI(stationary=True), random_world(12), 10, 0, "auto")


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_run_with_liars_can_have_random_rewards(attack: Any) -> None:
    world = random_world(14, 4).with_liars(0.25, attack)
    algorithm = make_algorithm("byzan-ucbvi", {})
    assert run(algorithm, world, 50, seed=1, progress=False).complete


def test_the_grid_leaves_room_for_sums_of_rewards() -> None:
    """Sums of one cell take one word, ``N 2^f < 2^63``; and ``r + V <= H + 1``."""
    for agents, visits, horizon in ((1, 10, 1), (20, 600_000, 10), (1000, 10**12, 100), (3, 2**50, 2)):
        grid = make_grid(agents, visits, horizon, random_rewards=True)
        assert visits * 2**grid.bits < 2**63
        assert visits * ((horizon + 1) * 2**grid.bits) ** 2 < 2 ** (63 + grid.base)
        if grid.words == 1:
            assert visits * (horizon + 1) * 2**grid.bits < 2**63


def test_folded_transitions_are_those_of_the_round() -> None:
    world = random_world(15)
    fleet = Fleet.of(world, 1, pooled=True, random_rewards=True)
    rewards = SimulatedRewards(world, Counting.POLICY, fleet.touched, None)
    player = make_driver("episodes", fleet)
    policy = np.zeros((3, 3), dtype=np.int32)
    for episode in range(20):
        collect(player, policy, never((3, 3)), episode, 1)
        folded = rewards.take(policy, player.transitions, player.visits)
        assert folded.sum() == 3 * 3
        assert np.array_equal(folded.sum(axis=-1), fleet.touched.all_visits)


# ---------------------------------------------------- live environments, Gymnasium environments and the command line


def test_estimates_of_a_live_run_are_those_of_a_naive_server() -> None:
    """Where an episode is over the log has nothing, so only states of the environment are compared."""
    corridors = Corridors()
    simulation = finished(Simulation(FedUCBVI(), corridors.live(random_rewards=True), 60, 1))
    simulation.algorithm.synchronise(simulation.server, simulation.agents, simulation.setting)
    agents = [NaiveAgent() for _ in range(3)]
    for (i, h, s, a), seen in corridors.observed().items():
        for reward, following in seen:
            agents[i].observe(h, s, a, reward, following)
    ended = simulation.agents.own_visits[:, :, 3]
    for i, h, a in np.argwhere(ended).tolist():
        agents[i].observe(h, 3, a, 2.0 / 6.0, 3, int(ended[i, h, a]))
    expected = synchronise(agents, Sizes(4, 2, 4, 3), Options())
    expected.assert_equals(simulation.server.estimates, 1e-8)
    assert simulation.result().about.random_rewards


def test_fixed_rewards_of_live_environments_are_not_added_up() -> None:
    certain = Corridors(noise=0.0, P={s: {a: [(1.0, a, -1.0, False)] for a in range(2)} for s in range(3)})
    plain = finished(Simulation(FedUCBVI(), certain.live(random_rewards=False), 30, 1))
    assert plain.agents.tables.reward_sums.size == 0
    assert not plain.result().about.random_rewards


@pytest.fixture
def interrupted_live(tmp_path: Path) -> Path:
    """A checkpoint of a live run with random rewards."""
    folder = tmp_path / "kept"
    with pytest.raises(Interrupted):
        run(
            FedUCBVI(),
            Corridors().live(random_rewards=True),
            60,
            on_round=interrupt_after(rounds=5),
            checkpoint=folder,
            checkpoint_every=1,
        )
    return folder


def test_a_live_run_is_resumed_with_its_sums(interrupted_live: Path) -> None:
    """The environments here begin anew; supports and sums are those of the checkpoint."""
    assert saved_in(interrupted_live).arrays["agents.table_rewards"].sum() > 0
    assert resume(interrupted_live, Corridors().live(random_rewards=True), progress=False).complete


def test_a_live_run_with_random_rewards_is_not_resumed_with_fixed_rewards(interrupted_live: Path) -> None:
    with pytest.raises(InputError, match="random_rewards"):
        resume(interrupted_live, Corridors().live(random_rewards=False), progress=False)


def test_a_node_with_a_live_environment_gives_the_policy_of_a_live_run() -> None:
    setting = Setting(4, 2, 4, 1, 40, 0.0, 1, random_rewards=True)
    source = LiveSource(Corridors(1).make, (-2.0, 4.0), 4, "corridors")
    outcome = federate(
        RunPlan(FedKLUCBVI(), setting, rules=FederationRules(collection="live")), make_nodes(source, [1])
    )
    alone = run(FedKLUCBVI(), Corridors(1).live(random_rewards=True), 40, seed=1, progress=False)
    assert np.array_equal(outcome.run.policy, alone.policy)
    assert np.array_equal(outcome.run.V, alone.V)
    assert outcome.run.about.random_rewards


def test_gymnasium_environments_pay_by_the_law() -> None:
    """Hypothesis: a Bernoulli reward is 1 with its mean for probability; false alarms: 1e-4."""
    env: Any = gymnasium.make("fed_ucbvi/synthetic-v0", agents=1, bernoulli_rewards=True).unwrapped
    mean = float(env.mdp.rewards[0, 0, 0])
    paid = []
    for seed in range(1_000):
        env.reset(seed=seed)
        env._state = 0
        paid.append(env.step(0)[1])
    assert set(paid) == {0.0, 1.0}
    assert binomtest(int(sum(paid)), 1_000, mean).pvalue > 1e-4
    rows = env.table(0)[0][0]
    assert sum(row[0] for row in rows) == pytest.approx(1)
    assert sum(row[0] * row[2] for row in rows) == pytest.approx(mean)


RANDOM_OPTIONS = ("run", "--env", "synthetic", "--env-option", "bernoulli_rewards=true", "--episodes", "30")


def test_the_command_line_takes_random_rewards() -> None:
    about = json.loads(call(*RANDOM_OPTIONS, "--json").stdout)
    assert about["environment"]["bernoulli_rewards"] is True


def test_the_printed_summary_names_random_rewards() -> None:
    assert "random rewards" in call(*RANDOM_OPTIONS).stdout


def test_the_server_takes_random_rewards_with_sizes_only() -> None:
    refused = call("serve", "--insecure", "--env", "synthetic", "--random-rewards")
    assert refused.exit_code == 2
    assert "--sizes" in refused.stderr


@pytest.mark.slow
@pytest.mark.full
def test_random_money_of_five_shops_has_its_mean_with_its_variance() -> None:
    world = shops(random=True)
    assert world.payments is not None
    y, q = world.payments
    spread = (HIGH - LOW) * np.sqrt(y * y * q * (1 - q))
    assert np.allclose(y * q, shops().rewards)
    assert np.allclose(spread[2, 0], np.sqrt(variance_of_money(2.5)))
    assert 6.5 < spread[2, 0, 5, 3] < 6.6  # euro per day


@pytest.mark.slow
@pytest.mark.full
def test_the_best_common_policy_of_five_shops_depends_on_mean_money_only() -> None:
    assert best_common_policy(shops(random=True)).value == best_common_policy(shops()).value


@pytest.mark.slow
@pytest.mark.full
@pytest.mark.parametrize("random", [False, True])
def test_a_run_states_if_rewards_are_random(random: bool) -> None:
    result = run(FedKLUCBVI(stationary=True), shops(random=random), 100, seed=1, progress=False)
    assert result.about.random_rewards == random
