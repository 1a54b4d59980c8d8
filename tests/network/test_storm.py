"""Storms over real processes, with a quorum and secure sums: nothing is lost, and the log gives the run again."""

from __future__ import annotations

from pathlib import Path

import pytest

from storms import KINDS, Storm

pytestmark = pytest.mark.network


@pytest.mark.parametrize(
    ("kind", "blows"),
    [("secure, quorum", 4), *(pytest.param(kind, 15, marks=[pytest.mark.full, pytest.mark.slow]) for kind in KINDS)],
)
def test_nothing_is_lost_in_a_storm(kind: str, blows: int, tmp_path: Path) -> None:
    figures = Storm(kind, tmp_path, seed=blows).blow(blows)
    assert figures["blows"]
    assert 0 < figures["in_table"] <= figures["episodes"]
