"""The issuing of certificates: figures in own units, and the assumptions on which they rest as sentences."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

from fed_ucbvi.algorithms.base import Setting
from fed_ucbvi.engine.assumptions import (
    Circumstances,
    assumptions_of_model,
    assumptions_of_returns,
    slack_of_agents,
)
from fed_ucbvi.engine.judged_policies import JudgedPolicy, ValueIntervals
from fed_ucbvi.engine.promises import DELTA, Promises
from fed_ucbvi.problem.units import Units
from fed_ucbvi.results.recommendations import GAP, PROMOTION, VALUE, Certificate, policy_digest


class Finding(NamedTuple):
    """A finding on a judged policy, in rescaled units.

    Attributes:
        kind: one of the kinds of :class:`~fed_ucbvi.results.recommendations.Certificate`.
        judged: the policy.
        compared_with: upper bound on the value with which the policy is compared.
        model_at_least: lower bound on the policy's value by the counts of all episodes; NaN if it was not computed.
    """

    kind: str
    judged: JudgedPolicy
    compared_with: float
    model_at_least: float


class CertificateIssuer:
    """Turns findings into certificates.

    Args:
        promises: the promises of the run.
        setting: sizes of the run.
        units: returns the units of rewards.
        circumstances: facts about the run on which its certificates rest.
        intervals: the intervals of judged policies.
    """

    def __init__(
        self,
        promises: Promises,
        setting: Setting,
        units: Callable[[], Units],
        circumstances: Circumstances,
        intervals: ValueIntervals,
    ) -> None:
        self._promises = promises
        self._setting = setting
        self._units = units
        self._circumstances = circumstances
        self._intervals = intervals

    def issue(self, finding: Finding, rounds: int, played: int) -> Certificate:
        """The certificate of a finding, after so many rounds and episodes of each agent."""
        H = self._setting.horizon
        units = self._units()
        interval = self._intervals.interval(finding.judged)
        return Certificate(
            kind=finding.kind,
            policy_sha256=policy_digest(finding.judged.policy),
            delta=DELTA,
            episodes=interval.episodes,
            at_least=units.original_return(interval.lower, H),
            compared_with=units.original_return(finding.compared_with, H),
            model_at_least=units.original_return(finding.model_at_least, H),
            rounds=rounds,
            played=played,
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            assumed=tuple(self._assumptions(finding)),
        )

    def _assumptions(self, finding: Finding) -> list[str]:
        """The assumptions of a certificate, as sentences that the owner of the environments can check."""
        parts = self._promises.parts
        sentences = assumptions_of_returns(
            self._setting,
            self._units(),
            self._intervals.stated_limits,
            parts,
        )
        if finding.kind == VALUE:
            return sentences
        differences = self._differences_of_agents(finding)
        for sentence in assumptions_of_model(self._setting, self._circumstances, differences):
            if finding.kind == PROMOTION:  # a promotion does not rest on the model
                sentences.append(f"For model_at_least only: {sentence}")
            else:
                sentences.append(sentence)
        if not math.isnan(finding.model_at_least):
            sentences.append(
                f"The bound by the counts alone (model_at_least) is a statement of its own, which fails with "
                f"probability at most {parts.model:.4g} besides."
            )
        return sentences

    def _differences_of_agents(self, finding: Finding) -> str:
        """A sentence on agents that are known to differ; empty if none is."""
        setting = self._setting
        eps_r = self._circumstances.eps_r
        slack = slack_of_agents(setting, eps_r)
        if not slack > 0.0:
            return ""
        eps_p = setting.eps_p if setting.eps_p_known else math.nan
        sentence = f"Agents are taken to be alike, which they are not (eps_p = {eps_p:.3g}, eps_r = {eps_r:.3g})."
        if finding.kind == GAP:
            H = setting.horizon
            best = self._units().original_return(min(float(H), finding.compared_with + slack), H)
            sentence += f" Proved is that the best policy is worth at most {best:,.4g}."
        return sentence
