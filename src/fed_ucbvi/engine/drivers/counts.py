"""The counts driver: exact in law, in time logarithmic in the length of the round.

Within a round the policy is fixed, so an agent's L episodes are L i.i.d. Markov paths, and all an algorithm
reads is their transition counts F_h(s,s'). Where agents draw levels of the policy, a block is first divided among the
levels ~ multinomial, which are then drawn one by one.

* A block of L episodes is drawn forward: visits at step 1 ~ multinomial(L, mu), then for each (h,s) the
  outflow ~ multinomial(visits, P_h(.|s,pi_h(s))). Where the policy draws its actions, visits are first
  divided among them ~ multinomial with their probabilities, and an outflow goes by action and next state.
* Counters only grow, so a block's total tells whether the agent requests a synchronisation within it.
* Given a block's totals, the counts of its first l episodes are drawn forward too: first visits at step 1 ~
  multivariate hypergeometric, then for each (h,s) the first outflow ~ multivariate hypergeometric(F_h(s,.),
  first visits). (Both parts are independent multinomials with the same p; given their sum the p cancel.)

The first episode in which an agent requests a synchronisation is found by a search over such splits. Agents are taken
in turn. Each draws a block that ends at the earliest request so far, and only an agent with an earlier request
searches its block. In the end the blocks of all agents are cut at the earliest request. If an agent made no request
in its block, one split cuts the block. A block that was searched is no longer exchangeable, because its last episode
is known to contain the request. But the parts that the search split off are exchangeable. So the search is replayed,
from the same random numbers, down to the part that contains the cut, and that part is split.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fed_ucbvi.algorithms.base import VisitedCells
from fed_ucbvi.core.compiling import compiled, inner
from fed_ucbvi.core.indexing import shared
from fed_ucbvi.core.sampling.distributions import conditional_shares, multinomial, split
from fed_ucbvi.core.sampling.levels import level_probabilities
from fed_ucbvi.core.sampling.philox import BLOCKS, CUTS, new_stream
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray, PolicyArray, WordArray
from fed_ucbvi.engine.drivers.base import Fleet, FleetDriver, Played, one_if_shared
from fed_ucbvi.engine.drivers.played_actions import PossibleActions


class AgentModel(NamedTuple):
    """The MDP of one agent, or of all agents, whose tables have an axis for agents in front.

    Attributes:
        successors: ``(steps, S, A, K)``, the possible next states; the same for all agents.
        kernel: ``(steps, S, A, K)``, conditional shares of the next states.
        initial: ``(S,)``, conditional shares of the first states.
    """

    successors: IndexArray
    kernel: FloatArray
    initial: FloatArray


class Actions(NamedTuple):
    """The actions of the policy.

    Attributes:
        actions: ``(P H, S, W)``, the possible actions at each step, for each of P levels; W is 1 where visits are not
            counted by action.
        ties: ``(P H, S)``, their numbers.
        equal: ``(A+1, A)``, conditional shares of n actions that are equally likely.
        shares: ``(P H, S, W)``, conditional shares of the listed actions; empty where they are equally likely.
        levels: ``(L, L)``, conditional shares of the levels that an agent plays, by the level that it keeps; empty
            where the policy has one level.
    """

    actions: IndexArray
    ties: IndexArray
    equal: FloatArray
    shares: FloatArray
    levels: FloatArray


class Episodes(NamedTuple):
    """The episodes of one call, and the numbers of which their random numbers are a function.

    Attributes:
        first: number of the first episode.
        most: largest number of episodes.
        first_agent: number of the fleet's first agent in the federation.
        seed: seed of the run.
    """

    first: int
    most: int
    first_agent: int
    seed: np.uint64


class RoundCounts(NamedTuple):
    """The counts of a round, with one axis for cells; see :class:`~fed_ucbvi.engine.drivers.base.Fleet`.

    Attributes:
        transitions: ``(m or 1, P, K)``.
        visits: ``(m, P)``.
        starts: ``(m, L, S)``; empty where they follow from the visits.
        touched: the cells that were visited.
        stationary: True if visits of all steps are counted together.
    """

    transitions: CountArray
    visits: CountArray
    starts: CountArray
    touched: VisitedCells
    stationary: bool


class Block(NamedTuple):
    """The counts of some episodes of one agent, by level of the policy.

    Attributes:
        flows: ``(L, H, S, W, K)``, by action and next state; meaningless where ``seen`` is 0.
        seen: ``(L, H, S, W)``, visits by action.
        states: ``(L, H, S)``, visits.
    """

    flows: CountArray
    seen: CountArray
    states: CountArray


class Asking(NamedTuple):
    """When an agent requests a synchronisation.

    Attributes:
        before: ``(P,)``, its visits before the block.
        limits: ``(P,)``, the visits at which it makes a request.
        may_ask: False if it makes no request, whatever its visits are.
    """

    before: CountArray
    limits: CountArray
    may_ask: bool


_SCRATCH = 3
"""Blocks beside those of the agents: the part that a search has kept, the part it looks at, and one to cut with."""


class CountsDriver(FleetDriver):
    """Draws whole blocks of episodes at once; see the module's text."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__(fleet)
        m, _, S, A, K = fleet.probabilities.shape
        H = fleet.horizon
        W = 1 if fleet.visits.ndim == 3 else A
        by_state = (m + _SCRATCH, fleet.levels.number, H, S)
        self._blocks = Block(
            flows=np.empty((*by_state, W, K), dtype=np.int64),
            seen=np.empty((*by_state, W), dtype=np.int64),
            states=np.empty(by_state, dtype=np.int64),
        )
        self._models = AgentModel(
            successors=fleet.successors,
            kernel=conditional_shares(one_if_shared(fleet.probabilities)),
            initial=conditional_shares(one_if_shared(fleet.initial)),
        )
        self._level_shares = conditional_shares(level_probabilities(fleet.levels))
        first_n = np.tril(np.ones((A + 1, A)), -1)
        n = np.maximum(1, np.arange(A + 1))
        self._equal_shares = conditional_shares(first_n / n[:, None])

    def extend(self, policy: PolicyArray, limits: CountArray, first: int, most: int, asking: bool = True) -> Played:
        fleet = self.fleet
        several = policy.ndim == 4
        rows = policy.reshape((-1, *policy.shape[-2:])) if several else policy
        possible = PossibleActions.of(rows)
        play = Actions(
            actions=possible.actions,
            ties=possible.numbers,
            equal=self._equal_shares,
            shares=conditional_shares(possible.probabilities),
            levels=self._level_shares if several else self._level_shares[:0],
        )
        episodes = Episodes(
            first=first,
            most=most,
            first_agent=fleet.first_agent,
            seed=np.uint64(fleet.seed),
        )
        transitions, visits = fleet.flat
        counts = RoundCounts(
            transitions=transitions,
            visits=visits,
            starts=fleet.counted_starts,
            touched=fleet.touched,
            stationary=fleet.sizes.stationary,
        )
        limits_by_cell = limits.reshape((len(limits), -1))
        return _collect(
            self._models,
            play,
            fleet.kept_levels,
            limits_by_cell,
            asking,
            episodes,
            counts,
            self._blocks,
        )


@compiled
def _collect(
    models: AgentModel,
    play: Actions,
    kept_levels: CountArray,
    limits: CountArray,
    may_ask: bool,
    episodes: Episodes,
    counts: RoundCounts,
    blocks: Block,
) -> Played:
    """Draw episodes up to the earliest request and add their counts; their number, and True if there is a request."""
    m = len(counts.visits)
    length = episodes.most
    drawn = np.empty(m, dtype=np.int64)  # episodes that an agent has drawn
    held = np.empty(m, dtype=np.int64)  # episodes of which its block has the counts
    searched = np.zeros(m, dtype=np.bool_)
    asked = False
    nothing = np.zeros(limits.shape[1], dtype=np.int64)
    # not written out below, where code would be compiled for each
    drawing = np.bool_(False)
    given = np.bool_(True)

    # In the first m turns all agents draw. In the next m those that have searched their blocks, and hold more
    # episodes than the earliest request allows, draw and search again up to there. One loop is compiled for both.
    for turn in range(2 * m):
        again, i = divmod(turn, m)
        size = length
        cut = 0
        if again:
            if not searched[i] or held[i] <= length:
                continue
            size = drawn[i]
            cut = length
        block = _block(blocks, i)
        model = _model(models, i)
        level = kept_levels[i] if len(kept_levels) > 0 else 0
        asking = Asking(counts.visits[i], limits[shared(i, len(limits))], may_ask)
        stream = _stream(BLOCKS, episodes, i)
        drawn[i] = size
        held[i] = size
        _forward(stream, model, play, level, size, block, drawing, block)
        if _asks(asking, nothing, _by_cell(block.seen, asking)):
            searched[i] = True
            asked = True
            cuts = _stream(CUTS, episodes, i)
            held[i] = _search(stream, cuts, model, play, level, asking, size, cut, blocks, i)
        length = min(length, held[i])

    # Cut the blocks of agents that made no request, and add all blocks to the counts of the round.
    for i in range(m):
        block = _block(blocks, i)
        if held[i] > length:
            spare = _block(blocks, m)
            cuts = _stream(CUTS, episodes, i)
            level = kept_levels[i] if len(kept_levels) > 0 else 0
            _forward(cuts, _model(models, i), play, level, length, block, given, spare)
            _copy_counts(spare, block)
        _add_block(block, i, counts)
    return length, asked


@inner
def _stream(purpose: np.uint64, episodes: Episodes, i: int) -> WordArray:
    """The random numbers of the i-th agent of the fleet."""
    return new_stream(
        purpose,
        np.uint64(episodes.first),
        episodes.seed,
        np.uint64(episodes.first_agent + i),
    )


@inner
def _add_block(block: Block, i: int, counts: RoundCounts) -> None:
    """Add the block of the i-th agent to the counts of the round."""
    L, H, S, W, K = block.flows.shape
    visits = counts.visits
    touched = counts.touched
    row = i if len(counts.transitions) == len(visits) else 0
    for level in range(L):
        if len(counts.starts) > 0:
            for s in range(S):
                counts.starts[i, level, s] += block.states[level, 0, s]
        cell = 0
        for h in range(H):
            if counts.stationary:
                cell = 0
            for s in range(S):
                for w in range(W):
                    n = block.seen[level, h, s, w]
                    if n > 0:
                        if visits[i, cell] == 0:
                            touched.cells[i, touched.numbers[i]] = cell
                            touched.numbers[i] += 1
                        visits[i, cell] += n
                        for k in range(K):
                            counts.transitions[row, cell, k] += block.flows[level, h, s, w, k]
                    cell += 1


@inner
def _block(blocks: Block, i: int) -> Block:
    return Block(blocks.flows[i], blocks.seen[i], blocks.states[i])


@inner
def _model(models: AgentModel, i: int) -> AgentModel:
    k = shared(i, len(models.kernel))
    j = shared(i, len(models.initial))
    return AgentModel(models.successors, models.kernel[k], models.initial[j])


@inner
def _forward(
    stream: WordArray,
    model: AgentModel,
    play: Actions,
    kept: int,
    episodes: int,
    whole: Block,
    given: bool | np.bool_,
    out: Block,
) -> None:
    """Counts of some episodes of one agent, which keeps the level ``kept``.

    If those of a ``whole`` block are ``given``, these are the counts of its first episodes.
    """
    flows, seen, states = out
    L = len(states)
    seen[:] = 0
    states[:] = 0
    # Divide the episodes among the levels of the policy.
    numbers = np.zeros(L, dtype=np.int64)
    if len(play.levels) == 0:
        numbers[0] = episodes
    elif given:
        split(stream, _episodes_by_level(whole), episodes, numbers)
    else:
        multinomial(stream, episodes, play.levels[kept], numbers)
    # Draw the episodes of each level, step by step.
    for level in range(L):
        if numbers[level] > 0:
            part = Block(whole.flows[level], whole.seen[level], whole.states[level])
            own = Block(flows[level], seen[level], states[level])
            _forward_level(stream, model, play, level, numbers[level], part, given, own)


@inner
def _episodes_by_level(block: Block) -> CountArray:
    """Number of episodes of a block that played each level."""
    numbers = np.zeros(len(block.states), dtype=np.int64)
    for level in range(len(numbers)):
        for n in block.states[level, 0]:
            numbers[level] += n
    return numbers


@inner
def _forward_level(
    stream: WordArray,
    model: AgentModel,
    play: Actions,
    level: int,
    episodes: int,
    whole: Block,
    given: bool | np.bool_,
    out: Block,
) -> None:
    """Counts of the episodes that play one level; blocks have no axis for levels here."""
    flows, seen, states = out
    H, S, W, K = flows.shape
    successors, kernel, initial = model
    actions = play.actions
    equal = play.equal
    shares = play.shares
    if given:
        split(stream, whole.states[0], episodes, states[0])
    else:
        multinomial(stream, episodes, initial, states[0])
    dealt = np.zeros(W, dtype=np.int64)
    drawn = np.zeros(equal.shape[1], dtype=np.int64)
    for h in range(H):
        hk = shared(h, successors.shape[0])
        row = level * H + h
        for s in range(S):
            n = states[h, s]
            ties = play.ties[row, s]
            if n == 0:
                continue
            # Divide the visits to the state among the actions of the policy.
            if ties == 1:
                dealt[actions[row, s, 0] if W > 1 else 0] = n
            elif given:
                split(stream, whole.seen[h, s], n, dealt)
            else:
                law = shares[row, s, :ties] if len(shares) > 0 else equal[ties, :ties]
                multinomial(stream, n, law, drawn[:ties])
                for j in range(ties):
                    dealt[actions[row, s, j]] = drawn[j]
            # Divide the visits to each action among the next states.
            for j in range(ties):
                a = actions[row, s, j]
                w = a if W > 1 else 0
                if dealt[w] == 0:
                    continue
                seen[h, s, w] = dealt[w]
                if given:
                    split(stream, whole.flows[h, s, w], dealt[w], flows[h, s, w])
                else:
                    multinomial(stream, dealt[w], kernel[hk, s, a], flows[h, s, w])
                if h + 1 < H:
                    for k in range(K):
                        states[h + 1, successors[hk, s, a, k]] += flows[h, s, w, k]


@inner
def _by_cell(seen: CountArray, asking: Asking) -> CountArray:
    """Visits ``(L, H, S, W)`` by cell ``(P,)``: the same array, or sums over levels, and steps counted together."""
    P = len(asking.limits)
    if seen.size == P:
        return seen.reshape(P)
    steps = seen.reshape((seen.size // P, P))
    sums = np.zeros(P, dtype=np.int64)
    for h in range(len(steps)):
        for cell in range(P):
            sums[cell] += steps[h, cell]
    return sums


@inner
def _asks(asking: Asking, kept: CountArray, part: CountArray) -> bool:
    """True if the agent reaches a limit with the visits ``kept`` and ``part``, ``(P,)``, beside those before."""
    before, limits, may_ask = asking
    asks = False
    for cell in range(len(limits)):  # without a break, so that several cells are compared at a time
        asks |= may_ask and part[cell] > 0 and before[cell] + kept[cell] + part[cell] >= limits[cell]
    return asks


@inner
def _search(
    stream: WordArray,
    cuts: WordArray,
    model: AgentModel,
    play: Actions,
    level: int,
    asking: Asking,
    length: int,
    cut: int,
    blocks: Block,
    i: int,
) -> int:
    """Find the first episode with a request by the i-th agent, known to lie in its block, and cut the block there.

    The block is split alternately where the request is expected and in the middle, and the part that contains it is
    split again. Where ``cut`` is positive (and smaller than the answer) the search is a replay that ends at the part
    in which the cut falls, and the block is cut there instead, by the random numbers ``cuts``. On return the block
    has the counts of the episodes kept, whose number is returned.

    The request lies after ``start`` and at most at ``end``. ``kept`` has the counts of the episodes up to ``start``,
    and ``block`` those from there to ``end``.
    """
    before, limits, _ = asking
    m = len(blocks.states) - _SCRATCH
    block = _block(blocks, i)
    kept = _block(blocks, m)
    first = _block(blocks, m + 1)
    spare = _block(blocks, m + 2)
    kept.seen[:] = 0
    kept.states[:] = 0
    # not written out below, as above
    more = np.int64(1)
    less = np.int64(-1)
    given = np.bool_(True)
    start = 0
    end = length
    guess = True
    while end - start > 1:
        size = end - start
        part = size // 2
        kept_at = _by_cell(kept.seen, asking)
        # Every other time split where the visits are expected to reach a limit, instead of in the middle.
        if guess:
            expected = float(size)
            seen_at = _by_cell(block.seen, asking)
            for cell in range(len(limits)):
                need = limits[cell] - before[cell] - kept_at[cell]
                if seen_at[cell] >= need:
                    expected = min(expected, size * need / (seen_at[cell] + 1.0))
            part = min(max(int(expected), 1), size - 1)
        guess = not guess
        # Draw the counts of the first part, and go on with the part that contains the request.
        _forward(stream, model, play, level, part, block, given, first)
        if _asks(asking, kept_at, _by_cell(first.seen, asking)):
            end = start + part
            block, first = first, block
        elif start < cut <= start + part:
            block = first
            if cut < start + part:
                _forward(cuts, model, play, level, cut - start, first, given, spare)
                block = spare
            end = cut
            break
        else:
            start += part
            _add_counts(first, kept, more)
            _add_counts(first, block, less)
    _add_counts(block, kept, more)
    _copy_counts(kept, _block(blocks, i))
    return end


@inner
def _copy_counts(from_: Block, to: Block) -> None:
    """Copy counts; flows matter only where the pair was seen."""
    to.seen[:] = 0
    to.states[:] = 0
    _add_counts(from_, to, np.int64(1))


@inner
def _add_counts(part: Block, to: Block, sign: int | np.int64) -> None:
    """Add ``part`` to the counts ``to``, or, with ``sign`` -1, take it out of them."""
    L, H, S, W, K = part.flows.shape
    for level in range(L):
        flows = part.flows[level]
        seen = part.seen[level]
        states = part.states[level]
        to_flows = to.flows[level]
        to_seen = to.seen[level]
        to_states = to.states[level]
        for h in range(H):
            for s in range(S):
                if states[h, s] == 0:
                    continue
                to_states[h, s] += sign * states[h, s]
                for w in range(W):
                    if seen[h, s, w] > 0:
                        for k in range(K):
                            there = to_flows[h, s, w, k] if to_seen[h, s, w] > 0 else 0
                            to_flows[h, s, w, k] = there + sign * flows[h, s, w, k]
                        to_seen[h, s, w] += sign * seen[h, s, w]
