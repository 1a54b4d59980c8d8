"""Formulas as MathML, made when the site is built: browsers show it without a script from outside."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx


def setup(app: Sphinx) -> dict[str, Any]:
    """Tell Sphinx how to write a formula as HTML."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))  # type: ignore[arg-type]
    app.config.html_math_renderer = "mathml"
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _formula(text: str, display: str) -> str:
    """MathML; a hat is the character that fonts place above a letter, not the one on keyboards."""
    return convert(text, display=display).replace("<mo>&#x0005E;</mo>", "<mo>&#x00302;</mo>")


def _inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(_formula(node.astext(), "inline"))
    raise nodes.SkipNode


def _block(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="math">{_formula(node.astext(), "block")}</div>')
    raise nodes.SkipNode
