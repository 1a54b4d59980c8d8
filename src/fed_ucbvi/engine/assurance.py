"""The keeping of promises in a run: no harm to an incumbent policy, and a certified gap at which the run stops.

**Do no harm.** With an incumbent policy and a share ``loss``, a round may explore for k more episodes (of all agents)
only while

    (E + k) U0 - R <= loss (t + k) W0

where E of the t episodes so far were exploring and paid R, ``[L0, U0]`` is the interval of the incumbent's value from
its own episodes, and W0 is the least that the incumbent earns, or costs where rewards are costs, in the environment's
own units. All else is counted from the least that an episode can pay, by the range that the owner states, or by that
of rewards. So even if these k episodes pay the least, what exploring has cost, ``E V0 - R``, stays below ``loss``
times what the incumbent is worth over all episodes, at the end of every round. Otherwise the incumbent is played. No
model enters. Verifying counts as exploring. See :mod:`~fed_ucbvi.engine.exploration_account`.

**Pure watching.** With ``loss`` 0 a run never explores. It plays the incumbent only, whose interval has all of delta,
as no other policy is judged, and certifies it at the end.

**Verifying.** A recommended policy that looks good by the model becomes the *candidate*. It is played as often as the
exploring policy, until it is certified or cannot be any more. The incumbent is then played as often as the candidate,
because what is compared are their intervals, and its episodes cost nothing. If the candidate is worth more than the
incumbent, it is *promoted*: it becomes the incumbent, and the account is carried over. If it is within ``until_gap``
of the optimistic value, the run ends. Where a candidate's own episodes refute the model's estimate, candidates and
recommendations are cautious plans from then on.

Delta is split over all that is promised (:class:`~fed_ucbvi.engine.assumptions.DeltaParts`). The j-th policy that is
judged, the incumbent first, has ``1 / (j (j+1))`` of what is left for intervals. With ``until_gap`` half of delta is
for optimism. ``docs/certificates.md`` has the arguments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from fed_ucbvi.algorithms.base import Array, Setting
from fed_ucbvi.algorithms.return_bounds import Interval
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.types import CountArray, FloatArray, PolicyArray
from fed_ucbvi.engine.assumptions import Circumstances
from fed_ucbvi.engine.certificate_issuer import CertificateIssuer, Finding
from fed_ucbvi.engine.exploration_account import Balance, ExplorationAccount, Outlook, Rates
from fed_ucbvi.engine.judged_policies import JudgedPolicy, ValueIntervals, policy_arrays, saved_policy
from fed_ucbvi.engine.promises import Promises
from fed_ucbvi.problem.units import Units
from fed_ucbvi.results.recommendations import GAP, PLANNED, PROMOTION, VALUE, Certificate, Recommended
from fed_ucbvi.results.round_record import EXPLORING, INCUMBENT, VERIFYING

SHARE_OF_HISTORY = 0.1
"""Largest length of a round of the incumbent, of a round that verifies, and of the time between two plans, as a share
of the episodes played."""
SAVED_INCUMBENT = "assurance.incumbent"
SAVED_CANDIDATE = "assurance.candidate"
SAVED_FINAL = "assurance.final"
"""Prefixes of the names of saved arrays."""


class Choice(NamedTuple):
    """The choice for the next round.

    Attributes:
        playing: an index into :data:`~fed_ucbvi.results.round_record.PLAYING`.
        policy: the policy to play; None if it is the server's.
        most: largest number of episodes.
    """

    playing: int
    policy: PolicyArray | None
    most: int


class Assurance:
    """The promises of a run in progress: chooses the policy of each round, and issues certificates.

    A run without promises has none.

    Args:
        promises: the promises of the run.
        setting: sizes of the run.
        units: returns the units of rewards, which nodes on the network declare when they join.
        circumstances: facts about the run on which its certificates rest.

    Attributes:
        incumbent: the policy to which exploring must do no harm; None if there is none.
        candidate: the recommended policy that is being verified; None if there is none.
        account: the account of exploring.
        judged: number of policies that were judged so far.
        estimate: value of the candidate by the model.
        model_refuted: True once the episodes of a candidate have refuted the model's estimate.
        certified: True once the gap that was asked for is certified, which ends the run.
        certificates: all that were issued, in order.
        final: the last policy with a certificate, which the run recommends at its end.
    """

    growth = 1.0 + SHARE_OF_HISTORY
    """Factor by which the episodes grow between two recommendations."""

    def __init__(
        self,
        promises: Promises,
        setting: Setting,
        units: Callable[[], Units],
        circumstances: Circumstances,
    ) -> None:
        self.promises = promises
        self.setting = setting
        self._units = units
        self._intervals = ValueIntervals(promises, setting.horizon, units)
        self._issuer = CertificateIssuer(promises, setting, units, circumstances, self._intervals)
        self.incumbent: JudgedPolicy | None = None
        self.candidate: JudgedPolicy | None = None
        self.judged = 0
        if promises.incumbent is not None:
            unknown_values: FloatArray = np.full((setting.horizon + 1, setting.states), np.nan)
            recommended = Recommended(policy=promises.incumbent, V=unknown_values, kind=PLANNED)
            self.incumbent = JudgedPolicy(recommended, number=1)
            self.judged = 1
        self.account = ExplorationAccount()
        self.estimate = 0.0
        self.model_refuted = False
        self.certified = False
        self.certificates: list[Certificate] = []
        self.final: Recommended | None = None

    @property
    def return_limits(self) -> tuple[float, float] | None:
        """The range of an episode's return that was stated, in rescaled units; None if none was."""
        return self._intervals.stated_limits

    @property
    def least_return(self) -> float:
        """The least that an episode can pay, in rescaled units."""
        return self._intervals.limits[0]

    def interval(self, judged: JudgedPolicy) -> Interval:
        """Interval of a policy's value, in rescaled units."""
        return self._intervals.interval(judged)

    @property
    def numbers(self) -> tuple[int, int]:
        """The numbers of incumbent and candidate; 0 where there is none."""
        incumbent = 0 if self.incumbent is None else self.incumbent.number
        candidate = 0 if self.candidate is None else self.candidate.number
        return incumbent, candidate

    # ----------------------------------------------------------------------------------------- the cost of exploring

    def _rates(self, incumbent: JudgedPolicy) -> Rates:
        """Charge and worth of an episode, by the interval of the incumbent."""
        interval = self.interval(incumbent)
        zero = self._intervals.zero
        return Rates(
            charge=interval.upper - self.least_return,
            worth=max(0.0, interval.lower - zero, zero - interval.upper),
        )

    def balance(self) -> Balance:
        """Upper bound on the cost of exploring so far, and the cost that is allowed."""
        if self.incumbent is None:
            return Balance(cost=math.nan, allowed=math.nan)
        return self.account.balance(self._rates(self.incumbent), self.promises.loss)

    def outlook(self, played: int) -> Outlook | None:
        """When exploring can begin, after so many episodes of each agent.

        None without an incumbent, if the run never explores, and once it has explored.
        """
        if self.incumbent is None or self.promises.watching:
            return None
        if self.account.explored or self.certificates:
            return None
        return self.account.outlook(
            self._rates(self.incumbent),
            self.promises.loss,
            self.setting.agents,
            played,
        )

    def describe_outlook(self, played: int) -> str:
        """The outlook as a sentence in own units, with what helps; empty where there is none."""
        outlook = self.outlook(played)
        if outlook is None:
            return ""
        charge = self._units().scale * outlook.charge
        text = f"nothing explored yet: an episode of exploring may cost up to {charge:,.4g} against the incumbent"
        if math.isnan(outlook.begins):
            text += ", whose own worth may still be 0, so exploring cannot begin"
        else:
            text += (
                f", and with loss={self.promises.loss:g} exploring can begin after about "
                f"{math.ceil(outlook.begins):,} episodes of each agent"
            )
        if self.promises.return_range is None:
            text += "; it begins sooner if you state between which values an episode's return lies (return_range)"
        return text

    # ------------------------------------------------------------------------------------------------------- a round

    def choose(self, played: int, left: int) -> Choice:
        """The policy of the next round, if each agent has played so many episodes and has so many left."""
        short = min(left, max(1, math.ceil(SHARE_OF_HISTORY * played)))
        incumbent = self.incumbent
        candidate = self.candidate
        if incumbent is not None:
            rates = self._rates(incumbent)
            left = self.account.affordable(rates, self.promises.loss, self.setting.agents, most=left)
            if left < 1 or self.promises.watching:
                return Choice(playing=INCUMBENT, policy=incumbent.policy, most=short)

        learning = self.account.explored - self.account.verified
        if candidate is None or self.account.verified > learning:
            return Choice(playing=EXPLORING, policy=None, most=left)
        if incumbent is not None and incumbent.returns.sum() < candidate.returns.sum():
            return Choice(playing=INCUMBENT, policy=incumbent.policy, most=short)
        return Choice(playing=VERIFYING, policy=candidate.policy, most=min(short, left))

    def record(self, playing: int, episodes: int, reward: float, returns: Mapping[int, CountArray]) -> None:
        """Record a round of so many episodes of all agents together, and newly reported payments.

        Until the reward of an exploring episode is reported, it counts as the least possible.

        Args:
            playing: the policy of the round, see :class:`Choice`.
            episodes: number of episodes of the round.
            reward: reward of exploring above the least possible, in this round or earlier ones.
            returns: returns by the number of the policy, of this round or earlier ones. Those of policies that are
                not judged any more are ignored.
        """
        if math.isnan(reward):
            raise InputError(
                "an incumbent and a certified gap need to know what every episode pays, and some agents do not say "
                "it (join without --no-rewards)."
            )
        self.account.record(
            episodes,
            reward,
            exploring=playing != INCUMBENT,
            verifying=playing == VERIFYING,
        )
        for judged in (self.incumbent, self.candidate):
            if judged is not None and judged.number in returns:
                judged.returns += returns[judged.number]

    # ------------------------------------------------------------------------------------------------- the candidate

    def distrusts_counts(self, *, ending: bool) -> bool:
        """True if the next recommendation must be a cautious plan."""
        return self.model_refuted and (self.candidate is None or ending)

    def consider(self, recommended: Recommended, estimated: float, optimistic: float) -> None:
        """Give up a candidate that cannot be certified, and begin to verify a recommended policy that looks good.

        Args:
            recommended: the policy that the run recommends now.
            estimated: its value by the model.
            optimistic: upper bound on the value of the best policy.
        """
        if self.promises.watching:
            return
        if self.candidate is not None:
            refuted = self._refutes_model(self.candidate)
            outdone = estimated > self.interval(self.candidate).upper and not self.model_refuted
            if refuted or outdone or self._is_hopeless(self.candidate, optimistic):
                self.candidate = None
            if refuted:
                self.model_refuted = True
                return
        if self.candidate is None and self._looks_good(estimated, optimistic):
            self.judged += 1
            self.estimate = estimated
            self.candidate = JudgedPolicy(recommended, number=self.judged)
            self.account.verified = 0

    def _is_hopeless(self, candidate: JudgedPolicy, optimistic: float) -> bool:
        """True if neither a gap nor a promotion can be certified for the candidate."""
        most = self.interval(candidate).upper
        until_gap = self._intervals.until_gap
        if until_gap < math.inf:
            return optimistic - most > until_gap
        return self.incumbent is not None and most <= self.interval(self.incumbent).lower

    def _refutes_model(self, candidate: JudgedPolicy) -> bool:
        """True if the candidate's own episodes are the first to refute its estimate, in a run without a gap."""
        if self.model_refuted or self._intervals.until_gap < math.inf:
            return False
        return self.estimate > self.interval(candidate).upper

    def _looks_good(self, estimated: float, optimistic: float) -> bool:
        """True if a policy with this estimate is likely to be promoted, or to be within the gap."""
        if self.incumbent is not None and estimated > self.interval(self.incumbent).upper:
            return True
        until_gap = self._intervals.until_gap
        return until_gap < math.inf and optimistic - estimated < 0.5 * until_gap

    # -------------------------------------------------------------------------------------------------- certificates

    def check(
        self,
        optimistic: float,
        model: Callable[[PolicyArray], float],
        rounds: int,
        played: int,
        *,
        ending: bool,
    ) -> None:
        """Certify the candidate and promote it if it is better than the incumbent.

        A run whose episodes are over certifies the gap that is left, or, if it never explores, the incumbent's value.

        Args:
            optimistic: upper bound on the value of the best policy.
            model: returns a lower bound on a policy's value by the counts of all episodes.
            rounds: number of rounds so far.
            played: number of episodes of each agent so far.
            ending: True if the episodes of the run are over.
        """
        incumbent = self.incumbent
        if incumbent is not None and self.promises.watching and ending:
            finding = Finding(
                kind=VALUE,
                judged=incumbent,
                compared_with=self.interval(incumbent).upper,
                model_at_least=math.nan,
            )
            self._issue(finding, rounds, played)

        candidate = self.candidate
        if candidate is None or not candidate.returns.any():
            return
        least = self.interval(candidate).lower
        until_gap = self._intervals.until_gap
        near = optimistic - least <= until_gap
        if until_gap < math.inf and (near or ending):
            finding = Finding(
                kind=GAP,
                judged=candidate,
                compared_with=optimistic,
                model_at_least=model(candidate.policy),
            )
            self._issue(finding, rounds, played)
            self.certified = near

        if incumbent is not None and least > self.interval(incumbent).upper:
            finding = Finding(
                kind=PROMOTION,
                judged=candidate,
                compared_with=self.interval(incumbent).upper,
                model_at_least=model(candidate.policy),
            )
            self._issue(finding, rounds, played)
            self.account.change_incumbent(self._rates(incumbent))
            self.incumbent = candidate
            self.candidate = None

    def _issue(self, finding: Finding, rounds: int, played: int) -> None:
        certificate = self._issuer.issue(finding, rounds, played)
        self.certificates.append(certificate)
        self.final = finding.judged.recommended

    def issued(self, rounds: int) -> str:
        """The certificates that were issued after so many rounds, as text."""
        texts = [f"{one.kind}: {one}" for one in self.certificates if one.rounds == rounds]
        return "; ".join(texts)

    # --------------------------------------------------------------------------------------------------- saved state

    def saved(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """The arrays to be saved by name, and the rest as JSON data."""
        arrays: dict[str, Array] = {}
        if self.incumbent is not None:
            arrays.update(self.incumbent.arrays(SAVED_INCUMBENT))
        if self.candidate is not None:
            arrays.update(self.candidate.arrays(SAVED_CANDIDATE))
        if self.final is not None:
            arrays.update(policy_arrays(SAVED_FINAL, self.final))
        incumbent, candidate = self.numbers
        data = {
            "account": self.account.to_data(),
            "incumbent": incumbent,
            "candidate": candidate,
            "judged": self.judged,
            "estimate": self.estimate,
            "model_refuted": self.model_refuted,
            "certified": self.certified,
            "final": self.final is not None,
            "certificates": [certificate.to_data() for certificate in self.certificates],
        }
        return arrays, data

    def restore(self, arrays: Mapping[str, Array], data: Mapping[str, Any]) -> None:
        """Resume from the arrays and data of :meth:`saved`."""
        self.account = ExplorationAccount.from_data(data["account"])
        self.incumbent = self._restored_policy(SAVED_INCUMBENT, data["incumbent"], arrays)
        self.candidate = self._restored_policy(SAVED_CANDIDATE, data["candidate"], arrays)
        self.judged = int(data["judged"])
        self.estimate = float(data["estimate"])
        self.model_refuted = bool(data["model_refuted"])
        self.certified = bool(data["certified"])
        self.final = saved_policy(SAVED_FINAL, arrays, self.setting) if data["final"] else None
        self.certificates = [Certificate.from_data(one) for one in data["certificates"]]

    def _restored_policy(self, name: str, number: int, arrays: Mapping[str, Array]) -> JudgedPolicy | None:
        if not number:
            return None
        return JudgedPolicy.restored(name, int(number), arrays, self.setting)
