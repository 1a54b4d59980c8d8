"""Runs in MLflow, by way of ``mlflow-skinny``: on a tracking server, or in what else its address names."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric, Param
from mlflow.exceptions import MlflowException

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.text import shortened
from fed_ucbvi.core.version import PROGRAM
from fed_ucbvi.trackers.tracker import Tracker

MAX_WAITING, SECONDS_WAITING = 500, 2.0
"""Figures are sent together: so many, or those of so many seconds. MLflow takes a thousand at a time."""
LONGEST_VALUE = 500
"""Characters of a parameter's value; MLflow keeps no more in some of its stores."""


class MLflowTracker(Tracker):
    """Makes one run of the experiment that ``MLFLOW_EXPERIMENT_NAME`` names, by default ``fed-ucbvi``.

    Args:
        uri: of the tracking server, as ``http://127.0.0.1:5000``; or whatever MLflow takes.
        every: log every n-th round.

    Attributes:
        run_id: MLflow's name for the run.
    """

    def __init__(self, uri: str, every: int = 1) -> None:
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
        self._metrics: list[Metric] = []
        self._due = time.monotonic() + SECONDS_WAITING

    def write(self, episodes: int, figures: Mapping[str, float]) -> None:
        now = round(time.time() * 1000)
        self._metrics += [Metric(name, value, now, episodes) for name, value in figures.items()]
        if len(self._metrics) >= MAX_WAITING or time.monotonic() >= self._due:
            self._send()

    def describe(self, parameters: Mapping[str, Any], results: Mapping[str, float], episodes: int) -> None:
        texts = {name: shortened(str(value), LONGEST_VALUE) for name, value in parameters.items()}
        self._client.log_batch(self.run_id, params=[Param(name, text) for name, text in texts.items()])
        self.write(episodes, results)

    def close(self, *, failed: bool) -> None:
        self._send()
        self._client.set_terminated(self.run_id, "FAILED" if failed else "FINISHED")

    def _send(self) -> None:
        metrics, self._metrics = self._metrics, []
        self._due = time.monotonic() + SECONDS_WAITING
        if metrics:
            self._client.log_batch(self.run_id, metrics=metrics)
