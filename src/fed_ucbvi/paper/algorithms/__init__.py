"""Baselines of the paper's Table 1, and the colours and markers in which figures draw them."""

from __future__ import annotations

from fed_ucbvi.core.colours import BROWN, GREEN, INDIGO, OLIVE, ORANGE, PURPLE, SKY_BLUE, VERMILLION
from fed_ucbvi.results.looks import register_look

register_look("ucbvi", OLIVE)
register_look("concurrent-ucbvi", GREEN, "triangle")
register_look("byzan-ucbvi", INDIGO)
register_look("fedq-hoeffding", ORANGE, "diamond")
register_look("fedq-bernstein", VERMILLION, "circle")
register_look("fedq-advantage", PURPLE, "square")
register_look("ucb-advantage", BROWN)
register_look("concurrent-ucb-advantage", SKY_BLUE)
