"""State in a folder with a log, read while another process writes to it."""

from __future__ import annotations

from pathlib import Path

from fed_ucbvi.core.files import manifest_digest
from fed_ucbvi.engine.state_arrays import SavedState
from fed_ucbvi.engine.state_store import StateStore


def log_in(folder: Path) -> StateStore:
    """The log of a checkpoint or of a node's state."""
    return StateStore(folder, manifest_digest(folder))


def saved_in(folder: Path) -> SavedState:
    """The last state in it."""
    return log_in(folder).read()


def log_files(folder: Path) -> list[Path]:
    """The files of the log, in order."""
    return sorted(folder.glob("log-*"))
