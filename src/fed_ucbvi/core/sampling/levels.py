"""Levels that agents draw: which of the policies of a round an agent plays in an episode.

A broadcast may hold several policies, one per level. At each broadcast an agent draws the level that it keeps for the
round. At each episode it draws a fresh level with probability ``share``, and plays the kept level otherwise. A level
is ``min(8, round(E))`` with ``E`` exponentially distributed, so level 0 has probability 0.39 and level 8 has 0.0006.

Every draw is a function of the seed, the agent's number and the number of an episode. So a level never depends on how
the work was divided, and episodes can be played again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fed_ucbvi.core.compiling import compiled
from fed_ucbvi.core.sampling.philox import philox, unit_interval
from fed_ucbvi.core.types import CountArray, FloatArray

LEVELS = 9
"""Number of levels, where agents draw them."""

_KEPT = np.uint64(6)
_FRESH = np.uint64(7)
"""Purposes of draws, beside those in :mod:`fed_ucbvi.core.sampling.philox`."""
_ZERO = np.uint64(0)
_THRESHOLDS = (
    0.3934693402873666,
    0.7768698398515702,
    0.9179150013761012,
    0.9698026165776815,
    0.9888910034617577,
    0.995913228561536,
    0.9984965608070224,
    0.9994469156298522,
)
"""Probabilities ``1 - exp(-(j + 1/2))`` of a level of at most j."""


class LevelLaw(NamedTuple):
    """Law by which the agents of a run draw levels.

    Attributes:
        number: number of levels; 1 where there is one policy per round.
        share: probability with which an episode draws a fresh level.
    """

    number: int
    share: float


ONE_LEVEL = LevelLaw(number=1, share=0.0)
"""The law of a run whose rounds have one policy."""


@compiled
def level_of(u: float) -> int:
    """The level that a number in [0, 1) draws."""
    level = 0
    for threshold in _THRESHOLDS:
        level += int(u >= threshold)
    return level


@compiled
def kept_level(seed: np.uint64, agent: np.uint64, first: np.uint64) -> int:
    """The level that an agent keeps for the round that begins with episode number ``first``."""
    words = philox(first, _ZERO, _KEPT, _ZERO, seed, agent)
    return level_of(unit_interval(words[0]))


@compiled
def level_of_episode(seed: np.uint64, share: float, agent: np.uint64, episode: np.uint64, kept: int) -> int:
    """The level that an agent plays in an episode; it keeps the level ``kept`` for the round."""
    words = philox(episode, _ZERO, _FRESH, _ZERO, seed, agent)
    if unit_interval(words[0]) >= share:
        return kept
    return level_of(unit_interval(words[1]))


@compiled
def kept_levels(seed: np.uint64, first_agent: int, agents: int, first: int) -> CountArray:
    """The levels ``(agents,)`` that agents from number ``first_agent`` on keep for a round."""
    levels = np.empty(agents, dtype=np.int64)
    for i in range(agents):
        levels[i] = kept_level(seed, np.uint64(first_agent + i), np.uint64(first))
    return levels


NO_LEVELS: CountArray = np.zeros(0, dtype=np.int64)
"""The kept levels of a round with one policy: nobody draws."""


def level_probabilities(law: LevelLaw) -> FloatArray:
    """Probabilities of the levels that an agent plays in an episode, ``(L, L)``: row k if it keeps level k."""
    if law.number == 1:
        return np.ones((1, 1))
    at_most = np.append(_THRESHOLDS, 1.0)
    fresh = np.diff(at_most, prepend=0.0)
    kept = np.eye(law.number)
    return np.asarray((1.0 - law.share) * kept + law.share * fresh)
