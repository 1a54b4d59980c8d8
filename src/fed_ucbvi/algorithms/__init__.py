"""Algorithms by name: those of this package, those that installed packages register, and ``module:attribute``."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from fed_ucbvi.algorithms.base import Algorithm
from fed_ucbvi.core.errors import InputError, unknown_name
from fed_ucbvi.core.plugins import Registry, check_code, is_attribute, loaded_attribute, name_of_class, registered

GROUP = "fed_ucbvi.algorithms"
"""Entry points by which other packages, and the paper's part of this one, register classes of parameters."""

OWN: dict[str, str] = {
    "fed-ucbvi": "fed_ucbvi.algorithms.fed_ucbvi:FedUCBVI",
    "fed-kl-ucbvi": "fed_ucbvi.algorithms.fed_kl_ucbvi:FedKLUCBVI",
    "fed-kl-ucbvi-fast": "fed_ucbvi.algorithms.fed_kl_ucbvi:FastFedKLUCBVI",
}
"""Classes of the algorithms of the core, as ``module:class``; a module is imported when its algorithm is used."""


class _OwnClasses(Mapping[str, Any]):
    """The classes of :data:`OWN`."""

    def __getitem__(self, name: str) -> Any:
        module, _, attribute = OWN[name].partition(":")
        return getattr(importlib.import_module(module), attribute)

    def __contains__(self, name: object) -> bool:
        return name in OWN

    def __iter__(self) -> Iterator[str]:
        return iter(OWN)

    def __len__(self) -> int:
        return len(OWN)


ALGORITHMS = Registry(_OwnClasses(), GROUP)
"""Classes of parameters by name: those of the core and those that are registered by entry points."""

AlgorithmLike = Algorithm[Any, Any] | type[Algorithm[Any, Any]] | str
"""What :func:`as_algorithm` takes."""


def find_algorithm(name: str) -> type[Any] | Algorithm[Any, Any]:
    """Find the algorithm of this name: its class or, for ``module:attribute``, perhaps one with parameters.

    >>> find_algorithm("fed-ucbvi") is find_algorithm("fed_ucbvi:FedUCBVI")
    True
    """
    found: type[Any] | Algorithm[Any, Any] = ALGORITHMS.find("algorithm", name)
    _check_complete(name, found)
    return found


def _check_complete(name: str, found: object) -> None:
    """Raise unless an object is an algorithm, or the class of one, and lacks nothing."""
    kind = found if isinstance(found, type) else type(found)
    if not (issubclass(kind, Algorithm) and hasattr(kind, "__dataclass_fields__")):
        raise InputError(
            f"{name} is no algorithm: a frozen dataclass that inherits from fed_ucbvi.Algorithm is needed, or "
            f"a value of one, not {_what(found)}."
        )
    missing = sorted(kind.__abstractmethods__) + ([] if hasattr(kind, "name") else ["name"])
    if missing:
        raise InputError(f"{name} is no algorithm: it lacks {', '.join(missing)} (see fed_ucbvi.Algorithm).")


def _what(found: object) -> str:
    """A thing by its class, and a class by its name."""
    return f"the class {found.__name__}" if isinstance(found, type) else type(found).__name__


def known_class(name: str) -> type[Algorithm[Any, Any]] | None:
    """The class that says how a name on record is written and drawn, or None if there is none at hand.

    A name on record may be ``module:attribute``. A file must not make us run code just by naming it, so such a class
    is found only if its module has been imported already. A class that is registered is imported. A class that
    inherits its name is not used either, so that it is not mistaken for the one it inherits from.

    >>> known_class("fed-ucbvi").label, known_class("nobody:Knows")
    ('Fed-UCBVI', None)
    """
    found = ALGORITHMS.at_hand(name)
    kind = found if isinstance(found, type) else type(found)
    return kind if issubclass(kind, Algorithm) and "name" in vars(kind) else None


def class_of(name: str) -> type[Any]:
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


def recorded_algorithm(name: str, parameters: Mapping[str, object]) -> Algorithm[Any, Any]:
    """As :func:`make_algorithm`, of what a file says: ``module:attribute`` must be a class that is imported."""
    found = loaded_attribute(name) if is_attribute(name) else None
    if not (isinstance(found, type) and issubclass(found, Algorithm)):
        check_code("algorithm", name)
    return make_algorithm(name, parameters)


def as_algorithm(given: AlgorithmLike) -> Algorithm[Any, Any]:
    """Make an algorithm of an algorithm, its class or its name; the latter two have default parameters.

    >>> from fed_ucbvi import FedUCBVI
    >>> as_algorithm("fed-ucbvi") == as_algorithm(FedUCBVI) == as_algorithm(FedUCBVI())
    True
    """
    if isinstance(given, str):
        return make_algorithm(given, {})
    kind = given if isinstance(given, type) else type(given)
    if not issubclass(kind, Algorithm):
        raise InputError(
            f"pass an algorithm, such as FedUCBVI(), its class or its name, such as 'fed-ucbvi', not {_what(given)}."
        )
    _check_complete(kind.__name__, given)
    try:
        return given() if isinstance(given, type) else given
    except TypeError as error:
        raise InputError(f"{kind.__name__} needs parameters; pass {kind.__name__}(...): {error}.") from error


def algorithm_name(algorithm: Algorithm[Any, Any] | type[Any]) -> str:
    """The name by which :func:`make_algorithm` makes it, or an algorithm of this class, again.

    >>> from fed_ucbvi import FedUCBVI
    >>> algorithm_name(FedUCBVI())
    'fed-ucbvi'
    """
    kind = algorithm if isinstance(algorithm, type) else type(algorithm)
    path = name_of_class(kind)
    if OWN.get(kind.name) == path:
        return str(kind.name)
    for name, entry in registered(GROUP).items():
        if name not in OWN and (entry.value == path or (name == kind.name and ALGORITHMS[name] is kind)):
            return name
    return path


def parameters_of(algorithm: Algorithm[Any, Any]) -> dict[str, object]:
    given = dataclasses.asdict(algorithm)  # type: ignore[call-overload]
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in given.items()}
