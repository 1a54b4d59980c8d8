"""Experiment trackers: what they have in common, and :func:`make_tracker` for those that come with the package."""

from __future__ import annotations

import importlib
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from fed_ucbvi.core.errors import InputError, check_choice, check_positive_integer, missing_package
from fed_ucbvi.results.round_record import RoundRecord
from fed_ucbvi.results.run_data import RunData
from fed_ucbvi.results.run_table import seeds_of, settings_of
from fed_ucbvi.results.subscriber import Subscriber

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


class Tracker(Subscriber, ABC):
    """A callback for ``on_round`` that hands figures on, against the number of episodes; use it in a ``with`` block.

    Args:
        every: log every n-th round, from the first on; the last round is logged in any case.

    >>> from fed_ucbvi import FedUCBVI, Tracker, run, synthetic
    >>> class Printed(Tracker):
    ...     def write(self, episodes, figures):
    ...         self.last = episodes, figures["round"]
    ...
    ...     def describe(self, parameters, results, episodes):
    ...         print(parameters["algorithm"], "with", parameters["agents"], "agents:", episodes, "episodes")
    ...
    ...     def close(self, *, failed):
    ...         print("failed" if failed else "done")
    >>> with Printed(every=10) as tracker:
    ...     tracker.finish(run(FedUCBVI(), synthetic(agents=2), 30, on_round=tracker))
    fed-ucbvi with 2 agents: 30 episodes
    done
    >>> tracker.last[0]
    30
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
        """Write what is left, and close files and connections."""


TRACKERS = {
    "tensorboard": ("tensorboard_tracker", "TensorBoardTracker", "TensorBoard"),
    "mlflow": ("mlflow_tracker", "MLflowTracker", "MLflow"),
    "wandb": ("wandb_tracker", "WandbTracker", "Weights & Biases"),
}
"""Module and class of each, and the package that it needs; its extra has the tracker's name."""


def make_tracker(text: str, every: int = 1) -> Tracker:
    """A callback for ``on_round`` that hands figures to an experiment tracker; use it in a ``with`` block.

    ``with make_tracker("tensorboard:logs/first") as track: track.finish(run(..., on_round=track))``

    Args:
        text: ``tensorboard:DIR``, ``mlflow:URI`` or ``wandb:PROJECT``.
        every: log every n-th round, from the first on; the last round is logged in any case.

    Raises:
        InputError: if the tracker's package is not installed, or it cannot use the place.
    """
    name, colon, place = text.partition(":")
    check_choice("tracker", name, TRACKERS)
    if not colon or not place:
        raise InputError(f"a tracker is NAME:PLACE, as tensorboard:logs/first, got '{text}'.")
    module, kind, package = TRACKERS[name]
    try:
        made: Tracker = getattr(importlib.import_module(f"fed_ucbvi.trackers.{module}"), kind)(place, every=every)
    except ImportError as error:
        raise missing_package("this tracker needs", package, name) from error
    return made
