"""The label, colour and marker of algorithms and environments in figures."""

from __future__ import annotations

from fed_ucbvi.algorithms import known_class
from fed_ucbvi.core.colours import Marker, spare_colour
from fed_ucbvi.environments import environment_label


def colour_of(algorithm: str) -> str:
    """The colour of an algorithm, by its recorded name.

    >>> colour_of("fed-ucbvi")
    '#0072B2'
    """
    kind = known_class(algorithm)
    return spare_colour(algorithm) if kind is None else kind.colour


def marker_of(algorithm: str) -> Marker:
    """The marker of an algorithm's points, by its recorded name.

    >>> marker_of("fed-ucbvi")
    'cross'
    """
    kind = known_class(algorithm)
    return "none" if kind is None else kind.marker


def label_of(name: str) -> str:
    """The label of an algorithm or environment; its name if it has no label.

    >>> label_of("fed-ucbvi"), label_of("deep_sea"), label_of("something new")
    ('Fed-UCBVI', 'DeepSea', 'something new')
    """
    kind = known_class(name)
    return environment_label(name) if kind is None else kind.label
