"""What a run says of each round while it goes on: to callbacks, trackers, the live page and metrics."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from fed_ucbvi.core.types import IndexArray
from fed_ucbvi.problem.units import Units


class RoundRecord(NamedTuple):
    """One round, and where the run stands after it. Fields may be added; those that are here keep their meaning.

    Regret, reward and values are in the environment's own units; see :class:`~fed_ucbvi.problem.units.Units`.

    Attributes:
        round: its number, from 1.
        episodes: per agent, so far: every round adds the mean over the agents that took part in it, and what is
            less than an episode is left out.
        planned_episodes: what they come to at the end: T, but in live runs that agents joined or left.
        length: episodes of the agent that played most, in this round.
        synchronisations: so far; a round that was cut short has none.
        requests: how many agents requested the synchronisation.
        agent: the first that did; -1 if none did, or if requests are secret. So for the next three.
        step: where it did, from 0; -1 also where counts are by (state, action).
        state: the state.
        action: the action.
        rule: the rule it did it by; empty if none.
        regret: so far, averaged in every round over the agents that took part in it; NaN where nobody knows.
        reward: of an episode of this round, averaged over agents; NaN where nobody knows.
        optimistic_value: the server's at the last recommendation, over the initial states; NaN before the first.
        recommended_value: the planner's estimate for the policy it recommended; NaN where nothing is planned.
        bytes_up: from agents to server so far, as the paper counts them; recommendations are not in it.
        bytes_down: the other way.
        seconds: since the run began.
        reward_sd: the standard deviation of an episode's reward over the round's episodes, of all agents together;
            NaN where rewards were not observed episode by episode.
        agents: how many took part in this round.
    """

    round: int
    episodes: int
    planned_episodes: int
    length: int
    synchronisations: int
    requests: int
    agent: int
    step: int
    state: int
    action: int
    rule: str
    regret: float
    reward: float
    optimistic_value: float
    recommended_value: float
    bytes_up: int
    bytes_down: int
    seconds: float
    reward_sd: float = math.nan
    agents: int = 0

    @property
    def gap(self) -> float:
        """Between the optimistic and the recommended value; see :mod:`fed_ucbvi.results.recommendations`."""
        return self.optimistic_value - self.recommended_value

    def in_units(self, units: Units, horizon: int) -> RoundRecord:
        """The same, if so far every step paid between 0 and 1."""
        if units == Units():
            return self
        return self._replace(
            regret=units.scale * self.regret,
            reward=units.original_return(self.reward, horizon),
            optimistic_value=units.original_return(self.optimistic_value, horizon),
            recommended_value=units.original_return(self.recommended_value, horizon),
            reward_sd=units.scale * self.reward_sd,
        )


OnRound = Callable[[RoundRecord], None]
"""Is called after every round. What it raises ends the run."""


@runtime_checkable
class Watcher(Protocol):
    """An :data:`OnRound` that is also given each policy that the run recommends, ``(H, S)``, on the way."""

    def __call__(self, record: RoundRecord) -> None:
        """Take a round."""
        ...

    def take_policy(self, policy: IndexArray) -> None:
        """Take a policy."""
        ...


class Together:
    """One callback that calls several, in their order, and gives policies to those that take them."""

    def __init__(self, callbacks: Sequence[OnRound]) -> None:
        self._callbacks = callbacks

    def __call__(self, record: RoundRecord) -> None:
        """Hand a round to all of them."""
        for callback in self._callbacks:
            callback(record)

    def take_policy(self, policy: IndexArray) -> None:
        """Hand a policy to those that take one."""
        for callback in self._callbacks:
            if isinstance(callback, Watcher):
                callback.take_policy(policy)


def together(*callbacks: OnRound | None) -> OnRound | None:
    """One callback that calls all of these, in this order, without those that are None; None if all are."""
    wanted = [callback for callback in callbacks if callback is not None]
    return Together(wanted) if len(wanted) > 1 else wanted[0] if wanted else None
