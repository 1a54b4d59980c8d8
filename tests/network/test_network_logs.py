"""Logs of nodes: they stay where they are, their counts are the first report, and none is counted twice."""

from __future__ import annotations

import functools
import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import polars as pl
import pytest

import federation_processes as processes
from faults import CrashError, Fragile, failing, one_vanishes, with_deaths
from fed_ucbvi import Federation, FedKLUCBVI, FedUCBVI, InputError, Run, counts_from_logs, riverswim, run, synthetic
from fed_ucbvi.algorithms.base import Setting
from fed_ucbvi.algorithms.count_table import CountTable
from fed_ucbvi.network import client
from fed_ucbvi.network.coordinator import Coordinator
from fed_ucbvi.network.federation_spec import FederationRules
from fed_ucbvi.network.messages import Down, Roster, Sign, Start, Stop, Up
from fed_ucbvi.network.node import Node
from fed_ucbvi.network.node_reports import MaskedReports
from fed_ucbvi.network.run_plan import RunPlan, plan_for
from fed_ucbvi.network.server_checkpoint import counts_in
from fed_ucbvi.network.sources import LiveSource
from matrices import first_of
from network import Served, TLSByName, assert_same, federate, first_broadcast, make_nodes

BY_STEP = synthetic(agents=4, eps_p=0.0, seed=2, states=4, actions=3, horizon=3)
SWIM = riverswim(agents=4, horizon=6)
SPLIT = (1, 2, 1)
NAMES = ("node-0", "node-1", "node-2")
T = 60
SEED = 3


def write_log(path: Path, world: Federation, episodes: int, seed: int = 0) -> Path:
    """Episodes of random actions, some of which end early."""
    rng = np.random.default_rng(seed)
    mdp = world.common
    rows = []
    for episode in range(episodes):
        state = int(rng.choice(mdp.states, p=mdp.initial))
        for step in range(int(rng.integers(1, mdp.horizon + 1))):
            action = int(rng.integers(mdp.actions))
            place = min(step, len(mdp.rewards) - 1)
            law = min(step, len(mdp.kernel.successors) - 1), state, action
            after = int(rng.choice(mdp.kernel.successors[law], p=mdp.kernel.probabilities[law]))
            rows.append((episode, step, state, action, float(mdp.rewards[place, state, action]), after))
            state = after
    names = ("episode", "step", "state", "action", "reward", "next_state")
    pl.DataFrame(rows, schema=names, orient="row").write_csv(path)
    return path


def nodes_with(logs: list[Path | None], world: Federation, folder: Path | None = None) -> list[Node]:
    """The nodes of ``SPLIT``, each with a log or without."""
    return [make_nodes(world, SPLIT, folder, logs=log)[i] for i, log in enumerate(logs)]


def merged(logs: list[Path], world: Federation, *, stationary: bool) -> CountTable:
    sizes = (world.states, world.actions, world.horizon)
    return functools.reduce(CountTable.merge, (counts_from_logs(log, sizes, stationary=stationary) for log in logs))


def simulated(logs: list[Path], world: Federation, algorithm: FedKLUCBVI) -> Run:
    counts = merged(logs, world, stationary=algorithm.stationary)
    return run(algorithm, world, T, seed=SEED, driver="episodes", warm_start=counts)


def assert_counted(server: Path, made: Run, logged: CountTable) -> None:
    """Every logged step once, and every step of the episodes up to the last synchronisation."""
    records = made.records
    H = len(made.policy)
    until = np.flatnonzero(records["requests"])[-1] + 1
    assert counts_in(server).visits.sum() == logged.visits.sum() + H * records["agent_episodes"][:until].sum()


@pytest.mark.parametrize("quorum", [None, 3])
@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize(("world", "stationary"), [(BY_STEP, False), (SWIM, True)])
def test_a_federation_with_logs_is_the_simulation_that_starts_from_their_counts(
    world: Federation, stationary: bool, secure: bool, quorum: int | None, tls_files: TLSByName, tmp_path: Path
) -> None:
    algorithm = FedKLUCBVI(stationary=stationary)
    logs = [write_log(tmp_path / f"{i}.csv", world, 15 + 5 * i, i) for i in range(3)]
    plan = plan_for(algorithm, world, T, seed=SEED, secure_sums=secure, quorum=quorum, wait=30.0)
    outcome = federate(plan, nodes_with([*logs], world), tls_files if secure else None, tmp_path / "server")
    expected = simulated(logs, world, algorithm)
    assert_same(outcome.run, expected, regret=False, secure=secure)
    cold = run(algorithm, world, T, seed=SEED, driver="episodes")
    assert not np.array_equal(expected.V, cold.V), "the logs matter"
    assert_counted(tmp_path / "server", outcome.run, merged(logs, world, stationary=stationary))


@pytest.mark.parametrize("secure", first_of([True, False]))
@pytest.mark.parametrize("after", [False, True])
def test_a_dying_node_brings_its_logs_once(secure: bool, after: bool, tls_files: TLSByName, tmp_path: Path) -> None:
    logs = [write_log(tmp_path / f"{i}.csv", BY_STEP, 20, i) for i in range(3)]
    expected = simulated(logs, BY_STEP, FedKLUCBVI())

    plan = plan_for(FedKLUCBVI(), BY_STEP, T, seed=SEED, secure_sums=secure)
    own: dict[str, Any] = {"logs": logs[0], "tls_files": tls_files if secure else None}
    for dies_at in range(1, 8):  # the start, stop and report of round 0, and those of round 1
        others = nodes_with([None, *logs[1:]], BY_STEP)[1:]
        outcome = with_deaths(plan, BY_STEP, SPLIT, tmp_path / str(dies_at), [dies_at], after, others=others, **own)
        assert np.array_equal(outcome.run.V, expected.V), dies_at
        assert np.array_equal(outcome.run.policy, expected.policy), dies_at


async def test_a_server_started_again_takes_no_logs_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It dies before it takes them, before the first round, and before the fifth."""
    logs = [write_log(tmp_path / f"{i}.csv", BY_STEP, 20, i) for i in range(3)]
    plan = plan_for(FedKLUCBVI(), BY_STEP, T, seed=SEED)
    kept = tmp_path / "server"
    calls = failing(monkeypatch, Coordinator, "_advance", (1, 3, 8), CrashError())
    monkeypatch.setattr(client, "MAX_PAUSE", 0.3)
    served = Served(plan, kept)
    served.join(*nodes_with([*logs], BY_STEP, tmp_path))
    outcome = await served.finish_after(CrashError, plan, kept)
    assert len(calls) > 8
    assert_same(outcome.run, simulated(logs, BY_STEP, FedKLUCBVI()), regret=False)


def test_logs_of_a_late_node_come_with_its_next_report(tmp_path: Path) -> None:
    """It is away while the others report theirs; a quorum of three closes without it."""
    logs = [write_log(tmp_path / f"{i}.csv", BY_STEP, 20, i) for i in range(4)]

    class Slow(Node):
        """Takes its time, so that the run is not over before the other one is back."""

        def answer(self, message: Down) -> Up | None:
            time.sleep(0.03 if isinstance(message, Start) else 0.0)
            return super().answer(message)

    class Late(Node):
        """Forgets to answer in round 0, once."""

        missed = False

        def answer(self, message: Down) -> Up | None:
            if isinstance(message, Start) and message.round == 0:
                type(self).missed = True
                return None
            return super().answer(message)

    plan = plan_for(FedKLUCBVI(), BY_STEP, T, seed=SEED, quorum=3, wait=0.2)
    kinds = [Slow, Slow, Slow, Late]
    nodes = [kind(f"node-{i}", lambda M: BY_STEP, i, 1, logs=logs[i]) for i, kind in enumerate(kinds)]
    outcome = federate(plan, nodes, folder=tmp_path / "server")
    assert Late.missed
    assert_counted(tmp_path / "server", outcome.run, merged(logs, BY_STEP, stationary=False))


def test_logs_of_too_few_nodes_are_in_no_sum(tls_files: TLSByName, tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.csv", BY_STEP, 20)
    plan = plan_for(FedKLUCBVI(), BY_STEP, T, seed=SEED, secure_sums=True)
    outcome = federate(plan, nodes_with([log, log, None], BY_STEP), tls_files, tmp_path / "server")
    (event,) = outcome.events
    assert event["what"] == "no sum: too few nodes have episodes for a sum"
    assert event["done"] == "logs stay where they are"
    without_logs = run(FedKLUCBVI(), BY_STEP, T, seed=SEED, driver="episodes")
    assert_same(outcome.run, without_logs, regret=False, secure=True)


def test_a_run_whose_logs_could_not_be_summed_goes_on_learning(tls_files: TLSByName, tmp_path: Path) -> None:
    """A node vanishes in the sum of the logs; the rounds after it have sums of the others."""
    logs = [write_log(tmp_path / f"{i}.csv", BY_STEP, 20, i) for i in range(4)]
    plan = plan_for(FedKLUCBVI(), BY_STEP, T, seed=SEED, secure_sums=True, quorum=3, wait=0.3)
    mortal = Fragile("node-0", lambda M: BY_STEP, 0, 1, logs=logs[0])
    mortal.dies_at = 4  # the roster, after a start, a stop and a request to sign
    others = [Node(f"node-{i}", lambda M: BY_STEP, i, 1, logs=logs[i]) for i in (1, 2, 3)]
    outcome = one_vanishes(plan, [mortal, *others], tls_files)
    lost = [event["round"] for event in outcome.events if event["done"] == "logs stay where they are"]
    assert lost == [0]
    records = outcome.run.records
    assert (records["requests"] > 0).sum() > 10
    assert outcome.run.rounds == (records["requests"] > 0).sum(), "every request was followed by a synchronisation"
    assert outcome.run.V[0].max() < plan.setting.horizon, "something has been learnt"


def test_a_node_reports_its_logs_in_round_0_only(tls_files: TLSByName, tmp_path: Path) -> None:
    """Also if the server says later that it has not had them."""
    log = write_log(tmp_path / "log.csv", BY_STEP, 20)
    plan = plan_for(FedKLUCBVI(), BY_STEP, T, seed=SEED, secure_sums=True)
    node = Node("node-0", lambda M: BY_STEP, 0, 1, logs=log)
    node.identify(tls_files("node-0"), "127.0.0.1")
    node.enter(plan.welcome())
    answered: list[Any] = []
    reports = node._reports
    assert isinstance(reports, MaskedReports)
    reports.sums = Mock(**{"answer.side_effect": lambda roster, report: answered.append(report)})
    broadcast = first_broadcast(plan)
    for number in (0, 1):
        node.answer(Start(number, 0, 0, 5 * number, 5 * number, broadcast, confirmed=-1))
        node.answer(Stop(number, number))
        node.answer(Sign(number))
        node.answer(Roster(number, ()))
    logged, played = (int(report[0].sum()) for report in answered)
    assert logged == pl.read_csv(log).height
    assert played == BY_STEP.horizon


def test_live_nodes_bring_logs_whose_rewards_vary(tmp_path: Path) -> None:
    log = tmp_path / "lake.csv"
    names = ("episode", "step", "state", "action", "reward", "next_state")
    rows = [(e, h, 0, 0, 0.1 * (e % 3), 4 if h == 1 else 0) for e in range(30) for h in range(2)]
    pl.DataFrame(rows, schema=names, orient="row").write_csv(log)
    setting = Setting(17, 4, 6, 2, 20, 0.0, SEED, eps_p_known=False)
    plan = RunPlan(FedKLUCBVI(stationary=True), setting, rules=FederationRules(collection="live"))
    lake = LiveSource.of("FrozenLake-v1", reward_range=(0, 1), horizon=6)
    nodes = [Node(f"node-{i}", lake, i, 1, tmp_path / f"node-{i}", logs=log if i else None) for i in range(2)]
    outcome = federate(plan, nodes, folder=tmp_path / "server")
    counts = counts_from_logs(log, (17, 4, 6), stationary=True, random_rewards=True)
    assert_counted(tmp_path / "server", outcome.run, counts)
    assert counts_in(tmp_path / "server").visits[0, 0, 0] >= 60


def test_logs_that_are_not_those_of_before_or_not_taken_are_refused(tmp_path: Path) -> None:
    log, other = (write_log(tmp_path / f"{i}.csv", BY_STEP, 20, i) for i in range(2))
    plan = plan_for(FedKLUCBVI(), BY_STEP, T, seed=SEED)
    Node("node-0", lambda M: BY_STEP, 0, 1, tmp_path / "state", logs=log).enter(plan.welcome())
    for logs in (other, None):
        with pytest.raises(InputError, match="state of another run or node"):
            Node("node-0", lambda M: BY_STEP, 0, 1, tmp_path / "state", logs=logs).enter(plan.welcome())
    node = Node("node-0", lambda M: BY_STEP, 0, 1, logs=log)
    with pytest.raises(InputError, match="fed-ucbvi takes no logs of nodes"):
        node.enter(plan_for(FedUCBVI(), BY_STEP, T).welcome())
    swimming = Node("node-0", lambda M: SWIM, 0, 1, logs=log)
    with pytest.raises(InputError):
        swimming.enter(plan_for(FedKLUCBVI(), SWIM, T).welcome())


@pytest.mark.full
def test_processes_with_logs_give_the_simulation_and_bad_ones_a_line_and_no_state(tmp_path: Path) -> None:
    world = synthetic(agents=3, eps_p=processes.EPS_P, seed=processes.ENV_SEED, **processes.SIZES)
    logs = {name: write_log(tmp_path / f"{name}.csv", world, 40, i) for i, name in enumerate(processes.THREE)}
    bad = tmp_path / "bad.csv"
    lines = logs["node-0"].read_text().splitlines()
    bad.write_text("\n".join([*lines[:2], lines[2].replace(",", ",9", 2), *lines[3:]]))
    with processes.Processes(tmp_path, secure_sums=True) as parties:
        parties.logs = {"node-0": bad}
        parties.start(processes.SERVER, "node-0")
        assert parties.parties["node-0"].end() == 2
        assert "bad.csv, line 3: step is 9" in parties.parties["node-0"].words()
        assert "step is" not in parties.parties[processes.SERVER].words(), "not even its errors leave the node"
        assert {path.name for path in (tmp_path / "node-0").iterdir()} == {"lock"}
        parties.logs = logs
        parties.start(*processes.THREE)
        made, _ = parties.finish()
    counts = merged([*logs.values()], world, stationary=False)
    expected = run(FedKLUCBVI(), world, processes.T, seed=processes.SEED, driver="episodes", warm_start=counts)
    assert np.array_equal(made.V, expected.V)
    assert np.array_equal(made.policy, expected.policy)
