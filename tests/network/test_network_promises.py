"""Incumbents and certified gaps over the network: the same as in simulation, and with real environments."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from faults import Noting, keep_alive
from fed_ucbvi import (
    AlgorithmSpec,
    FedKLUCBVI,
    FedUCBVI,
    InputError,
    LiveFederation,
    ProblemSpec,
    Run,
    RunOptions,
    RunSpec,
    evaluate,
    gridworld,
    run,
)
from fed_ucbvi.algorithms.base import Setting
from fed_ucbvi.core.types import FloatArray, IndexArray
from fed_ucbvi.engine.assurance import Assurance
from fed_ucbvi.engine.promises import Promises
from fed_ucbvi.gymnasium_environments import TabularEnv
from fed_ucbvi.network.federation_spec import FederationRules, FederationSpec
from fed_ucbvi.network.messages import Decline, Down, Report, Roster, Stop, Up
from fed_ucbvi.network.node import Node
from fed_ucbvi.network.node_terms import NodeTerms
from fed_ucbvi.network.run_plan import RunPlan, plan_for, plan_of
from fed_ucbvi.network.server import Outcome
from fed_ucbvi.network.server_checkpoint import ServerCheckpoint
from fed_ucbvi.network.sources import LiveSource
from fed_ucbvi.results.recommendations import VALUE
from fed_ucbvi.results.round_record import INCUMBENT
from network import Served, TLSByName, assert_same, federate, make_nodes, tell

ALGORITHM = FedKLUCBVI(stationary=True)
WORLD = gridworld(agents=4)
SIZES = WORLD.horizon, WORLD.states, WORLD.actions
SOURCE = LiveSource(lambda agent: TabularEnv("gridworld", agent=agent, agents=4), (0.0, 1.0), WORLD.horizon)


def incumbent() -> IndexArray:
    """The best policy for half an episode."""
    policy = np.zeros(SIZES[:2], dtype=np.int32)
    policy[:6] = WORLD.common.solve().policy[:6]
    return policy


def promised(incumbent: Any = None, loss: Any = None, until_gap: Any = None, **more: Any) -> Promises | None:
    return Promises.of(incumbent, loss, until_gap, SIZES, **more)


def promising(episodes: int, asked: dict[str, Any], **rules: Any) -> RunPlan:
    return plan_for(ALGORITHM, WORLD, episodes, seed=3, promises=promised(**asked), **rules)


def in_one_process(episodes: int, asked: dict[str, Any]) -> Run:
    return run(ALGORITHM, WORLD, episodes, seed=3, driver="episodes", progress=False, **asked)


ASKED: dict[str, Any] = {"incumbent": incumbent(), "loss": 0.1}


@pytest.mark.parametrize("asked", [ASKED, {"until_gap": 1.5}])
def test_nodes_keep_the_promises_of_a_simulation_round_by_round(asked: dict[str, Any]) -> None:
    nodes = make_nodes(WORLD, (1, 3))
    expected = in_one_process(400, asked)
    over_the_network = federate(promising(400, asked), nodes).run
    assert_same(over_the_network, expected)
    assert expected.certificates
    for one, other in zip(over_the_network.certificates, expected.certificates, strict=True):
        assert one.at_least == other.at_least
        assert one.compared_with == other.compared_with
    for node in nodes:
        assert node.policy.guarantee == over_the_network.certificate


def chances() -> FloatArray:
    """An incumbent that draws its actions."""
    return np.random.default_rng(2).dirichlet(np.ones(SIZES[2]), SIZES[1])


@pytest.mark.parametrize(
    "asked",
    [{"incumbent": chances(), "loss": 0.1, "return_range": (0, 8)}, {"incumbent": incumbent(), "until_gap": 1.5}],
)
def test_masked_and_open_sums_keep_the_same_promises_bit_for_bit(asked: dict[str, Any], tls_files: TLSByName) -> None:
    """Every round, what it cost and what was certified; and, but for the grid of rewards, as in one process."""
    plans = (promising(400, asked, secure_sums=on) for on in (True, False))
    secure, plain = (federate(plan, make_nodes(WORLD, (1, 1, 2)), tls_files).run for plan in plans)
    assert_same(secure, plain, secure=True)
    for name in ("reward", "cost", "allowed"):
        assert np.array_equal(secure.records[name], plain.records[name], equal_nan=True)
    assert_same(plain, in_one_process(400, asked))
    assert plain.certificates
    for one, other in zip(secure.certificates, plain.certificates, strict=True):
        assert replace(one, date="") == replace(other, date="")


class Reluctant(Node):
    """A node that answers a roster in one of four rounds only, and whose books are kept by hand."""

    books: ClassVar[dict[tuple[int, str], tuple[int, float]]] = {}
    """What was played and paid, by round and node."""

    def _contribute(self, roster: Roster) -> Report | Decline:
        if self.name == "node-1" and roster.round % 4:
            return Decline(roster.round, "not now", roster.exchange)
        return super()._contribute(roster)

    def answer(self, message: Down) -> Up | None:
        answer = super().answer(message)
        now = self._round
        if isinstance(message, Stop):
            assert now is not None
            assert now.paid is not None
            self.books[message.round, self.name] = now.start.playing, now.paid.total
        return answer


def test_cost_of_exploring_is_charged_in_full_where_a_sum_is_missing(
    tls_files: TLSByName, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the server charges is never less than what exploring has cost.

    Cost and allowance, by the true value of the incumbent, are compared at the end of every round: they may fail in
    one run of twenty, and the seed is fixed.
    """
    policy = incumbent()
    record = Assurance.record
    known: list[float] = []

    def recorded(self: Assurance, *about: Any) -> None:
        record(self, *about)
        known.append(self.account.reward)

    monkeypatch.setattr(Assurance, "record", recorded)
    Reluctant.books.clear()
    nodes = [Reluctant(f"node-{i}", lambda M: WORLD, i, 1 + i // 2) for i in range(3)]
    result = federate(promising(400, ASKED, secure_sums=True), nodes, tls_files).run
    records = result.records
    promotions = [certificate.rounds for certificate in result.certificates]
    before = promotions[0] if promotions else len(records["playing"])
    worth = float(WORLD.common.initial @ WORLD.common.evaluate(policy)[0])
    played = []
    paid = []
    summed = []
    for number in range(1, len(records["playing"]) + 1):
        of_nodes = [Reluctant.books[number, node.name] for node in nodes]
        assert {playing for playing, _ in of_nodes} == {records["playing"][number - 1]}
        played.append(of_nodes[0][0])
        paid.append(sum(total for _, total in of_nodes))
        summed.append(number % 4 == 0)
    exploring = np.array(played) != INCUMBENT
    t = np.cumsum(records["agent_episodes"])
    E = np.cumsum(np.where(exploring, records["agent_episodes"], 0))
    R = np.cumsum(np.where(exploring, paid, 0.0))
    told = np.cumsum(np.where(exploring & np.array(summed), paid, 0.0))
    assert exploring[:before].any()
    assert (E * worth - R <= 0.1 * t * worth)[:before].all()
    assert (records["cost"] >= E * worth - R - 1e-6)[:before].all()
    assert np.array(known)[:before] == pytest.approx(told[:before], abs=1e-6)


def test_a_run_with_an_incumbent_is_the_simulation_under_secure_sums(tls_files: TLSByName) -> None:
    """Counts of rounds without a request are held until the next synchronisation or recommendation."""
    plan = promising(200, ASKED, secure_sums=True)
    nodes = make_nodes(WORLD, (1, 1, 2), kind=Noting)
    outcome = federate(plan, nodes, tls_files)
    result = outcome.run
    assert (result.records["requests"] == 0).any()
    assert sorted(nodes[0].reports) == list(range(1, 1 + len(result.records["requests"])))
    assert outcome.events == []
    assert_same(result, in_one_process(200, ASKED), secure=True)


@pytest.mark.parametrize("after", [False, True], ids=["before it answers", "after"])
def test_a_node_that_dies_in_a_sum_and_comes_back_changes_nothing(
    after: bool, tls_files: TLSByName, tmp_path: Path
) -> None:
    plan = promising(200, ASKED, secure_sums=True)
    nodes = make_nodes(WORLD, (1, 1, 2), tmp_path, Noting)
    nodes[0].dies_in = 5
    nodes[0].after = after

    async def story() -> Outcome:
        served = Served(plan, None, tls_files)
        alive = iter((nodes[0], *make_nodes(WORLD, (1,), tmp_path)))
        served.begin(keep_alive(lambda: next(alive), served.remote("node-0")))
        served.join(*nodes[1:])
        return await served.finish()

    outcome = tell(story())
    assert outcome.events == []
    assert_same(outcome.run, in_one_process(200, ASKED), secure=True)


def live_plan(**more: Any) -> tuple[RunPlan, list[Node]]:
    """Three nodes with real environments, which stop where the server's word reaches them."""
    setting = Setting(WORLD.states + 1, WORLD.actions, WORLD.horizon, 4, 60, 0.0, 5, eps_p_known=False)
    policy = np.concatenate([incumbent(), np.zeros((WORLD.horizon, 1), dtype=np.int32)], axis=1)
    promises = Promises.of(policy, 0.2, None, (WORLD.horizon, WORLD.states + 1, WORLD.actions))
    plan = RunPlan(ALGORITHM, setting, promises=promises, rules=FederationRules(collection="live", **more))
    return plan, make_nodes(SOURCE, (2, 1, 1))


def kept(result: Run) -> bool:
    """Whether no exploring round has ended with more cost than was allowed."""
    records = result.records
    return bool((records["cost"] <= records["allowed"] + 1e-9)[records["playing"] != INCUMBENT].all())


@pytest.mark.parametrize("secure_sums", [False, True])
def test_real_environments_on_nodes_keep_the_promise(secure_sums: bool, tls_files: TLSByName) -> None:
    plan, nodes = live_plan(secure_sums=secure_sums)
    result = federate(plan, nodes, tls_files).run
    assert result.complete
    assert set(result.records["playing"].tolist()) > {INCUMBENT}
    assert kept(result)


@pytest.mark.parametrize("secure_sums", [False, True])
def test_with_loss_0_nodes_play_nothing_but_the_incumbent_and_receive_its_interval(
    secure_sums: bool, tls_files: TLSByName
) -> None:
    """The interval is that of one process, bit for bit."""
    policy = incumbent()
    run = RunSpec(
        problem=ProblemSpec(environment="gridworld", agents=4),
        algorithm=AlgorithmSpec(name="fed-kl-ucbvi"),
        options=RunOptions(episodes=150, seed=7, loss=0),
    )
    plan = plan_of(FederationSpec(run=run, rules=FederationRules(secure_sums=secure_sums)), incumbent=policy)
    nodes = make_nodes(WORLD, (1, 1, 2))
    result = federate(plan, nodes, tls_files).run
    expected = evaluate(policy, WORLD, 150, seed=7)
    (one,) = result.certificates
    assert (one.at_least, one.compared_with, one.episodes) == (expected.lower, expected.upper, expected.episodes)
    assert set(result.records["playing"].tolist()) == {INCUMBENT}
    assert result.complete
    assert np.array_equal(result.policy, policy)
    for node in nodes:
        assert node.policy.guarantee.to_data() == one.to_data()


@pytest.mark.parametrize("secure_sums", [False, True])
def test_with_loss_0_real_environments_on_nodes_play_nothing_but_the_incumbent(
    secure_sums: bool, tls_files: TLSByName
) -> None:
    """Under secure sums the last returns are missing if fewer than three nodes have new ones at the end."""
    policy = incumbent()
    run = RunSpec(
        problem=ProblemSpec(sizes=(WORLD.states + 1, WORLD.actions, WORLD.horizon), agents=4),
        algorithm=AlgorithmSpec(name="fed-kl-ucbvi"),
        options=RunOptions(episodes=30, seed=7, loss=0),
    )
    spec = FederationSpec(run=run, rules=FederationRules(collection="live", secure_sums=secure_sums))
    result = federate(plan_of(spec, incumbent=policy), make_nodes(SOURCE, (1, 1, 2)), tls_files).run
    expected = evaluate(policy, LiveFederation(SOURCE.make, 4, WORLD.horizon, (0.0, 1.0)), 30, seed=7)
    (one,) = result.certificates
    assert set(result.records["playing"].tolist()) == {INCUMBENT}
    assert one.kind == VALUE
    if secure_sums:
        assert 60 <= one.episodes <= 120
        assert one.at_least <= expected.mean <= one.compared_with
    else:
        assert (one.at_least, one.compared_with, one.episodes) == (expected.lower, expected.upper, expected.episodes)


def test_a_server_says_when_exploring_can_begin(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="fed_ucbvi.federation"):
        federate(promising(10, {"incumbent": incumbent(), "loss": 0.001}), make_nodes(WORLD, (2, 2)))
    said = [one for one in caplog.records if "nothing explored yet" in one.getMessage()]
    assert [one.levelname for one in said] == ["INFO", "WARNING"]
    assert "exploring can begin after about" in said[-1].getMessage()


def test_a_server_resumes_with_the_promises_it_was_begun_with(tmp_path: Path) -> None:
    federate(promising(100, ASKED), make_nodes(WORLD, (2, 2), tmp_path), folder=tmp_path / "server")
    with pytest.raises(InputError, match="holds another run"):
        ServerCheckpoint(tmp_path / "server", plan_for(ALGORITHM, WORLD, 300, seed=3))
    result = federate(promising(300, ASKED), make_nodes(WORLD, (2, 2), tmp_path), folder=tmp_path / "server").run
    assert result.episodes_played == 300
    assert kept(result)


def test_what_cannot_be_promised_over_the_network_is_refused() -> None:
    promises = promised(incumbent=incumbent())
    with pytest.raises(InputError, match="learns only from what its own policy plays"):
        plan_for(FedUCBVI(), WORLD, 10, promises=promises)
    with pytest.raises(InputError, match="leave out --quorum"):
        plan_for(ALGORITHM, WORLD, 10, promises=promises, quorum=2)
    nodes = [Node(f"node-{i}", lambda M: WORLD, 2 * i, 2, terms=NodeTerms(no_rewards=i > 0)) for i in range(2)]
    with pytest.raises(InputError, match="some agents do not say"):
        federate(plan_for(ALGORITHM, WORLD, 10, promises=promises), nodes)
