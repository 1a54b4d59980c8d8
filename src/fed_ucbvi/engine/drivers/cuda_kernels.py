"""Kernels of the cuda driver: one thread for each agent, the agent axis last in all of the agents' tables.

Needs numba-cuda. Steps are those of :mod:`~fed_ucbvi.engine.drivers.episodes`, compiled for the GPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda, types
from numba.cuda.core import config

from fed_ucbvi.algorithms.synchronisation_rules import Doubling, local_limit
from fed_ucbvi.core.sampling.levels import kept_level, level_of_episode
from fed_ucbvi.core.sampling.philox import unit_interval, word_at
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray
from fed_ucbvi.engine.drivers.base import Sizes
from fed_ucbvi.engine.drivers.episodes import block_of, trajectory_for

EARLIEST, REQUESTERS, FIRST = range(3)
"""Signals: the earliest request, how many agents make one, and the least ``agent P + cell`` of those who do."""
NOBODY = 2**63 - 1
"""The values of the first and the last signal before there is a request."""
NOT_PLAYED = -1
"""In place of a budget where the policy takes no such action."""
OWN = 0
"""In place of a budget that follows from the agent's own visits so far."""
LOOK, FINISH_IF_ASKED, FINISH = range(3)
"""Purposes of :func:`look`."""

config.CUDA_LOW_OCCUPANCY_WARNINGS = 0  # a federation of few agents is no mistake

_pick, _step = trajectory_for(cuda.jit(device=True))
_word_at = cuda.jit(device=True)(word_at.py_func)  # type: ignore[attr-defined]
_local_limit = cuda.jit(device=True)(local_limit.py_func)  # type: ignore[attr-defined]
_ZERO = np.uint64(0)
_ONE = np.uint64(1)


def _kernel(registers: int) -> Any:
    """Limit the registers of each thread, so that more threads run at a time; the simulator has no registers."""
    return cuda.jit if config.ENABLE_CUDASIM else cuda.jit(max_registers=registers)


@cuda.jit(device=True)  # type: ignore[untyped-decorator]
def _asks(seen: int, limits: int, pair: int, i: int, own_visits: Any, rule: Doubling) -> bool:
    """True if agent i makes a request after ``seen`` visits in the round."""
    if limits == OWN:
        limits = _local_limit(own_visits[pair, i], rule)
    return bool(seen >= limits)


@_kernel(64)  # type: ignore[untyped-decorator]
def play(
    sign: int,
    first: int,
    last: int,
    asking: bool,
    sizes: Sizes,
    draws: Any,
    rule: Doubling,
    policy: IndexArray,
    ties: IndexArray,
    thresholds: FloatArray,
    limits: CountArray,
    successors: IndexArray,
    kernel: FloatArray,
    kernel_stride: np.uint64,
    initial: FloatArray,
    initial_stride: np.uint64,
    own_visits: Any,
    visits: Any,
    counts: CountArray,
    first_start: int,
    shared: bool,
    reached: IndexArray,
    signals: CountArray,
) -> None:
    """Play episodes ``first`` to ``last - 1`` with every agent, until its request or the earliest one that is known.

    With ``sign`` -1 it takes back what it has played beyond the earliest request. Strides are 1 where all agents have
    the same table, otherwise M. ``counts`` are transitions by cell and slot and, from ``first_start`` on if it is not
    negative, the initial states of episodes by level of the policy. A block adds them up in memory of its own if they
    fit, that is, ``shared``.
    """
    # Empty the block's memory for counts.
    part = cuda.shared.array(0, types.int32)
    thread = cuda.threadIdx.x
    width = cuda.blockDim.x
    size = len(counts)
    if shared:
        for j in range(thread, size, width):
            part[j] = 0
        cuda.syncthreads()
    # Play, or take back, the episodes of agent i.
    i = cuda.grid(1)
    if i < len(reached):
        key = np.uint64(i)
        slots = np.uint64(sizes.slots)
        own_kernel = key if kernel_stride > _ONE else _ZERO
        own_initial = key if initial_stride > _ONE else _ZERO
        episode = first
        end = last
        if sign < 0:
            episode = signals[EARLIEST]
            end = reached[i]
        kept = 0
        if draws.several:
            kept = kept_level(sizes.level_seed, key, np.uint64(draws.first))
        asked = False
        while episode < end and not asked:
            if sign > 0 and episode >= signals[EARLIEST]:
                break
            # Draw the first state and the level of the policy.
            t = np.uint64(episode)
            w0, w1, w2, w3 = block_of(0, sizes.seed, key, t)
            s = _pick(initial, own_initial, initial_stride, sizes.states, unit_interval(np.uint64(w0)))
            level = 0
            if draws.several:
                level = level_of_episode(sizes.level_seed, sizes.level_share, key, t, kept)
            if first_start >= 0:
                start = np.uint64(first_start + level * sizes.states) + s
                if shared:
                    cuda.atomic.add(part, start, sign)
                else:
                    cuda.atomic.add(counts, start, sign)
            # Take H steps, and count each of them.
            for h in range(sizes.horizon):
                if (h + 1) & 3 == 0:
                    w0, w1, w2, w3 = block_of(h + 1, sizes.seed, key, t)
                word = _word_at(h + 1, w0, w1, w2, w3)
                cell, pair, slot, s = _step(
                    h,
                    level * sizes.horizon + h,
                    s,
                    t,
                    key,
                    word,
                    sizes,
                    policy,
                    ties,
                    thresholds,
                    successors,
                    kernel,
                    own_kernel,
                    kernel_stride,
                )
                entry = cell * slots + slot
                if shared:
                    cuda.atomic.add(part, entry, sign)
                else:
                    cuda.atomic.add(counts, entry, sign)
                seen = visits[cell, i] + sign
                visits[cell, i] = seen
                asked |= asking and sign > 0 and _asks(seen, limits[cell], pair, i, own_visits, rule)
            episode += 1
        # Announce the request of agent i.
        if sign > 0:
            reached[i] = episode
            if asked and episode < signals[EARLIEST]:
                cuda.atomic.min(signals, EARLIEST, episode)
    # Add the block's counts to those of all agents.
    if shared:
        cuda.syncthreads()
        for j in range(thread, size, width):
            if part[j] != 0:
                cuda.atomic.add(counts, j, part[j])


@_kernel(32)  # type: ignore[untyped-decorator]
def look(
    what: int,
    asking: bool,
    sizes: Sizes,
    rule: Doubling,
    policy: IndexArray,
    limits: CountArray,
    own_visits: Any,
    visits: Any,
    reached: IndexArray,
    signals: CountArray,
) -> None:
    """Find out whether there is a request; to finish a round, count requests and add its visits to the agents' own.

    The round's visits are then emptied. ``reached`` becomes -1 for agents with a request. Blocks along the second
    axis of the grid share the places.
    """
    i = cuda.grid(1)
    cells, agents = visits.shape
    new = 0
    if i < agents and (what != FINISH_IF_ASKED or signals[EARLIEST] != NOBODY):
        for cell in range(cuda.blockIdx.y, cells, cuda.gridDim.y):
            budget = limits[cell]
            if budget != NOT_PLAYED:
                seen = visits[cell, i]
                if seen > 0:
                    # Count the request of agent i once, and announce its least cell.
                    pair = cell
                    if policy.ndim == 1:
                        pair = cell * sizes.actions + policy[cell]
                    if asking and _asks(seen, budget, pair, i, own_visits, rule):
                        if what == LOOK or cuda.atomic.exch(reached, i, -1) != -1:
                            new = 1
                        code = i * cells + cell
                        if code < signals[FIRST]:
                            cuda.atomic.min(signals, FIRST, code)
                    # Add the visits to the agent's own, and empty them.
                    if what != LOOK:
                        visits[cell, i] = 0
                        if len(own_visits) > 0:
                            own_visits[pair, i] += seen
    # Add the number of new requests in this block to that of all agents.
    number = cuda.syncthreads_count(np.int32(new))
    if cuda.threadIdx.x == 0 and number > 0:
        cuda.atomic.add(signals, REQUESTERS, number)
