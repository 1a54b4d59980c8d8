"""How far fleets play ahead of each other before they answer.

A fleet is a group of agents that are simulated together. All agents stop after the same episode, the first after
which any of them requests a synchronisation. Fleets that cannot see each other play ahead in chunks of episodes, each
until one of its own agents makes a request. Episodes after the earliest request are taken back. Chunks grow while
there is no request, so little is played in vain and long rounds take few answers.
"""

from __future__ import annotations

from collections.abc import Iterator

FIRST_STEPS = 1 << 15
"""Environment steps a fleet may always play before it first answers; they take about a millisecond."""
MAX_STEPS = 1 << 25
"""The most environment steps a fleet plays before it answers; they take about a second."""


def first_chunk(steps: int, last_length: int) -> int:
    """Episodes before the first answer: as many as cost little, or twice the last round.

    ``steps`` is what one episode of the largest fleet takes, agents times H.
    """
    return max(1, FIRST_STEPS // steps, min(2 * last_length, MAX_STEPS // steps))


def growing(chunk: int, most: int, horizon: int) -> Iterator[int]:
    """Episodes of the round played before each answer: ``chunk``, then up to three times as many, up to ``most``."""
    largest = max(1, MAX_STEPS // horizon)
    chunk = min(chunk, most)
    yield chunk
    while chunk < most:
        chunk = min(chunk + min(2 * chunk, largest), most)
        yield chunk
