"""What a node reports is checked before it is used; a violation names the agent and the field."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fed_ucbvi._types import IndexArray
from fed_ucbvi.algorithms.base import Message
from fed_ucbvi.deployment.members import Member
from fed_ucbvi.deployment.messages import Played
from fed_ucbvi.deployment.plan import Plan

if TYPE_CHECKING:
    from fed_ucbvi.deployment.coordinator import Coordinator


class ViolationError(Exception):
    """A report that cannot be true."""


def check_played(played: Played, member: Member, plan: Plan, policy: IndexArray, chunk: int) -> None:
    """Raise unless an answer to a start or a continue makes sense."""
    if played.played > chunk or (played.played < chunk and not played.requests):
        raise ViolationError(f"played {played.played} of {chunk} episodes and nobody asked")
    if played.requests and played.played < 1:
        raise ViolationError("asked before the first episode")
    H, S = policy.shape
    before = -1
    for request in played.requests:
        who = f"agent {request.agent}: request"
        if request.agent not in member.span or request.agent <= before:
            raise ViolationError(f"{who}: is not one of this node's agents, or out of order")
        before = request.agent
        if request.step >= H or request.state >= S or request.rule >= len(plan.algorithm.rules):
            raise ViolationError(f"{who}: no such step, state or rule")
        if request.action != policy[request.step, request.state]:
            raise ViolationError(f"{who}: action {request.action} is not the policy's")


def check_report(report: Message, member: Member, run: Coordinator, exchange: int) -> None:
    """Raise unless a report has the right shape and types, is finite, and can be true."""
    forms = run.stand_in.forms[exchange]
    everyone = f"agents {member.span[0]} to {member.span[-1]}"
    if len(report) != len(forms):
        raise ViolationError(f"{everyone}: {len(report)} arrays, expected {len(forms)}")
    for form, array in zip(forms, report, strict=True):
        shape = (member.agents, *form.shape)
        if array.shape != shape or array.dtype != form.dtype:
            raise ViolationError(
                f"{everyone}: {form.name} is {array.dtype}{array.shape}, expected {form.dtype}{shape}"
            )
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ViolationError(f"{everyone}: {form.name} is not finite")
