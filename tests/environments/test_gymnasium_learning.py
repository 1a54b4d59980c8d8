"""Fleets of twenty learn Gymnasium's environments to within 5 % of the optimum, as the example shows."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from types import ModuleType

import pytest

from fed_ucbvi.engine.simulation import Caution
from matrices import first_of
from repository import ROOT

EXAMPLE = ROOT / "examples" / "gymnasium_fleet.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gymnasium_fleet", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["gymnasium_fleet"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "live"), first_of([("FrozenLake 4x4", False), ("CliffWalking", False), ("CliffWalking", True)], 2)
)
def test_the_learnt_policy_is_within_5_percent_of_the_optimum_in_the_environments_own_units(
    example: ModuleType, name: str, live: bool
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Caution)
        figures = example.learn(example.TASKS[name], live, seed=0).original_units
    assert figures["optimal_value"] - figures["value"] < 0.05 * abs(figures["optimal_value"])
    assert figures["optimal_value"] - figures["average_reward"] > 0.05 * abs(figures["optimal_value"])
