"""Transition counts as a list of what is possible, against the dense table."""

from __future__ import annotations

import zlib
from dataclasses import replace

import numpy as np
import pytest

from fed_ucbvi import FedKLUCBVI, gridworld
from fed_ucbvi.algorithms.count_table import CountTable, NewCounts
from fed_ucbvi.algorithms.exact_sums import make_grid
from fed_ucbvi.algorithms.increments import Support, increments_of, listed_counts
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.types import IndexArray
from fed_ucbvi.network.node import Node
from fed_ucbvi.network.run_plan import plan_for
from network import federate, make_nodes
from problems import random_federation

SHAPES = [(1, 1), (4, 1), (4, 4)]
"""Steps that are counted, and steps of the problem's tables."""


def random_support(rng: np.random.Generator, steps: int, tables: int) -> Support:
    possible = rng.random((tables, 5, 3, 5)) < 0.4
    possible[..., 2] = True
    return Support(possible, steps)


@pytest.mark.parametrize(("steps", "tables"), SHAPES)
def test_listed_counts_are_those_of_the_dense_table(steps: int, tables: int) -> None:
    rng = np.random.default_rng(1)
    grid = make_grid(1, 1000, 1)
    for _ in range(20):
        support = random_support(rng, steps, tables)
        listed = rng.integers(0, 3, (1, support.numbers))
        dense = np.zeros((*support.shape, 5), dtype=np.int64)
        for number, count in enumerate(listed[0]):
            dense[support.place(number)] = count
        assert np.array_equal(support.by_cell(listed)[0], dense.sum(axis=3))
        rewards = dense.sum(axis=3)[..., None]
        table = listed_counts(support, grid, listed, rewards)
        assert np.array_equal(table.dense(), dense)
        again = increments_of(table, support, grid)
        assert np.array_equal(again.C, listed)
        assert np.array_equal(again.Z[0], rewards)
        assert table.equals(listed_counts(Support.full(support.shape), grid, dense, rewards))


@pytest.mark.parametrize(("steps", "tables"), SHAPES)
def test_a_support_travels_in_one_bit_for_each_transition(steps: int, tables: int) -> None:
    support = random_support(np.random.default_rng(2), steps, tables)
    other = Support.unpacked(support.packed, support.shape)
    assert np.array_equal(other.successors, support.successors)
    assert np.array_equal(other.starts, support.starts)
    assert len(zlib.decompress(support.packed)) == -(-tables * 5 * 3 * 5 // 8)
    for wrong in (b"", b"no zlib", support.packed[:-3], zlib.compress(bytes(9)), zlib.compress(bytes(10**6))):
        with pytest.raises(InputError, match=r"a support that|has no next state"):
            Support.unpacked(wrong, support.shape)


def test_a_transition_that_is_not_listed_is_not_lost_silently() -> None:
    grid = make_grid(1, 10, 1)
    lane = np.eye(3, dtype=np.bool_)[None, :, None]
    moves = np.array([[0], [1], [0]])
    to: IndexArray = np.full((1, 3, 1, 1), 2, np.int32)
    cell = np.array([1], np.int32)
    added = NewCounts(cells=cell, rows=cell, successors=to, transitions=moves, rewards=np.zeros((3, 2), np.uint64))
    new = CountTable.empty(1, 3, 1).plus(added)
    with pytest.raises(InputError, match=r"from \(step, state, action\) = \(0, 1, 0\)"):
        increments_of(new, Support(lane, 1), grid)


def test_reports_over_the_network_list_exactly_the_possible_transitions() -> None:
    world = gridworld(agents=3)
    plan = plan_for(FedKLUCBVI(), world, 30)
    nodes = make_nodes(world, [1, 2])
    federate(plan, nodes)
    possible = sum(len(set(row)) for row in world.successors.reshape((-1, world.successors.shape[3])).tolist())
    assert plan.support.numbers == possible * world.horizon < world.horizon * world.states**2 * world.actions / 2
    assert all(node._reports.counts(with_logs=False)[0].shape == (1, plan.support.numbers) for node in nodes)


def test_a_node_that_can_go_where_the_server_cannot_is_refused() -> None:
    """Its transitions would have no place in the sum."""
    world = gridworld(agents=3)
    S = world.states
    A = world.actions
    H = world.horizon
    other = random_federation(np.random.default_rng(4), 3, S, A, H)
    welcome = plan_for(FedKLUCBVI(), world, 30).welcome()
    assert Node("a", lambda agents: world, 0, 1).enter(welcome).states == S
    with pytest.raises(InputError, match=r"and the\s+server's cannot"):
        Node("a", lambda agents: other, 0, 1).enter(welcome)
    without = replace(plan_for(FedKLUCBVI(), world, 30), federation=None).welcome()
    assert without.support == b""
    Node("a", lambda agents: other, 0, 1).enter(without)
