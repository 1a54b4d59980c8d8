"""Bins: the numbering of an environment's observations and actions, as a value that can be saved and sent.

An observation has one number for each of its *dimensions*. A dimension with finitely many values keeps them
(:class:`Whole`). A continuous one is cut into bins (:class:`Edges`), or, for actions, replaced by some of its values
(:class:`Levels`). The state is the number with these places as digits, the first dimension most significant:

    ``state = ((place_1 * count_2 + place_2) * count_3 + place_3) ...``

All nodes of a federation must use the same bins, so they are frozen before the run, and the server hands them out.
They contain edges and ranges, and no observation.
"""

from __future__ import annotations

import hashlib
import json
import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from fed_ucbvi.core.errors import (
    InputError,
    check_flag,
    check_integer,
    check_number,
    check_positive_integer,
    printable,
)
from fed_ucbvi.core.files import check_version, new_file

FORMAT = "fed-ucbvi/bins"
FORMAT_VERSION = 2
MAX_PAIRS = 10_000_000
"""Largest number of states times actions; larger tables would not fit into memory anyway."""
MAX_START = 1 << 53
"""Whole numbers up to this are exact as floating-point numbers."""
MAX_BYTES = 1 << 20
"""Largest length of bins as text."""


@dataclass(frozen=True)
class Whole:
    """A dimension whose values are the whole numbers ``start .. start + count - 1``."""

    name: str
    start: int
    count: int

    def __post_init__(self) -> None:
        check_positive_integer(f"the number of values of '{printable(self.name)}'", self.count)

    def place(self, number: float) -> int:
        """The place of a number among the values; other numbers are an error."""
        place = number - self.start
        if not 0 <= place < self.count or place != int(place):
            raise InputError(
                f"'{self.name}' is {number:g}, but must be a whole number from {self.start} to "
                f"{self.start + self.count - 1}."
            )
        return int(place)

    def value(self, place: int) -> float:
        return float(self.start + place)


@dataclass(frozen=True)
class Edges:
    """A continuous dimension, cut at ``cuts``; a number equal to a cut belongs to the bin above it.

    The first bin reaches down and the last one up without end, so every number has a bin.

    >>> [Edges("temperature", (18.0, 21.0)).place(x) for x in (-5.0, 17.9, 18.0, 40.0)]
    [0, 0, 1, 2]
    """

    name: str
    cuts: tuple[float, ...]

    def __post_init__(self) -> None:
        _check_rising(self.name, self.cuts)

    @property
    def count(self) -> int:
        return len(self.cuts) + 1

    def place(self, number: float) -> int:
        if math.isnan(number):
            raise InputError(f"'{self.name}' is not a number (NaN), so it has no bin.")
        return bisect_right(self.cuts, number)


@dataclass(frozen=True)
class Levels:
    """A continuous dimension of actions, of which only ``values`` are used."""

    name: str
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        _check_rising(self.name, self.values)
        if not self.values:
            raise InputError(f"'{printable(self.name)}' has no value to take.")

    @property
    def count(self) -> int:
        return len(self.values)

    def value(self, place: int) -> float:
        return self.values[place]


@dataclass(frozen=True)
class Bins:
    """A numbering that makes an environment finite; all agents of a federation have the same.

    Args:
        observations: its dimensions, in the order of the observation space.
        actions: those of the action space.
        horizon: H, the steps of an episode.
        reward_range: ``(low, high)``, between which rewards lie; None where it is given elsewhere.
        clips: true if that range is only observed. A reward outside it is then moved to its nearer end; otherwise it
            is an error.

    >>> room = Bins((Whole("hour", 0, 24), Edges("temperature", (18.0, 21.0))), (Levels("power", (0.0, 1.0)),), 24)
    >>> room.states, room.number_of_actions, room.state([2, 20.5])
    (72, 2, 7)
    """

    observations: tuple[Whole | Edges, ...]
    actions: tuple[Whole | Levels, ...]
    horizon: int
    reward_range: tuple[float, float] | None = None
    clips: bool = True

    def __post_init__(self) -> None:
        check_positive_integer("horizon", self.horizon)
        for what, dimensions in (("observations", self.observations), ("actions", self.actions)):
            names = {dimension.name for dimension in dimensions}
            if not dimensions:
                raise InputError(f"the {what} have no dimension.")
            if len(names) < len(dimensions):
                raise InputError(f"two dimensions of the {what} have one name.")
        if self.states * self.number_of_actions > MAX_PAIRS:
            raise InputError(
                f"{self.states:,} states and {self.number_of_actions:,} actions are more pairs than can be tabulated "
                f"({MAX_PAIRS:,}); use fewer bins, or leave dimensions out in a wrapper of your own."
            )
        if self.reward_range is not None:
            low = check_number("reward_range: low", self.reward_range[0])
            check_number("reward_range: high", self.reward_range[1], above=low)

    @cached_property
    def states(self) -> int:
        return math.prod(dimension.count for dimension in self.observations)

    @cached_property
    def number_of_actions(self) -> int:
        return math.prod(dimension.count for dimension in self.actions)

    def state(self, numbers: Sequence[float]) -> int:
        """The state of an observation, given by one number for each dimension."""
        state = 0
        for dimension, number in zip(self.observations, numbers, strict=True):
            state = state * dimension.count + dimension.place(number)
        return state

    def action(self, number: int) -> list[float]:
        """The action that has a number, one value for each dimension."""
        values = []
        for dimension in reversed(self.actions):
            number, place = divmod(number, dimension.count)
            values.append(dimension.value(place))
        return values[::-1]

    @cached_property
    def text(self) -> str:
        """As JSON, always the same for the same bins."""
        content = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "horizon": self.horizon,
            "observations": [_written(dimension) for dimension in self.observations],
            "actions": [_written(dimension) for dimension in self.actions],
            "reward_range": None if self.reward_range is None else list(self.reward_range),
            "clips": self.clips,
        }
        return json.dumps(content, sort_keys=True, allow_nan=False)

    @cached_property
    def digest(self) -> str:
        """A fingerprint: nodes and server compare it."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @classmethod
    def parse(cls, text: str, name: str = "the text") -> Bins:
        """Bins from JSON, with every part checked, because it may come from another machine."""
        try:
            content = json.loads(text) if len(text) <= MAX_BYTES else None
        except (ValueError, RecursionError) as error:
            raise InputError(f"{name} is no JSON: {error}.") from error
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise InputError(f"{name} does not hold bins that fed-ucbvi wrote.")
        check_version(name, content, FORMAT_VERSION)
        try:
            reward_range = content["reward_range"]
            if reward_range is not None:
                reward_range = (float(reward_range[0]), float(reward_range[1]))
            return cls(
                observations=tuple(_read(dimension) for dimension in content["observations"]),  # type: ignore[misc]
                actions=tuple(_read(dimension) for dimension in content["actions"]),  # type: ignore[misc]
                horizon=check_positive_integer("horizon", content["horizon"]),
                reward_range=reward_range,
                clips=check_flag("clips", content["clips"]),
            )
        except InputError as error:
            raise InputError(f"{name}: {error}") from error
        except (
            KeyError,
            TypeError,
            ValueError,
            IndexError,
            AttributeError,
            OverflowError,
        ) as error:
            raise InputError(f"{name} is damaged: {type(error).__name__}: {printable(str(error)[:200])}.") from error

    def save(self, path: str | Path) -> None:
        """Write a JSON file; one that exists is replaced."""
        file = Path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        with new_file(file) as draft:
            draft.write_text(json.dumps(json.loads(self.text), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Bins:
        file = Path(path)
        if not file.is_file():
            raise InputError(f"there is no file {file}.")
        if file.stat().st_size > MAX_BYTES:
            raise InputError(f"{file} does not hold bins that fed-ucbvi wrote: it has more than {MAX_BYTES:,} bytes.")
        try:
            return cls.parse(file.read_text(encoding="utf-8"), str(file))
        except UnicodeDecodeError as error:
            raise InputError(f"{file} is no text: {error}.") from error


def _written(dimension: Whole | Edges | Levels) -> dict[str, Any]:
    match dimension:
        case Whole(name, start, count):
            return {"name": name, "whole": [start, count]}
        case Edges(name, cuts):
            return {"name": name, "edges": list(cuts)}
        case Levels(name, values):
            return {"name": name, "grid": list(values)}


def _read(content: dict[str, Any]) -> Whole | Edges | Levels:
    (kind,) = set(content) - {"name"}
    numbers = content[kind]
    name = str(content["name"])
    if kind == "whole":
        start, count = numbers
        return Whole(
            name=name,
            start=check_integer("start", start, at_least=-MAX_START),
            count=check_positive_integer("count", count),
        )
    if kind == "edges":
        return Edges(name, tuple(float(number) for number in numbers))
    if kind == "grid":
        return Levels(name, tuple(float(number) for number in numbers))
    raise InputError(f"'{printable(kind)}' is no kind of dimension; known are whole, edges, grid.")


def _check_rising(name: str, numbers: Sequence[float]) -> None:
    for number in numbers:
        check_number(f"an edge or value of '{printable(name)}'", number)
    if any(lower >= upper for lower, upper in pairwise(numbers)):
        raise InputError(f"the edges or values of '{printable(name)}' must rise from one to the next.")
