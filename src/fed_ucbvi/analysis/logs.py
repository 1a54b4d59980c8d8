"""Counts of logged episodes that were recorded under any rule; and a plan from counts alone.

A log has one row for each step, with ``episode``, ``step`` (from 0), ``state``, ``action``, ``reward`` and
``next_state``. Rows may come in any order. They are visits like any other, ordered before the first round of a run,
so the optimism of Fed-KL-UCBVI stands, whatever rule acted. Influences that are not in the log are not detected: if
the rule that acted used more than the logged state (*confounding*), the counts are not those of the kernel.

**A plan from counts** is the policy with the best guaranteed value, that with the worst kernels that
the counts allow (:mod:`fed_ucbvi.algorithms.kl_bound`):

    Q_h(s,a) = r_h(s,a) + inf { q.V_{h+1} : N KL(p, q) <= beta'(N) },    0 where N = 0,        V_h(s) = max_a Q_h(s,a)

So it is worth at least V, whoever collected the counts and by whatever rule. The optimistic values are those of
Fed-KL-UCBVI on the same counts. Counts are sums of integers, so the plan of hospitals, shops or nodes together is
that of their pooled logs, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fed_ucbvi.algorithms.count_table import CountTable, integers, table_of_lists, to_words
from fed_ucbvi.algorithms.exact_sums import MAX_BITS
from fed_ucbvi.algorithms.kl_bound import Estimates, Rule, induct, pessimistic_values
from fed_ucbvi.core.errors import InputError, check_integer, check_number, check_positive_integer, printable
from fed_ucbvi.core.foreign_tables import read_table
from fed_ucbvi.core.memory import check_memory
from fed_ucbvi.core.types import FloatArray, IndexArray, MaskArray
from fed_ucbvi.problem.mdp import check_initial
from fed_ucbvi.problem.units import Units
from fed_ucbvi.results.own_units import convert_values

if TYPE_CHECKING:
    import polars as pl

COLUMNS = ("episode", "step", "state", "action", "reward", "next_state")
ARRAYS = ("observations", "actions", "rewards", "terminations")
READERS = {".csv": "CSV", ".parquet": "Parquet"}
BYTES_PER_ROW = 400
"""Memory that a row of a log takes while it is checked and counted."""
REWARD_ROUNDING = 1e-9
"""Largest distance of a reward from its range, as a share of the range."""


class Log(NamedTuple):
    """The rows of a log, and a function that names a row in a message."""

    columns: Mapping[str, Any]
    place: Callable[[int], str]


def counts_from_logs(
    source: str | Path | Mapping[str, Any] | Iterable[Any],
    sizes: tuple[int, int, int],
    *,
    reward_range: tuple[float, float] = (0.0, 1.0),
    stationary: bool = False,
    random_rewards: bool = False,
) -> CountTable:
    """The counts of a log, for :func:`plan_from_counts`, for ``warm_start`` of a run, or to be merged with others.

    Args:
        source: a ``.parquet`` or ``.csv`` file with the columns episode, step, state, action, reward and next_state;
            the same columns as a mapping, a Polars or a pandas frame; or episodes as Gymnasium-style libraries keep
            them, each with ``observations`` (one more than actions), ``actions``, ``rewards`` and ``terminations``,
            by key or by attribute (Minari). There a step that terminates goes to the last state, S - 1, as
            everywhere in this package; the last observation of an episode that was cut off (``truncations``) counts
            as it is.
        sizes: S, A and H. Episodes may be shorter than H.
        reward_range: the least and the largest reward of a step; counts have them as 0 and 1.
        stationary: count over all steps together.
        random_rewards: true if rewards depend on chance, or on the next state. If not, a reward that differs from
            that of an earlier visit is an error.

    Raises:
        InputError: names the first line that cannot be used, and why.

    >>> log = {"episode": [7, 7], "step": [0, 1], "state": [0, 1], "action": [1, 0], "reward": [0, 1]}
    >>> log["next_state"] = [1, 1]
    >>> counts = counts_from_logs(log, (2, 2, 2))
    >>> counts.visits.sum(axis=(1, 2)).tolist(), int(counts.transitions[0, 0, 1].sum())
    ([1, 1], 1)
    >>> counts_from_logs({**log, "state": [0, 5]}, (2, 2, 2))
    Traceback (most recent call last):
    fed_ucbvi.core.errors.InputError: row 1: state is 5, expected 0 to 1.
    """
    counts, _ = read_logs(source, sizes, reward_range, stationary, random_rewards)
    return counts


def read_logs(
    source: Any,
    sizes: tuple[int, int, int],
    rewards: tuple[float, float],
    stationary: bool,
    random_rewards: bool,
) -> tuple[CountTable, int]:
    """The counts of a log, as :func:`counts_from_logs` takes it, and its number of episodes."""
    import polars as pl

    S, A, H = sizes
    for name, size in (("S", S), ("A", A), ("H", H)):
        check_positive_integer(name, size)
    units = _units_of_range(rewards)
    log = _read(source, S)
    _check(log, sizes, rewards)
    step = log.columns["step"].astype(np.int64)
    state = log.columns["state"].astype(np.int64)
    action = log.columns["action"].astype(np.int64)
    next_state = log.columns["next_state"].astype(np.int64)
    rescaled = np.clip(units.rescaled(log.columns["reward"]), 0.0, 1.0)
    counted_step = np.zeros_like(step) if stationary else step
    rows = pl.DataFrame(
        {
            "cell": (counted_step * S + state) * A + action,
            "after": next_state,
            "value": np.ceil(rescaled * 2.0**MAX_BITS).astype(np.int64),
        }
    )
    steps = 1 if stationary else H
    if not random_rewards:
        _check_fixed(rows, log)
    counts = _table((steps, S, A), rows)
    episodes = int(np.count_nonzero(step == 0))
    return counts, episodes


# ------------------------------------------------------------------------------------------------------ reading
def _read(source: Any, states: int) -> Log:
    """The rows of a log; numbers that are missing are NaN."""
    import polars as pl

    if isinstance(source, str | Path):
        return _read_file(Path(source))
    if hasattr(source, "columns") and hasattr(source, "iloc"):  # a pandas frame; its index has no meaning here
        source = {str(name): source[name].tolist() for name in source.columns}
    is_table = isinstance(source, Mapping) and "observations" not in source
    if is_table or isinstance(source, pl.DataFrame):
        try:
            frame = pl.DataFrame(source)
        except Exception as error:
            raise InputError(
                f"the columns of a log must have one length and values of one kind each: {error}"
            ) from error
        return _of_frame(frame, lambda row: f"row {row}")
    is_episode = isinstance(source, Mapping) or hasattr(source, "actions")
    return _of_episodes([source] if is_episode else source, states)


def _read_file(path: Path) -> Log:
    if path.suffix not in READERS:
        raise InputError(f"logs are read from .csv and .parquet files; {path} is neither.")
    file_kind = f"{READERS[path.suffix]} file that can be read"
    if not path.is_file():
        raise InputError(f"{path} is no {file_kind}: there is no such file.")
    check_memory(f"The content of {path}", 3 * path.stat().st_size, "Use a shorter log.")
    is_csv = path.suffix == ".csv"
    try:
        table = read_table(path.read_bytes(), "csv" if is_csv else "parquet", COLUMNS)
    except InputError as error:
        raise InputError(f"{path} is no {file_kind}: {error}") from error
    _check_columns(table.columns)
    check_memory(f"The log in {path}", BYTES_PER_ROW * table.frame.height, "Use a shorter log.")
    if is_csv:
        return _of_frame(table.frame, lambda row: f"{path}, line {row + 2}")
    return _of_frame(table.frame, lambda row: f"{path}, row {row}")


def _check_columns(found: Sequence[str]) -> None:
    missing = [name for name in COLUMNS if name not in found]
    if missing:
        has = printable(", ".join(found)) or "none"
        raise InputError(f"a log has the columns {', '.join(COLUMNS)}; {', '.join(missing)} missing, found {has}.")


def _of_frame(frame: pl.DataFrame, place: Callable[[int], str]) -> Log:
    import polars as pl

    _check_columns(frame.columns)
    numbers: dict[str, Any] = {}
    for name in COLUMNS:
        column = frame[name]
        if column.dtype == pl.String:
            column = column.str.strip_chars()
        try:
            if name == "episode":
                column = column.rank("dense")  # any text names an episode
            figures = column.cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy()
        except pl.exceptions.PolarsError as error:
            raise InputError(f"the column {name} of a log holds {column.dtype}, expected numbers.") from error
        bad_rows = np.flatnonzero(~np.isfinite(figures))
        if len(bad_rows):
            row = int(bad_rows[0])
            text = printable(str(frame[name][row]))
            raise InputError(f"{place(row)}: {name} is {text}, expected a number.")
        numbers[name] = figures
    return Log(numbers, place)


def _of_episodes(episodes: Iterable[Any], states: int) -> Log:
    """The rows of episodes, one below the other."""
    parts: list[dict[str, FloatArray]] = []
    for number, episode in enumerate(episodes):
        observations = _array(episode, "observations", number)
        actions = _array(episode, "actions", number)
        rewards = _array(episode, "rewards", number)
        terminations = _array(episode, "terminations", number)
        steps = len(actions)
        if len(rewards) != steps or len(terminations) != steps or len(observations) != steps + 1:
            raise InputError(
                f"episode {number} has {len(observations)} observations, {steps} actions, {len(rewards)} rewards, "
                f"{len(terminations)} terminations; expected one more observation than actions."
            )
        if terminations[:-1].any():
            last = int(np.argmax(terminations))
            raise InputError(f"episode {number} goes on after step {last}, which terminates it.")
        rows = {
            "episode": np.full(steps, float(number)),
            "step": np.arange(steps, dtype=np.float64),
            "state": observations[:-1],
            "action": actions,
            "reward": rewards,
            "next_state": np.where(terminations > 0, states - 1, observations[1:]),
        }
        parts.append(rows)
    if not parts:
        raise InputError("there is no episode in the log.")
    begins = np.cumsum([0, *[len(part["step"]) for part in parts]])

    def place(row: int) -> str:
        episode = int(np.searchsorted(begins, row, side="right")) - 1
        return f"episode {episode}, step {row - begins[episode]}"

    columns = {name: np.concatenate([part[name] for part in parts]) for name in COLUMNS}
    return Log(columns, place)


def _array(episode: Any, name: str, number: int) -> FloatArray:
    if isinstance(episode, Mapping):
        numbers = episode.get(name)
    else:
        numbers = getattr(episode, name, None)
    try:
        array = np.asarray(numbers, dtype=np.float64)
    except (TypeError, ValueError):
        array = np.zeros((0, 0))
    if numbers is None or array.ndim != 1:
        raise InputError(f"episode {number} needs {name}, one number for each step; observations are states.")
    return array


# ----------------------------------------------------------------------------------------------------- checking
def _check(log: Log, sizes: tuple[int, int, int], rewards: tuple[float, float]) -> None:
    """Raise at an impossible row: out of range, or not the next step of its episode."""
    S, A, H = sizes
    low, high = rewards
    columns = log.columns
    if len(columns["step"]) == 0:
        raise InputError("there is no step in the log.")
    # Each row by itself.
    for name, limit in (("step", H), ("state", S), ("action", A), ("next_state", S)):
        column = columns[name]
        bad = (column != np.floor(column)) | (column < 0) | (column >= limit)
        _refuse(bad, log.place, f"{name} is {{:.12g}}, expected 0 to {limit - 1}", column)
    reward = columns["reward"]
    margin = REWARD_ROUNDING * (high - low)
    bad = (reward < low - margin) | (reward > high + margin)
    _refuse(bad, log.place, f"reward is {{:.12g}}, expected {low:g} to {high:g} (reward_range)", reward)
    # Each row after the one before it in its episode.
    order = np.lexsort((columns["step"], columns["episode"]))
    episode = columns["episode"][order]
    step = columns["step"][order]
    state = columns["state"][order]
    next_state = columns["next_state"][order]
    is_first = np.append(True, episode[1:] != episode[:-1])

    def place(row: int) -> str:
        return log.place(int(order[row]))

    expected_step = np.where(is_first, 0.0, np.append(0.0, step[:-1] + 1.0))
    complaint = "step is {:.0f}, expected {:.0f}; an episode has each step once, from 0 on"
    _refuse(step != expected_step, place, complaint, step, expected_step)
    expected_state = np.where(is_first, state, np.append(0.0, next_state[:-1]))
    complaint = "state is {:.0f}, but the step before it led to {:.0f}"
    _refuse(state != expected_state, place, complaint, state, expected_state)


def _refuse(bad: MaskArray, place: Callable[[int], str], complaint: str, *columns: FloatArray) -> None:
    """Raise at the first bad row; ``complaint`` has places for its figures in these columns."""
    if bad.any():
        row = int(np.argmax(bad))
        figures = [column[row] for column in columns]
        raise InputError(f"{place(row)}: {complaint.format(*figures)}.")


# ----------------------------------------------------------------------------------------------------- counting
def _check_fixed(rows: pl.DataFrame, log: Log) -> None:
    """Raise unless all visits to a cell have the same reward."""
    import polars as pl

    odd = rows.select((pl.col("value") != pl.col("value").first().over("cell")).arg_true())["value"]
    if len(odd):
        raise InputError(
            f"{log.place(odd[0])}: the reward is not that of another visit to the same state and action. "
            "If rewards depend on chance or on the next state, pass random_rewards=True (--random-rewards)."
        )


def _table(shape: tuple[int, int, int], rows: pl.DataFrame) -> CountTable:
    """The table of rows: visits to a ``cell`` that led to the state ``after`` and paid ``value`` on the grid."""
    import polars as pl

    paid = pl.col("value").cast(pl.Int128).sum().alias("paid")
    slots = rows.group_by("cell", "after").agg(pl.len().alias("n"), paid).sort("cell", "after")
    visited = slots.group_by("cell", maintain_order=True).agg(pl.len().alias("seen"), pl.col("paid").sum())
    listed: dict[str, Any] = {
        "cells": visited["cell"].to_numpy(),
        "seen": visited["seen"].to_numpy().astype(np.int32),
        "successors": slots["after"].to_numpy().astype(np.int32),
        "transitions": slots["n"].to_numpy().astype(np.int64),
        "rewards": to_words(np.array(visited["paid"].to_list(), dtype=object)),
    }
    return table_of_lists(shape, MAX_BITS, listed)


# ------------------------------------------------------------------------------------------------------- planning
@dataclass(frozen=True, eq=False)
class CautiousPlan:
    """A plan from counts, with bounds that hold for all steps and states together.

    Attributes:
        policy: ``(H, S)``, the policy with the largest guaranteed value; of equals the action seen most.
        lower: ``(H+1, S)``, lower bound on its value, with probability ``1 - delta``.
        upper: ``(H+1, S)``, upper bound on the value of the best policy, with probability ``1 - delta``.
        thin: ``(H, S)``, true where the counts do not prove that the policy's action is best.
        seen: ``(H, S)``, true where the state was visited (at any step, if counts are over all steps).
    """

    policy: IndexArray
    lower: FloatArray = field(repr=False)
    upper: FloatArray = field(repr=False)
    thin: MaskArray = field(repr=False)
    seen: MaskArray = field(repr=False)
    delta: float
    support: int

    def bounds(self, initial: npt.ArrayLike | int) -> tuple[float, float]:
        """Bounds from below on the policy's value and from above on the best one, from a first state or its law."""
        start = check_initial(initial, self.policy.shape[1])
        return float(start @ self.lower[0]), float(start @ self.upper[0])

    def summary(self, initial: npt.ArrayLike | int | None = None) -> dict[str, Any]:
        """Number of (step, state) that were seen, and where the best action is certain, and bounds."""
        H, S = self.policy.shape
        figures: dict[str, Any] = {
            "states": S,
            "horizon": H,
            "delta": self.delta,
            "support": self.support,
            "seen": int(self.seen.sum()),
            "certain": int((self.seen & ~self.thin).sum()),
            "best_lower_bound": float(self.lower[0].max()),
        }
        if initial is not None:
            lower, upper = self.bounds(initial)
            figures["lower_bound"] = lower
            figures["optimistic_value"] = upper
        return figures

    def __repr__(self) -> str:
        figures = self.summary()
        return (
            f"<CautiousPlan: S = {figures['states']:,}, H = {figures['horizon']:,}; of {figures['seen']:,} "
            f"(step, state) seen the best action is certain at {figures['certain']:,}>"
        )


def _units_of_range(reward_range: Sequence[float]) -> Units:
    """Units in which rewards of this range become those of [0, 1]."""
    low = check_number("reward_range", reward_range[0])
    high = check_number("reward_range", reward_range[1])
    if low >= high:
        raise InputError(f"reward_range must ascend, got {low:g} to {high:g}.")
    return Units.spanning(low, high)


def _check_equal_rewards(counts: CountTable) -> None:
    """Raise unless every sum of rewards is the number of visits times one reward."""
    visited = np.argwhere(counts.visits > 0)
    where = tuple(visited.T)
    rest = integers(counts.rewards[where]) % counts.visits[where].astype(object)
    odd = np.flatnonzero(rest)
    if len(odd):
        h, s, a = visited[odd[0]].tolist()
        raise InputError(
            f"the rewards of the visits to (step, state, action) = ({h}, {s}, {a}) differ. Pass random_rewards=True "
            "(--random-rewards), so that the bounds cover their spread."
        )


def plan_from_counts(
    counts: CountTable,
    horizon: int | None = None,
    *,
    delta: float = 0.05,
    support: int | None = None,
    reward_range: Sequence[float] = (0.0, 1.0),
    random_rewards: bool = False,
) -> CautiousPlan:
    """The policy with the largest value that counts guarantee, with bounds, and where they are too thin to judge.

    Causes that are not in the states (confounding) are not detected: if the rule that acted used more than the logged
    state, the counts of its actions may mislead, and the bounds may be wrong.

    Args:
        counts: of logs (:func:`counts_from_logs`) or of a run; several are merged by
            :meth:`CountTable.merge`.
        horizon: H, which is needed where visits were counted over all steps together.
        delta: the probability with which each of the two bounds may fail.
        support: number of next states that a pair (h,s,a) may have, if that is known; the fewer, the tighter.
        reward_range: the range of rewards with which the logs were counted; bounds are in these units.
        random_rewards: True if rewards depend on chance, on the next state or on the agent, so that the bounds must
            cover their spread.

    Raises:
        InputError: if ``random_rewards`` is False and a sum of rewards is not that of equal rewards.

    >>> visit = {"episode": range(300), "step": 0, "state": 0, "action": [0, 1, 1] * 100, "reward": [0, 1, 1] * 100}
    >>> counts = counts_from_logs({**visit, "next_state": 1}, (2, 2, 1))
    >>> plan = plan_from_counts(counts, horizon=1)
    >>> plan.policy[0, 0], plan.thin[0].tolist()
    (np.int32(1), [False, True])
    """
    steps, S, A = counts.visits.shape
    if horizon is None and steps == 1:
        raise InputError("these counts are over all steps together, which does not say how many: pass horizon=H.")
    H = steps if horizon is None else check_positive_integer("horizon", horizon)
    if steps not in (1, H):
        raise InputError(f"these counts are by step and have H = {steps}, got horizon = {H}.")
    check_number("delta", delta, above=0, below=1)
    K = S
    if support is not None:
        K = check_integer("support", support, at_least=int(counts.seen.max()), at_most=S)
    if not random_rewards:
        _check_equal_rewards(counts)
    # The guaranteed value, and the policy that has it.
    policy = np.zeros((H, S), dtype=np.int32)
    lower = pessimistic_values(counts, policy, random_rewards, delta, K, True)
    # The optimistic value.
    optimistic = Estimates.start(H, S, A, plain=False)
    table = counts.copy()
    table.fresh[:] = True
    rule = Rule.new(S, H, delta, int(counts.bits[0]), random_rewards=random_rewards)
    induct(table, rule, optimistic)
    # States where another action may be better than the policy's.
    thin = np.zeros((H, S), dtype=np.bool_)
    if A > 1:
        others = optimistic.Q.copy()
        np.put_along_axis(others, policy[..., None].astype(np.int64), -np.inf, axis=2)
        thin = np.asarray(others.max(axis=2) > lower[:-1])
    seen = np.broadcast_to(counts.visits.any(axis=2), (H, S))
    units = _units_of_range(reward_range)
    return CautiousPlan(
        policy=policy,
        lower=convert_values(lower, units),
        upper=convert_values(optimistic.V, units),
        thin=thin | ~seen,
        seen=seen,
        delta=delta,
        support=K,
    )
