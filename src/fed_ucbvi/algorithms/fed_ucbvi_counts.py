"""Fed-UCBVI's counts from one run to another: out of its agents' tables, and back as one more agent's report.

The counts of an earlier run are one more row of the sum over agents. The server has them, so that agents need not
know of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fed_ucbvi.algorithms.base import Message, Setting
from fed_ucbvi.algorithms.counts import Counts
from fed_ucbvi.algorithms.exact_sums import Grid
from fed_ucbvi.algorithms.experience import Experience
from fed_ucbvi.algorithms.fed_ucbvi_model import Model, ModelAgents, model_of
from fed_ucbvi.algorithms.fed_ucbvi_pooled import PooledAgents
from fed_ucbvi.algorithms.fed_ucbvi_sums import SumAgents
from fed_ucbvi.core.types import CountArray, FloatArray

Integers = npt.NDArray[np.object_]
"""Python's integers, which have no size."""


@dataclass
class EarlierAgents(ModelAgents):
    """The agents of an earlier run, as one: what they have counted does not change any more."""

    model: Message

    @classmethod
    def start(cls, setting: Setting, counts: Counts, grid: Grid) -> EarlierAgents:
        """From counts that fit the run."""
        model = model_from(counts, grid)
        agents = ModelAgents.new(setting, model, grid)
        return cls(agents.experience, agents.Z, agents.grid, agents.horizon, model)


def model_of_pool(agents: PooledAgents) -> Model:
    """The counts of agents that are counted in one table, as if by one agent."""
    pool = agents.pool
    experience = Experience(pool.visits[None], pool.transitions[None], pool.successors, pool.rewards[:1], pool.sums)
    alone = SumAgents(experience, agents.asks, agents.horizon, agents.rule, agents.out, agents.grid, True)
    model = model_of(alone)
    if not pool.reward_sums.size:
        return model
    return model._replace(Z=_words(_wide(pool.reward_sums), agents.grid, agents.grid.words)[None])


def counts_of_model(model: Message, horizon: int, grid: Grid) -> Counts:
    """What a model says, in words that do not depend on the run's grid."""
    C, Z, R, W = (array[0] for array in model)
    visits, unit = C.sum(axis=-1), grid.unit
    if not R.size:
        means = np.minimum(_number(Z, grid) * unit / np.maximum(visits, 1), 1.0)
        return Counts(horizon, C, means)
    sums = R[..., 0] * unit
    means = np.minimum(sums.sum(axis=-1) / np.maximum(visits, 1), 1.0)
    return Counts(horizon, C, means, sums, _number(W, grid) * unit * unit)


def model_from(counts: Counts, grid: Grid) -> Model:
    """Counts as a model on a run's grid; rewards are rounded up to it, as agents round theirs."""
    C, scale = counts.transitions, 1 << grid.bits
    steps, S, A, _ = C.shape
    if counts.reward_sums is None or counts.reward_squares is None:
        Z = counts.visits.astype(object) * np.ceil(counts.rewards * scale).astype(np.int64).astype(object)
        nothing = np.zeros((1, 0, S, A, S, 1), dtype=np.int64), np.zeros((1, 0, S, A, 2), dtype=np.int64)
        return Model(C[None], _words(Z, grid, grid.words)[None], *nothing)
    R = np.ceil(counts.reward_sums * scale).astype(np.int64)
    W = _exactly(np.ceil(counts.reward_squares * float(scale) * float(scale)))
    no_fixed_rewards = np.zeros((1, steps, S, A, grid.words), dtype=np.int64)
    return Model(C[None], no_fixed_rewards, R[None, ..., None], _words(W, grid, 2)[None])


def _exactly(table: FloatArray) -> Integers:
    """Whole floats as integers."""
    whole: Any = np.frompyfunc(int, 1, 1)
    integers: Integers = whole(table)
    return integers


def _wide(words: npt.NDArray[np.uint64]) -> Integers:
    """Numbers from high and low words of 64 bits."""
    high, low = (words[..., i].astype(object) for i in (0, 1))
    number: Integers = high * (1 << 64) + low
    return number


def _words(numbers: Integers, grid: Grid, words: int) -> CountArray:
    """Numbers as the words of a report, the low one first."""
    if words == 1:
        return np.asarray(numbers[..., None].astype(np.int64))
    base = 1 << grid.base
    return np.stack([(numbers % base).astype(np.int64), (numbers // base).astype(np.int64)], axis=-1)


def _number(words: CountArray, grid: Grid) -> FloatArray:
    """The numbers that words of a report stand for, rounded to floats."""
    low = words[..., 0].astype(object)
    number = low if words.shape[-1] == 1 else low + words[..., 1].astype(object) * (1 << grid.base)
    return np.asarray(number.astype(np.float64))
