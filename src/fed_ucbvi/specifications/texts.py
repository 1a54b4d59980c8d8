"""Values of specifications read from texts, as the command line and TOML files hold them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fed_ucbvi.core.parameters import converted, declared
from fed_ucbvi.specifications.fields import check_field


def read_parameters(algorithm: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of an algorithm with texts read in the types of its fields.

    Names that the algorithm does not have are left as they are; making the algorithm refuses them.

    >>> read_parameters("fed-ucbvi", {"nu": "1e3", "bonus": "theory"})
    {'nu': 1000.0, 'bonus': 'theory'}
    """
    from fed_ucbvi.algorithms import class_of

    kind: Any = class_of(algorithm)
    hints = declared(kind)
    return {name: converted(name, value, hints.get(name)) for name, value in given.items()}


def read_field(kind: Any, name: str, given: Any) -> Any:
    """The value of a field of a specification from a number or its text.

    >>> from fed_ucbvi.specifications.run import RunOptions
    >>> read_field(RunOptions, "episodes", "1e4"), read_field(RunOptions, "driver", "counts")
    (10000, 'counts')
    """
    if isinstance(given, str):
        return converted(name, given, declared(kind)[name])
    return check_field(kind, name, given)
