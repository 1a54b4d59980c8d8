"""Subscripts and superscripts: documents write ``V_{h+1}``, ``n^i_h`` and ``2^−f``, and the site shows them so."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

LETTER = r"[^\W\d_\u00b2\u00b3\u00b9\u2070-\u209c]"
"""Not a digit that is raised or lowered by itself."""
SCRIPT = re.compile(
    r"(?P<mark>[\^_])(?:"
    r"\{(?P<braced>[^{}]+)\}"
    rf"|(?P<plain>\([^()]+\)|[-\u2212]?(?:\d+(?:\.\d+)?|{LETTER}+'?)|\*)(?![0-9_^]|{LETTER})"
    rf"|(?P<letter>{LETTER})(?=_))"
)
BASE = re.compile(r"(?:(?:^|[^\w.])(?:[A-Za-z]|max|min)|[^\W\da-zA-Z_])[\u0300-\u036f]?$")
"""What may have a subscript: one letter alone, a Greek one anywhere, max and min. Names keep their underscores."""
VERBATIM = (nodes.FixedTextElement, nodes.literal, nodes.math, nodes.raw, nodes.Invisible, addnodes.desc_signature)


def setup(app: Sphinx) -> dict[str, Any]:
    """Look at every text that is not code."""
    app.add_transform(Scripts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


class Scripts(SphinxTransform):
    """Replaces marks by elements."""

    default_priority = 500

    def apply(self, **_: Any) -> None:
        """Change one page."""
        for text in list(self.document.findall(nodes.Text)):
            made = list(pieces(text.astext())) if {"^", "_"} & set(text) and not _verbatim(text) else []
            if len(made) > 1:
                text.parent.replace(text, made)


def pieces(text: str) -> Iterator[nodes.Node]:
    """The parts of a text: plain, raised and lowered."""
    end = 0
    for found in SCRIPT.finditer(text):
        before = text[end : found.start()]
        if found["mark"] == "_" and not (BASE.search(before) or (end and not before)):
            continue
        if before:
            yield nodes.Text(before)
        inner = found["braced"] or found["plain"] or found["letter"]
        kind = nodes.superscript if found["mark"] == "^" else nodes.subscript
        yield kind("", "", *pieces(inner))
        end = found.end()
    if end < len(text):
        yield nodes.Text(text[end:])


def _verbatim(node: nodes.Node) -> bool:
    parent = node.parent
    return parent is not None and (isinstance(parent, VERBATIM) or _verbatim(parent))
