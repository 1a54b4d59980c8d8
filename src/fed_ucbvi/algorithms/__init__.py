"""Algorithms by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from fed_ucbvi.algorithms.base import Algorithm
from fed_ucbvi.algorithms.byzan_ucbvi import ByzanUCBVI
from fed_ucbvi.algorithms.fed_ucbvi import FedUCBVI
from fed_ucbvi.algorithms.fedq import FedQBernstein, FedQHoeffding
from fed_ucbvi.algorithms.fedq_advantage import FedQAdvantage
from fed_ucbvi.algorithms.fedq_early_settled import FedQEarlySettled
from fed_ucbvi.algorithms.ucb_advantage import ConcurrentUCBAdvantage, UCBAdvantage
from fed_ucbvi.algorithms.ucbvi import UCBVI, ConcurrentUCBVI
from fed_ucbvi.errors import unknown_name

ALGORITHMS: dict[str, type[Any]] = {
    FedUCBVI.name: FedUCBVI,
    UCBVI.name: UCBVI,
    ConcurrentUCBVI.name: ConcurrentUCBVI,
    ByzanUCBVI.name: ByzanUCBVI,
    FedQHoeffding.name: FedQHoeffding,
    FedQBernstein.name: FedQBernstein,
    FedQAdvantage.name: FedQAdvantage,
    FedQEarlySettled.name: FedQEarlySettled,
    UCBAdvantage.name: UCBAdvantage,
    ConcurrentUCBAdvantage.name: ConcurrentUCBAdvantage,
}
"""Classes of parameters; each is a frozen dataclass that satisfies :class:`Algorithm`."""


def make_algorithm(name: str, parameters: Mapping[str, object]) -> Algorithm[Any, Any]:
    """The algorithm registered under ``name`` with these parameters.

    >>> make_algorithm("fed-ucbvi", {"bonus": "theory"}).bonus
    'theory'
    """
    if name not in ALGORITHMS:
        raise unknown_name("algorithm", name, ALGORITHMS)
    kind = ALGORITHMS[name]
    known = [field.name for field in dataclasses.fields(kind)]
    for key in parameters:
        if key not in known:
            raise unknown_name(f"parameter of {name}", key, known)
    algorithm: Algorithm[Any, Any] = kind(**parameters)
    return algorithm


def parameters_of(algorithm: Algorithm[Any, Any]) -> dict[str, object]:
    """The parameters, for the record."""
    given = dataclasses.asdict(algorithm)  # type: ignore[call-overload]
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in given.items()}
