"""Limits of a run: counts that floats hold exactly, and seeds that fit into the generator's key."""

from __future__ import annotations

from fed_ucbvi.core.errors import InputError

MAX_COUNT = 2**53
"""The largest count of episodes or visits: every whole number up to it is exact as a float."""
MAX_SEED = 2**64 - 1
"""The largest seed: a seed is one 64-bit word of the generator's key."""


def check_total_episodes(agents: int, episodes: int) -> None:
    """Raise if all agents together would play more episodes than can be counted exactly.

    >>> check_total_episodes(20, 10**15)
    Traceback (most recent call last):
    fed_ucbvi.core.errors.InputError: agents x episodes is 20 x 1000000000000000 = 2e+16; counts are exact up to \
2^53 = 9.01e+15 only. Use fewer episodes or agents.
    """
    total = agents * episodes
    if total > MAX_COUNT:
        raise InputError(
            f"agents x episodes is {agents} x {episodes} = {total:.3g}; counts are exact up to "
            f"2^53 = {MAX_COUNT:.3g} only. Use fewer episodes or agents."
        )
