"""Texts of an SVG picture with the room they take, measured by another library than the one that drew it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from itertools import combinations
from typing import Any, NamedTuple
from xml.etree import ElementTree

import numpy as np
import numpy.typing as npt
from PIL import ImageFont

Matrix = npt.NDArray[np.float64]
SVG = "{http://www.w3.org/2000/svg}"
ASCENT = 0.72
DESCENT = 0.12
"""Of the size of the font: how far letters reach above and below their line."""


class Text(NamedTuple):
    """A line of text and the corners of the room it takes."""

    text: str
    corners: Matrix


@cache
def font() -> Any:
    return ImageFont.truetype(str(files("fed_ucbvi.charts") / "fonts" / "DejaVuSans.ttf"), 100)


def matrix_of(transform: str) -> Matrix:
    """The matrix of moves and turns in a row."""
    matrix = np.eye(3)
    for kind, numbers in re.findall(r"(\w+)\(([^)]*)\)", transform):
        values = [float(value) for value in re.split(r"[ ,]+", numbers.strip())]
        step = np.eye(3)
        if kind == "translate":
            step[:2, 2] = [*values, 0.0][:2]
        elif kind == "rotate":
            angle = math.radians(values[0])
            step[:2, :2] = [
                [math.cos(angle), -math.sin(angle)],
                [math.sin(angle), math.cos(angle)],
            ]
        else:
            raise AssertionError(kind)
        matrix = matrix @ step
    return matrix


def texts_of(svg: str) -> list[Text]:
    """Every text that is drawn."""
    return list(_walk(ElementTree.fromstring(svg), np.eye(3)))


def _walk(element: ElementTree.Element, matrix: Matrix) -> Iterator[Text]:
    matrix = matrix @ matrix_of(element.get("transform", ""))
    if element.tag != f"{SVG}text":
        for child in element:
            yield from _walk(child, matrix)
        return
    size = float(element.get("font-size", "").removesuffix("px"))
    lines = [(span.text or "", float(span.get("dy", 0))) for span in element] or [(element.text or "", 0.0)]
    down = 0.0
    for text, step in lines:
        down += step
        width = font().getlength(text) * size / 100
        left = {"start": 0.0, "middle": -width / 2, "end": -width}[element.get("text-anchor", "start")]
        right = left + width
        top = down - ASCENT * size
        bottom = down + DESCENT * size
        box = [
            (left, top, 1.0),
            (right, top, 1.0),
            (right, bottom, 1.0),
            (left, bottom, 1.0),
        ]
        if text.strip() and element.get("opacity") != "0":
            yield Text(text, (matrix @ np.array(box).T).T[:, :2])


def overlapping(svg: str) -> list[tuple[str, str]]:
    """Pairs of texts that cover each other, and texts that leave the picture."""
    texts = texts_of(svg)
    width, height = (float(value) for value in re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)[0])
    pairs = [(one.text, other.text) for one, other in combinations(texts, 2) if _meet(one.corners, other.corners)]
    out = [
        (one.text, "the edge")
        for one in texts
        if (one.corners < -1).any() or (one.corners[:, 0] > width + 1).any() or (one.corners[:, 1] > height + 1).any()
    ]
    return pairs + out


def _meet(one: Matrix, other: Matrix) -> bool:
    """Whether two rectangles have points in common: no line along a side of either parts them."""
    for corners in (one, other):
        for side in (corners[1] - corners[0], corners[3] - corners[0]):
            normal = side / np.linalg.norm(side)
            a = one @ normal
            b = other @ normal
            if a.max() <= b.min() + 0.1 or b.max() <= a.min() + 0.1:
                return False
    return True
