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

**Verifying.** A recommended policy that looks good by the model becomes the *candidate*. It is played as often as the
exploring policy, until it is certified or cannot be any more. The incumbent is then played as often as the candidate,
because what is compared are their intervals, and its episodes cost nothing. If the candidate is worth more than the
incumbent, it is *promoted*: it becomes the incumbent. What was owed and allowed before stays on the books. If it is
within ``until_gap`` of the optimistic value, the run ends. Where a candidate's own episodes refute what the model
said, the model trusts *thin* counts. From then on candidates, and what is recommended, are cautious plans.

The j-th policy that is judged, the incumbent first, has ``delta / (j (j+1))`` of all errors, half of it on either
side. With ``until_gap`` half of delta is for optimism. ``docs/certificates.md`` has the arguments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np

from fed_ucbvi.algorithms.base import Algorithm, Array, Setting
from fed_ucbvi.algorithms.return_bounds import Interval, interval_of, new_histogram
from fed_ucbvi.core.errors import InputError, check_number
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray, PolicyArray
from fed_ucbvi.engine.state_store import put_back
from fed_ucbvi.problem.units import Units
from fed_ucbvi.results.policy import PolicyLike, policy_sets
from fed_ucbvi.results.recommendations import GAP, PLANNED, PROMOTION, VALUE, Certificate, Recommended, policy_digest
from fed_ucbvi.results.round_record import EVALUATING, EXPLORING, INCUMBENT, VERIFYING

DELTA, LOSS = 0.05, 0.05
"""The probability with which what is promised may fail, and the usual share of the incumbent's worth."""
SHARE_OF_HISTORY = 0.1
"""Rounds of the incumbent, rounds that verify and the time between two plans are at most this share of what was
played."""
ASSURANCE = "assurance."
"""Prefix of the names of saved arrays."""
COUNTED = ("explored", "verified", "total", "paid", "owed", "worth", "judged", "certified", "estimate", "thin")
POLICIES = ("incumbent", "candidate")
ASSUMED = {
    GAP: "episodes are drawn alike; optimism: the states tell all of the future that matters, and agents are alike",
    PROMOTION: "episodes are drawn alike",
    VALUE: "episodes are drawn alike",
}


@dataclass(frozen=True)
class Promises:
    """What a run is asked for, as :func:`fed_ucbvi.run` describes it.

    The incumbent is ``(H, S)``, or sets or weights of actions ``(H, S, A)``. With ``only`` it is played and nothing
    else, to say what it is worth; nobody learns.
    """

    incumbent: PolicyArray | None
    loss: float
    until_gap: float | None
    only: bool = False
    return_range: tuple[float, float] | None = None

    @classmethod
    def of(
        cls,
        incumbent: PolicyLike | None,
        loss: float | None,
        until_gap: float | None,
        sizes: tuple[int, int, int],
        *,
        live: bool = False,
        return_range: Sequence[float] | None = None,
    ) -> Promises | None:
        """From what a caller gives, for ``sizes`` (H, S, A); None if nothing is asked for."""
        if incumbent is None and loss is not None:
            raise InputError("loss says what exploring may cost an incumbent; pass incumbent too (--incumbent FILE).")
        if incumbent is None and until_gap is None:
            if return_range is not None:
                raise InputError("return_range is for what is promised; pass incumbent or until_gap too.")
            return None
        table = None if incumbent is None else policy_sets(incumbent, *sizes, name="the incumbent", ends=live)
        share = check_number("loss", LOSS if loss is None else loss, above=0, below=1)
        gap = None if until_gap is None else check_number("until_gap", until_gap, above=0)
        return cls(table, share, gap, return_range=checked_range(return_range))

    def apply(self, algorithm: Algorithm[Any, Any]) -> Algorithm[Any, Any]:
        """The algorithm that can keep them, or raise."""
        if not algorithm.plays_any_policy:
            raise InputError(
                f"{algorithm.name} learns only from what its own policy plays, so it cannot play an incumbent or "
                "verify a policy. Use fed-kl-ucbvi."
            )
        return algorithm if self.until_gap is None else algorithm.certifying(DELTA)

    def to_data(self) -> dict[str, Any]:
        table = None if self.incumbent is None else self.incumbent.tolist()
        return {**asdict(self), "incumbent": table, "return_range": self.return_range and list(self.return_range)}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Promises:
        table = None if data["incumbent"] is None else np.array(data["incumbent"])
        if table is not None and table.dtype != np.bool_:
            table = table.astype(np.int32 if table.ndim == 2 else np.int8)
        ends = checked_range(data["return_range"])
        return cls(table, float(data["loss"]), data["until_gap"], bool(data["only"]), ends)


NOTHING_PROMISED = Promises(None, LOSS, None)


def stated_range(stated: tuple[float, float], units: Units, horizon: int) -> tuple[float, float]:
    """A range of returns in our units, as far as rewards allow it; raise if they do not."""
    low, high = (units.rescaled_return(end, horizon) for end in stated)
    low, high = max(0.0, low), min(float(horizon), high)
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
        low, high = math.nan, math.nan
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
    def policy(self) -> IndexArray:
        return self.recommended.policy


class Assurance:
    """Keeps the promises of a run, if there are any: chooses what is played, and issues certificates.

    ``units`` says those of rewards, which nodes on the network declare when they come.
    """

    def __init__(self, promises: Promises, setting: Setting, units: Callable[[], Units]) -> None:
        self.promises, self.setting, self._units = promises, setting, units
        self.incumbent: JudgedPolicy | None = None
        self.candidate: JudgedPolicy | None = None
        if promises.incumbent is not None:
            unknown: FloatArray = np.full((setting.horizon + 1, setting.states), np.nan)
            self.incumbent = JudgedPolicy(Recommended(promises.incumbent, unknown, PLANNED), 1)
        self.growth = 2.0 if promises is NOTHING_PROMISED else 1.0 + SHARE_OF_HISTORY
        """By what factor the episodes grow between two recommendations."""
        self.eps_r = 0.0
        """By how much rewards of agents differ, as far as that is known."""
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
    def within(self) -> tuple[float, float] | None:
        """The range of an episode's return, in our units, where it was stated."""
        stated, H, units = self.promises.return_range, self.setting.horizon, self._units()
        return None if stated is None else stated_range(stated, units, H)

    def range(self) -> tuple[float, float]:
        """The same, or what rewards allow."""
        return self.within or (0.0, float(self.setting.horizon))

    def interval(self, judged: JudgedPolicy) -> Interval:
        """Of its value, in our units; if no other will be judged, it has all of delta."""
        j, (low, high) = judged.number, self.range()
        return interval_of(judged.returns, high, DELTA if self.promises.only else DELTA / (j * (j + 1)), low)

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
        if self.incumbent is None or self.promises.only:
            return math.nan, math.nan
        interval = self.interval(self.incumbent)
        cost = self.owed + self.explored * (interval.upper - self.range()[0]) - self.paid
        return cost, self.promises.loss * (self.worth + self.total * self._least(interval))

    def _least(self, interval: Interval) -> float:
        """W0: what the incumbent earns or costs at least, from 0 in own units."""
        return max(0.0, interval.lower - self._zero, self._zero - interval.upper)

    def choose(self, played: int, left: int) -> tuple[int, PolicyArray | None, int]:
        """What the next round plays, after so many episodes of each agent, and with so many left.

        Also the policy, None if it is the server's, and how many episodes at most.
        """
        short = min(left, max(1, math.ceil(SHARE_OF_HISTORY * played)))
        if self.incumbent is not None and self.promises.only:
            return EVALUATING, self.incumbent.policy, short
        if self.incumbent is not None:
            interval = self.interval(self.incumbent)
            cost, allowed = self.balance()
            each = interval.upper - self.range()[0] - self.promises.loss * self._least(interval)
            if each > 0.0:
                left = min(left, math.floor((allowed - cost) / (each * self.setting.agents)))
            if left < 1:
                return INCUMBENT, self.incumbent.policy, short
        if self.candidate is not None and self.verified <= self.explored - self.verified:
            if self.incumbent is not None and self.incumbent.returns.sum() < self.candidate.returns.sum():
                return INCUMBENT, self.incumbent.policy, short
            return VERIFYING, self.candidate.policy, min(short, left)
        return EXPLORING, None, left

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
        if playing not in (INCUMBENT, EVALUATING):
            self.explored += episodes
        self.paid += paid
        for judged in (self.incumbent, self.candidate):
            if judged is not None and judged.number in returns:
                judged.returns += returns[judged.number]
        self.verified += episodes if playing == VERIFYING else 0

    # -------------------------------------------------------------------------------------------------- candidates

    def consider(self, recommended: Recommended, estimated: float, optimistic: float) -> None:
        """Take a recommended policy for a candidate if it looks good by the model and no other is being verified."""
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
            self.candidate, self.verified = JudgedPolicy(recommended, self.judged), 0

    def check(
        self, optimistic: float, model: Callable[[PolicyArray], float], rounds: int, played: int, *, ending: bool
    ) -> None:
        """Promote the candidate if it is better than the incumbent; end the run if it is near to the best.

        A run whose episodes are over has a certificate of the gap there is. ``model`` says what a policy is worth at
        least by the counts of all episodes.
        """
        candidate, incumbent = self.candidate, self.incumbent
        if incumbent is not None and self.promises.only and ending:
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
            self.incumbent, self.candidate = candidate, None

    def issued(self, rounds: int) -> str:
        """The certificates that were issued after so many rounds, in words."""
        return "; ".join(f"{one.kind}: {one}" for one in self.certificates if one.rounds == rounds)

    def _issue(
        self, kind: str, judged: JudgedPolicy, compared_with: float, model_at_least: float, rounds: int, played: int
    ) -> None:
        """Certify a policy now; values are in our units."""
        H, interval = self.setting.horizon, self.interval(judged)
        values = interval.lower, compared_with, model_at_least
        low, other, model = (self._units().original_return(x, H) for x in values)
        figures = DELTA, interval.episodes, low, other, model, rounds, played
        date = datetime.now(UTC).isoformat(timespec="seconds")
        assumed, eps_p = ASSUMED[kind], self.setting.eps_p if self.setting.eps_p_known else 0.0
        if kind == GAP and eps_p + self.eps_r > 0.0:
            slack = 0.5 * eps_p * H * (H - 1) + H * self.eps_r
            proved = self._units().original_return(min(float(H), compared_with + slack), H)
            assumed += (
                f", which they are not (eps_p = {eps_p:.3g}, eps_r = {self.eps_r:.3g}); proved is that the best "
                f"policy is worth at most {proved:,.4g}"
            )
        self.certificates.append(Certificate(kind, policy_digest(judged.policy), *figures, date, assumed))
        self.final = judged.recommended

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
            judged, own = None, ASSURANCE + name
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
    H, S = setting.horizon, setting.states
    saved = arrays.get(f"{name}.policy", np.zeros((H, S), dtype=np.int32))
    policy, V = np.zeros((H, S, *saved.shape[2:]), dtype=saved.dtype), np.zeros((H + 1, S))
    put_back(f"{name}.policy", policy, arrays.get(f"{name}.policy"))
    put_back(f"{name}.V", V, arrays.get(f"{name}.V"))
    return Recommended(policy, V, kind)
