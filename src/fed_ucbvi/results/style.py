"""How pictures look: the label, colour and marker of what is drawn, and how files are written."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fed_ucbvi.algorithms import known_class
from fed_ucbvi.environments import environment_label
from fed_ucbvi.errors import InputError
from fed_ucbvi.files import new_file
from fed_ucbvi.palette import BLACK as BLACK
from fed_ucbvi.palette import BLUE as BLUE
from fed_ucbvi.palette import DARK_GREY as DARK_GREY
from fed_ucbvi.palette import GREEN as GREEN
from fed_ucbvi.palette import LIGHT_GREY as LIGHT_GREY
from fed_ucbvi.palette import ORANGE as ORANGE
from fed_ucbvi.palette import PALETTE as PALETTE
from fed_ucbvi.palette import VERMILLION as VERMILLION
from fed_ucbvi.palette import Marker, spare_colour

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RULE_COLOURS = PALETTE[:5]
RULE_MARKERS = ("o", "^", "s", "D", "v")
MARKER_SIGNS = {"o": "\u25cf", "^": "\u25b2", "s": "\u25a0", "D": "\u25c6", "v": "\u25bc"}
"""Colour and marker of an algorithm's first, second... synchronisation rule, and the marker as text."""

LINE_STYLES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 1.5, 1, 1.5)))
"""Solid, dashed, dotted, dash-dotted: tells curves of one algorithm apart."""

DPI = 200
FORMATS = ("png", "pdf")
METADATA: dict[str, dict[str, Any]] = {"png": {"Software": None}, "pdf": {"CreationDate": None}}
"""Without dates and versions, so that the same run gives the same file."""

SETTINGS: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.labelsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "axes.grid": False,
    "axes.formatter.use_mathtext": True,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "lines.linewidth": 1.6,
    "mathtext.fontset": "dejavusans",
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "pdf.fonttype": 42,
}
"""Settings of matplotlib in force while a picture is drawn or written, and not after."""


def colour_of(algorithm: str) -> str:
    """The colour of an algorithm, by its name on record.

    >>> colour_of("fed-ucbvi") == BLUE
    True
    """
    kind = known_class(algorithm)
    return spare_colour(algorithm) if kind is None else kind.colour


def marker_of(algorithm: str) -> Marker:
    """The marker of an algorithm's points, by its name on record.

    >>> marker_of("fed-ucbvi")
    'cross'
    """
    kind = known_class(algorithm)
    return "none" if kind is None else kind.marker


def label_of(name: str) -> str:
    """How the name of an algorithm or environment is written; as it is, where nobody says.

    >>> label_of("fed-ucbvi"), label_of("deep_sea"), label_of("something new")
    ('Fed-UCBVI', 'DeepSea', 'something new')
    """
    kind = known_class(name)
    return environment_label(name) if kind is None else kind.label


def number(value: float) -> str:
    """A number as a person would write it.

    >>> number(312.04), number(46.31), number(30_000), number(10**9)
    ('312', '46.3', '30,000', '$10^{9}$')
    """
    if value >= 1e6:
        power = round(math.log10(value))
        return f"$10^{{{power}}}$" if value == 10**power else f"{value:,.0f}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def byte_count(count: int) -> str:
    """So many bytes.

    >>> byte_count(800), byte_count(157_700_000), byte_count(2_000_000_000)
    ('800 bytes', '158 MB', '2 GB')
    """
    for size, unit in ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if count >= 0.9995 * size:
            return f"{count / size:.3g} {unit}"
    return f"{count} bytes"


def check_picture(path: str | Path) -> str:
    """The format that the suffix of ``path`` says, or raise unless a picture can be written there."""
    path = Path(path)
    format_ = path.suffix.lower().removeprefix(".")
    if format_ not in FORMATS:
        raise InputError(f"cannot write a picture to {path}: its name must end in .png or .pdf.")
    if path.is_dir():
        raise InputError(f"cannot write a picture to {path}: it is a folder.")
    return format_


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure as PNG or PDF, by suffix; what was there before is replaced only once all went well."""
    import matplotlib

    format_, path = check_picture(path), Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with new_file(path) as draft, matplotlib.rc_context(SETTINGS):
        figure.savefig(draft, format=format_, dpi=DPI, metadata=METADATA[format_])
