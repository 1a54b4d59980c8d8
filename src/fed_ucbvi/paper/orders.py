"""Rows of the paper's Table 1: orders of rounds and of regret, without constants and logarithms in the regret."""

from __future__ import annotations

from typing import NamedTuple


class TableRow(NamedTuple):
    """An algorithm's row.

    Attributes:
        kind: model-based or model-free.
        heterogeneity: True if agents may differ; None where nothing is stated.
        communication: order of the number of rounds.
        regret: order of the regret per agent.
    """

    kind: str
    heterogeneity: bool | None
    communication: str
    regret: str


UNSTATED = TableRow("\u2013", None, "\u2013", "\u2013")
"""Row of an algorithm that is not in the table."""

ROWS: dict[str, TableRow] = {
    "fed-ucbvi": TableRow(
        kind="model-based",
        heterogeneity=True,
        communication="S A H log T + M S A H log log T + M S A H log(1 + eps_p T)",
        regret="sqrt(H^3 S A T / M)",
    ),
    "fed-kl-ucbvi": TableRow("model-based", True, "S A H log T", "sqrt(H^3 S A T / M)"),
    "fed-kl-ucbvi-fast": TableRow("model-based", True, "S A H log T", "sqrt(H^3 S A T / M)"),
    "ucbvi": TableRow("model-based", False, "T", "sqrt(H^3 S A T)"),
    "concurrent-ucbvi": TableRow("model-based", False, "T", "sqrt(H^3 S A T / M)"),
    "byzan-ucbvi": TableRow("model-based", False, "M S A H log T", "sqrt(H^4 S^2 A T / M)"),
    "fedq-hoeffding": TableRow("model-free", False, "M S A H^3 log T", "sqrt(H^5 S A T / M)"),
    "fedq-bernstein": TableRow("model-free", False, "M S A H^3 log T", "sqrt(H^4 S A T / M)"),
    "fedq-advantage": TableRow("model-free", False, "M S A H^2 log H log T", "sqrt(H^3 S A T / M)"),
    "ucb-advantage": TableRow("model-free", False, "T", "sqrt(H^3 S A T)"),
    "concurrent-ucb-advantage": TableRow("model-free", False, "T", "sqrt(H^3 S A T / M)"),
}
"""Rows by the names of the algorithms."""


def row_of(algorithm: str) -> TableRow:
    """Row of the algorithm that a run records by this name.

    >>> row_of("ucbvi").communication, row_of("something new") == UNSTATED
    ('T', True)
    """
    return ROWS.get(algorithm, UNSTATED)
