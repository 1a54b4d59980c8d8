"""A node: a fleet of agents that plays, keeps its counts to itself and answers the server.

Nothing here knows of networks: :meth:`Node.answer` takes a message and gives the answer, if there is one. The same
message twice gives the same answer twice, and a round can be started again from the state before it.

In a live collection nodes do not wait for each other. After a start the node is :attr:`Node.playing`, and its caller
calls :meth:`Node.play_on` until the node has an answer or the server says to stop. Before the node tells how many
episodes it played, its agents add the round to their counts and the node saves it. So what it has told never has to
be played again.
"""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fed_ucbvi.algorithms import algorithm_name, class_of, make_algorithm
from fed_ucbvi.algorithms.base import SUMS, Budgets, Message, Setting, added_up, check_report
from fed_ucbvi.algorithms.contract import Contract, check_actions
from fed_ucbvi.algorithms.own_counts import OwnCounts
from fed_ucbvi.core.errors import InputError, printable
from fed_ucbvi.core.plugins import is_attribute
from fed_ucbvi.core.types import PolicyArray
from fed_ucbvi.core.unknown import nan_for_none, none_for_nan
from fed_ucbvi.engine.drivers.base import find_asker, rule_at, stop_at
from fed_ucbvi.engine.going_on import PLANNED
from fed_ucbvi.engine.hosted_agents import HostedAgents, SimulatedHostedAgents
from fed_ucbvi.engine.hosted_problem import HostedProblem, Source, host
from fed_ucbvi.engine.rounds import Paid
from fed_ucbvi.environments.bins import Bins
from fed_ucbvi.network.live_agents import HostedEnvironments, LiveHostedAgents, LiveSource
from fed_ucbvi.network.messages import (
    REWARDS_ALONE,
    Continue,
    Down,
    End,
    Played,
    Query,
    Ready,
    Report,
    Request,
    Roster,
    Start,
    Stop,
    Up,
    Welcome,
    encode,
)
from fed_ucbvi.network.node_state_store import Generation, NodeStateStore
from fed_ucbvi.network.questions import Questions
from fed_ucbvi.network.rewards import RewardGrid
from fed_ucbvi.network.roster import Credentials, fingerprint
from fed_ucbvi.network.run_plan import LIVE, MODEL, RunPlan
from fed_ucbvi.network.secure_sums import Question, masked
from fed_ucbvi.network.transport import TLSFiles
from fed_ucbvi.problem.units import Units
from fed_ucbvi.results.policy import LearntPolicy, policy_of_bytes

log = logging.getLogger("fed_ucbvi.federation")


@dataclass
class RoundInPlay:
    """The round the server has started: what is played, when agents request a synchronisation, and how far it is."""

    start: Start
    budgets: Budgets
    played: int = 0
    asked: bool = False
    told: bool = False
    absorbed: bool = False
    length: int | None = None
    paid: Paid | None = None

    @property
    def policy(self) -> PolicyArray:
        """What is played."""
        return self.start.arrays[0]

    @property
    def min_length(self) -> int:
        """The least number of episodes; before that nobody makes a request."""
        return self.budgets.min_length(self.start.first)


class Node:
    """One node of the federation.

    Args:
        name: as in its certificate.
        source: the problem, or real environments.
        first_agent: the number of its first agent in the federation.
        agents: how many it hosts.
        folder: where it keeps its agents' counters; without one a node that is killed cannot come back.
        trajectories: agree to run algorithms whose published form sends trajectories to the server.
        algorithm: take part in runs of this one only. Without it the node runs any registered algorithm. It never
            runs code that is not registered just because a server names it.
        require_secure_sums: take part only where the server learns sums over all nodes.
        share_counts: agree to send transition counts without secure sums.
        rewards: tell what every round paid; where its episodes began is told in any case.
    """

    def __init__(
        self,
        name: str,
        source: Source | LiveSource,
        first_agent: int,
        agents: int,
        folder: Path | None = None,
        *,
        trajectories: bool = False,
        algorithm: str | None = None,
        require_secure_sums: bool = False,
        share_counts: bool = False,
        rewards: bool = True,
    ) -> None:
        self._rewards = rewards
        self.name, self.first_agent, self.agents = name, first_agent, agents
        self._require_secure_sums, self._share_counts = require_secure_sums, share_counts
        self._tls_files: TLSFiles | None = None
        self._server = ""
        self._credentials: Credentials | None = None
        self._pairs: dict[str, bytes] = {}
        self._roster = b""
        self._only = algorithm
        self._only_name = None if algorithm is None else algorithm_name(class_of(algorithm))
        self.folder, self._trajectories = folder, trajectories
        self._source = source
        self._environments = source.check(first_agent, agents) if isinstance(source, LiveSource) else None
        self.welcome: Welcome | None = None
        self.finished = False
        self.policy: LearntPolicy | None = None
        """The policy to deploy, once the server has sent it with the end of the run."""
        self._round: RoundInPlay | None = None
        self._live = False

    @property
    def run(self) -> str:
        """The run this node is part of; empty before it has been told."""
        return "" if self.welcome is None else self.welcome.run

    @property
    def state(self) -> Any:
        """The algorithm's agents."""
        return self._players.agents

    @property
    def playing(self) -> bool:
        """Whether a live round is under way, in which the node plays without further messages."""
        now = self._round
        return self._live and now is not None and not now.told and now.length is None

    @property
    def rounds(self) -> int:
        """How many rounds its agents have added to their counts."""
        return 0 if self.welcome is None else self._generations.current

    @property
    def units(self) -> Units:
        """Those of its agents' rewards, once it has joined a run."""
        return self._hosted.units

    def own_counts(self, agent: int) -> OwnCounts:
        """What one of its agents, by its place on this node, has counted in the run it is part of."""
        if self.welcome is None:
            raise InputError(
                f"'{self.name}' has not taken part in this process, so it has no counts to advise from; it has them "
                "if the server is started again and the node with it."
            )
        starts, law_known = self._players.starts(agent)
        H = self.welcome.horizon
        return OwnCounts.of(self._algorithm, self.state, agent, H, starts, law_known=law_known)

    def identify(self, tls_files: TLSFiles, server: str) -> None:
        """Take part with this certificate, which secure sums need, in a run of ``server``."""
        self._tls_files, self._server = tls_files, server

    def enter(self, welcome: Welcome) -> Ready:
        """Build the problem and the agents, or, after a reconnection, say where they stand."""
        if self.welcome is None:
            self._build(welcome)
        elif _goes_on(welcome, self.welcome):
            self._grow(welcome)
        elif not _same_run(welcome, self.welcome):
            raise InputError("the server has changed the run since this node joined; start the node anew.")
        self._generations.meet(welcome.epoch)
        self.welcome = welcome
        ready = Ready(
            *self._hosted.sizes,
            self._hosted.digest(),
            self._generations.rounds,
            reward_offset=self.units.offset,
            reward_scale=self.units.scale,
        )
        if not welcome.secure_sums:
            self._questions.begin(str(welcome.epoch).encode())
            return ready
        seat = self._certified().seat(welcome.run, self.first_agent, self.agents)
        return replace(ready, key=seat.key, signature=seat.signature, certificate=seat.certificate)

    def _certified(self) -> Credentials:
        if self._tls_files is None:
            raise InputError("secure sums need certificates; an insecure federation cannot have them.")
        self._credentials = self._credentials or Credentials(self.name, self._tls_files)
        return self._credentials

    def close(self) -> None:
        """Leave the environments; they are made anew if there is more to play."""
        if self.welcome is not None:
            self._players.close()

    def _build(self, welcome: Welcome) -> None:
        self._live = welcome.collection == LIVE
        self._check_sharing(welcome)
        self._check_algorithm(welcome.algorithm)
        self._algorithm = make_algorithm(self._only or welcome.algorithm, _parameters(welcome.parameters))
        hosted = self._hosted = self._host(welcome)
        sizes = hosted.sizes
        if sizes != (welcome.states, welcome.actions, welcome.horizon):
            raise InputError(
                f"the server's problem has (S, A, H) = ({welcome.states}, {welcome.actions}, {welcome.horizon}), "
                f"this node's {sizes}{hosted.remark}."
            )
        if hosted.random_rewards and not welcome.random_rewards:
            raise InputError(
                "this node's rewards are random, and the server's run is one in which they are not; serve it with "
                "--random-rewards."
            )
        setting = self._make_players(welcome)
        self._learn_forms(setting)
        identity = {
            "run": welcome.run,
            "node": self.name,
            "agents": [self.first_agent, self.agents],
            "problem": hosted.digest().hex(),
        }
        self._generations = NodeStateStore(self._players, identity, self.folder)

    def _make_players(self, welcome: Welcome) -> Setting:
        """The agents, which have seen nothing, and the setting of the run."""
        hosted = self._hosted
        setting = Setting(
            *hosted.sizes,
            welcome.agents,
            welcome.episodes,
            welcome.eps_p,
            welcome.seed,
            random_rewards=welcome.random_rewards,
            grid_bits=welcome.grid_bits,
            earlier_visits=welcome.earlier_visits,
        )
        self._plan = RunPlan(  # raises where such a run cannot be
            self._algorithm,
            setting,
            collection=welcome.collection,
            secure_sums=welcome.secure_sums,
            exchange=welcome.exchanging,
        )
        self._players: HostedAgents = (
            LiveHostedAgents(self._algorithm, setting, hosted)
            if isinstance(hosted, HostedEnvironments)
            else SimulatedHostedAgents(self._algorithm, setting, hosted)
        )
        self._grid = RewardGrid.of(setting)
        self._episodes = setting.episodes
        return setting

    def _grow(self, welcome: Welcome) -> None:
        """Go on in a run that has more episodes or agents by now, with the same counts."""
        if self._algorithm.going_on.episodes and welcome.episodes > self._episodes:
            raise InputError(f"{self._algorithm.name} cannot go on: {self._algorithm.going_on.episodes}.")
        log.warning(
            "%s: the run goes on with %d agents and %d episodes each", self.name, welcome.agents, welcome.episodes
        )
        self._players.close()
        self._questions.change(self._make_players(welcome))
        self._generations.hand_over(self._players)
        self._round = None

    def _check_sharing(self, welcome: Welcome) -> None:
        """Raise unless this node agrees to what the server would learn."""
        if welcome.secure_sums:
            self._certified()
            return
        if self._require_secure_sums:
            raise InputError(
                "this node takes part in runs with secure sums only (--require-secure-sums), and this one has none; "
                "serve it with --secure-sums."
            )
        if welcome.exchanging == MODEL and not self._share_counts:
            raise InputError(
                "the server asks for transition counts (--exchange model) without secure sums, and this node does "
                "not share them. If it may, say so (--share-counts)."
            )

    def _check_algorithm(self, name: str) -> None:
        """Raise unless this node agrees to run the server's algorithm."""
        if self._only_name is not None and name != self._only_name:
            raise InputError(
                f"the server runs {printable(name)}; this node takes part in {self._only_name} only (--algorithm)."
            )
        if self._only_name is None and is_attribute(name):
            raise InputError(
                f"the server runs {printable(name)}, which is not registered here. If you have this code and trust "
                "it, name it when starting the node (--algorithm)."
            )

    def _host(self, welcome: Welcome) -> HostedProblem | HostedEnvironments:
        """What this node's agents play in, finite by the server's bins if it has some."""
        if not isinstance(self._source, LiveSource):
            return host(self._source(welcome.agents), self.first_agent, self.agents)
        if not self._live:
            raise InputError(
                "this node's agents have real environments, which cannot be taken back to an earlier episode, as "
                "lockstep needs it; serve the run with --collection live."
            )
        if welcome.bins:
            bins = Bins.parse(welcome.bins, "what the server calls bins")
            return self._source.host(self.first_agent, self.agents, bins)
        return self._environments or self._source.host(self.first_agent, self.agents)

    def _learn_forms(self, setting: Setting) -> None:
        """Learn what messages look like from a server made here; refuse to send trajectories unless agreed to."""
        server = self._algorithm.new_server(setting)
        self._actions = setting.actions
        self._contract = Contract(self._algorithm, setting, self.agents)
        broadcast = self._contract.broadcast(server)
        self._broadcast = _forms(broadcast)
        queries = [self._plan.query(server, e) for e in range(self._plan.exchanges)]
        self._queries = [_forms(query) for query in queries]
        self._questions = Questions(self._algorithm, setting, broadcast, queries[0])
        if self._algorithm.sends_trajectories and not self._trajectories:
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
                now = self._in_play(message.round)
                return self._end(now) if self._live else self._play(now, message.chunk)
            case Stop():
                self._stop(self._in_play(message.round), message.length)
            case Roster():
                self._agree(message)
            case Query():
                return self._report(message)
            case End():
                self.policy = self._recommended(message)
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
        return self._end(now) if now.asked or now.played >= now.start.most else None

    def _in_play(self, number: int) -> RoundInPlay:
        if self._round is None or self._round.start.round != number:
            raise InputError(f"the server speaks of round {number}, which it has not started.")
        return self._round

    def _start(self, start: Start) -> Played | None:
        """Begin a round from the state after round ``base``; in a live collection, continue it if it has begun."""
        if _forms(start.arrays) != self._broadcast or start.first + start.most > self._episodes:
            raise InputError(f"the server's start of round {start.round} does not fit the run.")
        check_actions("the server's policy", start.arrays[0], self._actions)
        self._questions.check_start(start.round, start.arrays)
        now = self._round = (self._begun(start) if self._live else None) or self._begin(start)
        now.told = False
        return None if self.playing and start.chunk > 0 else self._play(now, start.chunk)

    def _begin(self, start: Start) -> RoundInPlay:
        self._generations.return_to(start.base)
        return RoundInPlay(start, self._contract.budgets(self.state, start.arrays))

    def _begun(self, start: Start) -> RoundInPlay | None:
        """The very round that ``start`` begins, if this node is in the middle of it or has kept it."""
        if self._round is not None and _key(self._round.start) == _key(start):
            return self._round
        kept = self._generations.find(start.round)
        if kept is None or kept.note.get("start") != _key(start):
            return None
        now = self._begin(start)
        self._players.recall(kept.state, kept.counts["visits"], kept.counts["transitions"])
        self._players.absorb(start.arrays)
        self._generations.current = start.round
        now.absorbed, now.played = True, int(kept.note["played"])
        now.paid = _paid(kept)
        now.asked, now.length = self._asked(now), now.played
        return now

    def _asked(self, now: RoundInPlay) -> bool:
        return now.played >= now.min_length and find_asker(self._players.visits, now.budgets.visits)[0] > 0

    def _play(self, now: RoundInPlay, chunk: int) -> Played:
        """Play until ``chunk`` episodes of the round are played or one of these agents requests a synchronisation."""
        self._extend(now, chunk)
        return self._played(now)

    def _extend(self, now: RoundInPlay, chunk: int) -> None:
        start, least = now.start, now.min_length
        target = min(chunk, start.most)
        while now.played < target and not now.asked and now.length is None:
            until = min(target, least) if now.played < least else target
            due, first = now.budgets.visits, start.first + now.played
            now.played += self._players.play(now.policy, due, first, until - now.played, now.played >= least)
            now.asked = self._asked(now)

    def _end(self, now: RoundInPlay) -> Played:
        """End a live round here, and say so."""
        self._stop(now, now.played)
        return self._played(now)

    def _played(self, now: RoundInPlay) -> Played:
        now.told = True
        if self._plan.secure_sums:
            return Played(now.start.round, now.played, (), now.asked)
        return Played(now.start.round, now.played, self._requests(now) if now.asked else ())

    def _requests(self, now: RoundInPlay) -> tuple[Request, ...]:
        """One request for each agent that makes one, at the earliest step where its budget is reached."""
        visits, budgets = self._players.visits, now.budgets.visits
        found = []
        for i in range(self.agents):
            own = budgets[i : i + 1] if len(budgets) > 1 else budgets
            askers, _, place = find_asker(visits[i : i + 1], own)
            if askers:
                stop = stop_at(now.played, 1, self.first_agent + i, place, now.policy, self._algorithm.counting)
                step = stop.step if stop.step >= 0 else len(now.policy)
                rule = rule_at(stop, now.budgets)
                found.append(Request(self.first_agent + i, step, stop.state, stop.action, rule))
        return tuple(found)

    def _stop(self, now: RoundInPlay, length: int) -> None:
        """End the round after ``length`` episodes: play more or take some back, and add the round to the counts."""
        if now.length is not None:
            if now.length != length:
                raise InputError(f"round {now.start.round} was stopped after {now.length} episodes, not {length}.")
            return
        if length > now.start.most:
            raise InputError(
                f"the server stops round {now.start.round} after {length} episodes; {now.start.most} are left."
            )
        if length != now.played:
            self._players.move_to(now.policy, now.budgets, now.start.first, now.played, length)
            now.played = length
        if not now.absorbed:
            self._players.absorb(now.start.arrays)
            now.absorbed, now.paid = True, self._players.paid(now.policy, length)
        self._keep(now)
        now.length = length

    def _keep(self, now: RoundInPlay) -> None:
        """Keep the state after the round and, of a live one, how it went."""
        if not self._live:
            self._generations.keep(now.start.round)
            return
        assert now.paid is not None
        episodes, total, starts, squares = now.paid
        note = {"start": _key(now.start), "played": now.played, "paid": none_for_nan((episodes, total, squares))}
        counts = {"visits": self._players.visits, "transitions": self._players.transitions, "starts": starts}
        self._generations.keep(now.start.round, note, counts)

    def _report(self, query: Query) -> Report:
        """The agents' answer in one exchange: one row for each, or one for all where the server takes sums."""
        now = self._in_play(query.round)
        if now.length is None:
            raise InputError(f"the server asks about round {query.round}, which it has not stopped.")
        if self._plan.secure_sums and not self._roster:
            raise InputError("the server asks before it has said whose sum it wants.")
        E = len(self._queries)
        assert now.paid is not None
        rewards = (self._grid.report(now.paid, tell=self._rewards),) if query.rewards else ()
        own = rewards if self._about_rewards(query) else (*self._answer_of(query), *rewards)
        self._questions.check(query.round, query.exchange, query.arrays, own, E)
        if self._plan.secure_sums:
            question = Question(query.round, query.exchange, self._roster, encode(query))
            own = masked(own, self.name, self._pairs, question)
        return Report(query.round, query.exchange, own)

    def _about_rewards(self, query: Query) -> bool:
        """Whether a query asks for rewards and nothing else."""
        return query.rewards and query.exchange == REWARDS_ALONE and not query.arrays

    def _answer_of(self, query: Query) -> Message:
        """The agents' answer to a query, rewards aside, if it fits the run."""
        E = len(self._queries)
        plans = self._algorithm.asks_to_plan and self._plan.exchange != MODEL
        known, exchange = 2 * E if plans else E, query.exchange % E
        if query.exchange >= known or _forms(query.arrays) != self._queries[exchange]:
            raise InputError(f"the server's query {query.exchange} does not fit the run.")
        report = self._plan.report(self.state, query.arrays, exchange)
        check_report(self._algorithm, report)
        return added_up(report) if self._algorithm.takes == SUMS else tuple(np.array(array) for array in report)

    def _agree(self, roster: Roster) -> None:
        """Derive the keys shared with the other nodes on a roster, if its signatures are right."""
        welcome = self.welcome
        if welcome is None or not welcome.secure_sums or roster.epoch != welcome.epoch:
            raise InputError("the server sent a roster that does not belong to the run.")
        whole = not welcome.may_exclude
        pairs = self._certified().pairs(roster, welcome.run, welcome.agents, all_of_them=whole)
        self._questions.begin(fingerprint(roster))
        self._pairs, self._roster = pairs, fingerprint(roster)

    def _recommended(self, end: End) -> LearntPolicy:
        """The policy that the server sends with the end, if it is one of this run and signed where it can be."""
        policy = policy_of_bytes(end.policy, "the server's recommended policy")
        known = (*self._broadcast[0][0][:2], self._actions, self.run, True)
        if (*policy.table.shape, policy.actions, policy.run, policy.final) != known:
            raise InputError("the server's recommended policy does not fit the run.")
        if self._tls_files is not None:
            try:
                policy.check_signature(self._tls_files.read()[0], self._server)
            except InputError as error:
                raise InputError(f"the server's recommended policy is not to be trusted: {error}") from error
        return policy


def _same_run(welcome: Welcome, before: Welcome) -> bool:
    """Whether a server resumes the same run; under secure sums not even its policy for absence may change."""
    may_exclude = welcome.may_exclude if welcome.secure_sums else before.may_exclude
    return replace(welcome, epoch=before.epoch, may_exclude=may_exclude) == before


def _goes_on(welcome: Welcome, before: Welcome) -> bool:
    """Whether a server goes on with the same run, with more episodes or agents."""
    as_before = {name: getattr(before, name) for name in PLANNED}
    more = (welcome.episodes, welcome.agents) != (before.episodes, before.agents)
    fewer = welcome.episodes < before.episodes or welcome.agents < before.agents
    return more and not fewer and _same_run(replace(welcome, **as_before), before)


def _parameters(text: str) -> dict[str, Any]:
    """The algorithm's parameters, from JSON."""
    try:
        parameters = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the server's parameters are no JSON: {error}.") from error
    if not isinstance(parameters, dict):
        raise InputError("the server's parameters are no JSON object.")
    return parameters


def _forms(arrays: Message) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
    """Shapes and types."""
    return [(array.shape, array.dtype) for array in arrays]


def _paid(kept: Generation) -> Paid:
    """What a round paid and where it began, as it was kept."""
    episodes, total, squares = kept.note["paid"]
    return Paid(int(episodes), float(total), kept.counts["starts"], nan_for_none(squares))


def _key(start: Start) -> str:
    """What makes two starts those of one round: all but how far to play."""
    return hashlib.sha256(encode(replace(start, chunk=0))).hexdigest()
