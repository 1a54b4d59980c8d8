"""Environments of which the last one's errors say what no server should know."""

from __future__ import annotations

from typing import Any

import gymnasium


class Clinic(gymnasium.Env[Any, Any]):
    """Four states, two actions."""

    observation_space, action_space = gymnasium.spaces.Discrete(4), gymnasium.spaces.Discrete(2)

    def __init__(self, agent: int) -> None:
        self._agent = agent

    def reset(self, **options: Any) -> Any:
        return 0, {}

    def step(self, action: int) -> Any:
        if self._agent == 3:
            raise ValueError("patient 4711 has no value here")
        return action, 0.5, False, False, {}


def make(agent: int) -> Clinic:
    return Clinic(agent)
