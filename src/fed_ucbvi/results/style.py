"""How pictures look: colours that everyone can tell apart, one for each algorithm, and how files are written."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fed_ucbvi.errors import InputError
from fed_ucbvi.files import new_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLACK = "#000000"
ORANGE = "#E69F00"
SKY_BLUE = "#56B4E9"
GREEN = "#009E73"
YELLOW = "#F0E442"
BLUE = "#0072B2"
VERMILLION = "#D55E00"
PURPLE = "#CC79A7"
PALETTE = (BLUE, VERMILLION, GREEN, ORANGE, PURPLE, SKY_BLUE, YELLOW, BLACK)
"""The palette of Okabe and Ito, safe for every common kind of colour blindness; in the order in which to use it."""

WINE = "#882255"
OLIVE = "#999933"
INDIGO = "#332288"
BROWN = "#661100"
"""From Paul Tol's palettes, for what is seldom drawn."""

LIGHT_GREY = "#D9D9D9"
DARK_GREY = "#404040"

COLOURS: dict[str, str] = {
    "fed-ucbvi": BLUE,
    "fed-ucbvi-sharp": BLACK,
    "fed-ucbvi-proved": "#5E5E5E",
    "ucbvi": OLIVE,
    "concurrent-ucbvi": GREEN,
    "byzan-ucbvi": INDIGO,
    "fedq-hoeffding": ORANGE,
    "fedq-bernstein": VERMILLION,
    "fedq-early-settled-lowcost": WINE,
    "fedq-advantage": PURPLE,
    "concurrent-ucb-advantage": SKY_BLUE,
    "ucb-advantage": BROWN,
}
"""The colour of each algorithm, by its name; one that is not here is drawn in black."""

LABELS: dict[str, str] = {
    "fed-ucbvi": "Fed-UCBVI",
    "fed-ucbvi-sharp": "sharp Fed-UCBVI",
    "fed-ucbvi-proved": "proved Fed-UCBVI",
    "ucbvi": "UCBVI",
    "concurrent-ucbvi": "Concurrent UCBVI",
    "byzan-ucbvi": "Byzan-UCBVI",
    "gridworld": "GridWorld",
    "gymnasium": "Gymnasium",
    "synthetic": "synthetic MDP",
    "riverswim": "RiverSwim",
    "chain": "chain",
    "deepsea": "DeepSea",
    "sixarms": "SixArms",
    "nroom": "NRoom",
    "hard-instance": "hard instance",
    "two-state-chain": "two-state chain",
    "garnet": "Garnet MDP",
    "fedq-hoeffding": "FedQ-Hoeffding",
    "fedq-bernstein": "FedQ-Bernstein",
    "fedq-early-settled-lowcost": "FedQ-EarlySettled-LowCost",
    "fedq-advantage": "FedQ-Advantage",
    "concurrent-ucb-advantage": "Concurrent UCB-Advantage",
    "ucb-advantage": "UCB-Advantage",
}
"""How names are written in pictures; one that is not here is written as it is."""

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
    """The colour of an algorithm.

    >>> colour_of("fed-ucbvi") == BLUE
    True
    """
    return COLOURS.get(algorithm, BLACK)


def label_of(name: str) -> str:
    """How the name of an algorithm or environment is written.

    >>> label_of("fed-ucbvi")
    'Fed-UCBVI'
    """
    return LABELS.get(name, name)


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
