"""The counts of a run, which another run may start from: transitions by next state, and what was paid.

Confidence sets hold for all data that the same kernels have produced, whenever they have. So counts of an earlier run
are as good as a run's own, if its agents' kernels and rewards are those of the agents then, or, where agents differ,
within eps_p and eps_r of the same common MDP.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fed_ucbvi.algorithms.base import Array, Setting
from fed_ucbvi.core.errors import InputError, check_positive_integer
from fed_ucbvi.core.files import check_version, new_file, reading_npz
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray, MaskArray

FORMAT = "fed-ucbvi/counts"
FORMAT_VERSION = 1
SUFFIX = ".npz"


@dataclass(frozen=True)
class Counts:
    """What all agents of a run have counted together.

    Args:
        horizon: H.
        transitions: ``(steps, S, A, S)``, by next state; ``steps`` is H, or 1 where steps were counted together.
        rewards: ``(steps, S, A)``, the mean reward, in [0, 1]; of no meaning where there were no visits.
        reward_sums: ``(steps, S, A, S)``, the sum of rewards by next state, where they are random.
        reward_squares: ``(steps, S, A)``, the sum of their squares, likewise.
    """

    horizon: int
    transitions: CountArray
    rewards: FloatArray
    reward_sums: FloatArray | None = None
    reward_squares: FloatArray | None = None

    def __post_init__(self) -> None:
        H = check_positive_integer("horizon", self.horizon)
        shape = self.transitions.shape
        if len(shape) != 4 or shape[0] not in (1, H) or shape[1] != shape[3] or 0 in shape:
            raise InputError(f"transitions are a table (H or 1, S, A, S) with H = {H}, got the shape {shape}.")
        tables = {
            "transitions": (self.transitions, shape, np.int64),
            "rewards": (self.rewards, shape[:3], np.float64),
            "reward_sums": (self.reward_sums, shape, np.float64),
            "reward_squares": (self.reward_squares, shape[:3], np.float64),
        }
        if (self.reward_sums is None) != (self.reward_squares is None):
            raise InputError("sums of random rewards and of their squares come together; one of them is missing.")
        for name, (table, form, kind) in tables.items():
            if table is not None:
                _check_table(name, table, form, kind)
        if self.rewards.max() > 1.0:
            raise InputError("mean rewards lie in [0, 1].")

    @property
    def visits(self) -> CountArray:
        """``(steps, S, A)``."""
        return np.asarray(self.transitions.sum(axis=3))

    @property
    def most(self) -> int:
        """The most visits to one (h,s,a); at least 1."""
        return max(1, int(self.visits.max()))

    def equals(self, other: Counts) -> bool:
        """Whether two are the same, number by number."""
        own, others = ((c.transitions, c.rewards, c.reward_sums, c.reward_squares) for c in (self, other))
        pairs = zip(own, others, strict=True)
        same = (a is b if a is None or b is None else np.array_equal(a, b) for a, b in pairs)
        return self.horizon == other.horizon and all(same)

    def fitting(self, setting: Setting, *, stationary: bool, squares: bool) -> Counts:
        """The same as a run of this setting counts, or an error that says what does not fit.

        ``squares`` says whether the run needs the squares of random rewards, by next state, and not only their means.
        """
        steps, S, A, _ = self.transitions.shape
        sizes, own = (setting.states, setting.actions, setting.horizon), (S, A, self.horizon)
        if sizes != own:
            raise InputError(f"the counts to start from have (S, A, H) = {own}, this run {sizes}.")
        if squares and setting.random_rewards and self.reward_sums is None:
            raise InputError(
                "rewards are random in this run, and the counts to start from know only their means. Take counts of "
                "a run with random rewards."
            )
        if not stationary and steps == 1 < self.horizon:
            raise InputError(
                "the counts to start from were counted over all steps together, and this run counts by step. Take "
                "stationary=True, or other counts."
            )
        told = self if squares and setting.random_rewards else replace(self, reward_sums=None, reward_squares=None)
        return told._over_all_steps() if stationary and steps > 1 else told

    def _over_all_steps(self) -> Counts:
        """All steps together."""
        visits = self.visits
        total: CountArray = visits.sum(axis=0, keepdims=True)
        paid = (visits * self.rewards).sum(axis=0, keepdims=True)
        return Counts(
            self.horizon,
            self.transitions.sum(axis=0, keepdims=True),
            np.minimum(paid / np.maximum(total, 1), 1.0),
            None if self.reward_sums is None else self.reward_sums.sum(axis=0, keepdims=True),
            None if self.reward_squares is None else self.reward_squares.sum(axis=0, keepdims=True),
        )

    def check_support(self, successors: IndexArray) -> None:
        """Raise if a transition was counted that the supports ``(steps, S, A, K)`` do not have."""
        steps, S, A, _ = self.transitions.shape
        possible: MaskArray = np.zeros((len(successors), S, A, S), dtype=np.bool_)
        np.put_along_axis(possible, successors.astype(np.int64), True, axis=3)
        somewhere = np.asarray(possible.any(axis=0, keepdims=True)) if steps == 1 else possible
        strange = np.argwhere((self.transitions > 0) & ~somewhere)
        if len(strange):
            h, s, a, to = strange[0]
            raise InputError(
                f"the counts to start from are of another problem: from (step, state, action) = ({h}, {s}, {a}) they "
                f"have transitions to state {to}, which are impossible here."
            )

    def save(self, path: str | Path) -> None:
        """Write one ``.npz`` file; a file that exists is replaced when all went well."""
        path = Path(path)
        if path.suffix != SUFFIX:
            raise InputError(f"counts are saved as one {SUFFIX} file; {path} does not end in {SUFFIX}.")
        about = json.dumps({"format": FORMAT, "format_version": FORMAT_VERSION, "horizon": self.horizon})
        tables = {name: getattr(self, name) for name in ("transitions", "rewards", "reward_sums", "reward_squares")}
        path.parent.mkdir(parents=True, exist_ok=True)
        with new_file(path) as draft, draft.open("wb") as file:
            kept: dict[str, Any] = {name: table for name, table in tables.items() if table is not None}
            np.savez_compressed(file, about=np.array(about), **kept)

    @classmethod
    def load(cls, path: str | Path) -> Counts:
        """Read back what :meth:`save` wrote, to the last bit; a damaged or foreign file is refused."""
        path = Path(path)
        what = f"a {SUFFIX} file of counts that fed-ucbvi saved ('fed-ucbvi counts', Counts.save)"
        with reading_npz(path, FORMAT, what) as (about, data):
            check_version(path, about, FORMAT_VERSION)
            tables = {name: data[name] for name in data.files if name != "about"}
            return cls(int(about["horizon"]), **tables)


def _check_table(name: str, table: Array, shape: tuple[int, ...], kind: npt.DTypeLike) -> None:
    """Raise unless a table has this shape and type, and numbers that are finite and not negative."""
    if table.shape != shape or table.dtype != kind:
        raise InputError(
            f"{name} is a {table.dtype} table of shape {table.shape}, expected {np.dtype(kind)} {shape}."
        )
    if not np.isfinite(table).all() or table.min() < 0:
        raise InputError(f"{name} holds numbers that are negative or not finite.")
