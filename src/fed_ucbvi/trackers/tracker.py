"""What all trackers have in common: which rounds they keep, what they keep of a round, and of a whole run."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from fed_ucbvi.core.errors import check_positive_integer, missing_package
from fed_ucbvi.results.round_record import RoundRecord
from fed_ucbvi.results.run_data import RunData
from fed_ucbvi.results.settings import seeds_of, settings_of

FIGURES = (
    *("round", "length", "synchronisations", "requests", "regret", "reward"),
    *("optimistic_value", "recommended_value", "gap", "bytes_up", "bytes_down", "seconds"),
)
"""What is kept of a round, by the names of :class:`~fed_ucbvi.results.round_record.RoundRecord`."""
RESULTS = ("regret", "average_reward", "value", "simple_regret", "estimated_value", "wall_seconds")
"""What is kept of a whole run, under ``final_NAME``, by the names of :class:`~fed_ucbvi.results.run.Run`; in the
environment's own units, as rounds are."""

UNKNOWN = "unknown"


def figures_of(record: RoundRecord) -> dict[str, float]:
    """The figures of a round that are known."""
    return _known({name: float(getattr(record, name)) for name in FIGURES})


def results_of(run: RunData) -> dict[str, float]:
    """The figures of a whole run that are known."""
    own = run.original_units
    return _known({f"final_{name}": float(own[name] if name in own else getattr(run, name)) for name in RESULTS})


def parameters_of(run: RunData) -> dict[str, Any]:
    """The settings of a run, its seeds and its driver, by name; a number that nobody knows is ``unknown``."""
    seeds = {"seed" if name == "run" else f"environment.{name}": seed for name, seed in seeds_of(run.about)}
    named = {**settings_of(run.about), **seeds, "driver": run.about.driver}
    return {name: UNKNOWN if value != value else value for name, value in named.items()}


def _known(figures: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in figures.items() if not math.isnan(value)}


@contextmanager
def needed(package: str, extra: str) -> Iterator[None]:
    """Importing ``package`` fails with advice."""
    try:
        yield
    except ImportError as error:
        raise missing_package("this tracker needs", package, extra) from error


class Tracker(ABC):
    """A callback for ``on_round`` that hands figures on, against the number of episodes; use it in a ``with`` block.

    Args:
        every: keep one round in so many, from the first on; the last round is kept in any case.
    """

    def __init__(self, every: int = 1) -> None:
        self._every = check_positive_integer("every", every)
        self._waiting: RoundRecord | None = None

    def __call__(self, record: RoundRecord) -> None:
        """Keep a round, if it is its turn."""
        if (record.round - 1) % self._every:
            self._waiting = record
        else:
            self._waiting = None
            self.write(record.episodes, figures_of(record))

    def finish(self, run: RunData) -> None:
        """Keep the run's parameters and its figures."""
        self._write_waiting()
        self.describe(parameters_of(run), results_of(run), run.episodes_played)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end(failed=error is not None)

    def end(self, *, failed: bool) -> None:
        """What the end of a ``with`` block does."""
        try:
            self._write_waiting()
        finally:
            self.close(failed=failed)

    def _write_waiting(self) -> None:
        record, self._waiting = self._waiting, None
        if record is not None:
            self.write(record.episodes, figures_of(record))

    @abstractmethod
    def write(self, episodes: int, figures: Mapping[str, float]) -> None:
        """Keep the figures of one round."""

    @abstractmethod
    def describe(self, parameters: Mapping[str, Any], results: Mapping[str, float], episodes: int) -> None:
        """Keep what is known of the run as a whole."""

    @abstractmethod
    def close(self, *, failed: bool) -> None:
        """Write what is left, and let go of files and connections."""
