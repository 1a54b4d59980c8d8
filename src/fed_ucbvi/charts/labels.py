"""Where to write labels so that they stay near what they name and never cover each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np


def spread(
    wanted: Sequence[float], sizes: Sequence[float], *, low: float = -math.inf, high: float = math.inf
) -> list[float]:
    """Centres of labels, as near to ``wanted`` as they can be without overlapping.

    Minimises the sum of squared moves. The centres of neighbours must be at least half the sum of their sizes apart,
    and all labels must stay within ``low`` to ``high``. After subtracting the sizes of the labels below, the centres
    only have to be in order, so the problem is isotonic regression.

    Args:
        wanted: centres, from the lowest up.
        sizes: height of each label, gap included.
        low: no label reaches below.
        high: no label reaches above; ignored if there are too many labels.

    >>> spread([1.0, 1.0, 5.0], [1.0, 1.0, 1.0])
    [0.5, 1.5, 5.0]
    >>> spread([0.0, 0.0], [1.0, 1.0], low=0.0, high=9.0)
    [0.5, 1.5]
    """
    from scipy.optimize import isotonic_regression

    if not wanted:
        return []
    rooms = np.cumsum([0.0, *((below + above) / 2 for below, above in pairwise(sizes))])
    lowest = low + sizes[0] / 2
    highest = max(lowest, high - sizes[-1] / 2 - rooms[-1])
    levels = isotonic_regression(np.asarray(wanted) - rooms).x
    return [float(centre) for centre in np.clip(levels, lowest, highest) + rooms]
