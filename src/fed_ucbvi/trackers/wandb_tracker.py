"""Runs in Weights & Biases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fed_ucbvi.trackers.tracker import Tracker, needed

with needed("Weights & Biases", "wandb"):
    import wandb


class WandbTracker(Tracker):
    """Makes one run of a project; with ``WANDB_MODE=offline`` it stays on this machine.

    Args:
        project: its name.
        every: keep one round in so many.
    """

    def __init__(self, project: str, every: int = 1) -> None:
        super().__init__(every)
        self._run = wandb.init(project=project)

    def write(self, episodes: int, figures: Mapping[str, float]) -> None:
        """Keep the figures of one round."""
        self._run.log(dict(figures), step=episodes)

    def describe(self, parameters: Mapping[str, Any], results: Mapping[str, float], episodes: int) -> None:
        """Keep parameters and results of the run."""
        self._run.config.update(dict(parameters))
        self._run.summary.update(dict(results))

    def close(self, *, failed: bool) -> None:
        """Send what is left, and say how the run ended."""
        self._run.finish(exit_code=int(failed))
