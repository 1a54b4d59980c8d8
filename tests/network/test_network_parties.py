"""Nodes and the door: whose problem, whose seat, whose checkpoint."""

from __future__ import annotations

import dataclasses
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from faults import outcome_of, stream_to
from fed_ucbvi import FedUCBVI, InputError, ProblemSpec, run, synthetic
from fed_ucbvi.algorithms import make_algorithm
from fed_ucbvi.network import query_guard
from fed_ucbvi.network.federation_spec import FederationRules
from fed_ucbvi.network.messages import PROTOCOL, Hello, Joining, Query, Start, Stop
from fed_ucbvi.network.node import Node
from fed_ucbvi.network.node_state_store import NodeStateStore, stored_run
from fed_ucbvi.network.run_plan import RunPlan, epoch_now, plan_for
from fed_ucbvi.network.server_checkpoint import ServerCheckpoint
from fed_ucbvi.network.sources import Source, host, simulated_source
from network import Served, assert_simulation, federate, first_broadcast, make_nodes

WORLD = synthetic(agents=4, eps_p=0.2, eps_r=0.1, states=3, actions=2, horizon=3)
ALGORITHM = FedUCBVI(nu=30)


def plan() -> RunPlan:
    return plan_for(ALGORITHM, WORLD, 40, seed=1)


MODULE = """
from fed_ucbvi import synthetic

def everyone(agents):
    return synthetic(agents=agents, eps_p=0.2, eps_r=0.1, states=3, actions=2, horizon=3)

def last_two(agents):
    federation = everyone(agents)
    return [federation.agent(2), federation.agent(3)]

def nonsense():
    return "no problem"
"""


def test_a_problem_comes_from_a_file_a_function_or_own_mdps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def source_of(env: str | Path) -> Source:
        return simulated_source(ProblemSpec(environment=str(env)), 4)

    WORLD.save(tmp_path / "world.npz")
    (tmp_path / "our_problem.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    expected = run(ALGORITHM, WORLD, 40, seed=1, driver="episodes")
    for first, second in (
        (source_of(tmp_path / "world.npz"), source_of("our_problem:everyone")),
        (source_of("our_problem:everyone"), source_of("our_problem:last_two")),
    ):
        nodes = [Node("a", first, 0, 2), Node("b", second, 2, 2)]
        outcome = federate(RunPlan(ALGORITHM, plan().setting), nodes)
        assert np.array_equal(outcome.run.V, expected.V)
        assert np.array_equal(outcome.run.records["length"], expected.records["length"])
    with pytest.raises(InputError, match="must give a Federation or a list of MDPs, got str"):
        source_of("our_problem:nonsense")(4)
    for name in ("our_problem", "our_problem:nothing", "no_such_module:at_all"):
        with pytest.raises(InputError):
            source_of(name)
    (tmp_path / "bad.npz").write_bytes(b"not a federation")
    with pytest.raises(InputError, match="is not a federation that fed-ucbvi saved"):
        source_of(tmp_path / "bad.npz")


def test_a_node_hosts_its_slice_and_the_digest_tells_problems_apart() -> None:
    own = host(WORLD, 1, 2)
    assert own.federation is not None
    assert np.array_equal(own.federation.probabilities, WORLD.probabilities[1:3])
    assert np.array_equal(own.federation.rewards, WORLD.rewards[1:3])
    assert own.digest == host(WORLD, 1, 2).digest
    others = [host(WORLD, 0, 2), host(WORLD, 1, 3), host(synthetic(agents=4, eps_p=0.3, states=3), 1, 2)]
    assert own.digest not in [other.digest for other in others]
    with pytest.raises(InputError, match="agents 3 to 4 need 5"):
        host(WORLD, 3, 2)
    with pytest.raises(InputError, match="agents that lie"):
        host(WORLD.with_liars(0.5, "flip"), 0, 1)


def test_a_node_does_not_do_what_a_server_must_not_ask() -> None:
    (node,) = make_nodes(WORLD, [4])
    node.enter(plan().welcome())
    policy = np.zeros((3, 3), dtype=np.int32)
    N = np.zeros((3, 3, 2), dtype=np.int64)
    good = Start(1, 0, 0, 40, 5, (policy, N))
    node.answer(good)
    for bad, says in (
        (replace(good, arrays=(policy + 2, N)), "actions that do not exist"),
        (replace(good, arrays=(policy - 1, N)), "actions that do not exist"),
        (replace(good, arrays=(policy, N[:2])), "does not fit"),
        (replace(good, arrays=(policy.astype(np.int64), N)), "does not fit"),
        (replace(good, arrays=(policy,)), "does not fit"),
        (replace(good, most=41), "does not fit"),
        (replace(good, base=7), "cannot resume after round 7"),
        (plan().welcome(), "where none belongs"),
    ):
        with pytest.raises(InputError, match=says):
            node.answer(bad)
    assert node.answer(good) == node.answer(good)


async def test_a_seat_is_one_processs_alone_on_whatever_stream() -> None:
    hello = Hello(PROTOCOL, "0.1.0", "a", b"x" * 16, 0, 4, "")
    ready = Joining(3, 2, 3, host(WORLD, 0, 4).digest, (0,))
    async with Served(plan()) as served, stream_to(served.remote()) as old, stream_to(served.remote()) as new:
        await old.say(hello, ready)
        await served.meet()
        for other, says in (
            (replace(hello, incarnation=b"y" * 16), "another process is connected as 'a'"),
            (replace(hello, agents=2), "came with agents 0 to 3 before"),
        ):
            assert says in await outcome_of(served.remote(), [other, ready])
        await new.say(hello, ready)  # the same process on a new stream
        heard: list[Any] = [await old.hear() for _ in range(3)]
        assert heard[-1].reason == "the node has opened another stream"


def test_a_checkpoint_is_gone_on_with_by_the_same_task_only(tmp_path: Path) -> None:
    first = dataclasses.replace(plan(), run="first")
    outcome = federate(first, make_nodes(WORLD, [4]), folder=tmp_path / "run")
    for same in (plan(), dataclasses.replace(plan(), rules=FederationRules(patience=7.0))):
        again = ServerCheckpoint(tmp_path / "run", same)
        assert again.plan.run == first.run
        again.close()
    for other in (
        dataclasses.replace(plan(), setting=dataclasses.replace(plan().setting, seed=2)),
        dataclasses.replace(plan(), algorithm=FedUCBVI(nu=31)),
        RunPlan(ALGORITHM, plan().setting),
    ):
        with pytest.raises(InputError, match="holds another run"):
            ServerCheckpoint(tmp_path / "run", other)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "todo.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(InputError, match=r"manifest.json"):
        ServerCheckpoint(tmp_path / "notes", plan())
    assert_simulation(outcome, plan())


def test_a_finished_run_is_read_back_from_its_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fed_ucbvi.network.server.FAREWELL_SECONDS", 0.1)
    outcome = federate(plan(), make_nodes(WORLD, [4]), folder=tmp_path / "run")
    reopened = federate(plan(), [], folder=tmp_path / "run")
    assert reopened.run.same_outcome(outcome.run)
    assert reopened.wire.bytes_up == outcome.wire.bytes_up


class Counter:
    """A state of one array."""

    def __init__(self) -> None:
        self.count = np.zeros(2, dtype=np.int64)

    def state(self) -> dict[str, Any]:
        return {"count": self.count}

    def restore(self, arrays: dict[str, Any]) -> None:
        self.count[...] = arrays["count"]


def store(party: Any, folder: Path | None, run: str = "r") -> NodeStateStore:
    return NodeStateStore(party, {"run": run}, folder)


def test_a_node_holds_the_round_it_came_from_and_the_one_it_has_taken_in(tmp_path: Path) -> None:
    """Also after rounds it missed; and, with a folder, every round before, but none of a course that was left."""
    state = Counter()
    kept = store(state, tmp_path)
    kept.memory.check_epoch(1)
    for number in (1, 2, 3, 7, 8):
        kept.return_to(kept.current)
        state.count += number
        kept.keep(number)
    assert kept.rounds == (0, 1, 2, 3, 7, 8)
    assert store(Counter(), tmp_path).rounds == kept.rounds
    without = store(state, None)
    without.keep(1)
    without.keep(2)
    assert without.rounds == (0, 1, 2)
    kept.return_to(7)
    state.count += 100
    kept.keep(10)
    again = Counter()
    read = store(again, tmp_path)
    assert read.rounds == (0, 1, 2, 3, 7, 10)
    for number, count in ((2, 3), (7, 13), (0, 0), (10, 113)):
        read.return_to(number)
        assert again.count.tolist() == [count, count]
    with pytest.raises(InputError, match="the state of another run"):
        store(Counter(), tmp_path, "other")


def test_a_node_goes_to_no_older_server_than_it_has_met(tmp_path: Path) -> None:
    kept = store(Counter(), tmp_path)
    for epoch in (3, 5, 5):
        kept.memory.check_epoch(epoch)
    for again in (kept, store(Counter(), tmp_path)):
        with pytest.raises(InputError, match="the server is an old one"):
            again.memory.check_epoch(4)
        again.memory.check_epoch(6)


FAR = 2**62
"""An epoch that no server comes after."""


def test_a_node_refuses_and_forgets_an_epoch_in_the_future(tmp_path: Path) -> None:
    task = plan()
    (node,) = make_nodes(WORLD, [4], tmp_path)
    with pytest.raises(
        InputError, match=r"hours in the future by this machine's clock.*Set it, and start the server"
    ):
        node.enter(dataclasses.replace(task, epoch=FAR).welcome())
    (again,) = make_nodes(WORLD, [4], tmp_path)
    assert again.enter(task.welcome()).rounds == (0,)


def test_an_epoch_in_the_future_that_a_state_folder_remembers_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as wrong:
        wrong.setattr("fed_ucbvi.network.node_memory.epoch_now", lambda: FAR)
        store(Counter(), tmp_path).memory.check_epoch(FAR)
    kept = store(Counter(), tmp_path)
    assert kept.memory.epoch == FAR
    kept.memory.check_epoch(epoch_now())
    assert kept.memory.epoch <= epoch_now()


def test_a_run_whose_clocks_were_all_in_the_future_goes_on_when_they_are_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as wrong:
        for module in ("server_checkpoint", "node_memory"):
            wrong.setattr(f"fed_ucbvi.network.{module}.epoch_now", lambda: FAR)
        federate(plan(), make_nodes(WORLD, [4], tmp_path), folder=tmp_path / "kept")
    assert_simulation(federate(plan(), make_nodes(WORLD, [4], tmp_path), folder=tmp_path / "kept"), plan())
    (node,) = make_nodes(WORLD, [4], tmp_path)
    node.enter(dataclasses.replace(plan(), run=stored_run(tmp_path / "node-0") or "").welcome())


def asked(node: Node, number: int, exchange: int, *values: float) -> None:
    node.answer(Query(number, exchange, (np.array(values),)))


def played(node: Node, start: Start, length: int = 1) -> None:
    node.answer(start)
    node.answer(Stop(start.round, length))


def ended_round(task: RunPlan) -> tuple[Node, Start]:
    """A node that has played an episode, and the start of its round."""
    (node,) = make_nodes(WORLD, [4])
    node.enter(task.welcome())
    start = Start(1, 0, 0, 40, 1, first_broadcast(task))
    played(node, start)
    return node, start


def test_a_node_answers_one_question_for_each_round_and_exchange_of_either_synchronisation() -> None:
    node, start = ended_round(plan())
    for exchange in (1, 4):
        asked(node, 1, exchange, 1.0, 0.0, 2.0)
        asked(node, 1, exchange, 1.0, 0.0, 2.0)
        with pytest.raises(InputError, match=rf"a second question in round 1, exchange {exchange}"):
            asked(node, 1, exchange, 1.0, 0.0, 1.0)
    with pytest.raises(InputError, match="does not fit the run"):
        asked(node, 1, 6, 0.0, 0.0, 0.0)
    played(node, start, 2)
    with pytest.raises(InputError, match="after it has had this or an earlier round played in"):
        asked(node, 1, 1, 1.0, 0.0, 2.0)
    played(node, replace(start, round=2, base=1, first=1, most=39))
    asked(node, 2, 1, 1.0, 0.0, 1.0)
    played(node, start)
    with pytest.raises(InputError, match="asks about round 1 after round 2"):
        asked(node, 1, 1, 1.0, 0.0, 2.0)


def test_a_server_that_begins_again_may_ask_again_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_guard, "MAX_EPOCHS", 3)
    monkeypatch.setattr(query_guard, "MAX_REPEATS", 4)
    task = plan()
    node, start = ended_round(task)
    for number in (1, 2):
        asked(node, 1, 1, 1.0, 0.0, float(number))
        node.enter(dataclasses.replace(task, epoch=task.epoch + number).welcome())
        played(node, start)
    asked(node, 1, 1, 1.0, 0.0, 3.0)
    with pytest.raises(InputError, match="begun again 3 times"):
        node.enter(dataclasses.replace(task, epoch=task.epoch + 3).welcome())
    for _ in range(9):
        asked(node, 1, 1, 1.0, 0.0, 3.0)
    with pytest.raises(InputError, match="has asked 11 times in round 1"):
        asked(node, 1, 1, 1.0, 0.0, 3.0)


IMPOSSIBLE = (-0.5, 3.5, 1 / 3 + 2.0**-50, math.nan, math.inf)


@pytest.mark.parametrize(("exchange", "value"), [(0, 0.5), (3, 0.5), *((1, wrong) for wrong in IMPOSSIBLE)])
def test_values_that_cannot_be_the_algorithms_are_not_answered(exchange: int, value: float) -> None:
    node, _ = ended_round(plan_for(FedUCBVI(), WORLD, 40))
    with pytest.raises(InputError, match="that cannot be fed-ucbvi's"):
        asked(node, 1, exchange, 0.0, 0.0, value)


def test_values_that_never_rise_must_not_rise() -> None:
    task = plan_for(make_algorithm("fedq-advantage", {}), WORLD, 40)
    (node,) = make_nodes(WORLD, [4])
    node.enter(task.welcome())
    policy, V, *rest = first_broadcast(task)
    start = Start(1, 0, 0, 40, 0, (policy, V * 0.5, *rest))
    node.answer(start)
    with pytest.raises(InputError, match="of round 2 have risen, which fedq-advantage's never do"):
        node.answer(replace(start, round=2, arrays=(policy, V, *rest)))
    with pytest.raises(InputError, match=r"at step 1 that cannot be fedq-advantage's"):
        node.answer(replace(start, arrays=(policy, V + 0.5, *rest)))
