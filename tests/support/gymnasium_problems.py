"""Small Gymnasium environments with known faults and virtues, for the tests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from fed_ucbvi import LiveFederation

Rows = dict[int, dict[int, list[tuple[float, int, float, bool]]]]


def corridor() -> Rows:
    """States 0, 1, 2; action 1 goes right, and out of state 1 it ends the episode in state 2 and pays 3."""
    return {
        0: {
            0: [(1.0, 0, -1.0, False)],
            1: [(0.25, 0, -1.0, False), (0.75, 1, -1.0, False)],
        },
        1: {
            0: [(1.0, 0, -1.0, False)],
            1: [(0.5, 2, 3.0, True), (0.5, 1, -1.0, False)],
        },
        2: {0: [(1.0, 0, -1.0, False)], 1: [(1.0, 0, -1.0, False)]},
    }


class TableEnv(gymnasium.Env[Any, Any]):
    """An environment made of a table, with spaces and rewards to spoil."""

    def __init__(
        self,
        P: Any = None,
        initial: Any = (1.0, 0.0, 0.0),
        observations: spaces.Space[Any] | None = None,
        actions: spaces.Space[Any] | None = None,
        noise: float = 0.0,
        cut_after: int | None = None,
        stray: float | None = None,
    ) -> None:
        if P is not False:
            self.P = corridor() if P is None else P
        if initial is not None:
            self.initial_state_distrib = np.array(initial)
        self.observation_space = observations or spaces.Discrete(3)
        self.action_space = actions or spaces.Discrete(2)
        self.noise = noise
        self.cut_after = cut_after
        self.stray = stray
        self.log: list[list[tuple[int, int, float, int, bool]]] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.s = int(self.np_random.choice(3, p=self.initial_state_distrib))
        self.log.append([])
        return self.s, {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        row = self.P[self.s][int(action)]
        _, y, reward, over = row[int(self.np_random.choice(len(row), p=[entry[0] for entry in row]))]
        reward += self.noise * (2.0 * self.np_random.random() - 1.0)
        self.log[-1].append((self.s, int(action), reward, y, over))
        self.s = y
        cut = self.cut_after is not None and len(self.log[-1]) >= self.cut_after
        return (y if self.stray is None else self.stray), reward, over, cut, {}


class Corridors:
    """Corridors with noisy rewards, of several agents, that remember what happened in them and what they paid."""

    def __init__(self, agents: int = 3, **options: Any) -> None:
        self.made: dict[int, list[TableEnv]] = defaultdict(list)
        self.agents = agents
        self.options = {"noise": 0.5, "initial": (0.5, 0.5, 0.0), **options}

    def make(self, i: int) -> TableEnv:
        self.made[i].append(TableEnv(**self.options))
        return self.made[i][-1]

    def live(self, **options: Any) -> LiveFederation:
        return LiveFederation(
            self.make,
            self.agents,
            **{"horizon": 4, "reward_range": (-2.0, 4.0), **options},
        )

    def episodes(self, agents: Iterable[int] | None = None) -> list[Any]:
        """Every episode of these agents, or of all, step by step."""
        chosen = self.made if agents is None else agents
        return [log for agent in chosen for env in self.made[agent] for log in env.log if log]

    def returns(self, agents: Iterable[int] | None = None) -> np.ndarray[Any, Any]:
        """Rewards of these episodes, as they were paid."""
        return np.array([sum(step[2] for step in log) for log in self.episodes(agents)])

    def observed(self) -> dict[tuple[int, int, int, int], list[tuple[float, int]]]:
        """Rewards (rescaled) and next states by agent, step, state and action, with the absorbing state 3."""
        found: dict[tuple[int, int, int, int], list[tuple[float, int]]] = defaultdict(list)
        for i in self.made:
            for episode in self.episodes([i]):
                for h, (s, a, reward, y, over) in enumerate(episode[:4]):
                    found[i, h, s, a].append(((reward + 2.0) / 6.0, 3 if over else y))
        return found


class Failing(TableEnv):
    """An environment that fails in one of its calls, when told to at the third episode."""

    def __init__(self, where: str, error: BaseException) -> None:
        super().__init__()
        self.where = where
        self.error = error

    def reset(self, **how: Any) -> tuple[Any, dict[str, Any]]:
        if self.where == "reset" and len(self.log) == 2:
            raise self.error
        return super().reset(**how)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        if self.where == "step" and len(self.log) == 3:
            raise self.error
        return super().step(action)

    def close(self) -> None:
        if self.where == "close" and len(self.log) > 2:
            raise self.error


def clinic(agent: int) -> TableEnv:
    """The last agent's errors say what no server should know."""
    if agent == 3:
        return Failing("step", ValueError("patient 4711 has no value here"))
    return TableEnv()


class ExpectedReward(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Pays the expectation of the table's reward, so that only transitions depend on chance."""

    def reset(self, **how: Any) -> tuple[Any, dict[str, Any]]:
        self.state, info = self.env.reset(**how)
        return self.state, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        table: Any = self.unwrapped
        reward = sum(p * paid for p, _, paid, _ in table.P[int(self.state)][int(action)])
        self.state, _, terminated, truncated, info = self.env.step(action)
        return self.state, reward, terminated, truncated, info


class Thermometer(gymnasium.Env[Any, Any]):
    """A room whose temperature is always 0.5, and that pays 0.5 per step."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0.0, 1.0, (1,), dtype=np.float32)
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.full(1, 0.5, dtype=np.float32), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        return np.full(1, 0.5, dtype=np.float32), 0.5, False, False, {}


def thermometer(agent: int) -> Thermometer:
    """One room for every agent."""
    return Thermometer()
