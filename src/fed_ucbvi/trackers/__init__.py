"""Callbacks for experiment trackers: TensorBoard, MLflow, Weights & Biases; their packages are imported when used."""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import redirect_stdout, suppress
from pathlib import Path
from queue import Full, Queue
from typing import Any, Self

from fed_ucbvi.core.errors import InputError, check_choice, check_positive_integer, missing_package
from fed_ucbvi.core.text import shortened
from fed_ucbvi.core.version import PROGRAM
from fed_ucbvi.results.round_record import RoundRecord
from fed_ucbvi.results.run_data import RunData, Subscriber
from fed_ucbvi.results.run_table import seeds_of, settings_of

FIGURES = (
    *("round", "length", "synchronisations", "requests", "regret", "reward"),
    *("optimistic_value", "recommended_value", "gap", "bytes_up", "bytes_down", "seconds"),
)
"""The logged figures of a round, by the names of :class:`~fed_ucbvi.results.round_record.RoundRecord`."""
RESULTS = ("regret", "average_reward", "value", "simple_regret", "estimated_value", "wall_seconds")
"""The logged figures of a whole run, under ``final_NAME``, by the names of :class:`~fed_ucbvi.results.run.Run`; in
the environment's own units, as rounds are."""
SECONDS_TO_DISK = 2
"""Between two writes of TensorBoard to disk."""
MAX_WAITING, SECONDS_WAITING = 500, 2.0
"""Figures are sent to MLflow in batches: of this number, or after these seconds. It accepts a thousand at a time."""
MAX_ROUNDS_WAITING = 1_000
"""Rounds that may wait for slow trackers."""
LONGEST_VALUE = 500
"""Characters of a parameter's value; MLflow keeps no more in some of its stores."""


def results_of(run: RunData) -> dict[str, float]:
    own = run.original_units
    return _known({f"final_{name}": float(own[name] if name in own else getattr(run, name)) for name in RESULTS})


def parameters_of(run: RunData) -> dict[str, Any]:
    """The settings of a run, its seeds and its driver, by name; an unknown number is ``unknown``."""
    seeds = {"seed" if name == "run" else f"environment.{name}": seed for name, seed in seeds_of(run.about)}
    named = {**settings_of(run.about), **seeds, "driver": run.about.driver}
    return {name: "unknown" if value != value else value for name, value in named.items()}


def _known(figures: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in figures.items() if not math.isnan(value)}


class Tracker(Subscriber, ABC):
    """A callback for ``on_round`` that logs figures against the number of episodes; use it in a ``with`` block.

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
        self._waiting = record
        if (record.round - 1) % self._every == 0:
            self._write_waiting()

    def finish(self, run: RunData) -> None:
        self._write_waiting()
        self.describe(parameters_of(run), results_of(run), run.episodes_played)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
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
            self.write(record.episodes, _known({name: float(getattr(record, name)) for name in FIGURES}))

    @abstractmethod
    def write(self, episodes: int, figures: Mapping[str, float]) -> None:
        """Keep the figures of one round."""

    @abstractmethod
    def describe(self, parameters: Mapping[str, Any], results: Mapping[str, float], episodes: int) -> None:
        """Keep what is known of the run as a whole."""

    @abstractmethod
    def close(self, *, failed: bool) -> None:
        """Write what is left, and close files and connections."""


class TensorBoardTracker(Tracker):
    """Writes an event file for ``tensorboard --logdir``: scalars, and parameters in the tab HPARAMS.

    Args:
        folder: of this run; several runs in folders side by side are compared.
        every: log every n-th round.
    """

    def __init__(self, folder: str | Path, every: int = 1) -> None:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        super().__init__(every)
        self._writer = EventFileWriter(str(folder), flush_secs=SECONDS_TO_DISK)

    def write(self, episodes: int, figures: Mapping[str, float]) -> None:
        """Keep the figures of one round; TensorBoard has single precision."""
        self._add(episodes, [{"tag": name, "simple_value": value} for name, value in figures.items()])

    def describe(self, parameters: Mapping[str, Any], results: Mapping[str, float], episodes: int) -> None:
        from tensorboard.plugins.hparams import metadata
        from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionStartInfo

        start = SessionStartInfo(start_time_secs=time.time())
        for name, value in parameters.items():
            if isinstance(value, bool):
                start.hparams[name].bool_value = value
            elif isinstance(value, int | float):
                start.hparams[name].number_value = value
            else:
                start.hparams[name].string_value = str(value)
        about = metadata.create_summary_metadata(HParamsPluginData(session_start_info=start))
        self._add(0, [{"tag": metadata.SESSION_START_INFO_TAG, "metadata": about, "tensor": metadata.NULL_TENSOR}])
        self.write(episodes, results)

    def _add(self, step: int, values: list[dict[str, Any]]) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        summary = Summary(value=[Summary.Value(**value) for value in values])
        self._writer.add_event(Event(wall_time=time.time(), step=step, summary=summary))

    def close(self, *, failed: bool) -> None:
        self._writer.close()


class MLflowTracker(Tracker):
    """Makes one run of the experiment that ``MLFLOW_EXPERIMENT_NAME`` names, by default ``fed-ucbvi``.

    Args:
        uri: of the tracking server, as ``http://127.0.0.1:5000``; or whatever MLflow takes.
        every: log every n-th round.

    Attributes:
        run_id: MLflow's name for the run.
    """

    def __init__(self, uri: str, every: int = 1) -> None:
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException

        super().__init__(every)
        experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROGRAM)
        try:
            self._client = MlflowClient(tracking_uri=uri)
            known = self._client.get_experiment_by_name(experiment)
            number = self._client.create_experiment(experiment) if known is None else known.experiment_id
            self.run_id: str = self._client.create_run(number).info.run_id
        except ImportError as error:
            raise InputError(f"MLflow cannot use '{uri}': {error}; install the whole of MLflow for it.") from error
        except MlflowException as error:
            raise InputError(f"MLflow cannot use '{uri}': {shortened(str(error), 700).rstrip('.')}.") from error
        self._metrics: list[Any] = []
        self._due = time.monotonic() + SECONDS_WAITING

    def write(self, episodes: int, figures: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = round(time.time() * 1000)
        self._metrics += [Metric(name, value, now, episodes) for name, value in figures.items()]
        if len(self._metrics) >= MAX_WAITING or time.monotonic() >= self._due:
            self._send()

    def describe(self, parameters: Mapping[str, Any], results: Mapping[str, float], episodes: int) -> None:
        from mlflow.entities import Param

        texts = [Param(name, shortened(str(value), LONGEST_VALUE)) for name, value in parameters.items()]
        self._client.log_batch(self.run_id, params=texts)
        self.write(episodes, results)

    def close(self, *, failed: bool) -> None:
        self._send()
        self._client.set_terminated(self.run_id, "FAILED" if failed else "FINISHED")

    def _send(self) -> None:
        metrics, self._metrics = self._metrics, []
        self._due = time.monotonic() + SECONDS_WAITING
        if metrics:
            self._client.log_batch(self.run_id, metrics=metrics)


class WandbTracker(Tracker):
    """Makes one run of a project of Weights & Biases; with ``WANDB_MODE=offline`` it stays on this machine."""

    def __init__(self, project: str, every: int = 1) -> None:
        import wandb

        super().__init__(every)
        self._run = wandb.init(project=project)

    def write(self, episodes: int, figures: Mapping[str, float]) -> None:
        self._run.log(dict(figures), step=episodes)

    def describe(self, parameters: Mapping[str, Any], results: Mapping[str, float], episodes: int) -> None:
        self._run.config.update(dict(parameters))
        self._run.summary.update(dict(results))

    def close(self, *, failed: bool) -> None:
        self._run.finish(exit_code=int(failed))


TRACKERS = {
    "tensorboard": (TensorBoardTracker, "TensorBoard"),
    "mlflow": (MLflowTracker, "MLflow"),
    "wandb": (WandbTracker, "Weights & Biases"),
}
"""The class of each, and the package that it needs; its extra has the tracker's name."""


def make_tracker(text: str, every: int = 1) -> Tracker:
    """A callback for ``on_round`` that logs to an experiment tracker; use it in a ``with`` block.

    ``with make_tracker("tensorboard:logs/first") as track: track.finish(run(..., on_round=track))``

    Args:
        text: ``tensorboard:DIR``, ``mlflow:URI`` or ``wandb:PROJECT``.
        every: log every n-th round, from the first on; the last round is logged in any case.

    Raises:
        InputError: if the tracker's package is not installed, or it cannot use the place.
    """
    name, _, place = text.partition(":")
    check_choice("tracker", name, TRACKERS)
    if not place:
        raise InputError(f"a tracker is NAME:PLACE, as tensorboard:logs/first, got '{text}'.")
    kind, package = TRACKERS[name]
    try:
        made: Tracker = kind(place, every=every)
    except ImportError as error:
        raise missing_package("this tracker needs", package, name) from error
    return made


class Tracking(Subscriber):
    """Several trackers at work in a thread of their own while a ``with`` block lasts.

    So a tracker that is slow does not hold up the run; if it cannot keep up, rounds are left out. What trackers print
    when they begin and end goes to standard error.

    Args:
        texts: as :func:`make_tracker` takes them.
        every: log every n-th round.
        warn: is called with a message when a tracker fails. The run continues without it.
    """

    def __init__(self, texts: Iterable[str], every: int, warn: Callable[[str], None]) -> None:
        self._trackers: dict[str, Tracker] = {}
        self._rounds: Queue[RoundRecord | None] = Queue(MAX_ROUNDS_WAITING)
        self._thread = threading.Thread(target=self._hand_on, daemon=True)
        self._run: RunData | None = None
        self._texts, self._every, self._warn = texts, every, warn

    def __enter__(self) -> Self:
        try:
            with redirect_stdout(sys.stderr):
                for text in self._texts:
                    self._trackers[text] = make_tracker(text, self._every)
        except BaseException:
            self._end(failed=True)
            raise
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._rounds.put(None)
        self._thread.join()
        self._end(failed=kind is not None)

    def __call__(self, record: RoundRecord) -> None:
        """Hand a round to all of them, soon."""
        with suppress(Full):
            self._rounds.put_nowait(record)

    def finish(self, run: RunData) -> None:
        """Hand the run to all of them, at the end, when it has been saved and printed."""
        self._run = run

    def _end(self, *, failed: bool) -> None:
        run = self._run
        with redirect_stdout(sys.stderr):
            if run is not None:
                self._each(lambda tracker: tracker.finish(run))
            self._each(lambda tracker: tracker.end(failed=failed))

    def _hand_on(self) -> None:
        while (record := self._rounds.get()) is not None:
            self._each(lambda tracker: tracker(record))

    def _each(self, do: Callable[[Tracker], object]) -> None:
        for text, tracker in tuple(self._trackers.items()):
            try:
                do(tracker)
            except Exception as error:
                del self._trackers[text]
                self._warn(f"{text} cannot be written: {error}. The run continues without it.")
