"""Names of picture files, checked before anything is computed or drawn; without matplotlib."""

from __future__ import annotations

from pathlib import Path

from fed_ucbvi.core.errors import InputError, check_number

FORMATS = ("svg", "png", "pdf")
PNG_DPI = 200
"""Dots per inch of PNG files."""

Size = tuple[float, float]
"""Width and height in inches."""


def check_picture(path: str | Path) -> str:
    """Format of a picture file by its suffix; an error unless a picture can be written to ``path``."""
    path = Path(path)
    format_ = path.suffix.lower().removeprefix(".")
    if format_ not in FORMATS:
        raise InputError(f"cannot write a picture to {path}: its name must end in .png, .svg or .pdf.")
    if path.is_dir():
        raise InputError(f"cannot write a picture to {path}: it is a folder.")
    return format_


def check_size(size: Size) -> Size:
    """``size`` as two numbers of inches, each at least 1."""
    if len(size) != 2:
        raise InputError(f"size must be width and height in inches, such as (6.5, 3), got {size!r}.")
    width = check_number("the width of a picture in inches", size[0], at_least=1.0)
    height = check_number("the height of a picture in inches", size[1], at_least=1.0)
    return width, height
