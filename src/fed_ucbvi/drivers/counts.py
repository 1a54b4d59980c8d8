"""The counts driver: exact in law, in time logarithmic in the length of the round.

Within a round the policy is fixed, so an agent's L episodes are L i.i.d. Markov paths, and all an algorithm
reads is their transition counts F_h(s,s').

* A block of L episodes is drawn forward: visits at step 1 ~ multinomial(L, mu), then for each (h,s) the
  outflow ~ multinomial(visits, P_h(.|s,pi_h(s))).
* Counters only grow, so whether someone asks within the block is read off its total.
* Given a block's totals, the counts of its first l episodes are drawn forward too: first visits at step 1 ~
  multivariate hypergeometric, then for each (h,s) the first outflow ~ multivariate hypergeometric(F_h(s,.),
  first visits). (Both parts are independent multinomials with the same p; given their sum the p cancel.)

An agent's first asking episode is found by a search over such splits. Agents are taken in turn: each draws a block
as long as the earliest ask so far, and only one that asks earlier still searches; in the end the blocks of all are
cut at the earliest ask. A block whose agent never asked in it is cut by one split. A block that was searched is no
longer exchangeable (its last episode is known to hold the ask), but the parts the search split off are: its search is
replayed, from the same random numbers, down to the part that holds the cut, and that part is split.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fed_ucbvi._compile import compiled
from fed_ucbvi._types import CountArray, FloatArray, IndexArray, WordArray
from fed_ucbvi.algorithms.base import Touched
from fed_ucbvi.drivers.base import Fleet, Stop, stopped, touch
from fed_ucbvi.sampling.distributions import conditional_shares, multinomial, split
from fed_ucbvi.sampling.philox import BLOCKS, CUTS, new_stream


class Blocks(NamedTuple):
    """Room for one block of each agent: transitions ``(m, H, S, K)``, where they matter, and visits ``(m, H, S)``."""

    flows: CountArray
    seen: CountArray


class CountsDriver:
    """Draws whole blocks of episodes at once; see the module's text."""

    name = "counts"

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.transitions, self.visits = fleet.transitions, fleet.visits
        self._shares = conditional_shares(fleet.probabilities)
        self._initial_shares = conditional_shares(fleet.initial)
        m, H, S = fleet.visits.shape
        self._blocks = Blocks(
            np.empty((m, H, S, fleet.transitions.shape[3]), dtype=np.int64), np.empty((m, H, S), dtype=np.int64)
        )

    def clear(self) -> None:
        """Empty the buffers."""
        self.fleet.clear()

    def collect(self, policy: IndexArray, budgets: CountArray, first: int, most: int) -> Stop:
        """Draw the counts of the round; see :class:`~fed_ucbvi.drivers.base.Driver`."""
        self.fleet.clear()
        return stopped(self.fleet, budgets, self.extend(policy, budgets, first, most))

    def extend(self, policy: IndexArray, budgets: CountArray, first: int, most: int) -> int:
        """Go on with the round whose counts are in the buffers; the number of episodes played."""
        fleet = self.fleet
        return _collect(
            fleet.successors,
            self._shares,
            self._initial_shares,
            policy,
            budgets,
            np.uint64(fleet.seed),
            fleet.first_agent,
            first,
            most,
            fleet.transitions,
            fleet.visits,
            fleet.touched,
            self._blocks,
        )


@compiled
def _collect(
    successors: IndexArray,
    shares: FloatArray,
    initial_shares: FloatArray,
    policy: IndexArray,
    budgets: CountArray,
    seed: np.uint64,
    first_agent: int,
    first: int,
    most: int,
    transitions: CountArray,
    visits: CountArray,
    touched: Touched,
    blocks: Blocks,
) -> int:
    """Add the counts of the episodes from ``first`` on to the buffers; the number of episodes."""
    m, H, S = visits.shape
    K = transitions.shape[3]
    pooled = transitions.shape[0] < m
    length = most
    flows, seen = blocks
    drawn = np.empty(m, dtype=np.int64)
    held = np.empty(m, dtype=np.int64)
    searched = np.zeros(m, dtype=np.bool_)
    for i in range(m):
        drawn[i] = length
        stream = new_stream(BLOCKS, np.uint64(first), seed, np.uint64(first_agent + i))
        asks = _draw_block(
            stream,
            successors,
            shares[i],
            initial_shares[i],
            policy,
            length,
            flows[i],
            seen[i],
            visits[i],
            budgets[i],
        )
        if asks:
            searched[i] = True
            length = _search(stream, stream, successors, policy, budgets[i], length, 0, flows[i], seen[i], visits[i])
        held[i] = length
    for i in range(m):
        if held[i] > length:
            cuts = new_stream(CUTS, np.uint64(first), seed, np.uint64(first_agent + i))
            if not searched[i]:
                _keep_first_part(cuts, successors, policy, held[i], length, flows[i], seen[i])
            else:
                stream = new_stream(BLOCKS, np.uint64(first), seed, np.uint64(first_agent + i))
                _draw_block(
                    stream,
                    successors,
                    shares[i],
                    initial_shares[i],
                    policy,
                    drawn[i],
                    flows[i],
                    seen[i],
                    visits[i],
                    budgets[i],
                )
                _search(
                    stream,
                    cuts,
                    successors,
                    policy,
                    budgets[i],
                    drawn[i],
                    length,
                    flows[i],
                    seen[i],
                    visits[i],
                )
        for h in range(H):
            for s in range(S):
                if seen[i, h, s] > 0:
                    if visits[i, h, s] == 0:
                        touch(i, h * S + s, touched)
                    visits[i, h, s] += seen[i, h, s]
                    for k in range(K):
                        transitions[0 if pooled else i, h, s, k] += flows[i, h, s, k]
    return length


@compiled
def _draw_block(
    stream: WordArray,
    successors: IndexArray,
    shares: FloatArray,
    initial_shares: FloatArray,
    policy: IndexArray,
    length: int,
    flows: CountArray,
    seen: CountArray,
    before: CountArray,
    budgets: CountArray,
) -> bool:
    """Counts of ``length`` episodes of one agent; does it reach a budget within them?"""
    H, S, K = flows.shape
    stationary = successors.shape[0] == 1
    seen[:] = 0
    multinomial(stream, length, initial_shares, seen[0])
    asks = False
    for h in range(H):
        hk = 0 if stationary else h
        for s in range(S):
            n = seen[h, s]
            if n == 0:
                continue
            asks |= before[h, s] + n >= budgets[h, s]
            a = policy[h, s]
            multinomial(stream, n, shares[hk, s, a], flows[h, s])
            if h + 1 < H:
                for k in range(K):
                    seen[h + 1, successors[hk, s, a, k]] += flows[h, s, k]
    return asks


@compiled
def _first_part(
    stream: WordArray,
    successors: IndexArray,
    policy: IndexArray,
    length: int,
    part: int,
    flows: CountArray,
    seen: CountArray,
    part_flows: CountArray,
    part_seen: CountArray,
) -> None:
    """Counts of the first ``part`` of ``length`` episodes, given the counts of them all."""
    H, S, K = flows.shape
    stationary = successors.shape[0] == 1
    part_seen[:] = 0
    split(stream, seen[0], part, part_seen[0])
    for h in range(H):
        hk = 0 if stationary else h
        for s in range(S):
            if seen[h, s] == 0:
                continue
            n = part_seen[h, s]
            if n == 0:
                continue
            split(stream, flows[h, s], n, part_flows[h, s])
            if h + 1 < H:
                a = policy[h, s]
                for k in range(K):
                    part_seen[h + 1, successors[hk, s, a, k]] += part_flows[h, s, k]


@compiled
def _keep_first_part(
    stream: WordArray,
    successors: IndexArray,
    policy: IndexArray,
    length: int,
    part: int,
    flows: CountArray,
    seen: CountArray,
) -> None:
    """Cut a block of ``length`` exchangeable episodes down to its first ``part``, in place."""
    part_flows = np.empty_like(flows)
    part_seen = np.empty_like(seen)
    _first_part(stream, successors, policy, length, part, flows, seen, part_flows, part_seen)
    _copy_counts(part_flows, part_seen, flows, seen)


@compiled
def _search(
    stream: WordArray,
    cuts: WordArray,
    successors: IndexArray,
    policy: IndexArray,
    budgets: CountArray,
    length: int,
    cut: int,
    flows: CountArray,
    seen: CountArray,
    before: CountArray,
) -> int:
    """Find the first episode at which the agent asks, known to lie in the block, and cut the block there.

    The block is split where the ask is expected or in the middle, in turn, and the part that holds the ask is split
    again. Where ``cut`` is positive (and smaller than the answer) the search is a replay that ends at the part in
    which the cut falls, and the block is cut there instead. On return ``flows`` and ``seen`` are the counts of the
    episodes kept, whose number is returned.
    """
    H, S, K = flows.shape
    kept_flows = np.zeros((H, S, K), dtype=np.int64)
    kept_seen = np.zeros((H, S), dtype=np.int64)
    part_flows = np.empty((H, S, K), dtype=np.int64)
    part_seen = np.empty((H, S), dtype=np.int64)
    start, end = 0, length
    guess = True
    while end - start > 1:
        size = end - start
        part = size // 2
        if guess:
            expected = float(size)
            for h in range(H):
                for s in range(S):
                    need = budgets[h, s] - before[h, s] - kept_seen[h, s]
                    if seen[h, s] >= need:
                        expected = min(expected, size * need / (seen[h, s] + 1.0))
            part = min(max(int(expected), 1), size - 1)
        guess = not guess
        _first_part(stream, successors, policy, size, part, flows, seen, part_flows, part_seen)
        if _asks(before, kept_seen, part_seen, budgets):
            end = start + part
            _copy_counts(part_flows, part_seen, flows, seen)
        elif start < cut <= start + part:
            if cut < start + part:
                _keep_first_part(cuts, successors, policy, part, cut - start, part_flows, part_seen)
            _copy_counts(part_flows, part_seen, flows, seen)
            end = cut
            break
        else:
            start += part
            _move_counts(part_flows, part_seen, flows, seen, kept_flows, kept_seen)
    for h in range(H):
        for s in range(S):
            if kept_seen[h, s] > 0:
                for k in range(K):
                    flows[h, s, k] = kept_flows[h, s, k] + (flows[h, s, k] if seen[h, s] > 0 else 0)
                seen[h, s] += kept_seen[h, s]
    return end


@compiled
def _asks(before: CountArray, kept: CountArray, part: CountArray, budgets: CountArray) -> bool:
    H, S = part.shape
    for h in range(H):
        for s in range(S):
            if part[h, s] > 0 and before[h, s] + kept[h, s] + part[h, s] >= budgets[h, s]:
                return True
    return False


@compiled
def _copy_counts(from_flows: CountArray, from_seen: CountArray, to_flows: CountArray, to_seen: CountArray) -> None:
    """Copy counts; flows matter only where the pair was seen."""
    H, S, K = to_flows.shape
    for h in range(H):
        for s in range(S):
            to_seen[h, s] = from_seen[h, s]
            if from_seen[h, s] > 0:
                for k in range(K):
                    to_flows[h, s, k] = from_flows[h, s, k]


@compiled
def _move_counts(
    part_flows: CountArray,
    part_seen: CountArray,
    flows: CountArray,
    seen: CountArray,
    kept_flows: CountArray,
    kept_seen: CountArray,
) -> None:
    """Take a first part out of the block and add it to what is kept."""
    H, S, K = flows.shape
    for h in range(H):
        for s in range(S):
            if part_seen[h, s] > 0:
                kept_seen[h, s] += part_seen[h, s]
                seen[h, s] -= part_seen[h, s]
                for k in range(K):
                    kept_flows[h, s, k] += part_flows[h, s, k]
                    flows[h, s, k] -= part_flows[h, s, k]
