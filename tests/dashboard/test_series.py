"""Thinned points against an obvious way to compute them."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from fed_ucbvi import RoundRecord
from fed_ucbvi.dashboard.series import COLUMNS, RoundSeries
from rounds import made_up_rounds


def by_hand(records: list[RoundRecord], stride: int) -> list[list[float | None]]:
    """One point for every ``stride`` rounds, computed from the rounds themselves."""
    points: list[list[float | None]] = []
    for start in range(0, len(records), stride):
        group = records[start : start + stride]
        last, paid = group[-1], [one for one in group if not math.isnan(one.reward)]
        stood = [
            one for one in records[: start + stride] if one.playing == "incumbent" and not math.isnan(one.reward)
        ]
        stood_for = sum(one.length for one in stood)
        played = sum(one.length for one in paid)
        point = {
            **last._asdict(),
            "reward": sum(one.reward * one.length for one in paid) / played if paid else math.nan,
            "length": sum(one.length for one in group) / len(group),
            "incumbent": sum(one.reward * one.length for one in stood) / stood_for if stood else math.nan,
        }
        values = [float(point[name]) for name in COLUMNS]
        points.append([None if math.isnan(value) else value for value in values])
    return points


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("most", [2, 7, 50])
def test_points_are_those_of_the_rounds_however_they_came(seed: int, most: int) -> None:
    chance, records = random.Random(seed), list(made_up_rounds(seed, count=333))
    series, left = RoundSeries(most), iter(records)
    series.extend([])
    assert (series.size, series.points()) == (0, [])
    seen = 0
    while batch := list(itertools.islice(left, chance.choice((1, 2, 30, 100)))):
        series.extend(batch)
        seen += len(batch)
        assert series.size <= most
        assert series.stride == 1 or series.size > most // 2, "no more is thrown away than must be"
        expected = by_hand(records[:seen], series.stride)
        found = series.points()
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            for value, same in zip(one, other, strict=True):
                assert value == (None if same is None else pytest.approx(same, rel=1e-12))
    assert series.points(series.size - 1) == series.points()[-1:]
