"""Conversion of a run's tables and figures to other units of reward.

Every column and every figure is of one of four kinds: a value of an episode, a difference of values (regret, a
standard deviation, the cost of exploring), a sum of rewards over the episodes of a round, or no reward.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.problem.units import Units

if TYPE_CHECKING:
    from fed_ucbvi.results.about import About
    from fed_ucbvi.results.recommendations import Certificate

Columns = Mapping[str, npt.NDArray[Any]]


def convert_about(about: About, units: Units) -> About:
    """The optimal value in the description of a run."""
    return replace(about, optimal_value=units.original_return(about.optimal_value, about.horizon))


def convert_records(records: Columns, units: Units, horizon: int) -> Columns:
    """The table of rounds; ``reward`` is a sum over the episodes of an agent, ``value`` that of one episode."""
    episodes = records["agent_episodes"] / np.maximum(records["agents"], 1)
    return {
        **records,
        "regret": units.original_difference(records["regret"]),
        "reward": horizon * episodes * units.offset + units.original_difference(records["reward"]),
        "value": units.original_return(records["value"], horizon),
        "reward_sd": units.original_difference(records["reward_sd"]),
        "cost": units.original_difference(records["cost"]),
        "allowed": units.original_difference(records["allowed"]),
    }


def convert_recommendations(recommendations: Columns, units: Units, horizon: int) -> Columns:
    """The table of recommended policies."""
    converted = dict(recommendations)
    for name in ("optimistic", "estimated", "value"):
        converted[name] = units.original_return(recommendations[name], horizon)
    return converted


def convert_values(V: FloatArray, units: Units) -> FloatArray:
    """Values ``(H+1, S)``, each over the remaining steps."""
    remaining_steps = np.arange(len(V) - 1, -1, -1.0)
    return units.offset * remaining_steps[:, None] + units.original_difference(V)


def convert_certificate(certificate: Certificate, units: Units, horizon: int) -> Certificate:
    """The figures of a certificate."""
    return replace(
        certificate,
        at_least=units.original_return(certificate.at_least, horizon),
        compared_with=units.original_return(certificate.compared_with, horizon),
        model_at_least=units.original_return(certificate.model_at_least, horizon),
    )
