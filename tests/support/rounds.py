"""Rounds that nobody has played, and nodes that do not exist, for what shows them."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any

from fed_ucbvi import RoundRecord
from fed_ucbvi.network.members import GONE, HERE, Member


def made_up_node(name: str, state: str, first_agent: int = 0, agents: int = 1, **about: Any) -> Member:
    """A node in this state."""
    member = Member(name, first_agent, agents, b"", **about)
    member.status = GONE if state == GONE else HERE
    member.heard_end = state == "finished"
    stream: Any = object() if state == "present" else None
    member.stream = stream
    return member


def made_up_rounds(seed: int, count: int = 10**9, agents: int = 4, states: int = 8) -> Iterator[RoundRecord]:
    """Rounds with totals that grow; now and then a figure is unknown, and now and then nobody asks."""
    chance = random.Random(seed)
    episodes = 0
    regret = 0.0
    up = 0
    down = 0
    synchronisations = 0
    for number in range(1, count + 1):
        length = chance.randint(1, 50)
        requested = chance.random() < 0.9
        episodes = episodes + length
        regret = regret + chance.random()
        up = up + chance.randint(1, 999)
        down = down + chance.randint(1, 99)
        synchronisations += requested
        known = chance.random() < 0.8
        yield RoundRecord(
            round=number,
            episodes=episodes,
            planned_episodes=10**7,
            length=length,
            synchronisations=synchronisations,
            requests=int(requested),
            agent=chance.randrange(agents) if requested else -1,
            step=chance.randrange(5) if requested else -1,
            state=chance.randrange(states) if requested else -1,
            action=chance.randrange(3) if requested else -1,
            rule=chance.choice(("local", "global")) if requested else "",
            regret=regret,
            reward=chance.random() if known else math.nan,
            optimistic_value=5.0 - number / 10**6,
            recommended_value=3.0 if known else math.nan,
            bytes_up=up,
            bytes_down=down,
            seconds=number / 1000,
            playing=chance.choice(("exploring", "incumbent")),
        )
