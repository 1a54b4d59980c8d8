"""Policies that a run judges by the returns of their own episodes, and the intervals of their values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from fed_ucbvi.algorithms.base import Array, Setting
from fed_ucbvi.algorithms.return_bounds import Interval, interval_of, new_histogram
from fed_ucbvi.core.types import CountArray, PolicyArray
from fed_ucbvi.engine.promises import Promises, stated_range
from fed_ucbvi.engine.state_arrays import put_back
from fed_ucbvi.problem.units import Units
from fed_ucbvi.results.recommendations import PLANNED, Recommended


@dataclass
class JudgedPolicy:
    """A policy that is judged by the returns of its own episodes; the ``number``-th of the run."""

    recommended: Recommended
    number: int
    returns: CountArray = field(default_factory=new_histogram)

    @property
    def policy(self) -> PolicyArray:
        return self.recommended.policy

    def arrays(self, name: str) -> dict[str, Array]:
        """The arrays to be saved, by name."""
        arrays = policy_arrays(name, self.recommended)
        arrays[f"{name}.returns"] = self.returns
        return arrays

    @classmethod
    def restored(cls, name: str, number: int, arrays: Mapping[str, Array], setting: Setting) -> JudgedPolicy:
        """The inverse of :meth:`arrays`."""
        judged = cls(saved_policy(name, arrays, setting), number)
        put_back(f"{name}.returns", judged.returns, arrays.get(f"{name}.returns"))
        return judged


class ValueIntervals:
    """Intervals of the values of judged policies, in rescaled units.

    Args:
        promises: the promises of the run.
        horizon: number of steps of an episode.
        units: returns the units of rewards, which nodes on the network declare when they join.
    """

    def __init__(self, promises: Promises, horizon: int, units: Callable[[], Units]) -> None:
        self._promises = promises
        self._horizon = horizon
        self._units = units

    @property
    def stated_limits(self) -> tuple[float, float] | None:
        """The range of an episode's return that was stated, in rescaled units; None if none was."""
        stated = self._promises.return_range
        return None if stated is None else stated_range(stated, self._units(), self._horizon)

    @property
    def limits(self) -> tuple[float, float]:
        """The range of an episode's return that was stated, or that of rewards."""
        return self.stated_limits or (0.0, float(self._horizon))

    @property
    def zero(self) -> float:
        """Rescaled value of a return that is 0 in own units."""
        units = self._units()
        return -self._horizon * units.offset / units.scale

    @property
    def until_gap(self) -> float:
        """The gap that was asked for, in rescaled units; infinite if none was."""
        gap = self._promises.until_gap
        return math.inf if gap is None else gap / self._units().scale

    def interval(self, judged: JudgedPolicy) -> Interval:
        """Interval of a policy's value; if no other policy will be judged, it has all of delta."""
        low, high = self.limits
        delta = self._promises.parts.interval(judged.number, alone=self._promises.watching)
        return interval_of(judged.returns, high, delta, low)


def policy_arrays(name: str, recommended: Recommended) -> dict[str, Array]:
    """A policy and its values by name, to be saved."""
    return {
        f"{name}.policy": recommended.policy,
        f"{name}.V": recommended.V,
    }


def saved_policy(name: str, arrays: Mapping[str, Array], setting: Setting, kind: str = PLANNED) -> Recommended:
    """The inverse of :func:`policy_arrays`; raise if the arrays do not fit the setting."""
    H = setting.horizon
    S = setting.states
    saved = arrays.get(f"{name}.policy", np.zeros((H, S), dtype=np.int32))
    policy = np.zeros((H, S, *saved.shape[2:]), dtype=saved.dtype)
    V = np.zeros((H + 1, S))
    put_back(f"{name}.policy", policy, arrays.get(f"{name}.policy"))
    put_back(f"{name}.V", V, arrays.get(f"{name}.V"))
    return Recommended(policy, V, kind)
