"""FedQ-Advantage and UCB-Advantage against independent implementations of their pseudocode."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from fed_ucbvi import ConcurrentUCBAdvantage, FedQAdvantage, InputError, UCBAdvantage, synthetic
from fed_ucbvi.algorithms.base import Setting
from fed_ucbvi.algorithms.kernels import at_actions
from fed_ucbvi.algorithms.one_report import Trajectories
from fed_ucbvi.engine.simulation import Simulation
from fed_ucbvi.paper.algorithms.advantage import Clip, Constants, Estimates, Server
from fed_ucbvi.problem.federation import Federation
from matrices import in_turn
from model_free import Sizes, played_rounds, played_steps
from naive_advantage import Learner, NaiveFedQ, NaiveUCB, stage_ends
from problems import random_federation
from runs import federation_of, finished

TOLERANCE = 1e-10


def assert_server_equals(server: Server, learner: Learner) -> None:
    e = server.estimates
    changed = np.zeros(server.policy.shape, dtype=np.bool_)
    for h, s, a in np.ndindex(*e.Q.shape):
        assert e.N[h, s, a] == learner.visits((h, s, a))
        assert e.y[h, s, a] == len(learner.stage[h, s, a])
        lengths = learner.lengths[h, s, a]
        assert e.y_previous[h, s, a] == (lengths[-1] if lengths else 0)
        changed[h, s] |= bool(lengths)
    for table in ("Q", "V", "V_ref", "settled"):
        np.testing.assert_allclose(getattr(e, table), getattr(learner, table), rtol=0, atol=TOLERANCE)
    assert (learner.Q[at_actions(e.policy)] >= learner.V[:-1] - TOLERANCE)[changed].all()


def learner_of(simulation: Simulation, algorithm: Any, Q: list[float], V_ref: list[float]) -> Learner:
    facts = algorithm.facts(simulation.setting)
    lower_order = algorithm.constants == "published"
    return Learner(Sizes.of(simulation.setting), facts, lower_order, Q, V_ref)


def small_federation(seed: int, *, agents: int = 3, horizon: int = 3, eps_p: float = 0.2, **more: bool) -> Federation:
    return random_federation(np.random.default_rng(seed), agents, 3, 2, horizon, eps_p=eps_p, **more)


def of_any_kind(seed: int, agents: int) -> Federation:
    """With starts of their own, with steps alike, or with rewards of their own."""
    return small_federation(seed, agents=agents, own_starts=seed == 0, stationary=seed == 1, own_rewards=seed == 2)


# -------------------------------------------------------------------------------------------- FedQ-Advantage


@pytest.mark.parametrize(
    ("constants", "forced", "clip"),
    in_turn(itertools.product(["practical", "published"], [True, False]), ["horizon", "remaining"]),
)
def test_every_round_of_fedq_advantage_is_the_one_of_the_pseudocode(
    constants: Constants, forced: bool, clip: Clip
) -> None:
    ended = won = settled = 0
    reached: set[str] = set()
    for seed in range(3):
        federation = of_any_kind(seed, 2 + seed)
        algorithm = FedQAdvantage(
            constants=constants,
            forced_synchronisation=forced,
            clip=clip,
            reference_after=40,
            iota=0.25 if seed == 2 else None,
            ties="random",
        )
        simulation = Simulation(algorithm, federation, 150, seed, "episodes")
        H = federation.horizon
        start = [float(H if clip == "horizon" else H - h) for h in range(H)]
        learner = learner_of(simulation, algorithm, start, start)
        naive = NaiveFedQ(learner)
        while not simulation.done:
            policy = simulation.server.policy.copy()
            budgets = algorithm.budgets(simulation.agents, algorithm.broadcast(simulation.server)).limits
            for h, s in np.ndindex(*policy.shape):
                assert (budgets[:, h, s] == naive.visits_until_ask((h, s, int(policy[h, s])))).all()
            before = simulation.rounds
            simulation.advance()
            if simulation.rounds > before:
                naive.synchronise(played_steps(simulation, policy))
            assert_server_equals(simulation.server, learner)
        ended += sum(len(lengths) for lengths in learner.lengths.values())
        won += learner.second_bound_won
        settled += int(learner.settled.sum())
        reached |= naive.reached
    assert ended > 100
    assert settled > 10
    assert reached == {"early", "late"}
    if constants == "practical":
        assert won > 20, "the reference-advantage bound must have decided something"


def test_an_agents_message_is_the_mean_over_its_own_visits() -> None:
    federation = small_federation(5, own_rewards=True)
    algorithm = FedQAdvantage(reference_after=20)
    simulation = Simulation(algorithm, federation, 400, 5, "episodes")
    compared = 0
    while not simulation.done:
        policy = simulation.server.policy.copy()
        V = simulation.server.V.copy()
        V_ref = simulation.server.estimates.V_ref.copy()
        simulation.advance()
        n, *means = algorithm.report(simulation.agents, (), 0)
        for i, steps in enumerate(played_steps(simulation, policy)):
            for h, s in np.ndindex(*policy.shape):
                here = [step for step in steps if (step.h, step.s) == (h, s)]
                assert n[i, h, s] == len(here)
                if not here:
                    assert not any(mean[i, h, s] for mean in means)
                    continue
                after = [step.successor for step in here]
                r = np.array([step.reward for step in here])
                v = V[h + 1, after]
                z = V_ref[h + 1, after]
                wanted = [x.mean() for x in (r, v, z, z**2, v - z, (v - z) ** 2)]
                np.testing.assert_allclose([mean[i, h, s] for mean in means], wanted, rtol=0, atol=1e-12)
                compared += len(here) > 1
    assert compared > 20


def test_the_stage_rule_in_whole_numbers_is_the_one_in_fractions_up_to_the_largest_counts() -> None:
    rng = np.random.default_rng(8)
    seen = set()
    for _ in range(200):
        H = int(rng.integers(1, 30))
        M = int(rng.integers(1, 50))
        S = 8
        largest = 10 ** int(rng.integers(1, 16))
        before = np.where(rng.random((H, S)) < 0.2, 0, M * H + rng.integers(largest, size=(H, S)))
        y = np.minimum((rng.random((H, S)) * 1.1 * before).astype(np.int64), before + before // H)
        y[0, 0] = before[0, 0] - -(-before[0, 0] // H)
        limits = np.zeros((M, H, S), dtype=np.int64)
        rules = np.zeros((H, S), dtype=np.int8)
        FedQAdvantage().fill_budgets({"y": y, "y_previous": before}, M, limits, rules)
        for h, s in np.ndindex(H, S):
            now = int(y[h, s])
            past = int(before[h, s])
            if past == 0:
                expected = 1
                rule = 0
            elif now <= (1 - Fraction(1, H)) * past:
                expected = math.ceil(Fraction(past - now, M))
                rule = 1
            else:
                expected = math.floor(Fraction(past, M * H))
                rule = 2
            assert expected >= 1
            assert (limits[:, h, s] == expected).all()
            assert rules[h, s] == rule
            seen.add(rule)
    assert seen == {0, 1, 2}


@pytest.mark.parametrize("forced", [True, False])
@pytest.mark.parametrize("driver", ["episodes", "counts"])
def test_stages_grow_by_a_factor_of_one_to_two_parts_in_h(forced: bool, driver: str) -> None:
    federation = small_federation(9, agents=4, horizon=4)
    algorithm = FedQAdvantage(forced_synchronisation=forced)
    simulation = Simulation(algorithm, federation, 3000, 9, driver)
    H = federation.horizon
    M = federation.agents
    old = simulation.server.estimates.y_previous.copy()
    checked = 0
    while not simulation.done:
        simulation.advance()
        new = simulation.server.estimates.y_previous
        for where in zip(*np.nonzero(new != old), strict=True):
            before = int(old[where])
            now = int(new[where])
            if before == 0:
                assert M * H <= now < M * H + M
            else:
                assert Fraction(H + 1, H) * before <= now <= Fraction(H + 2, H) * before
            checked += 1
        old = new.copy()
    assert checked > 100


@pytest.fixture(scope="module")
def estimates_by_round() -> list[Estimates]:
    """Estimates of a run before the first round and after every round."""
    simulation = Simulation(FedQAdvantage(ties="random"), small_federation(10), 1000, 10, "episodes")
    found = []
    while True:
        copies = {name: array.copy() for name, array in simulation.server.estimates._asdict().items()}
        found.append(Estimates(**copies))
        if simulation.done:
            return found
        simulation.advance()


def test_q_never_rises(estimates_by_round: list[Estimates]) -> None:
    for before, after in itertools.pairwise(estimates_by_round):
        assert (after.Q <= before.Q).all()


def test_q_changes_only_where_a_stage_ended(estimates_by_round: list[Estimates]) -> None:
    for before, after in itertools.pairwise(estimates_by_round):
        assert (after.Q == before.Q)[after.N == before.N].all()


def test_the_policy_changes_only_where_a_stage_ended(estimates_by_round: list[Estimates]) -> None:
    for before, after in itertools.pairwise(estimates_by_round):
        ended = (after.N != before.N).any(axis=2)
        assert (after.policy == before.policy)[~ended].all()


def test_a_settled_reference_does_not_change(estimates_by_round: list[Estimates]) -> None:
    for before, after in itertools.pairwise(estimates_by_round):
        assert (after.V_ref[:-1] == before.V_ref[:-1])[before.settled].all()
    assert estimates_by_round[-1].settled.any()


def test_values_after_the_last_step_are_zero(estimates_by_round: list[Estimates]) -> None:
    for estimates in estimates_by_round:
        assert estimates.V[-1].max() == estimates.V_ref[-1].max() == 0.0


def test_without_forced_synchronisation_every_agent_plays_until_its_own_budget_is_reached() -> None:
    algorithm = FedQAdvantage(forced_synchronisation=False)
    simulation = Simulation(algorithm, small_federation(11, agents=4), 800, 11, "auto")
    apart = 0
    while True:
        budgets = algorithm.budgets(simulation.agents, algorithm.broadcast(simulation.server)).limits.copy()
        simulation.advance()
        if simulation.clock.max() >= 800:
            break
        reached = simulation.driver.visits >= budgets
        assert reached.any(axis=(1, 2)).all()
        assert (simulation.driver.visits <= budgets).all()
        apart += int(simulation.clock.max() > simulation.clock.min())
    assert apart > 20


def test_forced_synchronisation_takes_more_rounds() -> None:
    federation = synthetic(agents=8, horizon=4)
    rounds = {}
    for forced in (True, False):
        simulation = finished(Simulation(FedQAdvantage(forced_synchronisation=forced), federation, 1500, 0, "auto"))
        assert (simulation.clock == 1500).all()
        rounds[forced] = simulation.rounds
    assert rounds[True] > 1.2 * rounds[False]


def test_a_beta_above_the_horizon_is_refused_once_the_horizon_is_known() -> None:
    algorithm = FedQAdvantage(constants="published", beta=3.5)
    with pytest.raises(InputError, match="at most the horizon, 3"):
        Simulation(algorithm, small_federation(0), 10, 0, "auto")


# --------------------------------------------------------------------------------------------- UCB-Advantage


def naive_learner(simulation: Simulation, algorithm: UCBAdvantage) -> NaiveUCB:
    H = federation_of(simulation).horizon
    learner = learner_of(simulation, algorithm, [float(H - h) for h in range(H)], [float(H)] * H)
    return NaiveUCB(learner, stage_ends(H, federation_of(simulation).agents * simulation.setting.episodes))


@pytest.mark.parametrize(
    ("kind", "constants"), in_turn([("single",), ("discard",), ("keep",)], ["practical", "published"])
)
def test_every_round_of_ucb_advantage_is_the_one_of_the_pseudocode(kind: str, constants: Constants) -> None:
    ended = won = settled = dropped = 0
    for seed in range(3):
        algorithm: UCBAdvantage
        if kind == "single":
            algorithm = UCBAdvantage(constants=constants, reference_after=25, ties="random")
        else:
            algorithm = ConcurrentUCBAdvantage(constants=constants, reference_after=25, discard=kind == "discard")
        federation = of_any_kind(seed, 1 if kind == "single" else 3 + seed)
        simulation = Simulation(algorithm, federation, 150, seed, "episodes")
        naive = naive_learner(simulation, algorithm)
        for policy in played_rounds(simulation):
            used = naive.synchronise(
                [sorted(steps) for steps in played_steps(simulation, policy)], discard=kind == "discard"
            )
            dropped += federation.agents - used
            assert_server_equals(simulation.server, naive.learner)
        ended += sum(len(lengths) for lengths in naive.learner.lengths.values())
        won += naive.learner.second_bound_won
        settled += int(naive.learner.settled.sum())
    assert ended > 60
    assert settled > 10
    assert (dropped > 50) == (kind == "discard")
    if constants == "practical":
        assert won > 5, "the reference-advantage bound must have decided something"


def test_discarding_uses_the_trajectories_up_to_the_first_that_changes_q() -> None:
    algorithm = ConcurrentUCBAdvantage()
    setting = Setting(1, 1, 2, 5, 100, 0.0, 0)
    server = algorithm.new_server(setting)
    report = Trajectories(np.zeros((5, 3), dtype=np.int32), np.full((5, 2), 0.5))
    totals = []
    for _ in range(4):
        algorithm.aggregate(server, report, 0)
        totals.append(int((server.estimates.N + server.estimates.y)[0].sum()))
    assert totals == [2, 5, 9, 14], "stages of 2, 3, 4, then 6 visits, of which one round brings 5"


@pytest.mark.parametrize("H", [1, 2, 3, 7])
def test_stages_have_the_lengths_of_the_paper(H: int) -> None:
    algorithm = UCBAdvantage()
    server = algorithm.new_server(Setting(1, 1, H, 1, 1000, 0.0, 0))
    report = Trajectories(np.zeros((1, H + 1), dtype=np.int32), np.zeros((1, H)))
    ends = stage_ends(H, 1000)
    for n in range(1, 1001):
        algorithm.aggregate(server, report, 0)
        assert ((server.estimates.y == 0) == (n in ends)).all()
        assert (server.estimates.N + server.estimates.y == n).all()


@pytest.mark.parametrize(
    ("algorithm", "episodes", "share"),
    [(FedQAdvantage(clip="remaining"), 20_000, 0.98), (ConcurrentUCBAdvantage(discard=False), 4000, 0.97)],
    ids=lambda value: getattr(value, "name", None),
)
def test_a_nearly_optimal_policy_is_learnt(algorithm: Any, episodes: int, share: float) -> None:
    result = finished(Simulation(algorithm, synthetic(agents=5, horizon=4), episodes, 0, "auto")).result()
    assert result.value > share * result.about.optimal_value
