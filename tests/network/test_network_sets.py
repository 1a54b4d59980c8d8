"""Sets of actions over the network: what nodes and server believe of each other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fed_ucbvi import FedKLUCBVI, FedUCBVI, InputError
from fed_ucbvi.algorithms.base import Counting
from fed_ucbvi.network.checks import check_played, check_report, check_reports
from fed_ucbvi.network.members import Member
from fed_ucbvi.network.messages import Played, Query, Report, Request, Start, Stop
from fed_ucbvi.network.node import Node
from fed_ucbvi.network.report_schema import ReportSchema
from fed_ucbvi.network.row_checks import Expected
from fed_ucbvi.network.run_plan import RunPlan, plan_for
from fed_ucbvi.network.violation import ViolationError
from problems import random_federation

WORLD = random_federation(np.random.default_rng(61), 3, 3, 3, 4, stationary=True)
ALGORITHMS = [FedKLUCBVI(), FedKLUCBVI(stationary=True)]
every = pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda algorithm: algorithm.counting.value)


def entered(plan: RunPlan) -> Node:
    node = Node("node-0", lambda M: WORLD, 0, 3)
    node.enter(plan.welcome())
    return node


def started(algorithm: FedUCBVI) -> tuple[RunPlan, Node, Any, tuple[Any, ...], Played]:
    """A node that has played its first round."""
    plan = plan_for(algorithm, WORLD, 100, seed=1)
    node, server = entered(plan), algorithm.new_server(plan.setting)
    broadcast = tuple(np.array(array) for array in algorithm.broadcast(server))
    broadcast[0][:, :, 2] = False  # so that there is something that the policy does not do
    played = node.answer(Start(1, 0, 0, 100, 5, broadcast))
    assert isinstance(played, Played)
    return plan, node, server, broadcast, played


@every
def test_a_node_plays_no_policy_that_has_nothing_to_play_somewhere(algorithm: FedUCBVI) -> None:
    plan = plan_for(algorithm, WORLD, 100, seed=1)
    policy, N = (np.array(array) for array in algorithm.broadcast(algorithm.new_server(plan.setting)))
    policy[2, 1] = False
    with pytest.raises(InputError, match="has no action for some state"):
        entered(plan).answer(Start(1, 0, 0, 100, 5, (policy, N)))
    with pytest.raises(InputError, match="does not fit the run"):
        entered(plan).answer(Start(1, 0, 0, 100, 5, (policy.argmax(axis=2).astype(np.int32), N)))


@every
def test_requests_are_for_actions_of_the_set_at_a_step_or_at_none(algorithm: FedUCBVI) -> None:
    plan, _, _, broadcast, played = started(algorithm)
    H, member = plan.setting.horizon, Member("node-0", 0, 3, b"")
    stationary = algorithm.counting is Counting.STATIONARY

    def check(*requests: Request) -> None:
        told = replace(played, requests=requests)
        check_played(told, member, broadcast[0], plan.algorithm, 5, early=False)

    assert played.requests
    check(*played.requests)
    good = played.requests[0]
    assert (good.step == H) == stationary
    with pytest.raises(ViolationError, match="action 2 is not the policy's"):
        check(replace(good, action=2))
    with pytest.raises(ViolationError, match="action 9 is not the policy's"):
        check(replace(good, action=9))
    with pytest.raises(ViolationError, match="no such step"):
        check(replace(good, step=0 if stationary else H))
    with pytest.raises(ViolationError, match="no such step"):
        check(replace(good, step=H + 1))


@every
def test_reports_are_of_what_the_sets_allow(algorithm: FedUCBVI) -> None:
    """Visits add up to the episodes, or to their steps; they do not change where no set has the action."""
    plan, node, server, broadcast, played = started(algorithm)
    H = plan.setting.horizon
    node.answer(Stop(1, played.played))
    query = tuple(algorithm.query(server, 0))
    report = node.answer(Query(1, 0, query))
    assert isinstance(report, Report)
    stationary = algorithm.counting is Counting.STATIONARY
    forms = ReportSchema(plan, server).forms[0]
    expected = Expected(
        forms,
        plan.setting,
        broadcast[0],
        query,
        0,
        frozenset(),
        algorithm.grid(plan.setting),
        H if stationary else 1,
    )
    member = Member("node-0", 0, 3, b"")
    check_report(report.arrays, member, played.played, expected)
    total = 3 * played.played * (H if stationary else 1)
    assert report.arrays[0].sum() == total
    nothing_yet = tuple(np.zeros_like(array) for array in report.arrays)
    member.reports[0] = nothing_yet
    check_report(report.arrays, member, played.played, expected)
    n = report.arrays[0].copy()
    visited = tuple(np.argwhere(n > 0)[0])
    n[visited] -= 1
    n[(*visited[:2], 2)] += 1
    with pytest.raises(ViolationError, match="changed where the policy did not go"):
        check_report((n, *report.arrays[1:]), member, played.played, expected)
    n[visited] += 1
    with pytest.raises(ViolationError, match="steps played" if stationary else "episodes played"):
        check_report((n, *report.arrays[1:]), member, played.played, expected)


@every
def test_reports_that_are_checked_together_fail_like_each_by_itself(algorithm: FedUCBVI) -> None:
    """Three nodes, one of which claims a visit more; the error is the same and names the node."""
    plan, node, server, broadcast, played = started(algorithm)
    node.answer(Stop(1, played.played))
    query = tuple(algorithm.query(server, 0))
    report = node.answer(Query(1, 0, query))
    assert isinstance(report, Report)
    forms, grid = ReportSchema(plan, server).forms[0], algorithm.grid(plan.setting)
    visits = plan.setting.horizon if algorithm.counting is Counting.STATIONARY else 1
    expected = Expected(forms, plan.setting, broadcast[0], query, 0, frozenset(), grid, visits)
    members = {name: Member(name, first, 3, b"") for name, first in (("a", 0), ("b", 3), ("c", 6))}
    lengths = dict.fromkeys(members, played.played)
    reports = {name: tuple(array.copy() for array in report.arrays) for name in members}
    check_reports(reports, members, lengths, expected)
    reports["b"][0][tuple(np.argwhere(reports["b"][0] > 0)[0])] += 1
    with pytest.raises(ViolationError) as alone:
        check_report(reports["b"], members["b"], played.played, expected)
    with pytest.raises(ViolationError, match=r"^agents 3 to 5: n ") as together:
        check_reports(reports, members, lengths, expected)
    assert str(alone.value) == str(together.value)
    assert together.value.node == "b"
