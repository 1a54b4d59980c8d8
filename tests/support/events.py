"""Events as TensorBoard reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def events_in(folder: Path) -> Any:
    """Events in a folder; the import is here because it takes long, in every process that collects tests."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
