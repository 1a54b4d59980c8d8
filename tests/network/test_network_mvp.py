"""MVP over the network: the same bits as the simulation, and reports that cannot be true are refused."""

from __future__ import annotations

import numpy as np
import pytest

from fed_ucbvi import FedMVP, run
from fed_ucbvi.core.types import CountArray, FloatArray
from fed_ucbvi.network.checks import Expected, check_report
from fed_ucbvi.network.failures import ViolationError
from fed_ucbvi.network.members import Member
from fed_ucbvi.network.messages import Played, Query, Report, Start, Stop
from fed_ucbvi.network.node import Node
from fed_ucbvi.network.report_schema import ReportSchema
from fed_ucbvi.network.run_plan import plan_for
from network import assert_same, federate, make_nodes
from problems import random_federation

CERTAIN = random_federation(np.random.default_rng(7), 3, 3, 3, 4, own_rewards=True)
WORLDS = {"certain": CERTAIN, "random": CERTAIN.with_bernoulli_rewards()}
ALGORITHM = FedMVP(scale=0.001)


@pytest.mark.network
@pytest.mark.parametrize("rewards", WORLDS)
def test_nodes_learn_what_the_simulation_learns_bit_for_bit(rewards: str) -> None:
    world = WORLDS[rewards]
    outcome = federate(plan_for(ALGORITHM, world, 150, seed=3), make_nodes(world, [1, 2]))
    assert outcome.events == []
    assert_same(outcome.run, run(ALGORITHM, world, 150, seed=3, driver="episodes", progress=False), regret=False)


Arrays = tuple[CountArray, FloatArray, FloatArray, CountArray]


@pytest.fixture
def told() -> tuple[Arrays, Member, int, Expected]:
    """What an honest node reports after its first round, and what its server knows."""
    plan = plan_for(ALGORITHM, WORLDS["random"], 150, seed=3)
    node, server = Node("node-0", lambda M: WORLDS["random"], 0, 3), ALGORITHM.new_server(plan.setting)
    node.enter(plan.welcome())
    broadcast = tuple(np.array(array) for array in ALGORITHM.broadcast(server))
    played = node.answer(Start(1, 0, 0, 100, 5, broadcast))
    assert isinstance(played, Played)
    node.answer(Stop(1, played.played))
    report = node.answer(Query(1, 0, ()))
    assert isinstance(report, Report)
    forms = ReportSchema(plan, server).forms[0]
    expected = Expected(forms, plan.setting, broadcast[0], (), 0, frozenset(), None)
    n, paid, squares, moves = (array.copy() for array in report.arrays)
    return (n, paid, squares, moves), Member("node-0", 0, 3, b""), played.played, expected


def test_an_honest_report_is_believed(told: tuple[Arrays, Member, int, Expected]) -> None:
    arrays, member, length, expected = told
    check_report(arrays, member, length, expected)
    assert arrays[1].sum() > 0


@pytest.mark.parametrize(
    ("field", "change", "says"),
    [
        (1, -0.5, r"paid .* negative"),
        (1, 100.0, r"paid .* more than the visits can have paid"),
        (2, -0.5, r"squares .* negative"),
        (2, 100.0, r"squares .* more than the visits can have paid"),
        (3, -1, r"moves .* negative"),
        (3, 1, r"moves .* does not add up to the visits of the round"),
        (3, 100, r"moves .* more than the visits of the round"),
    ],
)
def test_what_cannot_be_true_is_refused(
    told: tuple[Arrays, Member, int, Expected], field: int, change: float, says: str
) -> None:
    arrays, member, length, expected = told
    place = tuple(np.argwhere(arrays[0] > 0)[0])
    if change == 1:  # one more move to the state that has the fewest, within the visits
        place = (*place, int(arrays[3][place].argmin()))
        assert arrays[3][place] < arrays[0][place[:3]]
        arrays[3][place] += 1
    else:
        arrays[field][place] = change
    with pytest.raises(ViolationError, match=says):
        check_report(arrays, member, length, expected)


def test_squares_that_no_rewards_can_have_are_refused(told: tuple[Arrays, Member, int, Expected]) -> None:
    arrays, member, length, expected = told
    place = tuple(np.argwhere(arrays[1] > 0)[0])
    arrays[2][place] = 0.5 * arrays[1][place] ** 2 / arrays[0][place]
    with pytest.raises(ViolationError, match=r"squares .* less than the mean squared allows"):
        check_report(arrays, member, length, expected)
