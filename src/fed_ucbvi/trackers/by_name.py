"""Trackers by what a command line says: ``tensorboard:DIR``, ``mlflow:URI``, ``wandb:PROJECT``."""

from __future__ import annotations

from importlib import import_module

from fed_ucbvi.core.errors import InputError, check_choice
from fed_ucbvi.trackers.tracker import Tracker

TRACKERS = {
    "tensorboard": ("tensorboard_tracker", "TensorBoardTracker"),
    "mlflow": ("mlflow_tracker", "MLflowTracker"),
    "wandb": ("wandb_tracker", "WandbTracker"),
}
"""Module and class of each."""


def make_tracker(text: str, every: int = 1) -> Tracker:
    """A callback for ``on_round`` that hands figures to an experiment tracker; use it in a ``with`` block.

    ``with make_tracker("tensorboard:logs/first") as track: track.finish(run(..., on_round=track))``

    Args:
        text: ``tensorboard:DIR``, ``mlflow:URI`` or ``wandb:PROJECT``.
        every: keep one round in so many, from the first on; the last round is kept in any case.

    Raises:
        InputError: if the tracker's package is not installed, or it cannot use the place.
    """
    name, colon, place = text.partition(":")
    check_choice("tracker", name, TRACKERS)
    if not colon or not place:
        raise InputError(f"a tracker is NAME:PLACE, as tensorboard:logs/first, got '{text}'.")
    module, kind = TRACKERS[name]
    made: Tracker = getattr(import_module(f"fed_ucbvi.trackers.{module}"), kind)(place, every=every)
    return made
