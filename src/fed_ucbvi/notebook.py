"""What notebooks show: small tables for values, and whether we are in one."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from html import escape


def in_notebook() -> bool:
    """Whether this runs in an IPython kernel, as in Jupyter; a terminal's IPython has none."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


def number_text(figure: float) -> str:
    """A number in at most six digits, with commas; NaN is unknown.

    >>> number_text(30_000), number_text(0.19999999999999996), number_text(12345.678), number_text(float("nan"))
    ('30,000', '0.2', '12,345.7', 'unknown')
    """
    if figure != figure:
        return "unknown"
    return f"{figure:,.6g}" if abs(figure) < 1e6 and not isinstance(figure, int) else f"{figure:,.0f}"


def shortened(text: str, longest: int = 60) -> str:
    """A text cut to so many characters.

    >>> shortened("[[0, 0], [0, 1]]", 8)
    '[[0, 0]…'
    """
    return text if len(text) <= longest else f"{text[: longest - 1]}\u2026"


def html_table(title: str, rows: Iterable[Sequence[str]], header: Sequence[str] = ()) -> str:
    """A table with a caption, as HTML; texts are escaped.

    >>> html_table("Two & two", [("sum", "4")])
    '<table><caption><b>Two &amp; two</b></caption><tbody><tr><td>sum</td><td>4</td></tr></tbody></table>'
    """
    head = f"<thead><tr>{_cells(header, 'th')}</tr></thead>" if header else ""
    body = "".join(f"<tr>{_cells(row, 'td')}</tr>" for row in rows)
    return f"<table><caption><b>{escape(title)}</b></caption>{head}<tbody>{body}</tbody></table>"


def _cells(texts: Sequence[str], tag: str) -> str:
    return "".join(f"<{tag}>{escape(text)}</{tag}>" for text in texts)
