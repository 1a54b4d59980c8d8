"""Runs in Weights & Biases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import wandb

from fed_ucbvi.trackers.tracker import Tracker


class WandbTracker(Tracker):
    """Makes one run of a project; with ``WANDB_MODE=offline`` it stays on this machine.

    Args:
        project: its name.
        every: log every n-th round.
    """

    def __init__(self, project: str, every: int = 1) -> None:
        super().__init__(every)
        self._run = wandb.init(project=project)

    def write(self, episodes: int, figures: Mapping[str, float]) -> None:
        self._run.log(dict(figures), step=episodes)

    def describe(self, parameters: Mapping[str, Any], results: Mapping[str, float], episodes: int) -> None:
        self._run.config.update(dict(parameters))
        self._run.summary.update(dict(results))

    def close(self, *, failed: bool) -> None:
        self._run.finish(exit_code=int(failed))
