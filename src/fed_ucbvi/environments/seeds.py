"""Independent random generators for the parts of an environment."""

from __future__ import annotations

import numpy as np


def generator(seed: int, *part: int) -> np.random.Generator:
    """The generator of one part: a function of seed and part alone, distinct for distinct arguments."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=part))
