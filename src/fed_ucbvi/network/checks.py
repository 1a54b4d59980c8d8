"""What reports look like, and whether they can be true; a violation names the agents and the field.

A report must have the shapes and types of its algorithm, be finite, and be possible. Visits add up to the episodes
played, never fall, and grow only where the policy went. Means lie between the least and the largest value that the
server sent. Sums over n visits lie between n times these. A liar that keeps to all this cannot be told from an honest
agent (that is what Byzan-UCBVI is for).

A row of a report is about one agent or, where the server takes sums, about all agents of a node, or of all nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fed_ucbvi.algorithms.base import (
    SUMS,
    Algorithm,
    Array,
    Counting,
    FleetTables,
    Message,
    Setting,
    added_up,
    as_sets,
)
from fed_ucbvi.algorithms.exact_sums import Grid
from fed_ucbvi.algorithms.fields import Meaning, meanings_of
from fed_ucbvi.algorithms.increments import Support
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.types import CountArray, MaskArray, PolicyArray
from fed_ucbvi.network.failures import ViolationError
from fed_ucbvi.network.members import Member, describe_agents
from fed_ucbvi.network.messages import Played
from fed_ucbvi.network.rewards import RewardGrid
from fed_ucbvi.network.run_plan import LIVE, RunPlan

ROUNDING = 1e-9
"""Relative tolerance, because sums of floats are not exact."""
SUMS_OVER_VISITS = (Meaning.SUM, Meaning.SUM_OF_SQUARES, Meaning.SUM_OF_REWARDS, Meaning.SUM_OF_SQUARED_REWARDS)
SUM = ""
"""The name under which the sum over all nodes is checked. No node has it."""


class ReportField(NamedTuple):
    """One array of a report: name, shape without the leading axis of agents, type, and what it means."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    meaning: Meaning | None


class ReportSchema:
    """One agent without experience, on the server's side. It needs no problem, because it never plays.

    It stands in for agents whose node is away. If reports are about everything seen so far (``VISITS_SO_FAR``), the
    node's last report is used instead. A report about a single round is never used twice.
    """

    def __init__(self, plan: RunPlan, server: Any) -> None:
        setting, self._plan = plan.setting, plan
        self.agents: Any = plan.algorithm.new_agents(setting, FleetTables.placeholder(setting))
        self.forms: list[tuple[ReportField, ...]] = []
        for exchange in range(plan.exchanges):
            report = self._blank(plan.algorithm.query(server, exchange), exchange)
            names = getattr(report, "_fields", tuple(f"array {i}" for i in range(len(report))))
            meanings = meanings_of(type(report))
            self.forms.append(
                tuple(
                    ReportField(name, array.shape[1:], array.dtype, meanings.get(name))
                    for name, array in zip(names, report, strict=True)
                )
            )
        used = {form.meaning for forms in self.forms for form in forms}
        self._lasting = Meaning.VISITS_SO_FAR in used
        self.does_without = bool(used & {Meaning.VISITS_SO_FAR, Meaning.VISITS_OF_ROUND, Meaning.NEW_TRANSITIONS})
        """Whether the others can go on without some agents."""
        if plan.collection == LIVE and setting.agents > 1 and plan.algorithm.sends_trajectories:
            raise InputError(
                f"{plan.algorithm.name} needs one episode of every agent in every round; in a live collection nodes "
                "stop where they are. Use lockstep, or an algorithm that reports counts."
            )
        if (plan.on_away != "wait" or plan.on_violation != "stop") and not self.does_without:
            raise InputError(
                f"{plan.algorithm.name} needs all its agents; wait for nodes that are away, and stop at violations."
            )

    def largest(self, agents: int) -> int:
        """Bytes of the largest report of so many agents, with what the round paid and where it began."""
        report = max(sum(int(np.prod(form.shape)) * form.dtype.itemsize for form in forms) for forms in self.forms)
        return agents * report + 8 * RewardGrid.of(self._plan.setting).numbers

    def instead(self, member: Member, query: Message, exchange: int, *, planning: bool) -> Message:
        """What replaces the report of a node that is not heard.

        Of one that is away: its last report, which is about the server's values, not about a planner's. Otherwise
        what agents report that have seen nothing.
        """
        last = member.reports.get(exchange)
        if last is not None and self._lasting and not member.out and not planning:
            return last
        rows = tuple(np.repeat(array, member.agents, axis=0) for array in self._blank(query, exchange))
        return added_up(rows) if self._plan.algorithm.report_kind == SUMS else rows

    def _blank(self, query: Message, exchange: int) -> Message:
        """What one agent reports that has seen nothing."""
        algorithm = self._plan.algorithm
        if algorithm.server_counts:
            return self._plan.listed(algorithm.new_counts(self.agents, ()))
        return algorithm.report(self.agents, query, exchange)

    @staticmethod
    def assemble(rows: list[Message]) -> Message:
        return tuple(np.concatenate(arrays) for arrays in zip(*rows, strict=True))


@dataclass(frozen=True)
class Expected:
    """What the server knows about the report it waits for.

    Attributes:
        forms: the arrays' names, shapes and types.
        setting: the sizes.
        policy: of the round.
        query: what was sent down.
        exchange: its number.
        requesters: agents that requested the synchronisation.
        grid: of the algorithm's sums, if it takes sums.
        visits_an_episode: visits that one report counts for an agent and an episode: one, or H where steps are
            counted together.
        support: the transitions that reports of what is new list.
    """

    forms: tuple[ReportField, ...]
    setting: Setting
    policy: PolicyArray
    query: Message
    exchange: int
    requesters: Container[int]
    grid: Grid | None
    visits_an_episode: int = 1
    support: Support | None = None


def _who(member: Member) -> str:
    return "all agents together" if member.name == SUM else describe_agents(member.span)


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
        raise ViolationError(f"{_who(member)}: played {played.played} of {chunk} episodes without a request")
    if played.asked and played.played < 1:
        raise ViolationError(f"{_who(member)}: a request before the first episode")
    if not played.requests:
        return
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
    rows = member.agents if expected.grid is None else 1
    for form, array in zip(expected.forms, report, strict=True):
        if array.shape != (rows, *form.shape) or array.dtype != form.dtype:
            raise ViolationError(
                f"{_who(member)}: {form.name} is {array.dtype} {array.shape}, expected {form.dtype} "
                f"{(rows, *form.shape)}"
            )


def check_report(
    report: Message, member: Member, length: int, expected: Expected, played: tuple[int, int] | None = None
) -> None:
    """Raise unless a node's report after a round of ``length`` episodes can be true.

    If a report is about agents that have played different numbers of episodes, ``played`` are their sum, and how many
    of them were not reported yet.
    """
    check_forms(report, member, expected)
    rows = _Rows.of([member], [length], expected)
    first = member.episodes == 0
    if played is not None:
        rows, first = replace(rows, episodes=np.array(played[:1]), unreported=np.array(played[1:])), False
    rows.check(report, [_before(report, member, expected, first=first)])


def check_reports(
    reports: Mapping[str, Message], members: Mapping[str, Member], lengths: Mapping[str, int], expected: Expected
) -> None:
    """Raise unless the reports of all these nodes can be true; each must have its form. The error names the node.

    All are checked at once, which takes hardly longer than to check one.
    """
    owners = [members[name] for name in reports]
    before = [
        _before(report, member, expected, first=member.episodes == 0)
        for report, member in zip(reports.values(), owners, strict=True)
    ]
    rows = _Rows.of(owners, [lengths[name] for name in reports], expected)
    rows.check(ReportSchema.assemble(list(reports.values())), before)


def _before(report: Message, member: Member, expected: Expected, *, first: bool) -> Message:
    """The report before this one: zeros if this is the ``first``, the report itself if nobody remembers."""
    before = member.reports.get(expected.exchange)
    if before is not None:
        return before
    return tuple(np.zeros_like(array) for array in report) if first else report


def _column(numbers: CountArray, array: Array) -> CountArray:
    """One number for each row, for comparison with an array of rows."""
    return numbers.reshape(-1, *(1,) * (array.ndim - 1))


@dataclass(frozen=True)
class _Rows:
    """Rows of reports, and what they are about.

    Attributes:
        expected: of the reports.
        owners: the node of each row.
        first: the number of its first agent.
        agents: how many agents it is about.
        episodes: how many these have played, added up, this round included.
        lengths: episodes of the round.
        unreported: episodes that were not in a report yet, added up likewise.
        logged: steps of logs that were not, either.
    """

    expected: Expected
    owners: Sequence[Member]
    first: CountArray
    agents: CountArray
    episodes: CountArray
    lengths: CountArray
    unreported: CountArray
    logged: CountArray

    @classmethod
    def of(cls, members: Sequence[Member], lengths: Sequence[int], expected: Expected) -> _Rows:
        """One row for each agent, or for each node."""
        agents = np.array([member.agents for member in members])
        played = np.array([member.episodes + member.before for member in members]) + np.array(lengths)
        new = played - np.array([member.reported for member in members])
        firsts = np.array([member.first_agent for member in members])
        if expected.grid is not None:
            logged = np.array([member.new_logs for member in members])
            return cls(expected, members, firsts, agents, agents * played, np.array(lengths), agents * new, logged)
        owners = [member for member in members for _ in member.span]
        numbers = np.array([agent for member in members for agent in member.span], dtype=np.int64)
        no_logs = np.zeros_like(agents)
        each = (np.repeat(column, agents) for column in (played, np.array(lengths), new, no_logs))
        return cls(expected, owners, numbers, np.ones_like(numbers), *each)

    def check(self, report: Message, before: Sequence[Message]) -> None:
        """Raise unless every row can be true; ``before`` has what was reported before, by node."""
        expected = self.expected
        for place, (form, array) in enumerate(zip(expected.forms, report, strict=True)):
            if array.dtype.kind == "f":
                self._refuse(~np.isfinite(array), form.name, "not finite", array)
            self._check_meaning(form, array, [one[place] for one in before])
        if expected.grid is not None:
            self._check_sums(report, expected.grid)
        self._check_sums_of_round(report)
        self._check_spread(report)

    def _refuse(self, wrong: MaskArray, name: str, why: str | Callable[[int], str], array: Array) -> None:
        """Raise about the first entry that is wrong; ``why`` may depend on its row."""
        if not wrong.any():
            return
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        owner, first = self.owners[at[0]], int(self.first[at[0]])
        who = _who(owner) if owner.name == SUM else describe_agents(range(first, first + int(self.agents[at[0]])))
        reason = why if isinstance(why, str) else why(at[0])
        support = self.expected.support
        where = support.place(at[1]) if support is not None and array.shape[1:2] == (support.numbers,) else at[1:]
        said = f"{name} at {where} is {array[at]}: " if len(at) > 1 else f"{name} ({array[at]}) "
        raise ViolationError(f"{who}: {said}{reason}", node=owner.name)

    def _by_cell(self, transitions: CountArray) -> CountArray:
        """Added up over next states."""
        assert self.expected.support is not None
        return self.expected.support.by_cell(transitions)

    # ------------------------------------------------------------------------------------------- arrays by themselves

    def _check_meaning(self, form: ReportField, array: Array, before: Sequence[Array]) -> None:
        name, visits = form.name, self.expected.visits_an_episode
        unit = "episodes" if visits == 1 else "steps"
        match form.meaning:
            case Meaning.VISITS_SO_FAR:
                self._check_total(array, False, (-2, -1), visits * self.episodes, f"{unit} played", name)
                earlier = np.concatenate(before)
                self._refuse(array < earlier, name, "smaller than before", array)
                astray = (array != earlier) & ~self._went(by_step=False)
                self._refuse(astray, name, "changed where the policy did not go", array)
            case Meaning.NEW_TRANSITIONS:
                what = f"{unit} that were not reported yet"
                self._check_total(array, True, (-2, -1), visits * self.unreported, what, name, self.logged)
                n = self._by_cell(array)
                of_round = _column((self.unreported == self.agents * self.lengths) & (self.logged == 0), n)
                astray = (n > 0) & ~self._went(by_step=True) & of_round.astype(np.bool_)
                self._refuse(astray, name, "where the policy did not go", n)
            case Meaning.VISITS_OF_ROUND:
                self._check_total(array, False, (-1,), self.lengths, "episodes of the round", name)
            case Meaning.FLAG:
                if array.size:
                    asked = np.array([[agent in self.expected.requesters] for agent in self.first.tolist()])
                    self._refuse(array != asked, name, "not what the agent's request said", array)
            case Meaning.STATE | Meaning.MEAN | Meaning.SQUARE | Meaning.GAP | Meaning.RETURN | Meaning.REWARD:
                low, high = self._range(form.meaning)
                slack = ROUNDING * (1.0 + max(abs(low), abs(high)))
                outside = (array < low - slack) | (array > high + slack)
                self._refuse(outside, name, f"outside [{low:g}, {high:g}]", array)
            case _:
                pass  # without a meaning, or one of those that are checked together with others

    def _range(self, meaning: Meaning) -> tuple[float, float]:
        """The least and the largest value that a mean can have, or a state."""
        H, query = float(self.expected.setting.horizon), self.expected.query
        low, high = (float(query[0].min()), float(query[0].max())) if len(query) == 1 else (0.0, H)
        return {
            Meaning.STATE: (0.0, self.expected.policy.shape[1] - 1.0),
            Meaning.MEAN: (low, high),
            Meaning.SQUARE: (0.0, max(low * low, high * high)),
            Meaning.GAP: (-H, H),
            Meaning.RETURN: (min(0.0, low), 1.0 + high),
            Meaning.REWARD: (0.0, 1.0),
        }[meaning]

    def _check_total(
        self,
        array: Array,
        by_next_state: bool,
        axes: tuple[int, ...],
        totals: CountArray,
        what: str,
        name: str,
        logged: CountArray | None = None,
    ) -> None:
        """Raise unless counts are not negative and add up; none may be above, for sums of 64 bits wrap around.

        Episodes of logs may be shorter than H, so of ``logged`` steps only the sum over all steps is known.
        """
        more = np.zeros_like(totals) if logged is None else logged

        def unequal(row: int) -> str:
            of_logs = f" and the {more[row]} steps of logs" if more[row] else ""
            return f"does not add up to the {totals[row]} {what}{of_logs}"

        for counts in (array, self._by_cell(array)) if by_next_state else (array,):
            self._refuse(counts < 0, name, "negative", counts)
            self._refuse(counts > _column(totals + more, counts), name, unequal, counts)
        sums = counts.sum(axis=axes)
        steps = sums[0].size
        all_steps = sums.reshape((len(sums), steps)).sum(axis=1) == steps * totals + more
        wrong = np.where(_column(more, sums) > 0, ~_column(all_steps, sums), sums != _column(totals, sums))
        self._refuse(wrong | (sums < _column(totals, sums)), name, unequal, sums)

    def _went(self, *, by_step: bool) -> MaskArray:
        """The actions of the round's policy, of all steps or of the exchange's."""
        sets = as_sets(self.expected.policy, self.expected.setting.actions) != 0
        if self.expected.visits_an_episode > 1:
            return np.asarray(sets.any(axis=0, keepdims=by_step))
        return sets if by_step else np.asarray(sets[len(sets) - 1 - self.expected.exchange])

    # --------------------------------------------------------------------------------------- arrays beside each other

    def _check_sums_of_round(self, report: Message) -> None:
        """Raise unless what a round paid, and where it led, fits its n visits, which come first in the report.

        Rewards lie in [0,1], so ``0 <= sum of r <= n``, and ``0 <= sum of r^2 <= sum of r``.
        """
        visits = most = report[0]
        for form, array in zip(self.expected.forms, report, strict=True):
            match form.meaning:
                case Meaning.REWARDS_OF_ROUND | Meaning.SQUARED_REWARDS_OF_ROUND:
                    self._refuse(array < 0, form.name, "negative", array)
                    much = array > most + ROUNDING * (1.0 + most)
                    self._refuse(much, form.name, "more than the visits can have paid", array)
                    most = array
                case Meaning.TRANSITIONS_OF_ROUND:
                    self._refuse(array < 0, form.name, "negative", array)
                    self._refuse(array > visits[..., None], form.name, "more than the visits of the round", array)
                    sums = array.sum(axis=-1)
                    self._refuse(sums != visits, form.name, "does not add up to the visits of the round", sums)

    def _check_sums(self, report: Message, grid: Grid) -> None:
        """Raise unless sums over a node's agents lie between visits times the least and largest value (or reward).

        With uniform weights the factor is the number of agents instead of visits.
        """
        forms, scale = self.expected.forms, 2.0**grid.bits
        low, high = self._values()
        ranges = {
            **dict.fromkeys((Meaning.SUM, Meaning.GRID_MEAN), (scale * low, scale * high)),
            **dict.fromkeys((Meaning.SUM_OF_SQUARES, Meaning.GRID_SQUARE), ((scale * low) ** 2, (scale * high) ** 2)),
            **dict.fromkeys((Meaning.SUM_OF_REWARDS, Meaning.GRID_REWARD), (0.0, scale)),
            Meaning.SUM_OF_SQUARED_REWARDS: (0.0, scale * scale),
        }
        counts, by_next_state = report[0], forms[0].meaning is Meaning.NEW_TRANSITIONS
        n = self._by_cell(counts) if by_next_state else counts
        for form, array in zip(forms, report, strict=True):
            if form.meaning not in ranges or not array.size:
                continue
            least, most = ranges[form.meaning]
            times = n if form.meaning in SUMS_OVER_VISITS else np.broadcast_to(_column(self.agents, n), n.shape)
            times = counts if by_next_state and array.shape[:-1] == counts.shape else times
            self._refuse(array < 0, form.name, "negative", array)
            if array.shape[-1] > 1:
                words = array[..., 0]
                largest = _column(self.agents, words) * 2**grid.base
                self._refuse(words >= largest, form.name, "a low word too large", words)
            value = _number(array, grid)
            slack = ROUNDING * (1.0 + times * most)
            outside = (value < times * least - slack) | (value > times * most + slack)
            self._refuse(outside, form.name, f"outside n times [{least / scale:g}, {most / scale:g}]", value)

    def _values(self) -> tuple[float, float]:
        """The least and the largest value that was asked about, with the reward where sums are those of r + V."""
        query, paid = self.expected.query, 1.0 if self.expected.setting.random_rewards else 0.0
        return (float(query[0].min()), float(query[0].max()) + paid) if query else (0.0, 0.0)

    def _check_spread(self, report: Message) -> None:
        """Raise if a second moment is below the first one squared: ``N Y >= X^2``, and ``P V^2 >= (P V)^2``."""
        forms, grid = self.expected.forms, self.expected.grid
        for place in range(1, len(report)):
            x, y = report[place - 1 : place + 1]
            weight: Array | float = 1.0
            rounded: Array | float = 0.0
            match forms[place - 1].meaning, forms[place].meaning:
                case (Meaning.SUM, Meaning.SUM_OF_SQUARES) | (
                    Meaning.REWARDS_OF_ROUND,
                    Meaning.SQUARED_REWARDS_OF_ROUND,
                ):
                    weight = report[0].astype(np.float64)
                case Meaning.GRID_MEAN, Meaning.GRID_SQUARE:
                    weight = _column(self.agents, report[0]).astype(np.float64)
                    rounded = 2.0 * weight  # means were rounded up
                case ((Meaning.MEAN | Meaning.GAP), Meaning.SQUARE):
                    pass
                case _:
                    continue
            if grid is not None:
                x, y = _number(x, grid), _number(y, grid)
            slack = ROUNDING * (1.0 + weight * y) + rounded * (np.abs(x) + 1.0)
            wrong = weight * y < x * x - slack
            self._refuse(wrong, forms[place].name, "less than the mean squared allows", y)


def _number(words: Array, grid: Grid) -> npt.NDArray[np.float64]:
    """The numbers that the words of a report stand for, rounded to floats."""
    value = words[..., 0].astype(np.float64)
    return value if words.shape[-1] == 1 else value + words[..., 1] * 2.0**grid.base
