"""Curves of rewards, against all episodes of a made-up run."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from fed_ucbvi import FedUCBVI, Run, gridworld, run
from fed_ucbvi.charts.panels import Panel, Series
from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.results.curves import learning_curve
from fed_ucbvi.results.plotting import LEARNING, plot_run
from fed_ucbvi.results.statistics import INTERVAL_NAME


@pytest.fixture(scope="module")
def short() -> Run:
    return run(FedUCBVI(), gridworld(agents=2), 40, progress=False)


@pytest.fixture(scope="module")
def observed(short: Run) -> tuple[Run, list[FloatArray]]:
    """The run as if every episode had been observed, and what each of a round's episodes paid."""
    rng = np.random.default_rng(1)
    episodes = [rng.normal(5.0, 2.0, size=n) for n in short.records["agent_episodes"]]
    told = {
        "regret": np.full(len(episodes), np.nan),
        "reward": np.array([paid.sum() / 2 for paid in episodes]),
        "reward_sd": np.array([paid.std(ddof=1) for paid in episodes]),
    }
    return replace(short, records={**short.records, **told}), episodes


@pytest.mark.parametrize("bins", [1, 2, 5, 60])
def test_a_point_is_the_mean_of_its_episodes_with_its_error(
    observed: tuple[Run, list[FloatArray]], bins: int
) -> None:
    result, episodes = observed
    curve = learning_curve(result, bins)
    assert curve.episodes[-1] == 40
    assert 0 < len(curve.mean) <= bins
    ends, first = np.cumsum(result.records["length"]), 0
    for end, mean, error in zip(*curve, strict=True):
        last = int(np.searchsorted(ends, end)) + 1
        paid = np.concatenate(episodes[first:last])
        assert mean == pytest.approx(paid.mean())
        assert error == pytest.approx(paid.std(ddof=1) / math.sqrt(len(paid)))
        first = last
    assert first == len(episodes)


def drawn(result: Run) -> Series:
    (curve,) = (
        panel.series[0] for panel in plot_run(result).panels if isinstance(panel, Panel) and panel.y_label == LEARNING
    )
    return curve


def test_the_curve_is_drawn_where_regret_is_unknown(observed: tuple[Run, list[FloatArray]], short: Run) -> None:
    result, _ = observed
    assert drawn(result).band == INTERVAL_NAME
    simulated = replace(short, records={**short.records, "regret": result.records["regret"]})
    assert drawn(simulated).low is None
    empty = replace(short, records={name: column[:0] for name, column in short.records.items()})
    assert len(learning_curve(empty).mean) == 0
