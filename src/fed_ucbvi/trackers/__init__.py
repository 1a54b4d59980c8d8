"""Callbacks for experiment trackers: TensorBoard, MLflow, Weights & Biases; their packages are imported when used."""

from __future__ import annotations

import math
import os
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self

from fed_ucbvi.core.errors import InputError, check_choice, check_positive_integer, missing_package
from fed_ucbvi.core.text import shortened
from fed_ucbvi.core.version import PROGRAM
from fed_ucbvi.engine.simulation import Caution
from fed_ucbvi.results.round_record import RoundRecord
from fed_ucbvi.results.run_data import RunData, Subscriber
from fed_ucbvi.results.run_table import seeds_of, settings_of

FIGURES = (
    "round",
    "length",
    "synchronisations",
    "requests",
    "regret",
    "reward",
    "optimistic_value",
    "recommended_value",
    "gap",
    "bytes_up",
    "bytes_down",
    "seconds",
)
"""The logged figures of a round, by the names of :class:`~fed_ucbvi.results.round_record.RoundRecord`."""
RESULTS = (
    "regret",
    "average_reward",
    "value",
    "simple_regret",
    "estimated_value",
    "wall_seconds",
)
"""The logged figures of a whole run, under ``final_NAME``, by the names of :class:`~fed_ucbvi.results.run.Run`; in
the environment's own units, as rounds are."""
SECONDS_TO_DISK = 2
"""Seconds between two writes of TensorBoard to disk."""
MAX_PARAMETER = 500
"""Maximum number of characters of a parameter's value; MLflow keeps no more in some of its stores."""
MAX_REASON = 700
"""Maximum number of characters of another package's error message."""


def results_of(run: RunData) -> dict[str, float]:
    return _known({f"final_{name}": float(getattr(run, name)) for name in RESULTS})


def parameters_of(run: RunData) -> dict[str, Any]:
    """The settings of a run, its seeds and its driver, by name; an unknown number is ``unknown``."""
    seeds = {}
    for name, seed in seeds_of(run.about):
        seeds["seed" if name == "run" else f"environment.{name}"] = seed
    parameters = dict(settings_of(run.about))
    parameters.update(seeds)
    parameters["driver"] = run.about.driver
    for name, value in parameters.items():
        if value != value:
            parameters[name] = "unknown"
    return parameters


def _known(figures: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in figures.items() if not math.isnan(value)}


class Tracker(Subscriber, ABC):
    """A callback for ``on_round`` that logs figures against the number of episodes; use it in a ``with`` block.

    The run waits while a round is logged. If logging fails, the tracker issues one warning
    (:class:`~fed_ucbvi.Caution`) and logs nothing more; the run continues.

    Args:
        place: Where to log: a folder, an address or a project, as the tracker's package takes it.
        every: Log every n-th round, from the first on. The last round is logged in any case.

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
    >>> with Printed("here", every=10) as tracker:
    ...     tracker.finish(run(FedUCBVI(), synthetic(agents=2), 30, on_round=tracker))
    fed-ucbvi with 2 agents: 30 episodes
    done
    >>> tracker.last[0]
    30
    """

    def __init__(self, place: str, every: int = 1) -> None:
        self.place = place
        self._every = check_positive_integer("every", every)
        self._unlogged: RoundRecord | None = None
        self._working = True

    def __call__(self, record: RoundRecord) -> None:
        self._unlogged = record
        if (record.round - 1) % self._every == 0:
            self._try(self._write_unlogged)

    def finish(self, run: RunData) -> None:
        """Log the last round, the parameters and the results of a run."""
        self._try(self._write_unlogged)
        self._try(lambda: self.describe(parameters_of(run), results_of(run), run.episodes_played))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._try(self._write_unlogged)
        self._try(lambda: self.close(failed=error is not None))

    def _write_unlogged(self) -> None:
        record = self._unlogged
        self._unlogged = None
        if record is None:
            return
        figures = {name: float(getattr(record, name)) for name in FIGURES}
        self.write(record.episodes, _known(figures))

    def _try(self, log: Callable[[], None]) -> None:
        """Call ``log``; after the first error warn and call nothing more."""
        if not self._working:
            return
        try:
            log()
        except Exception as error:
            self._working = False
            reason = shortened(str(error), MAX_REASON).rstrip(".")
            text = f"{type(self).__name__} cannot write to {self.place}: {reason}. The run continues without it."
            warnings.warn(text, Caution, stacklevel=3)

    @abstractmethod
    def write(self, episodes: int, figures: Mapping[str, float]) -> None:
        """Log the figures of one round."""

    @abstractmethod
    def describe(self, parameters: Mapping[str, Any], results: Mapping[str, float], episodes: int) -> None:
        """Log parameters and results of the whole run."""

    @abstractmethod
    def close(self, *, failed: bool) -> None:
        """Write the rest, and close files and connections."""


class TensorBoardTracker(Tracker):
    """Event file in the folder ``place`` for ``tensorboard --logdir``: scalars, and parameters in the tab HPARAMS."""

    def __init__(self, place: str, every: int = 1) -> None:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        super().__init__(place, every)
        self._writer = EventFileWriter(place, flush_secs=SECONDS_TO_DISK)

    def write(self, episodes: int, figures: Mapping[str, float]) -> None:
        """Log the figures of one round; TensorBoard has single precision."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=name, simple_value=value) for name, value in figures.items()]
        self._add(episodes, Summary(value=values))

    def describe(self, parameters: Mapping[str, Any], results: Mapping[str, float], episodes: int) -> None:
        from tensorboard.plugins.hparams.summary_v2 import hparams_pb

        plain = {}
        for name, value in parameters.items():
            plain[name] = value if isinstance(value, int | float) else str(value)
        self._add(0, hparams_pb(plain))
        self.write(episodes, results)

    def _add(self, step: int, summary: Any) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        self._writer.add_event(Event(wall_time=time.time(), step=step, summary=summary))

    def close(self, *, failed: bool) -> None:
        self._writer.close()


class MLflowTracker(Tracker):
    """One run, on the tracking server ``place``, of the experiment that ``MLFLOW_EXPERIMENT_NAME`` names.

    The experiment is ``fed-ucbvi`` by default.

    Attributes:
        run_id: MLflow's name for the run.
    """

    def __init__(self, place: str, every: int = 1) -> None:
        from mlflow import MlflowClient

        super().__init__(place, every)
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROGRAM)
        self._client = MlflowClient(tracking_uri=place)
        experiment = self._client.get_experiment_by_name(name)
        if experiment is None:
            experiment_id = self._client.create_experiment(name)
        else:
            experiment_id = experiment.experiment_id
        self.run_id: str = self._client.create_run(experiment_id).info.run_id

    def write(self, episodes: int, figures: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = round(time.time() * 1000)
        metrics = [Metric(name, value, now, episodes) for name, value in figures.items()]
        self._client.log_batch(self.run_id, metrics=metrics)

    def describe(self, parameters: Mapping[str, Any], results: Mapping[str, float], episodes: int) -> None:
        from mlflow.entities import Param

        texts = [Param(name, shortened(str(value), MAX_PARAMETER)) for name, value in parameters.items()]
        self._client.log_batch(self.run_id, params=texts)
        self.write(episodes, results)

    def close(self, *, failed: bool) -> None:
        self._client.set_terminated(self.run_id, "FAILED" if failed else "FINISHED")


class WandbTracker(Tracker):
    """One run of the project ``place`` of Weights & Biases; with ``WANDB_MODE=offline`` it stays on this machine."""

    def __init__(self, place: str, every: int = 1) -> None:
        import wandb

        super().__init__(place, every)
        self._run = wandb.init(project=place)

    def write(self, episodes: int, figures: Mapping[str, float]) -> None:
        self._run.log(dict(figures), step=episodes)

    def describe(self, parameters: Mapping[str, Any], results: Mapping[str, float], episodes: int) -> None:
        self._run.config.update(dict(parameters))
        self._run.summary.update(dict(results))

    def close(self, *, failed: bool) -> None:
        self._run.finish(exit_code=int(failed))


class TrackerKind(NamedTuple):
    """The class of a tracker and the package it needs; the extra and the package's module have the tracker's name."""

    make: Callable[[str, int], Tracker]
    package: str


TRACKERS: dict[str, TrackerKind] = {
    "tensorboard": TrackerKind(TensorBoardTracker, "TensorBoard"),
    "mlflow": TrackerKind(MLflowTracker, "MLflow"),
    "wandb": TrackerKind(WandbTracker, "Weights & Biases"),
}


def make_tracker(text: str, every: int = 1) -> Tracker:
    """Make a callback for ``on_round`` that logs to an experiment tracker; use it in a ``with`` block.

    ``with make_tracker("tensorboard:logs/first") as track: track.finish(run(..., on_round=track))``

    Args:
        text: ``tensorboard:DIR``, ``mlflow:URI`` or ``wandb:PROJECT``.
        every: Log every n-th round, from the first on. The last round is logged in any case.

    Raises:
        InputError: If the tracker's package is not installed, or cannot use the place.
    """
    name, _, place = text.partition(":")
    check_choice("tracker", name, TRACKERS)
    if not place:
        raise InputError(f"a tracker is NAME:PLACE, as tensorboard:logs/first, got '{text}'.")
    make, package = TRACKERS[name]
    check_positive_integer("every", every)
    try:
        return make(place, every)
    except ImportError as error:
        missing_module = (error.name or "").partition(".")[0]
        if missing_module == name:
            raise missing_package("this tracker needs", package, name) from error
        raise InputError(f"{package} cannot use '{place}': {error}; install the whole of {package}.") from error
    except Exception as error:
        reason = shortened(str(error), MAX_REASON).rstrip(".")
        raise InputError(f"{package} cannot use '{place}': {reason}.") from error
