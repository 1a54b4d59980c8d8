"""What a folder with a log holds, read beside whoever writes to it."""

from __future__ import annotations

from pathlib import Path

from fed_ucbvi.core.files import manifest_digest
from fed_ucbvi.engine.log import Log
from fed_ucbvi.engine.saved_state import SavedState


def log_in(folder: Path) -> Log:
    """The log of a checkpoint or of a node's state."""
    return Log(folder, manifest_digest(folder), durable=False)


def saved_in(folder: Path) -> SavedState:
    """The last state in it."""
    return log_in(folder).read()


def log_files(folder: Path) -> list[Path]:
    """The files of the log, in order."""
    return sorted(folder.glob("log-*"))
