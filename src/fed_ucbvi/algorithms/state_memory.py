"""The memory that server and agents of a run need, measured on small ones of the same algorithm before they are made.

The size of a server's arrays is a polynomial in the sizes of the problem: of degree 2 in S, because tables of
transitions are ``(S, A, S)``, and of degree 1 in A, H and M. So its value at a few small sizes gives it at all sizes.
The state of a fleet grows by the same amount with every agent.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from fed_ucbvi.algorithms.base import Algorithm, FleetTables, Setting, VisitedCells
from fed_ucbvi.algorithms.count_reporting import counted_setting
from fed_ucbvi.core.memory import SMALLER, check_memory

SMALL = {"states": (8, 16, 24), "actions": (2, 3), "horizon": (2, 3), "agents": (2, 3)}
"""Sizes at which servers are measured."""
NEGLIGIBLE = 1 << 18
"""Up to so many entries (h,s,a,s') and agents, nothing is measured: servers have a few megabytes."""
WORK = 3
"""How often the server's tables are held at most: by the server, by a planner and while values are computed."""


def check_server_memory(algorithm: Algorithm[Any, Any], setting: Setting) -> None:
    """Raise unless there is enough memory for the server of a run."""
    entries = setting.horizon * setting.states * setting.actions * setting.states
    if entries + setting.agents <= NEGLIGIBLE:
        return
    sizes = f"S = {setting.states:,}, A = {setting.actions:,}, H = {setting.horizon:,} and {setting.agents:,} agents"
    needed = WORK * server_bytes(algorithm, setting) + 32 * setting.agents
    check_memory(f"A run of {algorithm.name} with {sizes}", needed, SMALLER)


def server_bytes(algorithm: Algorithm[Any, Any], setting: Setting) -> int:
    """Bytes of the arrays of a server, by interpolation."""
    total = Fraction(0)
    nodes = {**SMALL, "agents": (1,)} if algorithm.single_agent else SMALL
    for sizes in product(*nodes.values()):
        named = dict(zip(nodes, sizes, strict=True))
        weight = Fraction(1)
        for name, size in named.items():
            weight *= _lagrange(size, nodes[name], getattr(setting, name))
        sizes_of: dict[str, Any] = {**named, "episodes": min(setting.episodes, 1000), "earlier_visits": 0}
        small = dataclasses.replace(setting, **sizes_of)
        total += weight * array_bytes(algorithm.new_server(small))
    return max(0, int(total))


def _lagrange(node: int, nodes: Sequence[int], at: int) -> Fraction:
    """The value at a point of the polynomial that is 1 at one node and 0 at the others."""
    value = Fraction(1)
    for other in nodes:
        if other != node:
            value *= Fraction(at - other, node - other)
    return value


def check_fleet_memory(
    algorithm: Algorithm[Any, Any], setting: Setting, tables: FleetTables, *, pooled: bool, counter_bytes: int
) -> None:
    """Raise unless there is enough memory for a fleet: its tables, the buffers of a round, and its agents' state.

    ``tables`` have the supports and rewards; agents are counted in one table if ``pooled``.
    """
    m = tables.agents
    K = tables.successors.shape[3]
    counted = counted_setting(algorithm, setting)
    shape = algorithm.counting.shape(counted.horizon, counted.states, counted.actions)
    cells = int(np.prod(shape, dtype=object))
    visits = m * cells * (counter_bytes + 4)
    transitions = (1 if pooled else m) * cells * K * 8
    if m * cells * (K + 2) * 8 <= NEGLIGIBLE * 64:
        return
    check_memory(f"The rounds of {m:,} agents with {cells:,} cells each", visits + transitions, SMALLER)
    needed = visits + transitions + agents_bytes(algorithm, setting, tables, pooled=pooled)
    check_memory(f"A run of {algorithm.name} with {m:,} agents and {cells:,} cells each", needed, SMALLER)


def agents_bytes(algorithm: Algorithm[Any, Any], setting: Setting, tables: FleetTables, *, pooled: bool) -> int:
    """Bytes of the state of all agents of a fleet, from that of one and of two of them."""
    one = _bytes_of_few(algorithm, setting, tables, 1, pooled=pooled)
    if tables.agents == 1:
        return one
    two = _bytes_of_few(algorithm, setting, tables, 2, pooled=pooled)
    return one + (two - one) * (tables.agents - 1)


def _bytes_of_few(
    algorithm: Algorithm[Any, Any], setting: Setting, tables: FleetTables, agents: int, *, pooled: bool
) -> int:
    counted = counted_setting(algorithm, setting)
    shape = algorithm.counting.shape(counted.horizon, counted.states, counted.actions)
    touched = VisitedCells.empty(agents, shape) if pooled else None
    few = tables._replace(agents=agents, rewards=tables.rewards[:agents], touched=touched)
    made = algorithm.new_agents(setting, few)
    return array_bytes(made) - array_bytes(few)


def array_bytes(value: Any, seen: set[int] | None = None) -> int:
    """Bytes of all arrays in a value, each once; an array that repeats one row in memory counts with that row."""
    known = set() if seen is None else seen
    if id(value) in known:
        return 0
    known.add(id(value))
    if isinstance(value, np.ndarray):
        held = [length for length, stride in zip(value.shape, value.strides, strict=True) if stride]
        return int(np.prod(held, dtype=object)) * value.itemsize
    if isinstance(value, Mapping):
        return sum(array_bytes(one, known) for one in value.values())
    if isinstance(value, list | tuple):
        return sum(array_bytes(one, known) for one in value)
    own = getattr(value, "__dict__", None)
    if own is None or isinstance(value, type) or callable(value):
        return 0
    return sum(array_bytes(one, known) for one in own.values())
