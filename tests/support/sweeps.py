"""Sweeps made in this process, where it is not the subject how they are made."""

from __future__ import annotations

from pathlib import Path

from fed_ucbvi import Sweep
from fed_ucbvi.sweeps.store import Store


def made_sweep(folder: Path, sweep: Sweep) -> Path:
    """The folder of a finished sweep."""
    store = Store.create(folder, sweep)
    for job in sweep.jobs():
        store.write(job, job.run().to_bytes(), 1.0)
    return folder
