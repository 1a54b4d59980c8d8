"""Algorithms by name: those of this package, those that installed packages register, and ``module:attribute``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from fed_ucbvi.algorithms.base import Algorithm
from fed_ucbvi.algorithms.byzan_ucbvi import ByzanUCBVI
from fed_ucbvi.algorithms.fed_ucbvi import FedUCBVI, ProvedFedUCBVI, SharpFedUCBVI
from fed_ucbvi.algorithms.fedq import FedQBernstein, FedQHoeffding
from fed_ucbvi.algorithms.fedq_advantage import FedQAdvantage
from fed_ucbvi.algorithms.fedq_early_settled import FedQEarlySettled
from fed_ucbvi.algorithms.ucb_advantage import ConcurrentUCBAdvantage, UCBAdvantage
from fed_ucbvi.algorithms.ucbvi import UCBVI, ConcurrentUCBVI
from fed_ucbvi.errors import InputError, unknown_name
from fed_ucbvi.plugins import Registry, is_attribute, load_attribute, name_of_class, registered

GROUP = "fed_ucbvi.algorithms"
"""Entry points by which other packages register classes of parameters."""

ALGORITHMS: dict[str, type[Any]] = {
    FedUCBVI.name: FedUCBVI,
    SharpFedUCBVI.name: SharpFedUCBVI,
    ProvedFedUCBVI.name: ProvedFedUCBVI,
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


REGISTRY: Mapping[str, type[Any]] = Registry(ALGORITHMS, GROUP)
"""These and those of other packages."""
REQUIRED = sorted({*Algorithm.__annotations__, *(name for name in vars(Algorithm) if not name.startswith("_"))})
"""What an algorithm has; see :class:`Algorithm`."""


def find_algorithm(name: str) -> type[Any] | Algorithm[Any, Any]:
    """What ``name`` stands for: a class of parameters, or, for ``module:attribute``, perhaps one with parameters.

    >>> find_algorithm("fed-ucbvi") is find_algorithm("fed_ucbvi:FedUCBVI")
    True
    """
    if not is_attribute(name) and name not in REGISTRY:
        raise unknown_name("algorithm", name, REGISTRY)
    found = load_attribute(name) if is_attribute(name) else REGISTRY[name]
    if not dataclasses.is_dataclass(found):
        raise InputError(
            f"{name} is no algorithm: a frozen dataclass of parameters is needed, or a value of one, not "
            f"{type(found).__name__}."
        )
    missing = [part for part in REQUIRED if not hasattr(found, part)]
    if missing:
        raise InputError(
            f"{name} is no algorithm: it lacks {', '.join(missing)} (see fed_ucbvi.algorithms.base.Algorithm)."
        )
    return found


def class_of(name: str) -> type[Any]:
    """The class of parameters that ``name`` stands for."""
    found = find_algorithm(name)
    return found if isinstance(found, type) else type(found)


def make_algorithm(name: str, parameters: Mapping[str, object]) -> Algorithm[Any, Any]:
    """The algorithm that ``name`` stands for, with these parameters.

    Args:
        name: as registered, or ``module:attribute``: a class of parameters, or a value, of which those that are not
            given are kept.
        parameters: by name.

    >>> make_algorithm("fed-ucbvi", {"bonus": "theory"}).bonus
    'theory'
    """
    found = find_algorithm(name)
    known = [field.name for field in dataclasses.fields(found) if field.init]  # type: ignore[arg-type]
    for key in parameters:
        if key not in known:
            raise unknown_name(f"parameter of {name}", key, known)
    algorithm: Algorithm[Any, Any] = (
        found(**parameters) if isinstance(found, type) else dataclasses.replace(found, **parameters)  # type: ignore[type-var]
    )
    return algorithm


def algorithm_name(algorithm: Algorithm[Any, Any] | type[Any]) -> str:
    """The name by which :func:`make_algorithm` makes it, or an algorithm of this class, again.

    >>> algorithm_name(FedUCBVI())
    'fed-ucbvi'
    """
    kind = algorithm if isinstance(algorithm, type) else type(algorithm)
    if ALGORITHMS.get(kind.name) is kind:
        return str(kind.name)
    path = name_of_class(kind)
    for name, entry in registered(GROUP).items():
        if name not in ALGORITHMS and (entry.value == path or (name == kind.name and REGISTRY[name] is kind)):
            return name
    return path


def parameters_of(algorithm: Algorithm[Any, Any]) -> dict[str, object]:
    """The parameters, for the record."""
    given = dataclasses.asdict(algorithm)  # type: ignore[call-overload]
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in given.items()}
