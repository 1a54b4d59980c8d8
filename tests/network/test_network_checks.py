"""What nodes and server believe of each other: sets of actions, new transitions, sums of one round."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from fed_ucbvi import Federation, FedKLUCBVI, InputError
from fed_ucbvi.algorithms.base import Counting, Message
from fed_ucbvi.network.checks import Expected, ReportSchema, check_played
from fed_ucbvi.network.failures import ViolationError
from fed_ucbvi.network.members import Member
from fed_ucbvi.network.messages import Played, Query, Request, Start, Stop
from fed_ucbvi.network.node import Node
from fed_ucbvi.network.run_plan import RunPlan, plan_for
from fed_ucbvi.results.round_record import INCUMBENT
from network import check_report, first_broadcast, make_nodes
from problems import random_federation

WORLD = random_federation(np.random.default_rng(61), 3, 3, 3, 4, stationary=True)
SETS = [FedKLUCBVI(), FedKLUCBVI(stationary=True)]
every = pytest.mark.parametrize("algorithm", SETS, ids=lambda algorithm: algorithm.counting.value)


def entered(plan: RunPlan, world: Federation = WORLD) -> Node:
    (node,) = make_nodes(world, [3])
    node.enter(plan.welcome())
    return node  # type: ignore[no-any-return]


def started(algorithm: Any, world: Federation = WORLD) -> tuple[RunPlan, Node, Message, Played]:
    """A node that has played its first round, for a server that knows the sizes only."""
    plan = RunPlan(algorithm, plan_for(algorithm, world, 100, seed=1).setting)
    node = entered(plan, world)
    broadcast = first_broadcast(plan)
    if broadcast[0].ndim == 3:
        broadcast[0][:, :, 2] = False  # so that there is something that the policy does not do
    played: Any = node.answer(Start(1, 0, 0, 100, 5, broadcast))
    return plan, node, broadcast, played


@every
def test_a_node_plays_no_policy_that_has_nothing_to_play_somewhere(algorithm: FedKLUCBVI) -> None:
    plan = plan_for(algorithm, WORLD, 100, seed=1)
    policy, *rest = first_broadcast(plan)
    policy[2, 1] = False
    with pytest.raises(InputError, match="has no action for some state"):
        entered(plan).answer(Start(1, 0, 0, 100, 5, (policy, *rest)))
    with pytest.raises(InputError, match="does not fit the run"):
        entered(plan).answer(Start(1, 0, 0, 100, 5, (policy.argmax(axis=2).astype(np.int32), *rest)))


@pytest.mark.parametrize(
    ("row", "says"), [([0.5, 0.4, 0.0], "add up to 0.9, not to 1"), ([1.5, -0.5, 0.0], "a probability of -0.5")]
)
def test_a_node_plays_no_incumbent_whose_probabilities_make_no_sense(row: list[float], says: str) -> None:
    plan = plan_for(FedKLUCBVI(), WORLD, 100, seed=1)
    policy, *rest = first_broadcast(plan)
    chances = np.full(policy.shape, 1 / policy.shape[2])
    chances[1, 0] = row
    start = Start(1, 0, 0, 100, 5, (chances, *rest), playing=INCUMBENT, judged=(1, 0))
    with pytest.raises(InputError, match=says):
        entered(plan).answer(start)


def test_a_node_explores_with_no_probabilities() -> None:
    plan = plan_for(FedKLUCBVI(), WORLD, 100, seed=1)
    policy, *rest = first_broadcast(plan)
    with pytest.raises(InputError, match="does not fit the run"):
        entered(plan).answer(Start(1, 0, 0, 100, 5, (np.full(policy.shape, 1 / policy.shape[2]), *rest)))


@every
def test_requests_are_for_actions_of_the_set_at_a_step_or_at_none(algorithm: FedKLUCBVI) -> None:
    plan, _, broadcast, played = started(algorithm)
    H = plan.setting.horizon
    stationary = algorithm.counting is Counting.STATIONARY

    def check(*requests: Request) -> None:
        told = replace(played, requests=requests)
        check_played(told, member(), broadcast[0], plan, 5)

    assert played.requests
    check(*played.requests)
    good = played.requests[0]
    assert (good.step == H) == stationary
    for changes, says in (
        ({"action": 2}, "action 2 is not the policy's"),
        ({"action": 9}, "action 9 is not the policy's"),
        ({"step": 0 if stationary else H}, "no such step"),
        ({"step": H + 1}, "no such step"),
    ):
        with pytest.raises(ViolationError, match=says):
            check(replace(good, **changes))


def member(**about: Any) -> Member:
    return Member("node-0", 0, 3, b"", **about)


def reported(algorithm: Any, world: Federation = WORLD) -> tuple[list[Any], int, Expected]:
    """A node's report of its first round, how long that was, and what the server expects."""
    plan, node, broadcast, played = started(algorithm, world)
    node.answer(Stop(1, played.played))
    server = algorithm.new_server(plan.setting)
    query = tuple(algorithm.query(server, 0))
    report: Any = node.answer(Query(1, 0, query))
    expected = Expected(ReportSchema(plan, server), broadcast[0], query)
    return [array.copy() for array in report.arrays], played.played, expected


def counted(algorithm: FedKLUCBVI) -> tuple[tuple[Any, ...], int, Expected]:
    """The same, by (h,s,a,s')."""
    (C, Z), length, expected = reported(algorithm)
    return (C.reshape((*Z.shape[:-1], WORLD.states)), Z), length, expected


def listed(transitions: Any, *rest: Any) -> tuple[Any, ...]:
    """As reports have them where every state can follow."""
    return transitions.reshape((1, -1)), *rest


def moved(transitions: Any, to: tuple[int, ...] | None, times: int = 1) -> Any:
    """Counts with so many transitions of one kind fewer, and as many more of the kind ``to``, or of none."""
    changed = transitions.copy()
    changed[tuple(np.argwhere(transitions > 0)[0])] -= times
    if to is not None:
        changed[to] += times
    return changed


@every
def test_new_transitions_are_those_of_unreported_episodes_and_of_the_sets(algorithm: FedKLUCBVI) -> None:
    """They add up to the episodes at every step, or to all their steps, and are none where no set has the action."""
    (C, *rest), length, expected = counted(algorithm)
    H = expected.schema.plan.setting.horizon

    unit = "steps" if algorithm.stationary else "episodes"

    def check(transitions: Any, episodes: int = length) -> None:
        check_report(listed(transitions, *rest), member(), episodes, expected)

    check(C)
    assert C.sum() == 3 * length * H
    wrapped = C.copy()
    wrapped[0, 0, :2, :2, 0] += 2**62  # four of them, so that 64 bits add up to what they should
    assert wrapped.sum() == C.sum()
    for transitions, episodes, says in (
        (moved(C, (0, 0, 1, 2, 0)), length, r"agents 0 to 2: C .* where the policy did not go"),
        (moved(C, None, -1), length, rf"does not add up to the \d+ {unit} that were not reported yet"),
        (moved(C, None), length, rf"does not add up to the \d+ {unit} that were not reported yet"),
        (moved(C, (0, 0, 1, 0, 0), int(C.max()) + 1), length, "negative"),
        (C, length + 1, "does not add up"),
        (wrapped, length, "does not add up"),
    ):
        with pytest.raises(ViolationError, match=says):
            check(transitions, episodes)


@every
def test_what_earlier_rounds_left_unreported_may_be_where_their_policies_went(algorithm: FedKLUCBVI) -> None:
    """Two rounds in one report: the server knows the policy of the second only, and both lengths."""
    report, length, expected = counted(algorithm)
    node = member(episodes=length)
    elsewhere = tuple(array[:, :, :, [2, 0, 1]] for array in report)
    both = tuple(one + other for one, other in zip(report, elsewhere, strict=True))
    check_report(listed(*both), node, length, expected)
    node.reported_episodes = length
    with pytest.raises(ViolationError, match="that were not reported yet"):
        check_report(listed(*both), node, length, expected)
    check_report(listed(*report), node, length, expected)
    with pytest.raises(ViolationError, match="where the policy did not go"):
        check_report(listed(*elsewhere), node, length, expected)


@every
def test_rewards_of_new_transitions_are_no_more_than_one_each(algorithm: FedKLUCBVI) -> None:
    (C, Z), length, expected = counted(algorithm)
    grid = expected.schema.grid
    assert grid is not None
    visited = tuple(np.argwhere(C.sum(axis=-1) > 0)[0])
    for wrong in (-1, int(C.sum()) * (2**grid.bits + 1)):
        forged = Z.copy()
        forged[(*visited, 0)] = wrong
        with pytest.raises(ViolationError, match=r"agents 0 to 2: Z at .* (negative|outside n times \[0, 1\])"):
            check_report(listed(C, forged), member(), length, expected)


@every
def test_reports_that_are_checked_together_fail_like_each_by_itself(algorithm: FedKLUCBVI) -> None:
    """Three nodes, one of which claims a visit more; the error is the same and names the node."""
    arrays, length, expected = counted(algorithm)
    members = {name: Member(name, first, 3, b"") for name, first in (("a", 0), ("b", 3), ("c", 6))}
    lengths = dict.fromkeys(members, length)
    reports = {name: tuple(array.copy() for array in listed(*arrays)) for name in members}
    expected.check_reports(reports, members, lengths)
    reports["b"][0][tuple(np.argwhere(reports["b"][0] > 0)[0])] += 1
    with pytest.raises(ViolationError) as alone:
        check_report(reports["b"], members["b"], length, expected)
    with pytest.raises(ViolationError, match=r"^agents 3 to 5: C ") as together:
        expected.check_reports(reports, members, lengths)
    assert str(alone.value) == str(together.value)
    assert together.value.node == "b"
