"""What Fed-UCBVI's agents have counted, as one message in place of the H reports of a synchronisation.

A report is a sum over transitions, ``X = sum_{s'} C(h,s,a,s') v(s')``. Whoever has the counts ``C`` of all agents
together can therefore compute all reports without asking for them one by one, to the last bit. Counts are stored by
the number of the next state, because supports that agents have discovered themselves are known to nobody else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np

from fed_ucbvi.algorithms.base import NO_SUMS, RewardSums, Setting
from fed_ucbvi.algorithms.exact_sums import Grid, on_grid, read_words, write_words
from fed_ucbvi.algorithms.experience import Experience
from fed_ucbvi.algorithms.fed_ucbvi_sums import SumAgents, Sums, new_report, write_report
from fed_ucbvi.algorithms.report_fields import Meaning
from fed_ucbvi.core.compiling import compiled
from fed_ucbvi.core.sampling.philox import product
from fed_ucbvi.core.types import CountArray, FloatArray, WordArray


class Model(NamedTuple):
    """Up, one row for all agents of a node; there is one step where all steps are counted together.

    ``C (1,steps,S,A,S)`` counts transitions and ``Z (1,steps,S,A,words)`` is the sum of ``n^i ceil(r^i 2^f)``. Where
    rewards are random ``Z = 0``, ``R (1,steps,S,A,S,1)`` are sums of rewards by next state and
    ``W (1,steps,S,A,2)`` sums of their squares; elsewhere these two are empty.
    """

    C: Annotated[CountArray, Meaning.TRANSITIONS_SO_FAR]
    Z: Annotated[CountArray, Meaning.SUM_OF_REWARDS]
    R: Annotated[CountArray, Meaning.SUM_OF_REWARDS]
    W: Annotated[CountArray, Meaning.SUM_OF_SQUARED_REWARDS]


def model_of(agents: SumAgents) -> Model:
    """The counts of some agents, added up."""
    _, steps, S, A, _ = agents.experience.transitions.shape
    shape = (1, steps, S, A)
    paid = (1, steps if len(agents.experience.sums.by_slot) > 0 else 0, S, A)
    out = Model(
        np.zeros((*shape, S), dtype=np.int64),
        np.zeros((*shape, agents.grid.words), dtype=np.int64),
        np.zeros((*paid, S, 1), dtype=np.int64),
        np.zeros((*paid, 2), dtype=np.int64),
    )
    _add_up(agents.experience, agents.grid, out)
    return out


@compiled
def _add_up(own: Experience, grid: Grid, out: Model) -> None:
    """Add the counts of all agents, and their rewards as words of a report, agent by agent."""
    visits, transitions, successors, rewards, sums = own
    m, steps, S, A, K = transitions.shape
    random = len(sums.by_slot) > 0
    one, two = np.zeros(out.Z.shape[4], dtype=np.int64), np.zeros(2, dtype=np.int64)
    for i in range(m):
        for h in range(steps):
            hk, hr = h if successors.shape[0] > 1 else 0, h if rewards.shape[1] > 1 else 0
            for s in range(S):
                for a in range(A):
                    n = visits[i, h, s, a]
                    if n == 0:
                        continue
                    for k in range(K):
                        out.C[0, h, s, a, successors[hk, s, a, k]] += transitions[i, h, s, a, k]
                        if random:
                            out.R[0, h, s, a, successors[hk, s, a, k], 0] += sums.by_slot[i, h, s, a, k]
                    if random:
                        high, low = sums.squares[i, h, s, a]
                        write_words((high, low), grid, two)
                        out.W[0, h, s, a] += two
                    else:
                        r = on_grid(rewards[i if rewards.shape[0] > 1 else 0, hr, s, a], grid.bits)
                        write_words(product(np.uint64(n), r), grid, one)
                        out.Z[0, h, s, a] += one


@compiled
def _read_squares(words: CountArray, grid: Grid, out: WordArray) -> None:
    """Sums of words of reports as high and low words of 64 bits."""
    _, steps, S, A, _ = words.shape
    for h in range(steps):
        for s in range(S):
            for a in range(A):
                out[0, h, s, a, 0], out[0, h, s, a, 1] = read_words(words[0, h, s, a], grid)


@dataclass
class ModelAgents:
    """All agents together, known by what they have counted; they report as one."""

    experience: Experience
    Z: CountArray
    grid: Grid
    horizon: int

    @classmethod
    def new(cls, setting: Setting, model: Model, grid: Grid) -> ModelAgents:
        """From the sum of all models."""
        C, Z, R, W = model
        S, A = setting.states, setting.actions
        sums = NO_SUMS
        if R.size:
            sums = RewardSums(R[..., 0], np.zeros(W.shape, dtype=np.uint64))
            _read_squares(W, grid, sums.squares)
        successors = np.ascontiguousarray(np.broadcast_to(np.arange(S, dtype=np.int32), (1, S, A, S)))
        experience = Experience(C.sum(axis=4), C, successors, np.zeros((1, 1, S, A)), sums)
        return cls(experience, Z, grid, setting.horizon)

    def report(self, h: int, V_next: FloatArray) -> Sums:
        """What all agents' reports for step h add up to."""
        out = new_report(True, self.grid, 1, *self.Z.shape[2:4])
        write_report(h, self.experience, V_next, True, self.grid, Sums(*out))
        return Sums(out.n, out.X, out.Y, self.Z[:, h if self.Z.shape[1] > 1 else 0])
