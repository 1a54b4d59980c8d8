"""Environments by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping

from fed_ucbvi.environments.chain import chain
from fed_ucbvi.environments.deep_sea import deep_sea
from fed_ucbvi.environments.garnet import garnet
from fed_ucbvi.environments.gridworld import gridworld
from fed_ucbvi.environments.gymnasium_tables import from_gymnasium
from fed_ucbvi.environments.hard_instance import hard_instance
from fed_ucbvi.environments.n_room import n_room
from fed_ucbvi.environments.riverswim import riverswim
from fed_ucbvi.environments.six_arms import six_arms
from fed_ucbvi.environments.synthetic import synthetic
from fed_ucbvi.environments.two_state_chain import two_state_chain
from fed_ucbvi.errors import InputError, unknown_name
from fed_ucbvi.problem.federation import Federation

ENVIRONMENTS: dict[str, Callable[..., Federation]] = {
    "gridworld": gridworld,
    "synthetic": synthetic,
    "riverswim": riverswim,
    "chain": chain,
    "deepsea": deep_sea,
    "sixarms": six_arms,
    "nroom": n_room,
    "hard-instance": hard_instance,
    "two-state-chain": two_state_chain,
    "garnet": garnet,
    "gymnasium": from_gymnasium,
}
"""Every builder takes ``agents``, ``eps_p``, ``seed`` and options of its own, and gives a federation."""


def make_environment(name: str, **parameters: object) -> Federation:
    """The environment registered under ``name``.

    >>> make_environment("synthetic", agents=4, eps_p=0.2).agents
    4
    """
    if name not in ENVIRONMENTS:
        raise unknown_name("environment", name, ENVIRONMENTS)
    builder = ENVIRONMENTS[name]
    accepted = inspect.signature(builder).parameters
    for key in parameters:
        if key not in accepted:
            raise unknown_name(f"option of {name}", key, accepted)
    try:
        return builder(**parameters)
    except TypeError as error:
        raise InputError(f"{name}: {error}") from error


def recorded_options(description: Mapping[str, object]) -> tuple[str, dict[str, object]]:
    """Name and options of the environment that a description, as runs keep it, speaks of; liars are left out.

    >>> world = make_environment("gridworld", agents=3, eps_p=0.1)
    >>> name, options = recorded_options({**world.description, "liars": [2]})
    >>> make_environment(name, **options).description == world.description
    True
    """
    name = str(description.get("name", "custom"))
    if name not in ENVIRONMENTS:
        raise InputError(
            f"the environment '{name}' cannot be made again from its description; only named ones can: "
            f"{', '.join(sorted(ENVIRONMENTS))}."
        )
    accepted = inspect.signature(ENVIRONMENTS[name]).parameters
    return name, {key: value for key, value in description.items() if key in accepted}
