"""What is not known, as regret in a live run: NaN in Python, null in files."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def none_for_nan(content: Any) -> Any:
    """The same with None where there is NaN, which JSON cannot write: what is unknown, as regret in a live run."""
    if isinstance(content, Mapping):
        return {key: none_for_nan(entry) for key, entry in content.items()}
    if isinstance(content, tuple):
        return [none_for_nan(entry) for entry in content]
    return None if isinstance(content, float) and math.isnan(content) else content


def nan_for_none(entry: float | None) -> float:
    """The inverse, for one number."""
    return math.nan if entry is None else float(entry)
