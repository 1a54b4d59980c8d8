"""What a run promises while it learns: no harm to who has a rule today, and a certified gap to stop by.

**Do no harm.** With an incumbent policy and a share ``loss``, a round may explore for k more episodes (of all agents)
only while

    (E + k) U0 - R <= loss (t + k) W0

where E of the t episodes so far were exploring and paid R, ``[L0, U0]`` is the interval of the incumbent's value from
its own episodes, and W0 is the least that the incumbent earns, or costs where rewards are costs, in the environment's
own units. All else is counted from the least that an episode can pay, by the range that the owner states, or by that
of rewards. So even if these k episodes pay the least, what exploring has cost, ``E V0 - R``, stays below ``loss``
times what the incumbent is worth over all episodes, at the end of every round. Otherwise the incumbent is played. No
model enters. Verifying counts as exploring.

**Pure watching.** With ``loss`` 0 a run never explores. It plays the incumbent only, whose interval has all of delta,
as no other policy is judged, and certifies it at the end.

**Verifying.** A recommended policy that looks good by the model becomes the *candidate*. It is played as often as the
exploring policy, until it is certified or cannot be any more. The incumbent is then played as often as the candidate,
because what is compared are their intervals, and its episodes cost nothing. If the candidate is worth more than the
incumbent, it is *promoted*: it becomes the incumbent. What was owed and allowed before stays on the books. If it is
within ``until_gap`` of the optimistic value, the run ends. Where a candidate's own episodes refute what the model
said, the model trusts *thin* counts. From then on candidates, and what is recommended, are cautious plans.

Delta is split over all that is promised (:class:`~fed_ucbvi.engine.assumptions.DeltaParts`). The j-th policy that is
judged, the incumbent first, has ``1 / (j (j+1))`` of what is left for intervals. With ``until_gap`` half of delta is
for optimism. ``docs/certificates.md`` has the arguments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np

from fed_ucbvi.algorithms.base import Algorithm, Array, Setting
from fed_ucbvi.algorithms.return_bounds import Interval, interval_of, new_histogram
from fed_ucbvi.core.errors import InputError, check_number
from fed_ucbvi.core.types import CountArray, FloatArray, PolicyArray
from fed_ucbvi.engine.assumptions import (
    Circumstances,
    DeltaParts,
    assumptions_of_model,
    assumptions_of_returns,
    slack_of_agents,
)
from fed_ucbvi.engine.state_store import put_back
from fed_ucbvi.problem.policies import TYPES, form_of
from fed_ucbvi.problem.units import Units
from fed_ucbvi.results.policy import PolicyLike, as_policy
from fed_ucbvi.results.recommendations import GAP, PLANNED, PROMOTION, VALUE, Certificate, Recommended, policy_digest
from fed_ucbvi.results.round_record import EXPLORING, INCUMBENT, VERIFYING

DELTA = 0.05
LOSS = 0.05
"""The probability with which what is promised may fail, and the usual share of the incumbent's worth."""
SHARE_OF_HISTORY = 0.1
"""Rounds of the incumbent, rounds that verify and the time between two plans are at most this share of what was
played."""
ASSURANCE = "assurance."
"""Prefix of the names of saved arrays."""
COUNTED = ("explored", "verified", "total", "paid", "owed", "worth", "judged", "certified", "estimate", "thin")
POLICIES = ("incumbent", "candidate")


@dataclass(frozen=True)
class Promises:
    """What a run is asked for, as :func:`fed_ucbvi.run` describes it.

    The incumbent has one of the forms of :mod:`fed_ucbvi.problem.policies`.
    """

    incumbent: PolicyArray | None
    loss: float
    until_gap: float | None
    return_range: tuple[float, float] | None = None

    @classmethod
    def of(
        cls,
        incumbent: PolicyLike | None,
        loss: float | None,
        until_gap: float | None,
        sizes: tuple[int, int, int],
        *,
        terminates: bool = False,
        return_range: Sequence[float] | None = None,
    ) -> Promises | None:
        """From what a caller gives, for ``sizes`` (H, S, A); None if nothing is asked for."""
        if incumbent is None and loss is not None:
            raise InputError("loss says what exploring may cost an incumbent; pass incumbent too (--incumbent FILE).")
        if incumbent is None and until_gap is None:
            if return_range is not None:
                raise InputError("return_range is for what is promised; pass incumbent or until_gap too.")
            return None
        table = None if incumbent is None else as_policy(incumbent, *sizes, name="the incumbent", ends=terminates)
        share = check_number("loss", LOSS if loss is None else loss, at_least=0, below=1)
        if share == 0 and until_gap is not None:
            raise InputError(
                "with loss=0 only the incumbent is played, so no gap can be certified; leave out until_gap, or allow "
                "some loss."
            )
        gap = None if until_gap is None else check_number("until_gap", until_gap, above=0)
        return cls(table, share, gap, checked_range(return_range))

    @property
    def watching(self) -> bool:
        """True if the run never explores and only estimates what the incumbent is worth."""
        return self.incumbent is not None and self.loss == 0

    def apply(self, algorithm: Algorithm[Any, Any]) -> Algorithm[Any, Any]:
        """The algorithm that can keep them, or raise."""
        if not algorithm.plays_any_policy:
            raise InputError(
                f"{algorithm.name} learns only from what its own policy plays, so it cannot play an incumbent or "
                "verify a policy. Use fed-kl-ucbvi, or a CountingAlgorithm of your own."
            )
        return algorithm if self.until_gap is None else algorithm.certifying(self.parts.optimism)

    @property
    def parts(self) -> DeltaParts:
        """The split of delta over what is promised."""
        return DeltaParts.of(DELTA, incumbent=self.incumbent is not None, until_gap=self.until_gap is not None)

    def to_data(self) -> dict[str, Any]:
        table = None if self.incumbent is None else self.incumbent.tolist()
        return {**asdict(self), "incumbent": table, "return_range": self.return_range and list(self.return_range)}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Promises:
        table = None if data["incumbent"] is None else np.array(data["incumbent"])
        if table is not None:
            table = table.astype(TYPES[form_of(table)])
        ends = checked_range(data["return_range"])
        return cls(table, float(data["loss"]), data["until_gap"], ends)


def stated_range(stated: tuple[float, float], units: Units, horizon: int) -> tuple[float, float]:
    """A range of returns in our units, as far as rewards allow it; raise if they do not."""
    low, high = (units.rescaled_return(end, horizon) for end in stated)
    low = max(0.0, low)
    high = min(float(horizon), high)
    if not low < high:
        least, most = (units.original_return(x, horizon) for x in (0.0, float(horizon)))
        raise InputError(
            f"no episode can pay what return_range ({stated[0]:.12g}, {stated[1]:.12g}) says: by the range of "
            f"rewards it pays between {least:.12g} and {most:.12g}."
        )
    return low, high


def checked_range(given: Sequence[float] | None) -> tuple[float, float] | None:
    """A range of returns, the lower end first, or raise."""
    if given is None:
        return None
    try:
        low, high = (float(end) for end in given)
    except (TypeError, ValueError):
        low = math.nan
        high = math.nan
    if not -math.inf < low < high < math.inf:
        raise InputError(f"return_range must be two numbers, the lower one first; got {given!r}.")
    return low, high


@dataclass
class JudgedPolicy:
    """A policy that is judged by the returns of its own episodes; the ``number``-th of the run."""

    recommended: Recommended
    number: int
    returns: CountArray = field(default_factory=new_histogram)

    @property
    def policy(self) -> PolicyArray:
        return self.recommended.policy


class Choice(NamedTuple):
    """What the next round plays.

    Attributes:
        playing: an index into :data:`~fed_ucbvi.results.round_record.PLAYING`.
        policy: the policy to play; None if it is the server's.
        most: largest number of episodes.
    """

    playing: int
    policy: PolicyArray | None
    most: int


class Outlook(NamedTuple):
    """Cost and beginning of exploring, by what is known of the incumbent so far.

    Attributes:
        charge: the most that one episode of exploring can cost against the incumbent, in our units.
        begins: number of episodes of each agent after which a round can explore; NaN where no number can be given,
            because the incumbent's worth may be 0.
    """

    charge: float
    begins: float


class Assurance:
    """The promises of a run: chooses what is played, and issues certificates. A run without promises has none.

    ``units`` returns those of rewards, which nodes on the network declare when they join.
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
        self.circumstances = circumstances
        self.promises = promises
        self.setting = setting
        self._units = units
        self.incumbent: JudgedPolicy | None = None
        self.candidate: JudgedPolicy | None = None
        if promises.incumbent is not None:
            unknown: FloatArray = np.full((setting.horizon + 1, setting.states), np.nan)
            self.incumbent = JudgedPolicy(Recommended(promises.incumbent, unknown, PLANNED), 1)
        self.certificates: list[Certificate] = []
        self.judged = 0 if self.incumbent is None else 1
        self.certified = False
        """Whether the gap that was asked for is certified; then the run is over."""
        self.estimate = 0.0
        """What the model said of the candidate."""
        self.thin = False
        """Whether a candidate's episodes have refuted it."""
        self.final: Recommended | None = None
        """The last policy with a certificate: that is what the run recommends at its end."""
        self.explored = self.verified = self.total = 0
        """Episodes of all agents under this incumbent: exploring and verifying; verifying of the candidate; all."""
        self.paid = self.owed = self.worth = 0.0
        """What exploring has paid so far above the least; under earlier incumbents: what it was to pay, and what they
        were worth."""

    @property
    def return_limits(self) -> tuple[float, float] | None:
        """The range of an episode's return, in our units, where it was stated."""
        stated = self.promises.return_range
        H = self.setting.horizon
        units = self._units()
        return None if stated is None else stated_range(stated, units, H)

    def range(self) -> tuple[float, float]:
        """The same, or what rewards allow."""
        return self.return_limits or (0.0, float(self.setting.horizon))

    def interval(self, judged: JudgedPolicy) -> Interval:
        """Interval of its value, in our units; if no other policy will be judged, it has all of delta."""
        low, high = self.range()
        delta = self.promises.parts.interval(judged.number, alone=self.promises.watching)
        return interval_of(judged.returns, high, delta, low)

    @property
    def until_gap(self) -> float:
        """In our units; infinite where nobody has asked."""
        gap = self.promises.until_gap
        return math.inf if gap is None else gap / self._units().scale

    @property
    def _zero(self) -> float:
        """What a return of 0 in own units is in ours."""
        units = self._units()
        return -self.setting.horizon * units.offset / units.scale

    # ------------------------------------------------------------------------------------------------- the promise

    def balance(self) -> tuple[float, float]:
        """What exploring has cost at most, and what it may cost, over all episodes of all agents, in our units."""
        if self.incumbent is None:
            return math.nan, math.nan
        interval = self.interval(self.incumbent)
        cost = self.owed + self.explored * (interval.upper - self.range()[0]) - self.paid
        return cost, self.promises.loss * (self.worth + self.total * self._least(interval))

    def _least(self, interval: Interval) -> float:
        """W0: what the incumbent earns or costs at least, from 0 in own units."""
        return max(0.0, interval.lower - self._zero, self._zero - interval.upper)

    def outlook(self, played: int) -> Outlook | None:
        """When exploring can begin, after so many episodes of each agent.

        None without an incumbent, if the run never explores, and once it has explored.
        """
        if self.incumbent is None or self.promises.watching or self.explored or self.certificates:
            return None
        agents = self.setting.agents
        interval = self.interval(self.incumbent)
        charge = interval.upper - self.range()[0]
        earned = self.promises.loss * self._least(interval)
        if earned <= 0.0:
            return Outlook(charge, math.nan)
        cost, allowed = self.balance()
        missing = max(0.0, cost + (charge - earned) * agents - allowed)
        return Outlook(charge, played + missing / (earned * agents))

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

    def choose(self, played: int, left: int) -> Choice:
        """What the next round plays, after so many episodes of each agent, and with so many left."""
        short = min(left, max(1, math.ceil(SHARE_OF_HISTORY * played)))
        if self.incumbent is not None:
            interval = self.interval(self.incumbent)
            cost, allowed = self.balance()
            each = interval.upper - self.range()[0] - self.promises.loss * self._least(interval)
            if each > 0.0:
                left = min(left, math.floor((allowed - cost) / (each * self.setting.agents)))
            if left < 1 or self.promises.watching:
                return Choice(INCUMBENT, self.incumbent.policy, short)
        if self.candidate is not None and self.verified <= self.explored - self.verified:
            if self.incumbent is not None and self.incumbent.returns.sum() < self.candidate.returns.sum():
                return Choice(INCUMBENT, self.incumbent.policy, short)
            return Choice(VERIFYING, self.candidate.policy, min(short, left))
        return Choice(EXPLORING, None, left)

    @property
    def numbers(self) -> tuple[int, int]:
        """The numbers of incumbent and candidate; 0 where there is none."""
        incumbent, candidate = (0 if one is None else one.number for one in (self.incumbent, self.candidate))
        return incumbent, candidate

    def record(self, playing: int, episodes: int, paid: float, returns: Mapping[int, CountArray]) -> None:
        """Take in a round of so many episodes of all agents together, and what has become known.

        ``paid`` is what exploring has paid above the least that an episode pays, in this round or earlier, and
        ``returns`` are those by the number of the policy, that were not known before; those of other policies do not
        matter any more. Until it is known, exploring is charged as if it had paid the least.
        """
        if math.isnan(paid):
            raise InputError(
                "an incumbent and a certified gap need to know what every episode pays, and some agents do not say "
                "it (join without --no-rewards)."
            )
        self.total += episodes
        if playing != INCUMBENT:
            self.explored += episodes
        self.paid += paid
        for judged in (self.incumbent, self.candidate):
            if judged is not None and judged.number in returns:
                judged.returns += returns[judged.number]
        self.verified += episodes if playing == VERIFYING else 0

    # -------------------------------------------------------------------------------------------------- candidates

    def distrusts_counts(self, *, ending: bool) -> bool:
        """True if what is recommended now must be a cautious plan."""
        return self.thin and (self.candidate is None or ending)

    def consider(self, recommended: Recommended, estimated: float, optimistic: float) -> None:
        """Take a recommended policy for a candidate if it looks good by the model and no other is being verified."""
        if self.promises.watching:
            return
        if self.candidate is not None:
            most = self.interval(self.candidate).upper
            beaten = self.incumbent is not None and most <= self.interval(self.incumbent).lower
            hopeless = optimistic - most > self.until_gap if self.until_gap < math.inf else beaten
            refuted = self.until_gap == math.inf and self.estimate > most and not self.thin
            if hopeless or refuted or (estimated > most and not self.thin):
                self.candidate = None
            if refuted:
                self.thin = True
                return
        better = self.incumbent is not None and estimated > self.interval(self.incumbent).upper
        if self.candidate is None and (better or optimistic - estimated < 0.5 * self.until_gap < math.inf):
            self.judged += 1
            self.estimate = estimated
            self.candidate = JudgedPolicy(recommended, self.judged)
            self.verified = 0

    def check(
        self, optimistic: float, model: Callable[[PolicyArray], float], rounds: int, played: int, *, ending: bool
    ) -> None:
        """Promote the candidate if it is better than the incumbent; end the run if it is near to the best.

        A run whose episodes are over has a certificate of the gap there is, or, if it never explores, of the
        incumbent's value. ``model`` says what a policy is worth at least by the counts of all episodes.
        """
        candidate = self.candidate
        incumbent = self.incumbent
        if incumbent is not None and self.promises.watching and ending:
            self._issue(VALUE, incumbent, self.interval(incumbent).upper, math.nan, rounds, played)
        if candidate is None or not candidate.returns.any():
            return
        least = self.interval(candidate).lower
        if self.until_gap < math.inf and (optimistic - least <= self.until_gap or ending):
            self._issue(GAP, candidate, optimistic, model(candidate.policy), rounds, played)
            self.certified = optimistic - least <= self.until_gap
        if incumbent is not None and least > self.interval(incumbent).upper:
            interval = self.interval(incumbent)
            self._issue(PROMOTION, candidate, interval.upper, model(candidate.policy), rounds, played)
            self.owed += self.explored * (interval.upper - self.range()[0])
            self.worth += self.total * self._least(interval)
            self.explored = self.total = self.verified = 0
            self.incumbent = candidate
            self.candidate = None

    def issued(self, rounds: int) -> str:
        """The certificates that were issued after so many rounds, in words."""
        return "; ".join(f"{one.kind}: {one}" for one in self.certificates if one.rounds == rounds)

    def _issue(
        self, kind: str, judged: JudgedPolicy, compared_with: float, model_at_least: float, rounds: int, played: int
    ) -> None:
        """Certify a policy now; values are in our units."""
        H = self.setting.horizon
        interval = self.interval(judged)
        values = interval.lower, compared_with, model_at_least
        low, other, model = (self._units().original_return(x, H) for x in values)
        figures = DELTA, interval.episodes, low, other, model, rounds, played
        date = datetime.now(UTC).isoformat(timespec="seconds")
        assumed = self._assumptions(kind, compared_with, model_at_least)
        self.certificates.append(Certificate(kind, policy_digest(judged.policy), *figures, date, assumed))
        self.final = judged.recommended

    def _assumptions(self, kind: str, compared_with: float, model_at_least: float) -> tuple[str, ...]:
        """The assumptions of a certificate, as sentences that the owner of the environments can check."""
        H = self.setting.horizon
        setting = self.setting
        facts = self.circumstances
        units = self._units()
        parts = self.promises.parts
        sentences = assumptions_of_returns(setting, units, self.return_limits, parts)
        if kind == VALUE:
            return tuple(sentences)
        slack = slack_of_agents(setting, facts.eps_r)
        differ = ""
        if slack > 0.0:
            best = units.original_return(min(float(H), compared_with + slack), H)
            eps_p = setting.eps_p if setting.eps_p_known else math.nan
            differ = (
                f"Agents are taken to be alike, which they are not (eps_p = {eps_p:.3g}, eps_r = {facts.eps_r:.3g})."
            )
            if kind == GAP:
                differ += f" Proved is that the best policy is worth at most {best:,.4g}."
        of_model = assumptions_of_model(setting, facts, differ)
        if kind == PROMOTION:  # no model enters into what is promised
            of_model = [f"For model_at_least only: {one}" for one in of_model]
        beside = (
            f"The bound by the counts alone (model_at_least) is a statement of its own, which fails with probability "
            f"at most {parts.model:.4g} besides."
        )
        return (*sentences, *of_model, *(() if math.isnan(model_at_least) else (beside,)))

    # ------------------------------------------------------------------------------------------------- saved state

    def saved(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Arrays, and what else there is, ready for JSON."""
        arrays: dict[str, Array] = {}
        about: dict[str, Any] = {name: getattr(self, name) for name in COUNTED}
        for name in POLICIES:
            judged = getattr(self, name)
            about[name] = 0 if judged is None else judged.number
            if judged is not None:
                arrays |= {**policy_arrays(name, judged.recommended), f"{name}.returns": judged.returns}
        about["final"] = self.final is not None
        if self.final is not None:
            arrays |= policy_arrays("final", self.final)
        about["certificates"] = [certificate.to_data() for certificate in self.certificates]
        return {ASSURANCE + name: array for name, array in arrays.items()}, about

    def restore(self, arrays: Mapping[str, Array], about: Mapping[str, Any]) -> None:
        for name in COUNTED:
            setattr(self, name, about[name])
        for name in POLICIES:
            judged = None
            own = ASSURANCE + name
            if about[name]:
                judged = JudgedPolicy(saved_policy(own, arrays, self.setting), int(about[name]))
                put_back(f"{own}.returns", judged.returns, arrays.get(f"{own}.returns"))
            setattr(self, name, judged)
        self.final = saved_policy(f"{ASSURANCE}final", arrays, self.setting) if about["final"] else None
        self.certificates = [Certificate.from_data(data) for data in about["certificates"]]


def policy_arrays(name: str, recommended: Recommended) -> dict[str, Array]:
    """A policy and its values by name, to be saved."""
    return {f"{name}.policy": recommended.policy, f"{name}.V": recommended.V}


def saved_policy(name: str, arrays: Mapping[str, Array], setting: Setting, kind: str = PLANNED) -> Recommended:
    """What :func:`policy_arrays` gave, read back."""
    H = setting.horizon
    S = setting.states
    saved = arrays.get(f"{name}.policy", np.zeros((H, S), dtype=np.int32))
    policy = np.zeros((H, S, *saved.shape[2:]), dtype=saved.dtype)
    V = np.zeros((H + 1, S))
    put_back(f"{name}.policy", policy, arrays.get(f"{name}.policy"))
    put_back(f"{name}.V", V, arrays.get(f"{name}.V"))
    return Recommended(policy, V, kind)
