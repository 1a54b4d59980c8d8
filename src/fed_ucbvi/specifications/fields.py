"""Checks of the fields of specifications, and their form as plain data.

Types, bounds, defaults and help texts are declared with the fields. Values are checked, never read from text: the
command line and sweeps read texts with :func:`fed_ucbvi.core.parameters.converted` first.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.parameters import check_value, declared

Options = Mapping[str, Any]
Sizes = tuple[int, int, int]


def field_names(kind: Any) -> list[str]:
    """Names of the fields of a dataclass, in order."""
    return [one.name for one in dataclasses.fields(kind)]


def check_fields(specification: Any) -> None:
    """Check every field against its declared type, and store numbers, lists and paths in that type."""
    kind = type(specification)
    for name in field_names(kind):
        value = check_field(kind, name, getattr(specification, name))
        object.__setattr__(specification, name, value)


def check_field(kind: Any, name: str, value: Any) -> Any:
    """Return a value for the field ``name`` of the dataclass ``kind`` in the declared type, or raise."""
    hint = declared(kind)[name]
    plain = _plain_type(hint)
    if value is None and plain is not hint:
        return None
    origin = typing.get_origin(plain)
    if origin is tuple:
        return _checked_tuple(name, value, typing.get_args(plain))
    if origin is Mapping:
        return _checked_table(name, value)
    if plain is Path and isinstance(value, str):
        return Path(value)
    return check_value(name, value, hint)


def plain_value(value: Any) -> Any:
    """A field's value as JSON holds it."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, Mapping):
        return dict(value)
    return value


def plain_fields(specification: Any) -> dict[str, Any]:
    """All fields of a specification as plain values, ready for JSON."""
    return {name: plain_value(getattr(specification, name)) for name in field_names(type(specification))}


def _plain_type(hint: Any) -> Any:
    """The type within ``Annotated`` and ``| None``."""
    plain = typing.get_args(hint)[0] if hasattr(hint, "__metadata__") else hint
    if typing.get_origin(plain) in (typing.Union, types.UnionType):
        others = [one for one in typing.get_args(plain) if one is not type(None)]
        if len(others) == 1:
            return _plain_type(others[0])
    return plain


def _checked_tuple(name: str, given: Any, kinds: tuple[Any, ...]) -> tuple[Any, ...]:
    """A list or tuple, as JSON and Python give it, as a tuple of checked values."""
    any_length = kinds[-1] is Ellipsis
    if not isinstance(given, list | tuple) or not (any_length or len(given) == len(kinds)):
        number = "" if any_length else f"{len(kinds)} "
        raise InputError(f"{name} must be a list of {number}values, got {given!r}.")
    return tuple(check_value(name, value, kinds[0]) for value in given)


def _checked_table(name: str, given: Any) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise InputError(f"{name} must be a table of names and values, got {given!r}.")
    return dict(given)
