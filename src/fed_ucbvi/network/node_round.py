"""The round that a node plays: what the server has started, how far it is, and what its episodes have paid."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec.structs import replace

from fed_ucbvi.engine.party import Party
from fed_ucbvi.engine.rounds import Paid
from fed_ucbvi.network.messages import Ready, Request, Start, encode
from fed_ucbvi.results.round_record import EXPLORING, VERIFYING


@dataclasses.dataclass
class RoundInPlay:
    """The round the server has started, and how far it is.

    ``length`` is known once it is stopped, and ``paid`` once the agents have counted it. ``owed`` is what the
    episodes before it paid that no confirmed report has, and ``uncounted`` is how many of each agent no confirmed
    report has counted, all after the rounds in ``since``. The server does not know of ``before`` of them.
    """

    start: Start
    owed: Paid
    uncounted: int
    since: Mapping[str, int]
    before: int = 0
    told: bool = False
    length: int | None = None
    paid: Paid | None = None
    ready: Ready | None = None

    @property
    def most(self) -> int:
        """How many episodes may be played in it."""
        return self.start.most - self.before

    @property
    def owed_by_now(self) -> Paid:
        """What episodes paid that no confirmed report has, those of this round included once they are counted."""
        if self.paid is None:
            return self.owed
        one, other = self.owed, self.paid
        squares = other.squares if one.episodes == 0 else one.squares + other.squares  # NaN unless of both
        sums = one.episodes + other.episodes, one.total + other.total, one.starts + other.starts, squares
        returns = {**one.returns, **other.returns}
        returns |= {both: one.returns[both] + other.returns[both] for both in one.returns.keys() & other.returns}
        return Paid(*sums, one.exploring + other.exploring, returns)


def paid_in(party: Party, start: Start) -> Paid:
    """What the round that was just stopped paid: on whose account, and to which policy that is judged."""
    paid, within = party.paid(), party.within
    returns = party.returns().copy() if start.playing != EXPLORING or within is not None else None
    if returns is not None and start.playing != EXPLORING:
        paid = paid._replace(returns={judged_in(start): returns})
    if start.playing in (EXPLORING, VERIFYING):
        least = 0.0 if within is None else within[0] * paid.episodes
        paid = paid._replace(exploring=max(0.0, paid.total - least))
    return paid


def requests_of(party: Party) -> tuple[Request, ...]:
    """One request for each agent that makes one, at the earliest step where its budget is reached."""
    H = len(party.policy)
    return tuple(
        Request(end.agent, end.step if end.step >= 0 else H, end.state, end.action, rule)
        for end, rule in party.requests()
    )


def judged_in(start: Start) -> int:
    """The number of the policy that a round plays; 0 if the server does not say."""
    return sum(start.judged[1:] if start.playing == VERIFYING else start.judged[:1])


def key_of(start: Start) -> str:
    """What makes two starts those of one round: all but how far to play, and what is asked besides."""
    bare = replace(start, chunk=0, roster=b"", credited_roster=b"", missed=0, missed_roster=b"")
    return hashlib.sha256(encode(bare)).hexdigest()


def listed(paid: Paid) -> list[Any]:
    """Ready for JSON; :func:`paid_of` reads it back."""
    squares = None if math.isnan(paid.squares) else paid.squares
    returns = [[number, one.tolist()] for number, one in paid.returns.items()]
    return [paid.episodes, paid.total, paid.starts.tolist(), squares, paid.exploring, returns]


def paid_of(listed: list[Any]) -> Paid:
    episodes, total, starts, squares, exploring, returns = listed
    squares = math.nan if squares is None else squares
    judged = {number: np.array(one, dtype=np.int64) for number, one in returns}
    return Paid(episodes, total, np.array(starts, dtype=np.int64), squares, exploring, judged)
