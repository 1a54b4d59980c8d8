"""Promises of a run: an incumbent policy with a share of loss, a certified gap, and the range of returns.

:class:`~fed_ucbvi.engine.assurance.Assurance` keeps them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fed_ucbvi.algorithms.base import Algorithm
from fed_ucbvi.algorithms.count_reporting import CountReporting, as_count_reporting
from fed_ucbvi.core.errors import InputError, check_number
from fed_ucbvi.core.types import PolicyArray
from fed_ucbvi.engine.assumptions import DeltaParts
from fed_ucbvi.problem.policies import TYPES, form_of
from fed_ucbvi.problem.units import Units
from fed_ucbvi.results.policy import PolicyLike, as_policy

DELTA = 0.05
"""Probability with which the promises of a run may fail."""
LOSS = 0.05
"""Default share of the incumbent's worth that exploring may cost."""


@dataclass(frozen=True)
class Promises:
    """Promises that a run is asked for; :func:`fed_ucbvi.run` describes them.

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
        """Check the arguments of a run with ``sizes`` (H, S, A); None if they ask for no promise."""
        if incumbent is None and loss is not None:
            raise InputError("loss says what exploring may cost an incumbent; pass incumbent too (--incumbent FILE).")
        if incumbent is None and until_gap is None:
            if return_range is not None:
                raise InputError("return_range is for what is promised; pass incumbent or until_gap too.")
            return None

        policy = None
        if incumbent is not None:
            policy = as_policy(incumbent, *sizes, name="the incumbent", ends=terminates)
        share = check_number("loss", LOSS if loss is None else loss, at_least=0, below=1)
        if share == 0 and until_gap is not None:
            raise InputError(
                "with loss=0 only the incumbent is played, so no gap can be certified; leave out until_gap, or allow "
                "some loss."
            )
        gap = None
        if until_gap is not None:
            gap = check_number("until_gap", until_gap, above=0)
        return cls(
            incumbent=policy,
            loss=share,
            until_gap=gap,
            return_range=checked_range(return_range),
        )

    @property
    def watching(self) -> bool:
        """True if the run never explores and only estimates the incumbent's value."""
        return self.incumbent is not None and self.loss == 0

    @property
    def parts(self) -> DeltaParts:
        """The split of delta over the promises."""
        return DeltaParts.of(
            DELTA,
            incumbent=self.incumbent is not None,
            until_gap=self.until_gap is not None,
        )

    def apply(self, algorithm: Algorithm[Any, Any]) -> CountReporting[Any]:
        """The algorithm with the confidence that the promises need; raise if it cannot keep them."""
        counting = as_count_reporting(
            algorithm,
            "learns only from what its own policy plays, so it cannot play an incumbent or verify a policy. Use "
            "fed-kl-ucbvi, or a CountingAlgorithm of your own.",
        )
        if self.until_gap is None:
            return counting
        return counting.certifying(self.parts.optimism)

    def to_data(self) -> dict[str, Any]:
        """The promises as JSON data."""
        return {
            "incumbent": None if self.incumbent is None else self.incumbent.tolist(),
            "loss": self.loss,
            "until_gap": self.until_gap,
            "return_range": None if self.return_range is None else list(self.return_range),
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Promises:
        """The inverse of :meth:`to_data`."""
        policy = None
        if data["incumbent"] is not None:
            table = np.array(data["incumbent"])
            policy = table.astype(TYPES[form_of(table)])
        return cls(
            incumbent=policy,
            loss=float(data["loss"]),
            until_gap=data["until_gap"],
            return_range=checked_range(data["return_range"]),
        )


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


def stated_range(stated: tuple[float, float], units: Units, horizon: int) -> tuple[float, float]:
    """A range of returns in rescaled units, cut to the returns that rewards allow; raise if nothing is left."""
    low = max(0.0, units.rescaled_return(stated[0], horizon))
    high = min(float(horizon), units.rescaled_return(stated[1], horizon))
    if not low < high:
        least = units.original_return(0.0, horizon)
        most = units.original_return(float(horizon), horizon)
        raise InputError(
            f"no episode can pay what return_range ({stated[0]:.12g}, {stated[1]:.12g}) says: by the range of "
            f"rewards it pays between {least:.12g} and {most:.12g}."
        )
    return low, high
