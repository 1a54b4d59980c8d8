"""Known dynamics: which laws decide an outcome, and what each outcome leads to and pays.

At step h, in state s, with action a, chance draws an outcome w by a law, and known functions say what follows:

    w ~ law_g,  g = law_of(h,s,a),    s' = next_state(h,s,a,w),    r = reward(h,s,a,w)

Nothing is known of the G laws except which visits share one, and a learner has to estimate only them. Counting by
step is the case of one law for each (h,s,a) whose outcome is the next state (:meth:`Dynamics.by_step`); counting over
all steps is one law for each (s,a) (:meth:`Dynamics.stationary`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from fed_ucbvi.core.errors import InputError, check_positive_integer
from fed_ucbvi.core.files import check_version, new_file, reading_npz
from fed_ucbvi.core.memory import SMALLER, check_memory
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray
from fed_ucbvi.problem.kernel import real_numbers, whole_numbers
from fed_ucbvi.problem.units import Units

FORMAT = "fed-ucbvi/dynamics"
FORMAT_VERSION = 1
SUFFIX = ".npz"
LAW_AXES = ("step", "state", "action")
OUTCOME_AXES = ("step", "state", "action", "outcome")
REWARD_AXES = ("agent", "step", "state", "action", "outcome")
SIZES = ("horizon", "states", "actions", "laws", "outcomes")
KINDS: dict[str, tuple[type[np.generic], tuple[str, ...]]] = {
    "law_of": (np.int32, LAW_AXES),
    "next_state": (np.int32, OUTCOME_AXES),
    "rewards": (np.float64, REWARD_AXES),
}
"""Type and axes of each table, for saved files."""

Given = npt.ArrayLike | Callable[..., npt.ArrayLike]
"""A table, or a function of arrays of indices that returns one."""


class ActionDependence(NamedTuple):
    """A step and a state at which two actions lead to different laws, there or later in the episode."""

    step: int
    state: int
    action: int
    other_action: int


@dataclass(frozen=True, eq=False)
class Dynamics:
    """Laws, outcomes, and what they lead to.

    A table may leave out axes that do not matter, and an axis may have length 1 for the same reason. A function gets
    arrays of indices that broadcast against each other, and is called once.

    Args:
        laws: G, the number of laws.
        outcomes: W, the largest number of outcomes of a law.
        law_of: the law at (h,s,a), a number from 0 to G-1: ``[S]``, ``[S,A]`` or ``[H,S,A]``, or a function
            ``law_of(h, s, a)``. Every law must be used somewhere.
        next_state: ``[S,A,W]`` or ``[H,S,A,W]``, or a function ``next_state(h, s, a, w)``.
        reward: ``[S,A]``, ``[S,A,W]`` or ``[H,S,A,W]``, or a function ``reward(h, s, a, w)``, in your own units; with
            an axis for agents in front, ``[M,H,S,A,W]``, where they are paid differently. None if rewards are to be
            learnt.
        horizon: H.
        states: S.
        actions: A.
        reward_range: the range of a step's reward, which becomes [0, 1]. By default that of the table, unless all
            rewards lie in [0, 1] already.

    Attributes:
        law_of: ``(H or 1, S or 1, A or 1)``; an axis along which nothing changes has length 1, here and below.
        next_state: ``(H or 1, S or 1, A or 1, W or 1)``.
        rewards: ``(M or 1, H or 1, S or 1, A or 1, W or 1)``, rescaled to [0, 1]; None if they are to be learnt.
        units: conversion of rewards to your own units.

    A shop holds up to 3 units and orders 0 or 1; only the demand, 0 to 2 units, is not known, and it has one law:

    >>> shop = Dynamics(
    ...     laws=1,
    ...     outcomes=3,
    ...     law_of=0,
    ...     next_state=lambda h, stock, order, demand: np.clip(stock + order - demand, 0, 3),
    ...     reward=lambda h, stock, order, demand: 4.0 * np.minimum(stock + order, demand) - 2.0 * order,
    ...     horizon=30,
    ...     states=4,
    ...     actions=2,
    ... )
    >>> shop
    <Dynamics: 1 law, 3 outcomes, S = 4, A = 2, H = 30>
    >>> shop.next_state.shape, shop.units
    ((1, 4, 2, 3), Units(offset=-2.0, scale=10.0))
    """

    horizon: int
    states: int
    actions: int
    laws: int
    outcomes: int
    law_of: IndexArray
    next_state: IndexArray
    rewards: FloatArray | None
    units: Units

    def __init__(
        self,
        *,
        laws: int,
        outcomes: int,
        law_of: Given,
        next_state: Given,
        reward: Given | None = None,
        horizon: int,
        states: int,
        actions: int,
        reward_range: tuple[float, float] | None = None,
    ) -> None:
        given = {"horizon": horizon, "states": states, "actions": actions, "laws": laws, "outcomes": outcomes}
        sizes = {name: check_positive_integer(name, size) for name, size in given.items()}
        length = _Lengths(sizes)
        which = _whole_table("law_of", law_of, length, LAW_AXES, depths=(0, 1, 2, 3))
        to = _whole_table("next_state", next_state, length, OUTCOME_AXES, depths=(3, 4))
        _check_indices("law_of", which, sizes["laws"], LAW_AXES)
        _check_indices("next_state", to, sizes["states"], OUTCOME_AXES)
        unused = np.setdiff1d(np.arange(sizes["laws"]), which)
        if len(unused):
            raise InputError(
                f"law {unused[0]} is unreachable: law_of has it at no (step, state, action). Number the laws from 0 "
                "without gaps."
            )
        units = Units()
        rewards: FloatArray | None = None
        if reward is not None:
            own = _table("reward", reward, length, REWARD_AXES, depths=(2, 3, 4, 5))
            units = _units_of(own, reward_range)
            rewards = _frozen(np.clip(units.rescaled(own), 0.0, 1.0))
        law_table = _frozen(which.astype(np.int32))
        state_table = _frozen(to.astype(np.int32))
        vars(self).update(**sizes, law_of=law_table, next_state=state_table, rewards=rewards, units=units)

    @classmethod
    def by_step(cls, horizon: int, states: int, actions: int) -> Self:
        """One law for each (h,s,a); the outcome is the next state, and rewards are to be learnt.

        >>> Dynamics.by_step(horizon=5, states=4, actions=2).laws
        40
        """
        laws = horizon * states * actions
        return cls(
            laws=laws,
            outcomes=states,
            law_of=np.arange(laws).reshape(horizon, states, actions),
            next_state=np.arange(states).reshape(1, 1, states),
            horizon=horizon,
            states=states,
            actions=actions,
        )

    @classmethod
    def stationary(cls, horizon: int, states: int, actions: int) -> Self:
        """One law for each (s,a), at all steps; the outcome is the next state, and rewards are to be learnt.

        >>> Dynamics.stationary(horizon=5, states=4, actions=2).laws
        8
        """
        laws = states * actions
        return cls(
            laws=laws,
            outcomes=states,
            law_of=np.arange(laws).reshape(states, actions),
            next_state=np.arange(states).reshape(1, 1, states),
            horizon=horizon,
            states=states,
            actions=actions,
        )

    def __repr__(self) -> str:
        laws = "1 law" if self.laws == 1 else f"{self.laws:,} laws"
        sizes = f"S = {self.states:,}, A = {self.actions:,}, H = {self.horizon:,}"
        return f"<Dynamics: {laws}, {self.outcomes:,} outcomes, {sizes}>"

    @property
    def steps(self) -> int:
        """H where laws or next states depend on the step, otherwise 1."""
        return max(len(self.law_of), len(self.next_state))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all sizes and tables, in hexadecimal digits; equal however the same tables were given."""
        text = json.dumps(self._description())
        sha = hashlib.sha256(text.encode())
        for name, table in self._tables().items():
            sha.update(f"{name} {table.dtype.str} {table.shape}".encode())
            sha.update(table.tobytes())
        return sha.hexdigest()

    def laws_at(self, step: int) -> IndexArray:
        """The law at each state and action of a step, ``(S, A)``."""
        table = self.law_of[step if len(self.law_of) > 1 else 0]
        return np.broadcast_to(table, (self.states, self.actions))

    def next_states_at(self, step: int) -> IndexArray:
        """The next state at each state, action and outcome of a step, ``(S, A, W)``."""
        table = self.next_state[step if len(self.next_state) > 1 else 0]
        return np.broadcast_to(table, (self.states, self.actions, self.outcomes))

    def rewards_at(self, step: int, agent: int | None = None) -> FloatArray:
        """Rescaled rewards at each state, action and outcome of a step, ``(S, A, W)``.

        They are those of one agent, or the mean over agents. Rewards must be known.
        """
        if self.rewards is None:
            raise InputError("these dynamics leave rewards to be learnt; pass reward to Dynamics.")
        by_step = self.rewards[:, step if self.rewards.shape[1] > 1 else 0]
        table = by_step.mean(axis=0) if agent is None else by_step[agent if len(by_step) > 1 else 0]
        return np.broadcast_to(table, (self.states, self.actions, self.outcomes))

    # ------------------------------------------------------------------------------------------ exogenous or not

    def action_dependence(self, first_states: npt.ArrayLike | None = None) -> ActionDependence | None:
        """The first place where laws depend on what is done; None if nowhere (*exogenous* dynamics).

        Going backwards, the class of a state is its law together with the classes of the states that follow, outcome
        by outcome. Dynamics are exogenous if all actions give the same class in every state that can be reached. The
        laws of the rest of an episode, and with them its outcomes, are then the same whatever is done.

        Args:
            first_states: states in which an episode may begin; all by default.

        >>> price = Dynamics(  # two prices that change by themselves; the action is to buy or to wait
        ...     laws=2,
        ...     outcomes=2,
        ...     law_of=lambda h, s, a: s,
        ...     next_state=lambda h, s, a, w: w,
        ...     horizon=3,
        ...     states=2,
        ...     actions=2,
        ... )
        >>> price.action_dependence() is None
        True
        >>> Dynamics.by_step(horizon=3, states=2, actions=2).action_dependence()
        ActionDependence(step=0, state=0, action=0, other_action=1)
        """
        reached = self._reachable(first_states)
        found = None
        after = np.zeros(self.states, dtype=np.int64)
        for h in reversed(range(self.horizon)):
            follows = after[self.next_states_at(h)]
            signature = np.concatenate([self.laws_at(h)[..., None], follows], axis=2)
            differs = (signature != signature[:, :1]).any(axis=2) & reached[h][:, None]
            if differs.any():
                state, other = np.argwhere(differs)[0].tolist()
                found = ActionDependence(step=h, state=state, action=0, other_action=other)
            after = np.unique(signature[:, 0], axis=0, return_inverse=True)[1].reshape(-1)
        return found

    def _reachable(self, first_states: npt.ArrayLike | None) -> npt.NDArray[np.bool_]:
        """States that can be reached at each step by some actions and outcomes, ``(H, S)``."""
        reached = np.zeros((self.horizon, self.states), dtype=np.bool_)
        first = np.arange(self.states) if first_states is None else whole_numbers("first_states", first_states)
        if first.size == 0 or first.min() < 0 or first.max() >= self.states:
            raise InputError(f"first_states must be states 0..{self.states - 1}, got {first.tolist()}.")
        reached[0, first] = True
        for h in range(self.horizon - 1):
            reached[h + 1, self.next_states_at(h)[reached[h]]] = True
        return reached

    # ----------------------------------------------------------------------------------------------------- files

    def save(self, path: str | Path) -> None:
        """Write one ``.npz`` file; a file that exists is replaced."""
        place = Path(path)
        if place.suffix != SUFFIX:
            raise InputError(f"dynamics are saved as one {SUFFIX} file; {place} does not end in {SUFFIX}.")
        about = json.dumps({"format": FORMAT, "format_version": FORMAT_VERSION, **self._description()})
        place.parent.mkdir(parents=True, exist_ok=True)
        with new_file(place) as draft, draft.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, about=np.array(about), **self._tables())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read back what :meth:`save` wrote, to the last bit; a damaged or foreign file is refused."""
        place = Path(path)
        what = f"dynamics that fed-ucbvi saved as one {SUFFIX} file (Dynamics.save)"
        with reading_npz(place, FORMAT, what) as (about, data):
            check_version(place, about, FORMAT_VERSION)
            check_memory(f"The dynamics in {place}", 4 * sum(form.bytes for form in data.forms.values()), SMALLER)
            tables = {name: data[name] for name in KINDS if name in data}
            return cls.from_tables(about, tables)

    def to_tables(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """A description and tables for a file, of which :meth:`from_tables` makes the same dynamics."""
        return self._description(), self._tables()

    @classmethod
    def from_tables(cls, about: Mapping[str, Any], tables: Mapping[str, npt.NDArray[Any]]) -> Self:
        """Dynamics from a description and tables of a file, checked.

        Rewards are taken as they are, so that no bit changes.
        """
        for name, table in tables.items():
            dtype, axes = KINDS[name]
            if table.dtype != dtype or table.ndim != len(axes):
                raise InputError(f"the table {name} of saved dynamics must be {np.dtype(dtype)} with axes {axes}.")
        sizes = {name: about[name] for name in SIZES}
        made = cls(
            **sizes,
            law_of=tables["law_of"],
            next_state=tables["next_state"],
            reward=tables.get("rewards"),
            reward_range=(0.0, 1.0),
        )
        vars(made).update(units=Units.of(about))
        return made

    def _description(self) -> dict[str, Any]:
        sizes = {name: getattr(self, name) for name in SIZES}
        return {**sizes, **self.units.description()}

    def _tables(self) -> dict[str, npt.NDArray[Any]]:
        tables: dict[str, npt.NDArray[Any]] = {"law_of": self.law_of, "next_state": self.next_state}
        if self.rewards is not None:
            tables["rewards"] = self.rewards
        return tables


class _Lengths:
    """The lengths of axes by name; that of agents is not known beforehand."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self._of = {
            "step": sizes["horizon"],
            "state": sizes["states"],
            "action": sizes["actions"],
            "outcome": sizes["outcomes"],
        }

    def fits(self, axis: str, length: int) -> bool:
        return length >= 1 if axis == "agent" else length in (1, self._of[axis])

    def indices(self, axes: tuple[str, ...]) -> list[npt.NDArray[np.int64]]:
        """An array of indices for each axis; they broadcast against each other."""
        return list(np.ogrid[tuple(slice(self._of[axis]) for axis in axes)])

    def shape(self, axes: tuple[str, ...]) -> str:
        return f"({', '.join(axes)}) = ({', '.join(str(self._of.get(axis, 'agents')) for axis in axes)})"


def _table(
    name: str, given: Given, length: _Lengths, axes: tuple[str, ...], depths: tuple[int, ...]
) -> npt.NDArray[Any]:
    """A table with all axes, of which those along which nothing changes have length 1.

    ``depths`` are the numbers of axes that a table may be given with: without agents and steps, which come first, and
    without outcomes or actions, which come last.
    """
    if callable(given):
        known = [axis for axis in axes if axis != "agent"]
        table = real_numbers(name, given(*length.indices(tuple(known))))
        table = table.reshape((1,) * (len(axes) - table.ndim) + table.shape) if table.ndim < len(axes) else table
    else:
        table = real_numbers(name, given)
        table = _with_all_axes(name, table, axes, depths)
    if table.ndim != len(axes) or not all(map(length.fits, axes, table.shape)):
        raise InputError(
            f"{name} must have shape {length.shape(axes)}, where an axis that does not matter may have length 1; "
            f"got {table.shape}."
        )
    if not np.isfinite(table).all():
        raise InputError(f"{name} holds a value that is not a finite number.")
    for axis in range(table.ndim):
        first = table.take([0], axis=axis)
        if table.shape[axis] > 1 and (table == first).all():
            table = first
    return table


def _with_all_axes(
    name: str, table: npt.NDArray[Any], axes: tuple[str, ...], depths: tuple[int, ...]
) -> npt.NDArray[Any]:
    """A table whose missing axes have length 1; which ones are missing follows from their number."""
    if table.ndim not in depths:
        raise InputError(f"{name} must have {' or '.join(map(str, depths))} axes of {axes}, got shape {table.shape}.")
    if table.ndim == 0:
        return table.reshape((1,) * len(axes))
    first = axes.index("state") if table.ndim < len(axes[axes.index("step") :]) else len(axes) - table.ndim
    missing_behind = len(axes) - first - table.ndim
    return table.reshape((1,) * first + table.shape + (1,) * missing_behind)


def _whole_table(
    name: str, given: Given, length: _Lengths, axes: tuple[str, ...], depths: tuple[int, ...]
) -> CountArray:
    return whole_numbers(name, _table(name, given, length, axes, depths))


def _check_indices(name: str, table: CountArray, number: int, axes: tuple[str, ...]) -> None:
    outside = np.argwhere((table < 0) | (table >= number))
    if len(outside):
        place = tuple(outside[0].tolist())
        raise InputError(
            f"{name} must be numbers from 0 to {number - 1}; at ({', '.join(axes)}) = {place} it is {table[place]}."
        )


def _units_of(rewards: FloatArray, given: tuple[float, float] | None) -> Units:
    """Units in which rewards lie in [0, 1]; those that do are left as they are."""
    low = float(rewards.min())
    high = float(rewards.max())
    if given is None:
        return Units() if low >= 0.0 and high <= 1.0 else Units.spanning(low, high)
    least, most = (float(end) for end in given)
    if not least < most or low < least or high > most:
        raise InputError(f"reward_range {given} must hold all rewards, which lie between {low:.6g} and {high:.6g}.")
    return Units.spanning(least, most)


def _frozen(table: npt.NDArray[Any]) -> npt.NDArray[Any]:
    copy = np.array(table, order="C")
    copy.setflags(write=False)
    return copy
