"""Random rewards of live environments, over the network, as Gymnasium environments, and at the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from scipy.stats import binomtest
from shops import HIGH, LOW, shops, variance_of_money

import fed_ucbvi.gymnasium_environments  # noqa: F401 (registers)
from commands import call
from fed_ucbvi import FedUCBVI, Interrupted, LiveFederation, resume, run
from fed_ucbvi.algorithms.base import Setting
from fed_ucbvi.algorithms.fed_kl_ucbvi import FedKLUCBVI
from fed_ucbvi.engine.simulation import Simulation
from fed_ucbvi.network.run_plan import RunPlan
from fed_ucbvi.network.sources import LiveSource
from gymnasium_problems import Corridors
from naive_fed_ucbvi import NaiveAgent, Options, Sizes, synchronise
from network import federate, make_nodes
from runs import finished, interrupt_after, without_cautions
from saved_states import saved_in

pytestmark = without_cautions


def played(algorithm: Any, live: LiveFederation, episodes: int) -> Simulation:
    simulation = Simulation(algorithm, live, episodes, 1)
    finished(simulation)
    simulation.close()
    return simulation


def test_a_live_server_knows_what_a_naive_one_does_that_sees_every_visit() -> None:
    """Where an episode is over the log has nothing, so only states of the environment are compared."""
    corridors = Corridors()
    simulation = played(FedUCBVI(), corridors.live(random_rewards=True), 60)
    simulation.algorithm.synchronise(simulation.server, simulation.agents, simulation.setting)
    agents = [NaiveAgent() for _ in range(3)]
    for (i, h, s, a), seen in corridors.observed().items():
        for reward, following in seen:
            agents[i].observe(h, s, a, reward, following)
    ended = simulation.agents.experience.visits[:, :, 3]
    for i, h, a in np.argwhere(ended).tolist():
        agents[i].observe(h, 3, a, 2.0 / 6.0, 3, int(ended[i, h, a]))
    expected = synchronise(agents, Sizes(4, 2, 4, 3), Options(random_rewards=True))
    expected.assert_equals(simulation.server.estimates, 1e-8)
    assert simulation.result().about.random_rewards
    assert (simulation.agents.experience.sums.by_slot > 0).any()


def test_without_the_option_rewards_are_replaced_by_means_as_before() -> None:
    simulation = played(FedUCBVI(), Corridors().live(random_rewards=False), 30)
    assert simulation.agents.experience.sums.by_slot.size == 0
    assert not simulation.result().about.random_rewards


def test_a_live_run_is_resumed_with_its_sums(tmp_path: Path) -> None:
    """The environments here begin anew; supports, sums and means are those of the checkpoint."""
    kept = {"checkpoint": tmp_path / "kept", "checkpoint_every": 1}
    with pytest.raises(Interrupted):
        run(FedUCBVI(), Corridors().live(random_rewards=True), 60, on_round=interrupt_after(rounds=5), **kept)  # type: ignore[arg-type]
    assert saved_in(tmp_path / "kept").arrays["seen.reward_sums"].sum() > 0
    assert resume(tmp_path / "kept", Corridors().live(random_rewards=True), progress=False).complete
    with pytest.raises(Exception, match="random_rewards"):
        resume(tmp_path / "kept", Corridors().live(random_rewards=False), progress=False)


def test_a_node_with_a_live_environment_learns_what_a_live_run_does() -> None:
    setting = Setting(4, 2, 4, 1, 40, 0.0, 1, random_rewards=True)
    source = LiveSource(Corridors(1).make, (-2.0, 4.0), 4, "corridors")
    outcome = federate(RunPlan(FedKLUCBVI(), setting, collection="live"), make_nodes(source, [1]))
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


def test_the_command_line_takes_random_rewards_and_says_so() -> None:
    told = ["run", "--env", "synthetic", "--env-option", "bernoulli_rewards=true", "--episodes", "30"]
    assert json.loads(call(*told, "--json").stdout)["environment"]["bernoulli_rewards"] is True
    assert "random rewards" in call(*told).stdout
    refused = call("serve", "--insecure", "--env", "synthetic", "--random-rewards")
    assert refused.exit_code == 2
    assert "--sizes" in refused.stderr


@pytest.mark.slow
@pytest.mark.full
def test_five_shops_whose_money_depends_on_chance() -> None:
    """Given by mean and variance. Values and the best policy are those of the means."""
    world, certain = shops(random=True), shops()
    assert world.payments is not None
    y, q = world.payments
    assert np.allclose(y * q, certain.rewards)
    spread = (HIGH - LOW) * np.sqrt(y * y * q * (1 - q))
    assert np.allclose(spread[2, 0], np.sqrt(variance_of_money(2.5)))
    assert 6.5 < spread[2, 0, 5, 3] < 6.6  # euro a day
    result, plain = (run(FedKLUCBVI(stationary=True), one, 100, seed=1, progress=False) for one in (world, certain))
    assert result.about.best_common_value == plain.about.best_common_value
    assert result.about.random_rewards
    assert not plain.about.random_rewards
