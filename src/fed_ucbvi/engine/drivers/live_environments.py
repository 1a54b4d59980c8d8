"""Gymnasium environments of a fleet, stepped together through Gymnasium's vector interface."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from fed_ucbvi.core.errors import InputError, check_choice
from fed_ucbvi.environments.gymnasium_making import BlamedOn, gymnasium_package, make_live

gymnasium_package()

import gymnasium  # noqa: E402
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv  # noqa: E402

Environment = gymnasium.Env[Any, Any]
VECTORISATIONS = ("sync", "async")


class Endless(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment that goes to an absorbing state, the last one, instead of terminating, and pays 0 there.

    So every episode has the number of steps that the caller wants, all agents of a vector environment keep in step,
    and no environment is reset by the vector environment. Every exception in a call of the environment except Ctrl-C,
    ``SystemExit`` included, becomes an error that names the agent and the cause.
    """

    def __init__(self, env: Environment, agent: int) -> None:
        super().__init__(env)
        self._agent = agent
        space = env.observation_space
        assert isinstance(space, gymnasium.spaces.Discrete)
        self._absorbing_state = int(space.n)
        self._terminated = False
        self.observation_space = gymnasium.spaces.Discrete(self._absorbing_state + 1)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; the environment's ``info`` is dropped."""
        self._terminated = False
        with BlamedOn(self._agent, "reset"):
            state, _ = self.env.reset(seed=seed, options=options)
            return self._checked(state), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One step; ``terminated`` is always False, and the environment's ``info`` is dropped."""
        if self._terminated:
            return self._absorbing_state, 0.0, False, False, {}
        with BlamedOn(self._agent, "step"):
            state, reward, terminated, truncated, _ = self.env.step(action)
            if terminated:
                self._terminated = True
                return self._absorbing_state, float(reward), False, False, {}
            return self._checked(state), float(reward), False, bool(truncated), {}

    def close(self) -> None:
        with BlamedOn(self._agent, "close"):
            super().close()

    def _checked(self, state: Any) -> int:
        """The state as an integer; raise if it is outside the observation space."""
        number = int(state)
        if number != state or not 0 <= number < self._absorbing_state:
            raise InputError(
                f"the environment of agent {self._agent} is in state {state}, but its observation space says "
                f"0..{self._absorbing_state - 1}, in whole numbers."
            )
        return number


def vector_of(
    make: Callable[[int], Environment], agents: Iterable[int], vectorisation: str
) -> VectorEnv[Any, Any, Any]:
    """One vector environment over endless agents, in this process (``sync``) or each in its own (``async``)."""
    check_choice("vectorisation", vectorisation, VECTORISATIONS)

    def endless(agent: int) -> Environment:
        env = make_live(make, agent)
        return Endless(env, agent)

    functions = [partial(endless, agent) for agent in agents]
    if vectorisation == "async":
        return AsyncVectorEnv(functions, autoreset_mode=AutoresetMode.DISABLED)
    return SyncVectorEnv(functions, copy=False, autoreset_mode=AutoresetMode.DISABLED)
