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
