"""The label of an environment in tables and figures, and its name in earlier versions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

BuilderT = TypeVar("BuilderT", bound=Callable[..., Any])

LABEL, FORMERLY = "environment_label", "former_environment_name"
"""Attributes that :func:`known_as` sets on the function."""


def known_as(label: str, *, formerly: str = "") -> Callable[[BuilderT], BuilderT]:
    """Give a label to the function that makes an environment; the name of the environment is that of the function.

    Args:
        label: how the name is written in tables and figures.
        formerly: its name in earlier versions, by which it is still found.

    >>> @known_as("Two Rooms")
    ... def two_rooms(agents=2): ...
    >>> label_of_builder(two_rooms)
    'Two Rooms'
    """

    def mark(builder: BuilderT) -> BuilderT:
        setattr(builder, LABEL, label)
        setattr(builder, FORMERLY, formerly)
        return builder

    return mark


def label_of_builder(builder: object) -> str | None:
    """The label that a function was marked with, or None."""
    label = getattr(builder, LABEL, None)
    return label if isinstance(label, str) else None


def former_name(builder: object) -> str:
    """The former name that a function was marked with; empty if there is none."""
    name = getattr(builder, FORMERLY, "")
    return name if isinstance(name, str) else ""
