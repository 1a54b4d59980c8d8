"""Where to write labels so that they stay near what they name and never cover each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise


def spread(
    wanted: Sequence[float], sizes: Sequence[float], *, low: float = -math.inf, high: float = math.inf
) -> list[float]:
    """Centres of labels, as near to ``wanted`` as they can be without overlapping.

    Minimises the sum of squared moves subject to neighbours keeping half the sum of their sizes apart and all staying
    within ``low`` to ``high``. Less the room that labels below take, the centres need only be in order: that is
    isotonic regression, solved by pooling neighbours that are out of order.

    Args:
        wanted: centres, from the lowest up.
        sizes: height of each label, gap included.
        low: no label reaches below.
        high: no label reaches above; given up if the labels are too many.

    >>> spread([1.0, 1.0, 5.0], [1.0, 1.0, 1.0])
    [0.5, 1.5, 5.0]
    >>> spread([0.0, 0.0], [1.0, 1.0], low=0.0, high=9.0)
    [0.5, 1.5]
    """
    if not wanted:
        return []
    rooms = [0.0]
    for below, above in pairwise(sizes):
        rooms.append(rooms[-1] + (below + above) / 2)
    pools: list[tuple[float, int]] = []
    for centre, room in zip(wanted, rooms, strict=True):
        mean, count = centre - room, 1
        while pools and pools[-1][0] > mean:
            below_mean, below_count = pools.pop()
            mean = (mean * count + below_mean * below_count) / (count + below_count)
            count += below_count
        pools.append((mean, count))
    lowest = low + sizes[0] / 2
    highest = max(lowest, high - sizes[-1] / 2 - rooms[-1])
    levels = [min(max(mean, lowest), highest) for mean, count in pools for _ in range(count)]
    return [level + room for level, room in zip(levels, rooms, strict=True)]
