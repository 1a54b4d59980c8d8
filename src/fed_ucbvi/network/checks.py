"""What a node reports is checked before it is used; a violation names the agent, or the node's agents, and the field.

A report must have the shapes and types of its algorithm, be finite, and be possible. Visits add up to the episodes
played, never fall, and grow only where the policy went. Means lie between the least and the largest value that the
server sent. Sums over n visits lie between n times these. A liar that keeps to all this cannot be told from an honest
agent (that is what Byzan-UCBVI is for).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fed_ucbvi.algorithms.base import Algorithm, Counting, Message, as_sets
from fed_ucbvi.core.types import PolicyArray
from fed_ucbvi.network.members import Member
from fed_ucbvi.network.messages import Played
from fed_ucbvi.network.report_schema import ReportSchema
from fed_ucbvi.network.row_checks import EVERYBODY, SUM, Expected, Rows, check_rows, in_words
from fed_ucbvi.network.violation import ViolationError


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
    rows = Rows.of([member], [length], summed=expected.grid is not None)
    first = member.episodes == 0
    if played is not None:
        rows, first = rows._replace(episodes=np.array(played[:1]), unreported=np.array(played[1:])), False
    check_rows(report, [_before(report, member, expected, first=first)], rows, expected)


def check_reports(
    reports: Mapping[str, Message], members: Mapping[str, Member], lengths: Mapping[str, int], expected: Expected
) -> None:
    """Raise unless the reports of all these nodes can be true; each must have its form. The error names the node.

    All are checked at once, which takes hardly longer than to check one.
    """
    owners = [members[name] for name in reports]
    rows = Rows.of(owners, [lengths[name] for name in reports], summed=expected.grid is not None)
    before = [
        _before(report, member, expected, first=member.episodes == 0)
        for report, member in zip(reports.values(), owners, strict=True)
    ]
    check_rows(ReportSchema.assemble(list(reports.values())), before, rows, expected)


def _before(report: Message, member: Member, expected: Expected, *, first: bool) -> Message:
    """The report before this one: zeros if this is the ``first``, the report itself if nobody remembers."""
    before = member.reports.get(expected.exchange)
    if before is not None:
        return before
    return tuple(np.zeros_like(array) for array in report) if first else report


def _who(member: Member) -> str:
    return EVERYBODY if member.name == SUM else in_words(member.span)
