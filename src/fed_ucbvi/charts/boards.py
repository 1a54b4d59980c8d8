"""A board of squares as a Vega-Lite specification."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fed_ucbvi.charts.curves import COLOUR, MARKER_SIZE, SHAPE, SHAPES, Spec, pick
from fed_ucbvi.charts.panels import Board
from fed_ucbvi.core.colours import LIGHT_GREY, WHITE

SHADES = "cividis"
"""From dark (smallest) to light (largest), also for colour-blind readers."""
ARROW = "M-1,-.11H.3V-.4L1,0L.3,.4V.11H-1Z"
"""Two units long, to the right."""
FINE = 16
"""On boards with this many rows or columns arrows nearly fill the squares."""
ARROW_LENGTHS = (0.5, 0.77)
"""Length of the arrow for a step by one square, in squares; the second is for fine boards."""
FONT_SIZE = 10.5
BLACK_MARKS = {"color": "black", "opacity": 1}
SHAPED = {"shape": SHAPE, "size": MARKER_SIZE}
BOX = {"x2": {"field": "x2"}, "y2": {"field": "y2"}}
SEAM = 0.4
"""Pixels by which a shaded square overlaps the next one, so that no gap shows."""


def size_of(board: Board, width: float, height: float) -> tuple[float, float]:
    """Width and height of a board that has at most this room."""
    if not board.even:
        return width, height
    side = min(width / board.columns, height / board.rows)
    return side * board.columns, side * board.rows


def board_chart(board: Board, width: float, height: float) -> Spec:
    """Shades, squares, lines, texts, rings and arrows of a board of this width and height."""
    side = min(width / board.columns, height / board.rows)
    layers = [_shades(board, height, side), _fills(board, side), *_lines(board), *_texts(board), _rings(board, side)]
    layers.append(_arrows(board, side))
    ends = {"x": [-0.5, board.columns - 0.5], "y": [board.rows - 0.5, -0.5]}
    labels = {"x": list(board.x_label), "y": [board.y_label] if board.y_label else []}
    ticks = {"x": board.x_ticks, "y": board.y_ticks}
    places = {
        name: {
            "field": name,
            "type": "quantitative",
            "scale": {"domain": ends[name], "nice": False, "zero": False},
            "axis": _axis(labels[name], ticks[name], start=name == "x" and not ticks[name]),
        }
        for name in ("x", "y")
    }
    return {"encoding": places, "layer": [layer for layer in layers if layer["data"]["values"]]}


def _axis(label: list[str], ticks: Sequence[tuple[float, str]], *, start: bool) -> Spec:
    """Ticks with their texts; a title without ticks begins at the left end."""
    values = [place for place, _ in ticks]
    axis: Spec = {"title": label or None, "grid": False, "ticks": False, "domain": False}
    axis |= {"values": values, "labelExpr": pick(values, [text for _, text in ticks]), "labelPadding": 5}
    return axis | ({"titleAnchor": "start"} if start else {})


def _layer(mark: str, rows: Sequence[Spec], encoding: Spec, **looks: Any) -> Spec:
    return {"data": {"values": list(rows)}, "mark": {"type": mark, **looks}, "encoding": encoding}


def _box(row: int, column: int, over: float = 0.0) -> Spec:
    """The corners of a square, which may reach a little over the next ones."""
    return {"x": column - 0.5, "x2": column + 0.5 + over, "y": row - 0.5, "y2": row + 0.5 + over}


def _shades(board: Board, height: float, side: float) -> Spec:
    over = SEAM / side  # else the paper shines through between squares
    rows = [
        {**_box(row, column, over), "shade": shade, "told": f"row {row}, column {column}: {shade:.6g}"}
        for row, line in enumerate(board.shades)
        for column, shade in enumerate(line)
        if not math.isnan(shade)
    ]
    low, high = (end(row["shade"] for row in rows) if rows else 0.0 for end in (min, max))
    if low == high:
        low, high = min(0.0, low), max(0.0, high) or 1.0
    colour = {
        "field": "shade",
        "type": "quantitative",
        "scale": {"scheme": SHADES, "domain": [low, high]},
        "legend": {"title": None, "gradientLength": 0.85 * height, "gradientThickness": 10, "format": "~r"},
    }
    told = {"field": "told", "type": "nominal"}
    return _layer("rect", rows, {**BOX, "color": colour, "tooltip": told})


def _fills(board: Board, side: float) -> Spec:
    over = SEAM / side
    rows = [{**_box(one.row, one.column, over), "colour": one.colour} for one in board.squares if one.colour]
    return _layer("rect", rows, {**BOX, "color": COLOUR})


def _lines(board: Board) -> list[Spec]:
    """Outer lines, and inner ones if wanted; white on shades, so that they part groups of squares."""
    (down, along), rows, columns = board.lines, board.rows, board.columns
    flat = [*range(down, rows, down)] if down else []
    upright = [*range(along, columns, along)] if along else []
    outer = {"x": -0.5, "x2": columns - 0.5, "y": -0.5, "y2": rows - 0.5}
    inner = [{**outer, "y": y - 0.5, "y2": y - 0.5} for y in flat]
    inner += [{**outer, "x": x - 0.5, "x2": x - 0.5} for x in upright]
    colour = WHITE if len(board.shades) else LIGHT_GREY
    return [
        _layer("rule", inner, BOX, strokeWidth=1, stroke=colour),
        _layer("rect", [outer], BOX, filled=False, strokeWidth=1, stroke=LIGHT_GREY),
    ]


def _texts(board: Board) -> list[Spec]:
    """Texts, on a little white where squares are shaded."""
    rows: list[Spec] = [
        {"x": one.column, "y": one.row - (0.38 if one.arrow else 0), "text": one.text, "colour": one.text_colour}
        for one in board.squares
        if one.text
    ]
    wide, high = 0.31 * FONT_SIZE, 0.6 * FONT_SIZE
    boxes = [
        {**row, "shape": f"M{-half},{-high}H{half}V{high}H{-half}Z", "size": 4}  # this size keeps pixels as they are
        for row in rows
        if len(board.shades) and row["colour"] != WHITE
        for half in [wide * len(row["text"]) + 2]
    ]
    text = {"text": {"field": "text", "type": "nominal"}, "color": COLOUR}
    return [
        _layer("point", boxes, SHAPED, filled=True, opacity=1, color=WHITE),
        _layer("text", rows, text, baseline="middle", fontSize=FONT_SIZE),
    ]


def _rings(board: Board, side: float) -> Spec:
    """Large enough to be seen on a large board."""
    size = (2 * side * max(0.55, max(board.rows, board.columns) / 30)) ** 2
    ringed = [one for one in board.squares if one.ring]
    rows = [{"x": one.column, "y": one.row, "shape": SHAPES[one.ring], "size": size} for one in ringed]
    return _layer("point", rows, SHAPED, **BLACK_MARKS, filled=False, strokeWidth=1.4)


def _arrows(board: Board, side: float) -> Spec:
    length = side * ARROW_LENGTHS[max(board.rows, board.columns) >= FINE]
    rows = []
    for one in (one for one in board.squares if one.arrow is not None):
        down, right = one.arrow or (0, 0)
        reach, angle = math.hypot(down, right), math.degrees(math.atan2(down, right))
        shape = {"shape": ARROW if reach else SHAPES["circle"], "size": (length * (reach or 0.3)) ** 2}
        rows.append({"x": one.column, "y": one.row, "angle": angle, **shape})
    turned = {"angle": {"field": "angle", "type": "quantitative", "scale": None}}
    return _layer("point", rows, SHAPED | turned, **BLACK_MARKS, filled=True)
