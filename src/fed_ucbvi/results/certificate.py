"""What a run promises of a policy: the numbers, with which probability, and what was assumed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fed_ucbvi.core.numbers import nan_for_none, none_for_nan
from fed_ucbvi.core.types import IndexArray

GAP, PROMOTION, VALUE = KINDS = ("gap", "promotion", "value")
"""Whether the policy is nearly the best there is, or better than the incumbent; or just what it is worth."""
NUMBERS = ("at_least", "compared_with", "model_at_least")


@dataclass(frozen=True)
class Certificate:
    """A guarantee for a policy, in the environment's own units, that holds with probability ``1 - delta``.

    Attributes:
        kind: ``gap``: the best policy is worth at most ``compared_with``. ``promotion``: the incumbent was.
            ``value``: the policy itself is.
        policy_sha256: which policy; see :attr:`~fed_ucbvi.results.policy.LearntPolicy.digest`.
        delta: the probability that something here is wrong.
        episodes: of all agents in which the policy itself was played.
        at_least: what it is worth, from these episodes alone.
        compared_with: see ``kind``.
        model_at_least: what it is worth by the counts of all episodes, if the states are all that matters; NaN where
            nobody has worked it out.
        rounds: of the run, when it was issued.
        played: episodes per agent, then.
        date: then, in UTC.
        assumed: in words.
    """

    kind: str
    policy_sha256: str
    delta: float
    episodes: int
    at_least: float
    compared_with: float
    model_at_least: float
    rounds: int
    played: int
    date: str
    assumed: str

    @property
    def gap(self) -> float:
        """What the policy can be worse than what it is compared with; below 0 if it is better."""
        return self.compared_with - self.at_least

    def __str__(self) -> str:
        figures = f"worth at least {self.at_least:,.4g} (played {self.episodes:,} times)"
        others = {GAP: "the best policy at most", PROMOTION: "the incumbent at most", VALUE: "and at most"}
        other = others[self.kind]
        return f"{figures}, {other} {self.compared_with:,.4g}, with probability {1 - self.delta:g}"

    def to_data(self) -> dict[str, Any]:
        data: dict[str, Any] = none_for_nan(asdict(self))
        return data

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Certificate:
        """Read what :meth:`to_data` gave."""
        values: dict[str, Any] = {**data, **{name: nan_for_none(data[name]) for name in NUMBERS}}
        return cls(**values)


def policy_digest(table: IndexArray) -> str:
    """The SHA-256 of actions ``(H, S)``, as 32-bit integers, little endian, step by step."""
    return hashlib.sha256(np.ascontiguousarray(table, dtype="<i4").tobytes()).hexdigest()
