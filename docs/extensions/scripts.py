"""Short formulas: documents write ``V_{h+1}``, ``n^i_h``, ``2^−f`` or N, and the site shows them as MathML."""

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
CARRIER = re.compile(rf"(?:max|min|\d+|{LETTER}[\u0300-\u036f]?)$")
"""What carries the scripts and becomes part of the formula; after a bracket they are raised or lowered as text."""
POWERS = {"²": "^{2}", "³": "^{3}", "⁴": "^{4}", "*": "^{*}"}
TOUCHING = re.compile(r"[(),|]+")
"""What joins two formulas between which no line may end."""
SYMBOL = re.compile(
    r"(?<![\w'\u2019.\-^_])(?:[NVQPXYZMSHTRUKhsiknrtvmpfj\u0391-\u03c9]|A(?= = |, |\)| and H)|(?<=action )a"
    r"|(?<=,)a(?=\))|(?<=, )a(?=\)))(?P<power>[²³⁴*]?)(?![\w'\u2019\-^_]|\.\w)"
)
"""Letters that stand by themselves for a quantity, and not for a word."""
HATS = {"\u0302": r"\hat", "\u0303": r"\tilde", "\u0304": r"\bar"}
VERBATIM = (nodes.FixedTextElement, nodes.literal, nodes.math, nodes.raw, nodes.Invisible, addnodes.desc_signature)
VERBATIM += (addnodes.literal_strong, addnodes.literal_emphasis)


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
            made = [] if _verbatim(text) else _joined(list(pieces(text.astext())))
            if any(not isinstance(one, nodes.Text) for one in made):
                text.parent.replace(text, made)


def pieces(text: str) -> Iterator[nodes.Node]:
    """The parts of a text: plain, formulas, and what is raised or lowered after a bracket."""
    end = 0
    for group in _groups(text):
        before, marks = text[end : group[0].start()], text[group[0].start() : group[-1].end()]
        carrier, power = CARRIER.search(before), ""
        yield from _symbols(before[: carrier.start()] if carrier else before)
        if carrier:
            power = POWERS.get(text[group[-1].end() : group[-1].end() + 1], "")
            yield nodes.math(source := latex(carrier[0] + marks) + power, source)
        else:
            for one in group:
                kind = nodes.superscript if one["mark"] == "^" else nodes.subscript
                yield kind("", "", *pieces(_inner(one)))
        end = group[-1].end() + bool(power)
    yield from _symbols(text[end:])


def _joined(made: list[nodes.Node]) -> list[nodes.Node]:
    """The parts with formulas and their brackets in one, so that no line ends in them."""
    found: list[nodes.Node] = []
    for place, one in enumerate(made):
        last, text = found[-1] if found else None, one.astext()
        if isinstance(last, nodes.math) and isinstance(one, nodes.Text):
            closing = last.astext().count("(") - last.astext().count(")")
            between = place + 1 < len(made) and isinstance(made[place + 1], nodes.math)
            taken = text if between and TOUCHING.fullmatch(text) else ")" * closing
            if taken and text.startswith(taken):
                found[-1], text = nodes.math(source := last.astext() + taken, source), text.removeprefix(taken)
            found += [nodes.Text(text)] if text else []
        elif isinstance(one, nodes.math) and isinstance(last, nodes.math):
            found[-1] = nodes.math(source := last.astext() + text, source)
        elif isinstance(one, nodes.math) and last is not None and last.astext().endswith("("):
            found[-1] = nodes.Text(last.astext()[:-1])
            found.append(nodes.math(f"({text}", f"({text}"))
        else:
            found.append(one)
    return found


def _symbols(text: str) -> Iterator[nodes.Node]:
    """A text without marks, its single letters as formulas."""
    end = 0
    for found in SYMBOL.finditer(text):
        if end < found.start():
            yield nodes.Text(text[end : found.start()])
        source = found[0].removesuffix(found["power"]) + POWERS.get(found["power"], "")
        yield nodes.math(source, source)
        end = found.end()
    if end < len(text):
        yield nodes.Text(text[end:])


def latex(text: str) -> str:
    """A formula in LaTeX: scripts in braces, words upright, accents as commands."""
    text = re.sub(rf"({LETTER})([\u0302-\u0304])", lambda one: f"{HATS[one[2]]}{{{one[1]}}}", text)
    text = re.sub(r"(?<![\\a-zA-Z])[a-zA-Z]{2,}", r"\\text{\g<0>}", text)
    return SCRIPT.sub(lambda one: f"{one['mark']}{{{latex(_inner(one))}}}", text).replace("\u2212", "-")


def _groups(text: str) -> Iterator[list[re.Match[str]]]:
    """The marks of a text, those together that follow each other directly."""
    group: list[re.Match[str]] = []
    for found in SCRIPT.finditer(text):
        before = text[group[-1].end() if group else 0 : found.start()]
        if group and not before:
            group.append(found)
        elif found["mark"] == "^" or BASE.search(before):
            if group:
                yield group
            group = [found]
    if group:
        yield group


def _inner(found: re.Match[str]) -> str:
    return found["braced"] or found["plain"] or found["letter"]


def _verbatim(node: nodes.Node) -> bool:
    parent = node.parent
    return parent is not None and (isinstance(parent, VERBATIM) or _verbatim(parent))
