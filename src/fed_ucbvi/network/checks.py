"""Checks of reports: their form, and bounds that honest agents keep; a violation names the agents and the field.

A report must have the shapes and types of its algorithm, be finite, and be possible. Visits add up to the episodes
played, never fall, and grow only where the policy went. Means lie between the least and the largest value that the
server sent. Sums over n visits lie between n times these. A liar that keeps to all this cannot be told from an honest
agent (that is what Byzan-UCBVI is for).

A row of a report is about one agent or, where the server takes sums, about all agents of a node, or of all nodes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fed_ucbvi.algorithms.base import Array, Counting, FleetTables, Message
from fed_ucbvi.algorithms.count_reporting import CountReporting
from fed_ucbvi.algorithms.exact_sums import Grid
from fed_ucbvi.algorithms.fields import Meaning, meanings_of
from fed_ucbvi.core.types import CountArray, MaskArray, PolicyArray
from fed_ucbvi.network.failures import ViolationError
from fed_ucbvi.network.members import Member, describe_agents
from fed_ucbvi.network.messages import Played
from fed_ucbvi.network.rewards import RewardGrid
from fed_ucbvi.network.run_plan import RunPlan
from fed_ucbvi.problem.policies import possible_actions

ROUNDING = 1e-9
"""Relative tolerance, because sums of floats are not exact."""


class ReportField(NamedTuple):
    """One array of a report; its shape is without the leading axis of agents."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    meaning: Meaning | None


class ReportSchema:
    """One agent without experience, on the server's side. It needs no problem, because it never plays.

    Attributes:
        forms: by exchange, the arrays of a report.
        grid: of the algorithm's sums, if it takes sums.
        rewards: the grid of what episodes pay.
        visits_an_episode: visits that one report counts for an agent and an episode: one, or H where steps are
            counted together.
    """

    def __init__(self, plan: RunPlan, server: Any) -> None:
        setting = plan.setting
        algorithm = plan.algorithm
        self.plan = plan
        self.grid = algorithm.grid(setting)
        self.rewards = RewardGrid.of(setting)
        self.visits_an_episode = setting.horizon if algorithm.counting is Counting.STATIONARY else 1
        agents = algorithm.new_agents(setting, FleetTables.placeholder(setting))
        self.forms: list[tuple[ReportField, ...]] = []
        for exchange in range(plan.exchanges):
            if isinstance(algorithm, CountReporting):
                report = plan.listed(algorithm.new_counts(agents, ()))
            else:
                report = algorithm.report(agents, algorithm.query(server, exchange), exchange)
            names = getattr(report, "_fields", [f"array {i}" for i in range(len(report))])
            meanings = meanings_of(type(report))
            arrays = zip(names, report, strict=True)
            forms = [ReportField(name, one.shape[1:], one.dtype, meanings.get(name)) for name, one in arrays]
            self.forms.append(tuple(forms))

    def masked_bytes(self) -> int:
        """Bytes of the numbers of a masked report, with what the round paid and where it began."""
        report = max(sum(int(np.prod(form.shape)) * form.dtype.itemsize for form in forms) for forms in self.forms)
        return report + 8 * self.rewards.numbers


def _violation(member: Member, what: str) -> ViolationError:
    return ViolationError(f"{describe_agents(member.span)}: {what}")


def check_played(played: Played, member: Member, policy: PolicyArray, plan: RunPlan, most: int) -> None:
    """Raise unless an answer to a start or a continue makes sense; at most ``most`` episodes were allowed.

    Under secure sums a node must not say which agent made the request.
    """
    if bool(played.requests) if plan.rules.secure_sums else played.somebody:
        raise _violation(member, "a request of another kind than this run's")
    if played.played > most:
        raise _violation(member, f"played {played.played} episodes, {most} at most were allowed")
    if played.asked and played.played < 1:
        raise _violation(member, "a request before the first episode")
    if not played.requests:
        return
    H, S = policy.shape[:2]
    no_step = plan.algorithm.counting is Counting.STATIONARY
    rules = len(plan.algorithm.rules)
    possible = possible_actions(policy, plan.setting.actions)
    before = -1
    for request in played.requests:
        who = f"agent {request.agent}: request"
        if request.agent not in member.span or request.agent <= before:
            raise ViolationError(f"{who}: not one of this node's agents, or out of order")
        before = request.agent
        step_exists = request.step == H if no_step else request.step < H
        if not step_exists or request.state >= S or request.rule >= rules:
            raise ViolationError(f"{who}: no such step, state or rule")
        steps = slice(None) if no_step else slice(request.step, request.step + 1)
        there: MaskArray = np.asarray(possible[steps, request.state].any(axis=0))
        if request.action >= len(there) or not there[request.action]:
            raise ViolationError(f"{who}: action {request.action} is not the policy's")


def check_chunk(played: Played, member: Member, chunk: int) -> None:
    """Raise unless a node in lockstep has played all ``chunk`` episodes, or until a request."""
    if played.played < chunk and not played.asked:
        raise _violation(member, f"played {played.played} of {chunk} episodes without a request")


@dataclass(frozen=True)
class Expected:
    """Facts about the reports that the server waits for: answers to its query in this exchange of the round."""

    schema: ReportSchema
    policy: PolicyArray
    query: Message = ()
    exchange: int = 0
    requesters: Container[int] = ()

    @property
    def forms(self) -> tuple[ReportField, ...]:
        return self.schema.forms[self.exchange]

    def check_forms(self, report: Message, member: Member) -> None:
        if len(report) != len(self.forms):
            raise _violation(member, f"{len(report)} arrays, expected {len(self.forms)}")
        rows = member.agents if self.schema.grid is None else 1
        for form, array in zip(self.forms, report, strict=True):
            if array.shape != (rows, *form.shape) or array.dtype != form.dtype:
                expected = f"expected {form.dtype} {(rows, *form.shape)}"
                raise _violation(member, f"{form.name} is {array.dtype} {array.shape}, {expected}")

    def check_reports(
        self, reports: Mapping[str, Message], members: Mapping[str, Member], lengths: Mapping[str, int]
    ) -> None:
        """Raise unless the reports of all these nodes can be true; each must have its form. The error names the node.

        All are checked at once, which takes hardly longer than to check one.
        """
        owners = [members[name] for name in reports]
        before = []
        for report, member in zip(reports.values(), owners, strict=True):
            nothing = tuple(map(np.zeros_like, report)) if member.episodes == 0 else report  # if nobody remembers
            before.append(member.reports.get(self.exchange, nothing))
        length = np.array([lengths[name] for name in reports])
        agents = np.array([member.agents for member in owners])
        played = np.array([member.episodes + member.before for member in owners]) + length
        new = played - np.array([member.reported_episodes for member in owners])
        about = [(member.name, member.span) for member in owners]
        logged = np.array([member.new_logs for member in owners])
        if self.schema.grid is None:  # a row for each agent
            about = [(name, range(agent, agent + 1)) for name, span in about for agent in span]
            played, length, new = (np.repeat(column, agents) for column in (played, length, new))
            agents = np.ones_like(played)
            logged = np.zeros_like(played)
        rows = _Rows(self, about, agents, agents * played, length, agents * new, logged)
        rows.check(assembled(list(reports.values())), before)

    def check_sum(self, report: Message, agents: int, episodes: int, logged: int) -> None:
        """Raise unless the sum of reports over so many agents, that played so many new episodes, can be true."""
        new = np.array([episodes])
        none = np.zeros(1, dtype=np.int64)
        rows = _Rows(self, [("", range(agents))], np.array([agents]), new, none, new, np.array([logged]))
        rows.check(report, [report])


def assembled(rows: list[Message]) -> Message:
    """The rows of several reports as one."""
    return tuple(np.concatenate(arrays) for arrays in zip(*rows, strict=True))


def _column(numbers: CountArray, array: Array) -> CountArray:
    """One number for each row, for comparison with an array of rows."""
    return numbers.reshape(-1, *(1,) * (array.ndim - 1))


@dataclass(frozen=True)
class _Rows:
    """Rows of reports, and what they are about.

    Attributes:
        about: by row the name of its node, empty for the sum over all of them, and the agents that it is about.
        agents: how many these are.
        episodes: how many they have played, added up, this round included.
        lengths: episodes of the round.
        unreported: episodes that were not in a report yet, added up likewise.
        logged: steps of logs that were not, either.
    """

    expected: Expected
    about: Sequence[tuple[str, range]]
    agents: CountArray
    episodes: CountArray
    lengths: CountArray
    unreported: CountArray
    logged: CountArray

    def check(self, report: Message, before: Sequence[Message]) -> None:
        """Raise unless every row can be true; ``before`` has what was reported before, by node."""
        ranges = self._ranges()
        n = report[0]
        if self.expected.forms[0].meaning is Meaning.NEW_TRANSITIONS:
            n = self.expected.schema.plan.support.by_cell(n)
        for place, (form, array) in enumerate(zip(self.expected.forms, report, strict=True)):
            if array.dtype.kind == "f":
                self._refuse(~np.isfinite(array), form.name, "not finite", array)
            elif form.meaning is not None:
                self._refuse(array < 0, form.name, "negative", array)
            self._check_counts(place, report, n, [one[place] for one in before])
            if form.meaning in ranges and array.size:
                self._check_range(form, array, n, *ranges[form.meaning])
        self._check_spread(report)

    def _refuse(self, wrong: MaskArray, name: str, why: str | Callable[[int], str], array: Array) -> None:
        """Raise about the first entry that is wrong; ``why`` may depend on its row."""
        if not wrong.any():
            return
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        (owner, span), plan = self.about[at[0]], self.expected.schema.plan
        who = describe_agents(span) if owner else "all agents together"
        reason = why if isinstance(why, str) else why(at[0])
        listed = plan.reports_counts and array.shape[1:2] == (plan.support.numbers,)
        where = plan.support.place(at[1]) if listed else at[1:]
        said = f"{name} at {where} is {array[at]}: " if len(at) > 1 else f"{name} ({array[at]}) "
        raise ViolationError(f"{who}: {said}{reason}", node=owner)

    # ----------------------------------------------------------------------------------------------- counts and flags

    def _check_counts(self, place: int, report: Message, n: Array, before: Sequence[Array]) -> None:
        """Raise an error unless an array of counts fits what was played."""
        (name, _, _, meaning), array = self.expected.forms[place], report[place]
        visits = self.expected.schema.visits_an_episode
        unit = "episodes" if visits == 1 else "steps"
        match meaning:
            case Meaning.VISITS_SO_FAR:
                self._check_total(name, visits * self.episodes, f"{unit} played", 2, array)
                earlier = np.concatenate(before)
                self._refuse(array < earlier, name, "smaller than before", array)
                astray = (array != earlier) & ~self._went(by_step=False)
                self._refuse(astray, name, "changed where the policy did not go", array)
            case Meaning.NEW_TRANSITIONS:
                what = f"{unit} that were not reported yet"
                self._check_total(name, visits * self.unreported, what, 2, array, n)
                of_round = _column((self.unreported == self.agents * self.lengths) & (self.logged == 0), n)
                astray = (n > 0) & ~self._went(by_step=True) & of_round.astype(np.bool_)
                self._refuse(astray, name, "where the policy did not go", n)
            case Meaning.VISITS_OF_ROUND:
                self._check_total(name, self.lengths, "episodes of the round", 1, array)
            case Meaning.FLAG if array.size:
                asked = np.array([[span[0] in self.expected.requesters] for _, span in self.about])
                self._refuse(array != asked, name, "not what the agent's request said", array)

    def _check_total(self, name: str, totals: CountArray, what: str, axes: int, *both: Array) -> None:
        """Raise unless counts, which are not negative, add up over the last axes.

        None may be above the total, for sums of 64 bits wrap around. Episodes of logs may be shorter than H, so of
        their steps only the sum over all steps is known.
        """
        more = self.logged

        def unequal(row: int) -> str:
            of_logs = f" and the {more[row]} steps of logs" if more[row] else ""
            return f"does not add up to the {totals[row]} {what}{of_logs}"

        for counts in both:
            self._refuse(counts > _column(totals + more, counts), name, unequal, counts)
        sums = both[-1].sum(axis=tuple(range(-axes, 0)))
        by_row = sums.reshape((len(sums), -1))
        all_steps = by_row.sum(axis=1) == by_row.shape[1] * totals + more
        wrong = np.where(_column(more, sums) > 0, ~_column(all_steps, sums), sums != _column(totals, sums))
        self._refuse(wrong | (sums < _column(totals, sums)), name, unequal, sums)

    def _went(self, *, by_step: bool) -> MaskArray:
        """The actions of the round's policy, of all steps or of the exchange's."""
        possible = possible_actions(self.expected.policy, self.expected.schema.plan.setting.actions)
        if self.expected.schema.visits_an_episode > 1:
            return np.asarray(possible.any(axis=0, keepdims=by_step))
        return possible if by_step else np.asarray(possible[len(possible) - 1 - self.expected.exchange])

    # --------------------------------------------------------------------------------------------- values and rewards

    def _ranges(self) -> dict[Meaning | None, tuple[float, float]]:
        """The least and the largest that a number can be: in sums for each visit, or agent, on the grid."""
        setting = self.expected.schema.plan.setting
        query = self.expected.query
        grid = self.expected.schema.grid
        H = float(setting.horizon)
        if grid is None:
            low, high = (float(query[0].min()), float(query[0].max())) if len(query) == 1 else (0.0, H)
            return {
                Meaning.STATE: (0.0, setting.states - 1.0),
                Meaning.MEAN: (low, high),
                Meaning.SQUARE: (0.0, max(low * low, high * high)),
                Meaning.GAP: (-H, H),
                Meaning.RETURN: (min(0.0, low), 1.0 + high),
                Meaning.REWARD: (0.0, 1.0),
            }
        one = 2.0**grid.bits
        low, high = (one * float(query[0].min()), one * float(query[0].max())) if query else (0.0, 0.0)
        return {
            Meaning.SUM: (low, high),
            Meaning.SUM_OF_SQUARES: (low**2, high**2),
            Meaning.SUM_OF_REWARDS: (0.0, one),
        }

    def _check_range(self, form: ReportField, array: Array, n: Array, least: float, most: float) -> None:
        """Raise unless numbers lie between least and most, on the grid times ``n`` visits."""
        grid = self.expected.schema.grid
        times: Array | float = 1.0
        value = array
        said = f"outside [{least:g}, {most:g}]"
        if grid is not None:
            times = n
            if array.shape[-1] > 1:
                words = array[..., 0]
                largest = _column(self.agents, words) * 2**grid.base
                self._refuse(words >= largest, form.name, "a low word too large", words)
            value = _number(array, grid)
            one = 2.0**grid.bits
            said = f"outside n times [{least / one:g}, {most / one:g}]"
        slack = ROUNDING * (1.0 + times * max(abs(least), abs(most)))
        self._refuse((value < times * least - slack) | (value > times * most + slack), form.name, said, value)

    def _check_spread(self, report: Message) -> None:
        """Raise if a second moment is below the first one squared: ``N Y >= X^2``, and ``P V^2 >= (P V)^2``."""
        forms = self.expected.forms
        grid = self.expected.schema.grid
        for place, (first, second) in enumerate(itertools.pairwise(forms)):
            x, y = report[place : place + 2]
            weight: Array | float = 1.0
            match first.meaning, second.meaning:
                case Meaning.SUM, Meaning.SUM_OF_SQUARES:
                    weight = report[0].astype(np.float64)
                case ((Meaning.MEAN | Meaning.GAP), Meaning.SQUARE):
                    pass
                case _:
                    continue
            if grid is not None:
                x = _number(x, grid)
                y = _number(y, grid)
            slack = ROUNDING * (1.0 + weight * y)
            self._refuse(weight * y < x * x - slack, second.name, "less than the mean squared allows", y)


def _number(words: Array, grid: Grid) -> npt.NDArray[np.float64]:
    """The numbers that the words of a report stand for, rounded to floats."""
    value = words[..., 0].astype(np.float64)
    return value if words.shape[-1] == 1 else value + words[..., 1] * 2.0**grid.base
