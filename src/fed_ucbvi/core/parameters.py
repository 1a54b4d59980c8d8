"""Parameters of algorithms, options of environments and fields of runs as data: type, bounds, choices, default, help.

A frozen dataclass declares each parameter once, in the type of its field, and a function in the annotation::

    bonus: Annotated[Literal["practical", "published"], Help("which constants the bonus has.")] = "practical"
    delta: Annotated[Probability, Help("failure probability.")] = 0.05
    iota: Annotated[NonNegative | None, Help("the logarithm; by default log(2/delta).")] = None

:func:`converted` reads a value or its text by that, :func:`check_parameters` checks values, and
:func:`parameter_help` lists parameters with their types and help texts.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import math
import re
import types
import typing
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from fed_ucbvi.core.errors import InputError, check_choice, check_flag, check_integer, check_number


class Bounds(NamedTuple):
    """The interval in which a number must lie, as metadata of ``Annotated[float, Bounds(...)]``."""

    at_least: float = -math.inf
    below: float = math.inf
    above: float = -math.inf
    at_most: float = math.inf
    why: str = ""
    """Where that is said, for error messages."""

    def __str__(self) -> str:
        low = f"({self.above:g}" if self.above >= self.at_least else f"[{self.at_least:g}"
        high = f"{self.below:g})" if self.below <= self.at_most else f"{self.at_most:g}]"
        return f"{low}, {high}"


class Help(NamedTuple):
    """The help text of a parameter, as metadata of ``Annotated[float, Help(...)]``."""

    text: str


Probability = Annotated[float, Bounds(above=0, below=1)]
NonNegative = Annotated[float, Bounds(at_least=0)]
Positive = Annotated[float, Bounds(above=0)]
Share = Annotated[float, Bounds(at_least=0, at_most=1)]
Count = Annotated[int, Bounds(at_least=0)]
Size = Annotated[int, Bounds(at_least=1)]
TRUE = ("true", "yes", "on", "1")
FALSE = ("false", "no", "off", "0")
NONE = ("none", "null")


class Parameter(NamedTuple):
    """One parameter; ``choices`` is empty unless its type is a ``Literal``."""

    name: str
    type: str
    default: Any
    description: str
    choices: tuple[Any, ...] = ()


def check_parameters(values: Any) -> None:
    """Raise unless every field of a dataclass's value fits its declared type.

    ``Literal``, ``bool``, ``int`` and ``float`` with their :class:`Bounds`, ``str``, ``Path``, and unions of these
    with ``None`` are checked; other types are not.

    >>> @dataclasses.dataclass
    ... class Rule:
    ...     delta: Annotated[float, Bounds(above=0, below=1)] = 0.05
    ...     ties: Literal["first", "random"] = "first"
    >>> check_parameters(Rule(delta=2))
    Traceback (most recent call last):
    fed_ucbvi.core.errors.InputError: delta must be a number in (0, 1), got 2.
    >>> check_parameters(Rule(ties="frist"))
    Traceback (most recent call last):
    fed_ucbvi.core.errors.InputError: unknown ties 'frist'; did you mean 'first'? Known: first, random.
    """
    cls: Any = type(values)
    for name, hint in declared(cls).items():
        check_value(name, getattr(values, name), hint)


def check_value(name: str, value: Any, hint: Any) -> Any:
    """Return a value, numbers as int or float, or raise unless it fits its type, as for :func:`check_parameters`."""
    kind, bounds, optional = _parts(hint)
    if value is None and optional:
        return None
    if typing.get_origin(kind) is Literal:
        if not isinstance(value, str):
            raise InputError(f"{name} must be one of {', '.join(typing.get_args(kind))}, got {value!r}.")
        check_choice(name, value, typing.get_args(kind))
    elif kind is bool:
        check_flag(name, value)
    elif kind is int:
        at_most = None if bounds.at_most == math.inf else int(bounds.at_most)
        return check_integer(name, value, at_least=int(max(bounds.at_least, -(2**63))), at_most=at_most)
    elif kind is float:
        return check_number(name, value, **bounds._asdict())
    elif kind in (str, Path) and not isinstance(value, kind):
        raise InputError(f"{name} must be {'text' if kind is str else 'the name of a file'}, got {value!r}.")
    return value


def converted(name: str, value: Any, hint: Any) -> Any:
    """A value, or the text of one, in an annotated type, or raise unless it fits.

    Texts are read for bool, int, float, str, Path, None, Literal and unions of them; those of other types are JSON.

    >>> converted("nu", "none", float | None), converted("nu", "1e3", float | None), converted("strict", "yes", bool)
    (None, 1000.0, True)
    >>> converted("nu", 3, float | None), converted("n", 3.0, int)
    (3.0, 3)
    """
    if isinstance(value, str) and hint is not None:
        value = _read(name, value, hint)
    return check_value(name, value, hint)


def _read(name: str, text: str, hint: Any) -> Any:
    hint, _ = _noted(hint)
    union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    plain = [_parts(one)[0] for one in (typing.get_args(hint) if union else (hint,))]
    kinds = [str if typing.get_origin(one) is Literal else one for one in plain]  # texts stand for choices
    word = text.lower()
    if type(None) in kinds and word in NONE:
        return None
    if bool in kinds and word in TRUE + FALSE:
        return word in TRUE
    number = _number(text)
    if int in kinds and number.is_integer():
        return whole_number(name, text)
    if float in kinds and math.isfinite(number):
        return number
    if str in kinds or Path in kinds:
        return text if str in kinds else Path(text)
    if not {bool, int, float}.isdisjoint(kinds):
        wanted = {bool: "true or false", int: "a whole number", float: "a finite number", type(None): "none"}
        raise InputError(f"{name} must be {' or '.join(wanted[one] for one in kinds)}, got '{text}'.")
    return json_or_text(name, text)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def whole_number(name: str, value: Any) -> Any:
    """A text such as ``1e9`` or ``30_000`` as a whole number; other values as they are.

    >>> whole_number("episodes", "1e9")
    1000000000
    """
    if not isinstance(value, str):
        return value
    try:
        return int(value)
    except ValueError:
        number = _number(value)
    if not number.is_integer():
        raise InputError(f"{name} must be a whole number, got '{value}'.")
    return int(number)


def json_or_text(name: str, text: str) -> object:
    """A value written as JSON, or else the text itself.

    >>> json_or_text("walls", "[[1, 1], [2, 3]]")
    [[1, 1], [2, 3]]
    """

    def refuse(constant: str) -> object:
        raise InputError(f"{name} must be finite, got {constant}.")

    try:
        return json.loads(text, parse_constant=refuse)
    except json.JSONDecodeError:
        return text


@functools.cache
def declared(kind: Any) -> dict[str, Any]:
    """The type of each field of a dataclass, by name; None where only a type checker can find it."""
    hints = _hints(kind)
    return {field.name: hints.get(field.name) for field in dataclasses.fields(kind) if field.init}


def _hints(thing: Any) -> dict[str, Any]:
    """The types that annotations stand for; none where they name what only a type checker can find."""
    try:
        return typing.get_type_hints(thing, include_extras=True)
    except NameError:
        return {}


def _parts(hint: Any) -> tuple[Any, Bounds, bool]:
    """The plain type within ``Annotated`` and ``| None``, the bounds on it, and whether it may be None."""
    hint, notes = _noted(hint)
    optional = False
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        kinds = [kind for kind in typing.get_args(hint) if kind is not type(None)]
        optional = len(kinds) < len(typing.get_args(hint))
        if len(kinds) > 1:
            return hint, Bounds(), optional
        hint, inner = _noted(kinds[0])
        notes += inner
    return hint, next((note for note in notes if isinstance(note, Bounds)), Bounds()), optional


def _noted(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """The type within ``Annotated`` and its metadata."""
    notes = getattr(hint, "__metadata__", ())
    return (typing.get_args(hint)[0] if notes else hint), notes


def help_of(hint: Any) -> str:
    """The help text in an annotated type, the outermost if it has several, and empty if it has none.

    >>> help_of(Annotated[float, Bounds(at_least=0), Help("Speed in knots.")])
    'Speed in knots.'
    """
    texts = [note.text for note in _noted(hint)[1] if isinstance(note, Help)]
    return texts[-1] if texts else ""


def parameter_help(thing: Any) -> list[Parameter]:
    """The parameters of a function or of a class, with the help texts that their types hold.

    >>> def drive(
    ...     speed: Annotated[NonNegative, Help("in knots.")] = 1.0,
    ...     gear: Literal["low", "high"] = "low",
    ... ) -> None: ...
    >>> parameter_help(drive)[0]
    Parameter(name='speed', type='float in [0, inf)', default=1.0, description='in knots.', choices=())
    >>> parameter_help(drive)[1].choices
    ('low', 'high')
    """
    if not callable(thing):
        return []
    hints = _hints(thing)
    found = []
    for name, parameter in inspect.signature(thing).parameters.items():
        hint = hints.get(name, parameter.annotation)
        text, choices = _described(hint)
        default = None if parameter.default is inspect.Parameter.empty else parameter.default
        found.append(Parameter(name, text, default, help_of(hint), choices))
    return found


def _described(hint: Any) -> tuple[str, tuple[Any, ...]]:
    """A type in words, and its choices."""
    plain, bounds, optional = _parts(hint)
    choices = typing.get_args(plain) if typing.get_origin(plain) is Literal else ()
    text = " | ".join(map(str, choices)) or inspect.formatannotation(plain).strip("'")
    if bounds != Bounds():
        text += f" in {bounds}"
    return (f"{text} | None" if optional and "None" not in text else text), choices


def plain_docstring(thing: Any) -> str:
    return re.sub(r":\w+:`~?([^`]+)`", r"\1", inspect.cleandoc(thing.__doc__ or "").replace("``", ""))
