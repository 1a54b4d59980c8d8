"""What rows of reports are checked for; :mod:`fed_ucbvi.network.checks` says what must be true.

A row is about one agent or, where the server takes sums, about all agents of a node, or of all nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fed_ucbvi.algorithms.base import Array, Message, Setting, as_sets
from fed_ucbvi.algorithms.exact_sums import Grid
from fed_ucbvi.algorithms.report_fields import Meaning
from fed_ucbvi.core.types import CountArray, PolicyArray
from fed_ucbvi.network.members import Member
from fed_ucbvi.network.report_schema import ReportField
from fed_ucbvi.network.violation import ViolationError

ROUNDING = 1e-9
"""Relative tolerance, because sums of floats are not exact."""
SUMS_OVER_VISITS = (
    Meaning.SUM,
    Meaning.SUM_OF_SQUARES,
    Meaning.SUM_OF_REWARDS,
    Meaning.SUM_OF_SQUARED_REWARDS,
)
SUM = ""
"""The name under which the sum over all nodes is checked. No node has it."""
EVERYBODY = "all agents together"


@dataclass(frozen=True)
class Expected:
    """What the server knows about the report it waits for.

    Attributes:
        forms: the arrays' names, shapes and types.
        setting: the sizes.
        policy: of the round.
        query: what was sent down.
        exchange: its number.
        askers: agents that requested the synchronisation.
        grid: of the algorithm's sums, if it takes sums.
        visits_an_episode: visits that one report counts for an agent and an episode: one, or H where steps are
            counted together.
    """

    forms: tuple[ReportField, ...]
    setting: Setting
    policy: PolicyArray
    query: Message
    exchange: int
    askers: Container[int]
    grid: Grid | None
    visits_an_episode: int = 1


class Rows(NamedTuple):
    """What the rows of reports are about.

    Attributes:
        owners: the node of each row.
        first: the number of its first agent.
        agents: how many agents it is about.
        episodes: how many these have played, added up, this round included.
        lengths: episodes of the round.
        unreported: episodes that were not in a report yet, added up likewise.
    """

    owners: Sequence[Member]
    first: CountArray
    agents: CountArray
    episodes: CountArray
    lengths: CountArray
    unreported: CountArray

    @classmethod
    def of(cls, members: Sequence[Member], lengths: Sequence[int], *, summed: bool) -> Rows:
        """One row for each agent, or for each node."""
        agents = [member.agents for member in members]
        table = np.array(
            [
                (
                    member.first_agent,
                    member.agents,
                    member.agents * total,
                    length,
                    member.agents * (total - member.reported),
                )
                for member, length in zip(members, lengths, strict=True)
                for total in [member.episodes + length]
            ],
            dtype=np.int64,
        )
        if summed:
            return cls(members, *table.T)
        owners = [member for member in members for _ in member.span]
        each = np.repeat(agents, agents)
        _, _, episodes, length, unreported = np.repeat(table, agents, axis=0).T
        numbers = np.array([agent for member in members for agent in member.span], dtype=np.int64)
        return cls(owners, numbers, np.ones_like(numbers), episodes // each, length, unreported // each)

    def who(self, row: int) -> str:
        """The agents of a row, in words."""
        if self.owners[row].name == SUM:
            return EVERYBODY
        return in_words(range(self.first[row], self.first[row] + self.agents[row]))


def check_rows(report: Message, before: Sequence[Message], rows: Rows, expected: Expected) -> None:
    """Raise unless every row can be true; ``before`` has what was reported before, by node."""
    for place, (form, array) in enumerate(zip(expected.forms, report, strict=True)):
        if array.dtype.kind == "f":
            _refuse(~np.isfinite(array), rows, form.name, "not finite", array)
        _check_meaning(form, array, [one[place] for one in before], rows, expected)
    if expected.grid is not None:
        _check_sums(report, rows, expected, expected.grid)
    _check_sums_of_round(report, rows, expected)
    _check_spread(report, rows, expected)


def _check_sums_of_round(report: Message, rows: Rows, expected: Expected) -> None:
    """Raise unless what a round paid, and where it led, fits its n visits, which come first in the report.

    Rewards lie in [0,1], so ``0 <= sum of r <= n``, and ``0 <= sum of r^2 <= sum of r``.
    """
    most = report[0]
    for form, array in zip(expected.forms, report, strict=True):
        match form.meaning:
            case Meaning.REWARDS_OF_ROUND | Meaning.SQUARED_REWARDS_OF_ROUND:
                slack = ROUNDING * (1.0 + most)
                _refuse(array < 0, rows, form.name, "negative", array)
                _refuse(array > most + slack, rows, form.name, "more than the visits can have paid", array)
                most = array
            case Meaning.TRANSITIONS_OF_ROUND:
                visits = report[0]
                _refuse(array < 0, rows, form.name, "negative", array)
                _refuse(array > visits[..., None], rows, form.name, "more than the visits of the round", array)
                sums = array.sum(axis=-1)
                _refuse(sums != visits, rows, form.name, "does not add up to the visits of the round", sums)
            case _:
                pass


def _check_sums(report: Message, rows: Rows, expected: Expected, grid: Grid) -> None:
    """Raise unless the sums of a node's agents lie between visits times the least and the largest value (or reward).

    With uniform weights the factor is the number of agents instead of visits.
    """
    scale = 2.0**grid.bits
    low, high = _values(expected)
    counts = report[0]
    by_next_state = expected.forms[0].meaning in (Meaning.TRANSITIONS_SO_FAR, Meaning.NEW_TRANSITIONS)
    n = counts.sum(axis=-1) if by_next_state else counts
    for form, array in zip(expected.forms, report, strict=True):
        match form.meaning:
            case Meaning.SUM | Meaning.GRID_MEAN:
                least, most = scale * low, scale * high
            case Meaning.SUM_OF_SQUARES | Meaning.GRID_SQUARE:
                least, most = (scale * low) ** 2, (scale * high) ** 2
            case Meaning.SUM_OF_REWARDS | Meaning.GRID_REWARD:
                least, most = 0.0, scale
            case Meaning.SUM_OF_SQUARED_REWARDS:
                least, most = 0.0, scale * scale
            case _:
                continue
        if not array.size:
            continue
        times = n if form.meaning in SUMS_OVER_VISITS else np.broadcast_to(_column(rows.agents, n), n.shape)
        times = counts if array.ndim > n.ndim + 1 else times  # sums by next state
        _refuse(array < 0, rows, form.name, "negative", array)
        if array.shape[-1] > 1:
            words = array[..., 0]
            largest = _column(rows.agents, words) * 2**grid.base
            _refuse(words >= largest, rows, form.name, "a low word too large", words)
        value = _number(array, grid)
        slack = ROUNDING * (1.0 + times * most)
        outside = (value < times * least - slack) | (value > times * most + slack)
        _refuse(outside, rows, form.name, f"outside n times [{least / scale:g}, {most / scale:g}]", value)


def _number(words: Array, grid: Grid) -> npt.NDArray[np.float64]:
    """The numbers that the words of a report stand for, rounded to floats."""
    value = words[..., 0].astype(np.float64)
    return value if words.shape[-1] == 1 else value + words[..., 1] * 2.0**grid.base


def _check_spread(report: Message, rows: Rows, expected: Expected) -> None:
    """Raise if a second moment is smaller than the first one squared: ``N Y >= X^2``, and ``P V^2 >= (P V)^2``."""
    for place in range(1, len(report)):
        x, y = report[place - 1 : place + 1]
        weight: Array | float = 1.0
        rounded: Array | float = 0.0
        match expected.forms[place - 1].meaning, expected.forms[place].meaning:
            case (Meaning.SUM, Meaning.SUM_OF_SQUARES) | (Meaning.REWARDS_OF_ROUND, Meaning.SQUARED_REWARDS_OF_ROUND):
                weight = report[0].astype(np.float64)
            case Meaning.GRID_MEAN, Meaning.GRID_SQUARE:
                weight = _column(rows.agents, report[0]).astype(np.float64)
                rounded = 2.0 * weight  # means were rounded up
            case ((Meaning.MEAN | Meaning.GAP), Meaning.SQUARE):
                pass
            case _:
                continue
        if expected.grid is not None:
            x, y = _number(x, expected.grid), _number(y, expected.grid)
        slack = ROUNDING * (1.0 + weight * y) + rounded * (np.abs(x) + 1.0)
        _refuse(weight * y < x * x - slack, rows, expected.forms[place].name, "less than the mean squared allows", y)


def _values(expected: Expected) -> tuple[float, float]:
    """The least and the largest value that was asked about, with the reward where sums are those of r + V."""
    if not expected.query:
        return 0.0, 0.0
    sent, paid = expected.query[0], 1.0 if expected.setting.random_rewards else 0.0
    return float(sent.min()), float(sent.max()) + paid


def _check_meaning(form: ReportField, array: Array, before: Sequence[Array], rows: Rows, expected: Expected) -> None:
    S, name = expected.policy.shape[1], form.name
    match form.meaning:
        case Meaning.VISITS_SO_FAR | Meaning.TRANSITIONS_SO_FAR:
            by_step = form.meaning is Meaning.TRANSITIONS_SO_FAR
            played = rows.episodes * expected.visits_an_episode
            what = f"{_unit(expected)} played"
            _check_bounds(array, played, what, rows, name)
            _check_total(array.sum(axis=-1) if by_step else array, (-2, -1), played, what, rows, name)
            _check_growth(array, before, rows, expected, name, by_step=by_step)
        case Meaning.NEW_TRANSITIONS:
            _check_new(array, rows, expected, name)
        case Meaning.VISITS_OF_ROUND:
            _check_total(array, (-1,), rows.lengths, "episodes of the round", rows, name)
        case Meaning.STATE:
            _within(array, 0, S - 1, rows, name)
        case Meaning.FLAG:
            if array.size:
                asked = np.array([[agent in expected.askers] for agent in rows.first.tolist()])
                _refuse(array != asked, rows, name, "not what the agent's request said", array)
        case None | Meaning.SUM | Meaning.SUM_OF_SQUARES | Meaning.SUM_OF_REWARDS | Meaning.SUM_OF_SQUARED_REWARDS:
            pass
        case Meaning.GRID_MEAN | Meaning.GRID_SQUARE | Meaning.GRID_REWARD:
            pass
        case Meaning.REWARDS_OF_ROUND | Meaning.SQUARED_REWARDS_OF_ROUND | Meaning.TRANSITIONS_OF_ROUND:
            pass
        case _:
            _within(array, *_range(form.meaning, expected), rows, name)


def _unit(expected: Expected) -> str:
    """What visits add up to."""
    return "episodes" if expected.visits_an_episode == 1 else "steps"


def _check_new(array: Array, rows: Rows, expected: Expected, name: str) -> None:
    """Raise unless new transitions add up to what was not reported yet, and those of one round follow its policy."""
    played, what = rows.unreported * expected.visits_an_episode, f"{_unit(expected)} that were not reported yet"
    _check_bounds(array, played, what, rows, name)
    visits = array.sum(axis=-1)
    _check_total(visits, (-2, -1), played, what, rows, name)
    sets = as_sets(expected.policy, expected.setting.actions)
    if expected.visits_an_episode > 1:
        sets = np.asarray(sets.any(axis=0, keepdims=True))
    of_round = _column(rows.unreported == rows.agents * rows.lengths, visits)
    _refuse((visits > 0) & ~sets & of_round, rows, name, "where the policy did not go", visits)


def _check_growth(
    array: Array, before: Sequence[Array], rows: Rows, expected: Expected, name: str, *, by_step: bool
) -> None:
    """Raise if visits have fallen since the report before, or have grown where the policy did not go."""
    earlier = np.concatenate(before)
    _refuse(array < earlier, rows, name, "smaller than before", array)
    sets = as_sets(expected.policy, expected.setting.actions)
    if expected.visits_an_episode > 1:
        sets = np.asarray(sets.any(axis=0, keepdims=by_step))
    elif not by_step:
        sets = sets[len(sets) - 1 - expected.exchange]
    changed = np.asarray(array != earlier)
    visits, changed = (array.sum(axis=-1), np.asarray(changed.any(axis=-1))) if by_step else (array, changed)
    _refuse(changed & ~sets, rows, name, "changed where the policy did not go", visits)


def _check_bounds(array: Array, totals: CountArray, what: str, rows: Rows, name: str) -> None:
    """Raise unless counts are neither negative nor above what they must add up to."""
    _refuse(array < 0, rows, name, "negative", array)
    _refuse(array > _column(totals, array), rows, name, _unequal(totals, what), array)


def _check_total(array: Array, axes: tuple[int, ...], totals: CountArray, what: str, rows: Rows, name: str) -> None:
    """Raise unless counts are not negative and add up; none may be above the sum, for sums of 64 bits wrap around."""
    _check_bounds(array, totals, what, rows, name)
    sums = array.sum(axis=axes)
    _refuse(sums != _column(totals, sums), rows, name, _unequal(totals, what), sums)


def _unequal(totals: CountArray, what: str) -> Callable[[int], str]:
    return lambda row: f"does not add up to the {totals[row]} {what}"


def _column(numbers: CountArray, array: Array) -> CountArray:
    """One number for each row, for comparison with an array of rows."""
    return numbers.reshape(-1, *(1,) * (array.ndim - 1))


def _range(meaning: Meaning, expected: Expected) -> tuple[float, float]:
    """The least and the largest value that a mean can have."""
    H = float(expected.setting.horizon)
    sent = expected.query[0] if len(expected.query) == 1 else None
    low, high = (0.0, H) if sent is None else (float(sent.min()), float(sent.max()))
    match meaning:
        case Meaning.MEAN:
            return low, high
        case Meaning.SQUARE:
            return 0.0, max(low * low, high * high)
        case Meaning.GAP:
            return -H, H
        case Meaning.RETURN:
            return min(0.0, low), 1.0 + high
        case _:
            return 0.0, 1.0


def _within(array: Array, low: float, high: float, rows: Rows, name: str) -> None:
    slack = ROUNDING * (1.0 + max(abs(low), abs(high)))
    outside = (array < low - slack) | (array > high + slack)
    _refuse(outside, rows, name, f"outside [{low:g}, {high:g}]", array)


def _refuse(
    wrong: npt.NDArray[np.bool_], rows: Rows, name: str, why: str | Callable[[int], str], array: Array
) -> None:
    """Raise about the first entry that is wrong; ``why`` may depend on its row."""
    if not wrong.any():
        return
    place = tuple(int(i) for i in np.argwhere(wrong)[0])
    row = place[0]
    reason = why if isinstance(why, str) else why(row)
    said = f"{name} at {place[1:]} is {array[place]}: " if len(place) > 1 else f"{name} ({array[place]}) "
    raise ViolationError(f"{rows.who(row)}: {said}{reason}", node=rows.owners[row].name)


def in_words(span: range) -> str:
    """Agents by their numbers."""
    return f"agent {span[0]}" if len(span) == 1 else f"agents {span[0]} to {span[-1]}"
