"""Environments outside the program, which go on by themselves: what happens depends on (agent, episode) alone.

As a program, ``python live_world.py FOLDER ROUNDS``, it runs on them with checkpoints and kills itself.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fed_ucbvi import FedUCBVI, LiveFederation, run
from gymnasium_problems import TableEnv

AGENTS = 3
EPISODES = 60


class World:
    """Counts the episodes of its agents; ``before_step(agent, episode)`` is called before every step."""

    def __init__(
        self,
        first: Any = 0,
        before_step: Callable[[int, int], None] = lambda agent, episode: None,
    ) -> None:
        self.episodes = np.broadcast_to(first, AGENTS).copy()
        self.before_step = before_step

    def live(self, **options: Any) -> LiveFederation:
        return LiveFederation(
            lambda i: Place(self, i),
            AGENTS,
            **{"horizon": 4, "reward_range": (-2.0, 4.0), **options},
        )


class Place(TableEnv):
    def __init__(self, world: World, agent: int) -> None:
        super().__init__(noise=0.5, initial=(0.5, 0.5, 0.0))
        self.world = world
        self.agent = agent

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        episode = int(self.world.episodes[self.agent])
        self.world.episodes[self.agent] += 1
        self.np_random = np.random.default_rng([17, self.agent, episode])
        return super().reset(seed=None, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.world.before_step(self.agent, int(self.world.episodes[self.agent]) - 1)
        return super().step(action)


def kill_in(episode: int) -> Callable[[int, int], None]:
    """End this process, without a chance to clean up, in the middle of that episode."""

    def before_step(agent: int, now: int) -> None:
        if (agent, now) == (AGENTS - 1, episode):
            os.kill(os.getpid(), signal.SIGKILL)

    return before_step


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    when = int(sys.argv[2])
    world = World(before_step=kill_in(when))
    run(
        FedUCBVI(),
        world.live(),
        EPISODES,
        seed=4,
        progress=False,
        checkpoint=folder,
        checkpoint_every=3,
    )
