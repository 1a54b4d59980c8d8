"""One moment of an episode as text or as a picture: where the agent is among the states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fed_ucbvi.core.colours import BLUE, DARK_GREY, GREEN, LIGHT_GREY, ORANGE

Frame = npt.NDArray[np.uint8]

ROW = 20
"""States without a layout are drawn in rows of this length."""
LARGEST = 480
"""Pixels along the longer side of a picture, about."""


def layout_of(layout: Mapping[str, Any] | None, states: int) -> dict[str, Any]:
    """The layout as given, or else the states in order, row by row.

    >>> layout_of(None, 3)["cells"]
    [[0, 0], [0, 1], [0, 2]]
    """
    if layout is not None:
        return dict(layout)
    cells = [[state // ROW, state % ROW] for state in range(states)]
    return {"rows": -(-states // ROW), "columns": min(states, ROW), "cells": cells}


def draw_text(layout: Mapping[str, Any], state: int) -> str:
    """The states as signs: ``#`` no state (a wall), ``S`` start, ``G`` goal, ``.`` others; the agent in brackets.

    >>> print(draw_text({"rows": 1, "columns": 3, "cells": [[0, 0], [0, 1], [0, 2]], "goals": [[0, 2]]}, 1))
     . [.] G
    """
    signs = [["#"] * layout["columns"] for _ in range(layout["rows"])]
    for kind, sign in (("cells", "."), ("goals", "G"), ("start", "S")):
        for row, column in _cells(layout, kind):
            signs[row][column] = sign
    row, column = layout["cells"][state]
    lines = []
    for r, line in enumerate(signs):
        padded = [f"[{sign}]" if (r, c) == (row, column) else f" {sign} " for c, sign in enumerate(line)]
        lines.append("".join(padded).rstrip())
    return "\n".join(lines)


def draw_picture(layout: Mapping[str, Any], state: int) -> Frame:
    """The states as squares ``(height, width, 3)``: walls dark, start orange, goals green, the agent a blue disc."""
    rows, columns = int(layout["rows"]), int(layout["columns"])
    size = max(8, LARGEST // max(rows, columns))
    picture = np.empty((rows * size, columns * size, 3), dtype=np.uint8)
    picture[:] = _rgb(DARK_GREY)
    for kind, colour in (("cells", "#FFFFFF"), ("goals", GREEN), ("start", ORANGE)):
        for row, column in _cells(layout, kind):
            square = picture[row * size : (row + 1) * size, column * size : (column + 1) * size]
            square[:] = _rgb(LIGHT_GREY)
            square[1:-1, 1:-1] = _rgb(colour)
    row, column = layout["cells"][state]
    across = np.arange(size) - (size - 1) / 2
    disc = across[:, None] ** 2 + across[None, :] ** 2 <= (0.33 * size) ** 2
    picture[row * size : (row + 1) * size, column * size : (column + 1) * size][disc] = _rgb(BLUE)
    return picture


def _cells(layout: Mapping[str, Any], kind: str) -> list[tuple[int, int]]:
    found = layout.get(kind, [])
    return [tuple(found)] if kind == "start" and len(found) else [tuple(cell) for cell in found]


def _rgb(colour: str) -> list[int]:
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
