"""What a node reports is checked before it is used; a violation names the agent, or the node's agents, and the field.

A report must have the shapes and types of its algorithm, be finite, and be possible. Visits add up to the episodes
played, never fall, and grow only where the policy went. Means lie between the least and the largest value that the
server sent. Sums over n visits lie between n times these. A liar that keeps to all this cannot be told from an honest
agent (that is what Byzan-UCBVI is for).
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fed_ucbvi.algorithms.base import Algorithm, Array, Counting, Message, Setting, as_sets
from fed_ucbvi.algorithms.exact_sums import Grid
from fed_ucbvi.algorithms.report_fields import Meaning
from fed_ucbvi.core.types import PolicyArray
from fed_ucbvi.network.members import Member
from fed_ucbvi.network.messages import Played
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


def check_played(
    played: Played,
    member: Member,
    policy: PolicyArray,
    algorithm: Algorithm[Any, Any],
    chunk: int,
    *,
    early: bool,
    secret: bool = False,
) -> None:
    """Raise unless an answer to a start or a continue makes sense.

    ``early`` says whether the node may have stopped before ``chunk`` without a request for synchronisation,
    ``secret`` whether it must not say which agent made the request.
    """
    if bool(played.requests) if secret else played.somebody:
        raise ViolationError(f"{_who(member)}: a request of another kind than this run's")
    if played.played > chunk:
        raise ViolationError(f"{_who(member)}: played {played.played} episodes, {chunk} at most were allowed")
    if played.played < chunk and not played.asked and not early:
        raise ViolationError(f"{_who(member)}: played {played.played} of {chunk} episodes, and nobody asked")
    if played.asked and played.played < 1:
        raise ViolationError(f"{_who(member)}: asked before the first episode")
    H, S = policy.shape[:2]
    no_step, rules = algorithm.counting is Counting.STATIONARY, len(algorithm.rules)
    sets = as_sets(policy, int(policy.max()) + 1)
    before = -1
    for request in played.requests:
        who = f"agent {request.agent}: request"
        if request.agent not in member.span or request.agent <= before:
            raise ViolationError(f"{who}: not one of this node's agents, or out of order")
        before = request.agent
        step_exists = request.step == H if no_step else request.step < H
        if not step_exists or request.state >= S or request.rule >= rules:
            raise ViolationError(f"{who}: no such step, state or rule")
        there = np.atleast_1d(sets[:, request.state].any(axis=0) if no_step else sets[request.step, request.state])
        if request.action >= len(there) or not there[request.action]:
            raise ViolationError(f"{who}: action {request.action} is not the policy's")


def check_forms(report: Message, member: Member, expected: Expected) -> None:
    """Raise unless a report has the arrays that belong there."""
    if len(report) != len(expected.forms):
        raise ViolationError(f"{_who(member)}: {len(report)} arrays, expected {len(expected.forms)}")
    for form, array in zip(expected.forms, report, strict=True):
        shape = (member.agents if expected.grid is None else 1, *form.shape)
        if array.shape != shape or array.dtype != form.dtype:
            raise ViolationError(
                f"{_who(member)}: {form.name} is {array.dtype} {array.shape}, expected {form.dtype} {shape}"
            )


def check_report(
    report: Message, member: Member, length: int, expected: Expected, agent_episodes: int | None = None
) -> None:
    """Raise unless a report after a round of ``length`` episodes can be true.

    If a report is about agents that have played different numbers of episodes, ``agent_episodes`` is their sum.
    """
    check_forms(report, member, expected)
    first = agent_episodes is None and member.episodes == 0
    if agent_episodes is None:
        agent_episodes = member.agents * (member.episodes + length)
    before = member.reports.get(expected.exchange)
    for place, (form, array) in enumerate(zip(expected.forms, report, strict=True)):
        if array.dtype.kind == "f":
            _refuse(~np.isfinite(array), member, form.name, "not finite", array)
        earlier = np.zeros_like(array) if first and before is None else None if before is None else before[place]
        _check_meaning(form, array, earlier, member, length, agent_episodes, expected)
    if expected.grid is not None:
        _check_sums(report, member, expected, expected.grid)
    _check_sums_of_round(report, member, expected)
    _check_spread(report, member, expected)


def _check_sums_of_round(report: Message, member: Member, expected: Expected) -> None:
    """Raise unless what a round paid, and where it led, fits its n visits, which come first in the report.

    Rewards lie in [0,1], so ``0 <= sum of r <= n``, and ``0 <= sum of r^2 <= sum of r``.
    """
    most = report[0]
    for form, array in zip(expected.forms, report, strict=True):
        match form.meaning:
            case Meaning.REWARDS_OF_ROUND | Meaning.SQUARED_REWARDS_OF_ROUND:
                slack = ROUNDING * (1.0 + most)
                _refuse(array < 0, member, form.name, "negative", array)
                _refuse(array > most + slack, member, form.name, "more than the visits can have paid", array)
                most = array
            case Meaning.TRANSITIONS_OF_ROUND:
                visits = report[0]
                _refuse(array < 0, member, form.name, "negative", array)
                _refuse(array > visits[..., None], member, form.name, "more than the visits of the round", array)
                sums = array.sum(axis=-1)
                _refuse(sums != visits, member, form.name, "does not add up to the visits of the round", sums)
            case _:
                pass


def _check_sums(report: Message, member: Member, expected: Expected, grid: Grid) -> None:
    """Raise unless the sums of a node's agents lie between visits times the least and the largest value (or reward).

    With uniform weights the factor is the number of agents instead of visits.
    """
    scale = 2.0**grid.bits
    low, high = _values(expected)
    counts = report[0]
    n = counts.sum(axis=-1) if expected.forms[0].meaning is Meaning.TRANSITIONS_SO_FAR else counts
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
        times = n if form.meaning in SUMS_OVER_VISITS else np.full_like(n, member.agents)
        times = counts if array.ndim > n.ndim + 1 else times  # sums by next state
        _refuse(array < 0, member, form.name, "negative", array)
        if array.shape[-1] > 1:
            _refuse(
                array[..., 0] >= member.agents * 2**grid.base,
                member,
                form.name,
                "a low word too large",
                array[..., 0],
            )
        value = _number(array, grid)
        slack = ROUNDING * (1.0 + times * most)
        outside = (value < times * least - slack) | (value > times * most + slack)
        _refuse(outside, member, form.name, f"outside n times [{least / scale:g}, {most / scale:g}]", value)


def _number(words: Array, grid: Grid) -> npt.NDArray[np.float64]:
    """The numbers that the words of a report stand for, rounded to floats."""
    value = words[..., 0].astype(np.float64)
    return value if words.shape[-1] == 1 else value + words[..., 1] * 2.0**grid.base


def _check_spread(report: Message, member: Member, expected: Expected) -> None:
    """Raise if a second moment is smaller than the first one squared: ``N Y >= X^2``, and ``P V^2 >= (P V)^2``."""
    for place in range(1, len(report)):
        x, y = report[place - 1 : place + 1]
        weight, rounded = np.ones(x.shape[:3]), 0.0
        match expected.forms[place - 1].meaning, expected.forms[place].meaning:
            case (Meaning.SUM, Meaning.SUM_OF_SQUARES) | (Meaning.REWARDS_OF_ROUND, Meaning.SQUARED_REWARDS_OF_ROUND):
                weight = report[0].astype(np.float64)
            case Meaning.GRID_MEAN, Meaning.GRID_SQUARE:
                weight, rounded = weight * member.agents, 2.0 * member.agents  # means were rounded up
            case ((Meaning.MEAN | Meaning.GAP), Meaning.SQUARE):
                pass
            case _:
                continue
        if expected.grid is not None:
            x, y = _number(x, expected.grid), _number(y, expected.grid)
        slack = ROUNDING * (1.0 + weight * y) + rounded * (np.abs(x) + 1.0)
        _refuse(
            weight * y < x * x - slack, member, expected.forms[place].name, "less than the mean squared allows", y
        )


def _values(expected: Expected) -> tuple[float, float]:
    """The least and the largest value that was asked about, with the reward where sums are those of r + V."""
    if not expected.query:
        return 0.0, 0.0
    sent, paid = expected.query[0], 1.0 if expected.setting.random_rewards else 0.0
    return float(sent.min()), float(sent.max()) + paid


def _check_meaning(
    form: ReportField,
    array: Array,
    before: Array | None,
    member: Member,
    length: int,
    agent_episodes: int,
    expected: Expected,
) -> None:
    H, S = expected.policy.shape[:2]
    name = form.name
    match form.meaning:
        case Meaning.VISITS_SO_FAR | Meaning.TRANSITIONS_SO_FAR:
            by_step = form.meaning is Meaning.TRANSITIONS_SO_FAR
            played = agent_episodes // len(array) * expected.visits_an_episode
            what = "episodes" if expected.visits_an_episode == 1 else "steps"
            _refuse(array < 0, member, name, "negative", array)
            _refuse(array > played, member, name, f"does not add up to the {played} {what} played", array)
            visits = array.sum(axis=-1) if by_step else array
            _check_total(visits, (-2, -1), played, f"{played} {what} played", member, name)
            if before is not None:
                _refuse(array < before, member, name, "smaller than before", array)
                sets = as_sets(expected.policy, expected.setting.actions)
                if expected.visits_an_episode > 1:
                    sets = np.asarray(sets.any(axis=0, keepdims=by_step))
                elif not by_step:
                    sets = sets[H - 1 - expected.exchange]
                changed = np.asarray(array != before)
                changed = np.asarray(changed.any(axis=-1)) if by_step else changed
                _refuse(changed & ~sets, member, name, "changed where the policy did not go", visits)
        case Meaning.VISITS_OF_ROUND:
            _check_total(array, -1, length, f"{length} episodes of the round", member, name)
        case Meaning.STATE:
            _within(array, 0, S - 1, member, name)
        case Meaning.FLAG:
            if array.size:
                asked = np.array([[agent in expected.askers] for agent in member.span])
                _refuse(array != asked, member, name, "not what the agent's request said", array)
        case None | Meaning.SUM | Meaning.SUM_OF_SQUARES | Meaning.SUM_OF_REWARDS | Meaning.SUM_OF_SQUARED_REWARDS:
            pass
        case Meaning.GRID_MEAN | Meaning.GRID_SQUARE | Meaning.GRID_REWARD:
            pass
        case Meaning.REWARDS_OF_ROUND | Meaning.SQUARED_REWARDS_OF_ROUND | Meaning.TRANSITIONS_OF_ROUND:
            pass
        case _:
            _within(array, *_range(form.meaning, expected), member, name)


def _check_total(array: Array, axes: int | tuple[int, ...], total: int, what: str, member: Member, name: str) -> None:
    """Raise unless counts are not negative and add up; none may be above the sum, for sums of 64 bits wrap around."""
    _refuse(array < 0, member, name, "negative", array)
    _refuse(array > total, member, name, f"does not add up to the {what}", array)
    sums = array.sum(axis=axes)
    _refuse(sums != total, member, name, f"does not add up to the {what}", sums)


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


def _within(array: Array, low: float, high: float, member: Member, name: str) -> None:
    slack = ROUNDING * (1.0 + max(abs(low), abs(high)))
    outside = (array < low - slack) | (array > high + slack)
    _refuse(outside, member, name, f"outside [{low:g}, {high:g}]", array)


def _refuse(wrong: npt.NDArray[np.bool_], member: Member, name: str, why: str, array: Array) -> None:
    if wrong.any():
        place = tuple(int(i) for i in np.argwhere(wrong)[0])
        who = f"agent {member.first_agent + place[0]}" if len(array) == member.agents else _who(member)
        raise ViolationError(
            f"{who}: {name} at {place[1:]} is {array[place]}: {why}"
            if len(place) > 1
            else f"{who}: {name} ({array[place]}) {why}"
        )


def _who(member: Member) -> str:
    if member.name == SUM:
        return "all agents together"
    span = member.span
    return f"agent {span[0]}" if len(span) == 1 else f"agents {span[0]} to {span[-1]}"
