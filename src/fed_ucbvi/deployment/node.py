"""A node: a fleet of agents that plays, keeps its counts to itself and answers the server.

Nothing here knows of networks: :meth:`Node.answer` takes a message and gives the answer, if there is one. The same
message twice gives the same answer twice, and a round can be started again from the state before it.

In a live collection nobody is waited for: after a start the node is :attr:`Node.playing`, and whoever holds it calls
:meth:`Node.play_on` until it has an answer or the server says to stop.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fed_ucbvi._types import CountArray, IndexArray
from fed_ucbvi.algorithms import make_algorithm
from fed_ucbvi.algorithms.base import Budgets, FleetTables, Message, Setting
from fed_ucbvi.deployment.generations import Generations
from fed_ucbvi.deployment.messages import (
    Continue,
    Down,
    End,
    Played,
    Query,
    Ready,
    Report,
    Request,
    Start,
    Stop,
    Up,
    Welcome,
)
from fed_ucbvi.deployment.plan import COLLECTIONS, LIVE
from fed_ucbvi.deployment.problems import Source, host
from fed_ucbvi.drivers.base import Fleet, find_asker
from fed_ucbvi.drivers.episodes import EpisodesDriver
from fed_ucbvi.errors import InputError, check_choice

TRAJECTORY = "states"
"""The field of a report that makes it a trajectory."""


@dataclass
class RoundInPlay:
    """The round the server has started: what is played, when agents ask, and how far it is."""

    start: Start
    policy: IndexArray
    budgets: Budgets
    played: int = 0
    asked: bool = False
    told: bool = False
    length: int | None = None


class Node:
    """One node of the federation.

    Args:
        name: as in its certificate.
        source: the problem.
        first_agent: the number of its first agent in the federation.
        agents: how many it hosts.
        folder: where it keeps its agents' counters; without one a node that is killed cannot come back.
        trajectories: agree to run algorithms whose published form sends trajectories to the server.
    """

    def __init__(
        self,
        name: str,
        source: Source,
        first_agent: int,
        agents: int,
        folder: Path | None = None,
        *,
        trajectories: bool = False,
    ) -> None:
        self.name, self.first_agent, self.agents = name, first_agent, agents
        self._source, self._folder, self._trajectories = source, folder, trajectories
        self.welcome: Welcome | None = None
        self.finished = False
        self._round: RoundInPlay | None = None
        self._live = False

    @property
    def run(self) -> str:
        """The run this node is part of; empty before it has been told."""
        return "" if self.welcome is None else self.welcome.run

    @property
    def playing(self) -> bool:
        """Whether there is something to play without being told again."""
        now = self._round
        return self._live and now is not None and not now.told and now.length is None

    @property
    def rounds(self) -> int:
        """Rounds its agents have taken in."""
        return 0 if self.welcome is None else self._generations.current

    def enter(self, welcome: Welcome) -> Ready:
        """Build the problem and the agents, or, after a reconnection, say where they stand."""
        if self.welcome is None:
            self._build(welcome)
            self.welcome = welcome
        elif welcome != self.welcome:
            raise InputError("the server has changed the run since this node joined; start the node anew.")
        own = self._hosted.federation
        return Ready(own.states, own.actions, own.horizon, self._hosted.digest(), self._generations.rounds)

    def _build(self, welcome: Welcome) -> None:
        check_choice("collection", welcome.collection, COLLECTIONS)
        self._live = welcome.collection == LIVE
        self._algorithm = make_algorithm(welcome.algorithm, json.loads(welcome.parameters))
        self._hosted = host(self._source(welcome.agents), self.first_agent, self.agents)
        own = self._hosted.federation
        sizes = (own.states, own.actions, own.horizon)
        if sizes != (welcome.states, welcome.actions, welcome.horizon):
            raise InputError(
                f"the server's problem has (S, A, H) = ({welcome.states}, {welcome.actions}, {welcome.horizon}), "
                f"this node's {sizes}."
            )
        setting = Setting(*sizes, welcome.agents, welcome.episodes, welcome.eps_p, welcome.seed)
        tables = FleetTables(self.agents, own.successors, own.rewards, self.first_agent)
        self.state: Any = self._algorithm.new_agents(setting, tables)
        self._learn_forms(setting)
        fleet = Fleet(own.successors, own.probabilities, own.initial, own.horizon, welcome.seed, self.first_agent)
        self._driver = EpisodesDriver(fleet)
        identity = {
            "run": welcome.run,
            "node": self.name,
            "agents": [self.first_agent, self.agents],
            "problem": self._hosted.digest().hex(),
        }
        self._generations = Generations(self.state, identity, self._folder)

    def _learn_forms(self, setting: Setting) -> None:
        """See what messages look like, from a server of our own; refuse to send trajectories unless agreed to."""
        server = self._algorithm.new_server(setting)
        self._actions, self._episodes = setting.actions, setting.episodes
        self._broadcast = _forms(self._algorithm.broadcast(server))
        queries = [self._algorithm.query(server, e) for e in range(self._algorithm.exchanges(setting))]
        self._queries = [_forms(query) for query in queries]
        fields = getattr(self._algorithm.report(self.state, queries[0], 0), "_fields", ())
        if TRAJECTORY in fields and not self._trajectories:
            raise InputError(
                f"{self._algorithm.name} sends trajectories to the server, and this node does not. If it may, say so "
                "(--send-trajectories)."
            )

    def answer(self, message: Down) -> Up | None:
        """Do what the server says."""
        match message:
            case Start():
                return self._start(message)
            case Continue():
                return self._play(self._in_play(message.round), message.chunk)
            case Stop():
                self._stop(self._in_play(message.round), message.length)
            case Query():
                return self._report(message)
            case End():
                self.finished = True
            case _:
                raise InputError(f"the server sent a {type(message).__name__} where none belongs.")
        return None

    def play_on(self) -> Played | None:
        """One more episode of a live round; the answer, once there is one."""
        now = self._round
        if now is None:
            return None
        self._extend(now, now.played + 1)
        return self._played(now) if now.asked or now.played >= now.start.most else None

    def _in_play(self, number: int) -> RoundInPlay:
        if self._round is None or self._round.start.round != number:
            raise InputError(f"the server speaks of round {number}, which it has not started.")
        return self._round

    def _start(self, start: Start) -> Played | None:
        """Begin a round from the state after round ``base``, be it for the first time or again."""
        if _forms(start.arrays) != self._broadcast or start.first + start.most > self._episodes:
            raise InputError(f"the server's start of round {start.round} does not fit the run.")
        policy = start.arrays[0]
        if policy.min() < 0 or policy.max() >= self._actions:
            raise InputError("the server's policy takes actions that do not exist.")
        self._generations.return_to(start.base)
        budgets = self._algorithm.budgets(self.state, start.arrays)
        self._round = RoundInPlay(start, policy, budgets)
        self._driver.visits.fill(0)
        self._driver.transitions.fill(0)
        return None if self.playing and start.chunk > 0 else self._play(self._round, start.chunk)

    def _play(self, now: RoundInPlay, chunk: int) -> Played:
        """Play until ``chunk`` episodes of the round are played or one of these agents asks."""
        self._extend(now, chunk)
        return self._played(now)

    def _extend(self, now: RoundInPlay, chunk: int) -> None:
        start = now.start
        more = min(chunk, start.most) - now.played
        if more > 0 and not now.asked and now.length is None:
            visits = now.budgets.visits
            now.played += self._driver.extend(now.policy, visits, start.first + now.played, more)
            now.asked = find_asker(self._driver.visits, visits)[0] > 0

    def _played(self, now: RoundInPlay) -> Played:
        now.told = True
        return Played(now.start.round, now.played, self._requests(now) if now.asked else ())

    def _requests(self, now: RoundInPlay) -> tuple[Request, ...]:
        """One for each agent that asks, at the earliest step where its budget is reached."""
        visits, budgets = self._driver.visits, now.budgets.visits
        found = []
        for i in range(self.agents):
            askers, _, step, state = find_asker(visits[i : i + 1], budgets[i : i + 1])
            if askers:
                action, rule = int(now.policy[step, state]), int(now.budgets.rule[step, state])
                found.append(Request(self.first_agent + i, step, state, action, rule))
        return tuple(found)

    def _stop(self, now: RoundInPlay, length: int) -> None:
        """End the round after ``length`` episodes: play or take back what it takes, and take in the counts."""
        if now.length is not None:
            if now.length != length:
                raise InputError(f"round {now.start.round} was stopped after {now.length} episodes, not {length}.")
            return
        if length > now.start.most:
            raise InputError(
                f"the server stops round {now.start.round} after {length} episodes; {now.start.most} are left."
            )
        first, visits = now.start.first, now.budgets.visits
        if length > now.played:
            never: CountArray = np.full_like(visits, np.iinfo(np.int64).max)
            self._driver.extend(now.policy, never, first + now.played, length - now.played)
        else:
            self._driver.rewind(now.policy, visits, first + length, now.played - length)
        now.played = now.length = length
        self._algorithm.absorb(self.state, now.policy, self._driver.transitions, self._driver.visits)
        self._generations.keep(now.start.round)

    def _report(self, query: Query) -> Report:
        """The agents' answer for one exchange."""
        now = self._in_play(query.round)
        if now.length is None:
            raise InputError(f"the server asks about round {query.round}, which it has not stopped.")
        if query.exchange >= len(self._queries) or _forms(query.arrays) != self._queries[query.exchange]:
            raise InputError(f"the server's query {query.exchange} does not fit the run.")
        report = self._algorithm.report(self.state, query.arrays, query.exchange)
        return Report(query.round, query.exchange, tuple(report))


def _forms(arrays: Message) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
    """Shapes and types."""
    return [(array.shape, array.dtype) for array in arrays]
