"""A node: a fleet of agents that plays, keeps its counts to itself and answers the server.

Nothing here knows of networks: :meth:`Node.answer` takes a message and gives the answer, if there is one. The same
message twice gives the same answer twice, and a round can be started again from the state before it.

How episodes are collected is up to the rounds (:mod:`fed_ucbvi.network.node_rounds`). If a node is
:attr:`Node.playing` after a start, its caller calls :meth:`Node.play_on` until the node has an answer or the server
says to stop.

What it reports is up to :mod:`fed_ucbvi.network.node_reports`. The server asks for a node's logs before the first
round, as round 0.
"""

from __future__ import annotations

import dataclasses
import hashlib
import logging
from collections.abc import Collection
from pathlib import Path
from typing import Any

from msgspec.structs import asdict, replace

from fed_ucbvi.algorithms import algorithm_name, class_of, make_algorithm
from fed_ucbvi.algorithms.base import Algorithm
from fed_ucbvi.algorithms.count_reporting import CountReporting
from fed_ucbvi.algorithms.fields import has_trajectories
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.engine.extension import PLANNED
from fed_ucbvi.engine.promises import stated_range
from fed_ucbvi.environments.bins import Bins
from fed_ucbvi.network import messages
from fed_ucbvi.network.certificates import TLSFiles
from fed_ucbvi.network.failures import DeclinedError
from fed_ucbvi.network.federation_spec import FederationSpec
from fed_ucbvi.network.message_sizes import BEFORE_WELCOME
from fed_ucbvi.network.node_reports import Logs, MaskedReports, NodeReports, OpenReports
from fed_ucbvi.network.node_rounds import NODE_ROUND_TYPES, LogsNodeRound, NodeRound
from fed_ucbvi.network.node_state_store import NodeStateStore
from fed_ucbvi.network.node_terms import NodeTerms
from fed_ucbvi.network.query_guard import QueryGuard
from fed_ucbvi.network.roster import Credentials, SumPolicy, welcome_digest
from fed_ucbvi.network.run_plan import RunPlan, read_spec
from fed_ucbvi.network.sent_sums import SentSums
from fed_ucbvi.network.sources import Hosted, LiveSource, Source, check_room, host, read_reported_logs
from fed_ucbvi.problem.units import Units
from fed_ucbvi.results.policy import LearntPolicy, policy_of_bytes

log = logging.getLogger("fed_ucbvi.federation")


@dataclasses.dataclass(eq=False)
class Node:
    """One node of the federation; code that is not registered runs only if its :attr:`terms` name it.

    Args:
        name: as in its certificate.
        source: the problem, or real environments.
        first_agent: the number of its first agent in the federation.
        agents: how many it hosts.
        folder: where it keeps its agents' counters; without one a node that is killed cannot come back.
        terms: the terms on which it takes part.
        members: names, or fingerprints of certificates, of the nodes that count as contributors; None: all.
        logs: episodes that were recorded before the run, as :func:`~fed_ucbvi.counts_from_logs` takes them.
    """

    name: str
    source: Source | LiveSource
    first_agent: int
    agents: int
    folder: Path | None = None
    _: dataclasses.KW_ONLY
    terms: NodeTerms = dataclasses.field(default_factory=NodeTerms)
    members: Collection[str] | None = None
    logs: Any = None

    def __post_init__(self) -> None:
        check_room(self.agents)
        self._environments = (
            self.source.check(self.first_agent, self.agents) if isinstance(self.source, LiveSource) else None
        )
        self._only_name = None if self.terms.algorithm is None else algorithm_name(class_of(self.terms.algorithm))
        self._tls_files: TLSFiles | None = None
        self._server = ""
        self._logs = Logs()
        self._round: NodeRound | None = None
        self.welcome: messages.Welcome | None = None
        self.finished = False
        self.policy: LearntPolicy | None = None
        """The policy to deploy, once the server has sent it with the end of the run."""
        self.secret = self.logs is not None
        """True if the server is to learn nothing of this node alone, not even from its errors."""
        self.run = ""
        """The run this node is part of; empty before it has been told."""
        self.units = Units()
        self.limits = BEFORE_WELCOME
        """The most bytes of a message of the server, by its kind."""

    @property
    def state(self) -> Any:
        return self._party.agents

    @property
    def playing(self) -> bool:
        """True while the node plays a round without further messages, by :meth:`play_on`."""
        return self._round is not None and self._round.playing

    @property
    def masks(self) -> bool:
        """True if the reports of this node are known to be masked."""
        return self.terms.require_secure_sums or (self.welcome is not None and self._spec.rules.secure_sums)

    @property
    def rounds(self) -> int:
        return 0 if self.welcome is None else self._generations.current

    def identify(self, tls_files: TLSFiles | None, server: str) -> None:
        """Take part with this certificate, which secure sums need, in a run of ``server``."""
        self._tls_files = tls_files
        self._server = server

    def enter(self, welcome: messages.Welcome) -> messages.Joining:
        """Build the problem and the agents, or, after a reconnection, say where they stand."""
        if welcome.protocol != messages.PROTOCOL:
            ours = messages.PROTOCOL
            raise InputError(f"the server speaks protocol {welcome.protocol}, this node {ours}.")
        spec = read_spec(welcome.spec, self._only_name)
        if self.welcome is None:
            self._build(welcome, spec)
        elif self._is_extended(welcome, spec):
            self._extend(welcome, spec)
        self._generations.memory.check_epoch(welcome.epoch)
        self.welcome = welcome
        self._spec = spec
        self.run = welcome.run
        self._questions.begin(welcome.epoch)
        self._reports = self._make_reports(welcome, spec)
        hosted = self._hosted
        return messages.Joining(
            states=hosted.sizes[0],
            actions=hosted.sizes[1],
            horizon=hosted.sizes[2],
            digest=hosted.digest,
            rounds=self._generations.rounds,
            reward_offset=self.units.offset,
            reward_scale=self.units.scale,
            logged_episodes=self._logs.episodes,
            logged_steps=self._logs.steps,
        )

    def _make_reports(self, welcome: messages.Welcome, spec: FederationSpec) -> NodeReports:
        """The reports of this node in the run: in the open, or masked."""
        common: dict[str, Any] = {
            "plan": self._plan,
            "party": self._party,
            "logs": self._logs,
            "questions": self._questions,
            "tells_rewards": not self.terms.no_rewards,
        }
        if not spec.rules.secure_sums:
            return OpenReports(**common)
        assert self._tls_files is not None
        credentials = Credentials(self.name, self.first_agent, self.agents, welcome.run, self._tls_files)
        policy = SumPolicy(spec.rules.least_episodes, spec.rules.least_members, self.members)
        sums = SentSums(self._generations.memory, credentials, policy, self._plan.setting.agents)
        return MaskedReports(**common, welcome=welcome_digest(welcome), sums=sums, policy=policy)

    def close(self) -> None:
        """Leave the environments; they are made anew if there is more to play."""
        if self.welcome is not None:
            self._party.close()

    def _is_extended(self, welcome: messages.Welcome, spec: FederationSpec) -> bool:
        """True if the server continues the same run with more episodes; raises if it is another run."""
        assert self.welcome is not None
        told = (self.welcome, self._spec), (welcome, spec)
        before, now = ({**spec.to_data(), **asdict(replace(one, spec=b"", epoch=0))} for one, spec in told)
        changed = {name for name in now if now[name] != before[name]}
        if changed and (now["episodes"] <= before["episodes"] or not changed <= set(PLANNED)):
            raise InputError("the server has changed the run since this node joined; start the node again.")
        return bool(changed)

    def _build(self, welcome: messages.Welcome, spec: FederationSpec) -> None:
        self._check_company(spec)
        self.secret = self.secret or spec.rules.secure_sums  # before environments are made
        named = spec.run.algorithm
        algorithm = make_algorithm(self.terms.algorithm or named.name, dict(named.parameters))
        self._round_type = NODE_ROUND_TYPES[spec.rules.collection]
        self._round_type.check_source(spec, real=isinstance(self.source, LiveSource))
        hosted = self._hosted = self._host(welcome, spec)
        self.units = hosted.units
        if hosted.sizes != spec.run.problem.sizes:
            remark = "" if hosted.federation else " (one state more than its environments have, for what terminates)"
            raise InputError(
                f"the server's problem has (S, A, H) = {spec.run.problem.sizes}, this node's {hosted.sizes}{remark}."
            )
        known = hosted.federation
        if known is not None and known.reward_variances is not None and not spec.run.problem.random_rewards:
            raise InputError(
                "this node's rewards are random, those of the server's run are not; serve it with --random-rewards."
            )
        S, A, H = hosted.sizes
        check_room(self.agents, 8 * S * A * H)
        self._make_party(welcome, spec, algorithm)
        self._questions = QueryGuard(self._algorithm, self._plan.setting)
        self.limits = self._questions.limits
        if has_trajectories(self._algorithm.report_type) and not self.terms.send_trajectories:
            raise InputError(
                f"{algorithm.name} sends trajectories to the server. If this node may, pass --send-trajectories."
            )
        if self.logs is not None:
            report, (episodes, steps) = read_reported_logs(self.logs, hosted, self._plan)
            self._logs = Logs(report, episodes, steps)
        identity = {
            "run": welcome.run,
            "node": self.name,
            "agents": [self.first_agent, self.agents],
            "problem": hosted.digest.hex(),
            "logs": hashlib.sha256(b"".join(array.tobytes() for array in self._logs.report)).hexdigest(),
        }
        self._generations = NodeStateStore(self._party, identity, self.folder)

    def _host(self, welcome: messages.Welcome, spec: FederationSpec) -> Hosted:
        """The problem of the agents, finite by the server's bins if it has some."""
        source = self.source
        who = (self.first_agent, self.agents)
        if not isinstance(source, LiveSource):
            return host(source(spec.run.problem.agents or 0), *who)
        if welcome.bins:
            return source.host(*who, Bins.parse(welcome.bins.decode(errors="replace"), "what the server calls bins"))
        return self._environments or source.host(*who)

    def _make_party(self, welcome: messages.Welcome, spec: FederationSpec, algorithm: Algorithm[Any, Any]) -> None:
        """The plan of the run, and the agents, which have seen nothing."""
        hosted = self._hosted
        plan = RunPlan.told_by(welcome, spec, algorithm)
        if welcome.support and hosted.federation is not None:
            plan.support.check_has(hosted.federation.successors)
        self._plan = plan
        self._algorithm = plan.algorithm
        self._party = hosted.party(plan.algorithm, plan.setting)
        if spec.rules.secure_sums and spec.rules.least_episodes > 1:
            self._party.least_episodes = spec.rules.least_episodes
        if spec.run.options.return_range is not None:
            self._party.limit_returns(stated_range(spec.run.options.return_range, self.units, plan.setting.horizon))

    def _extend(self, welcome: messages.Welcome, spec: FederationSpec) -> None:
        """Continue in a run that has more episodes by now, with the same counts."""
        if self._algorithm.extension.episodes:
            raise InputError(f"{self._algorithm.name} cannot be extended: {self._algorithm.extension.episodes}.")
        log.warning("%s: the run continues with %d episodes for each agent", self.name, spec.run.options.episodes)
        self._party.close()
        self._make_party(welcome, spec, self._algorithm)
        self._questions.change(self._plan.setting)
        self._generations.change(self._party)
        self._round = None

    def _check_company(self, spec: FederationSpec) -> None:
        """Raise unless this node agrees to what the server would learn."""
        if self.terms.require_secure_sums and not spec.rules.secure_sums:
            raise InputError(
                "this node takes part in runs with secure sums only (--require-secure-sums), and this one has none; "
                "serve it with --secure-sums."
            )
        if spec.rules.secure_sums and self._tls_files is None:
            raise InputError("secure sums need certificates; an insecure federation cannot have them.")
        for name in ("least_episodes", "least_members") if spec.rules.secure_sums else ():
            has = getattr(spec.rules, name)
            least = getattr(self.terms, name)
            flag = f"--{name.replace('_', '-')}"
            if has < least:
                raise InputError(
                    f"the server has {flag} {has}, this node wants {least} or more; serve it with {flag} {least}."
                )

    def answer(self, message: messages.Down) -> messages.Up | None:
        match message:
            case messages.Start():
                return self._start(message)
            case messages.Continue():
                now = self._in_play(message.round)
                return self._played(now) if now.go_on(message.chunk) else None
            case messages.Stop():
                self._in_play(message.round).stop(message.length)
            case messages.Query():
                return self._report(message)
            case messages.Sign():
                return self._sign(message)
            case messages.Roster():
                return self._contribute(message)
            case messages.End():
                self.policy = self._recommended(message)
                self.finished = True
            case _:
                raise InputError(f"the server sent a {type(message).__name__} where none belongs.")
        return None

    def play_on(self) -> messages.Played | None:
        """Play one more episode while :attr:`playing`; the answer for the server, once there is one."""
        now = self._round
        assert now is not None
        return self._played(now) if now.play_on() else None

    def _in_play(self, number: int, *, stopped: bool = False) -> NodeRound:
        now = self._round
        if now is None or now.start.round != number:
            raise InputError(f"the server names round {number}, which it has not started.")
        if stopped and now.length is None:
            raise InputError(f"the server asks about round {number}, which it has not stopped.")
        return now

    def _start(self, start: messages.Start) -> messages.Played | None:
        """Begin a round, or continue it if the node is in the middle of it."""
        self._questions.check_start(start)
        now = self._round
        if now is None or not now.continues(start):
            now = self._begin(start)
            now.restore()
        self._round = now
        now.answered = False
        if now.playing and start.chunk > 0:
            return None
        now.play(start.chunk)
        return self._played(now)

    def _begin(self, start: messages.Start) -> NodeRound:
        """Go to the state after round ``base``, or after a later one that the server has closed without this node."""
        store = self._generations
        round_type = LogsNodeRound if start.round == 0 else self._round_type
        base = round_type.base_of(start, store, reports_counts=isinstance(self._algorithm, CountReporting))
        late = base > start.base
        note = store.note(base) if late else {}
        before = int(note["clock"]) - start.first if late else 0
        store.return_to(base)
        if isinstance(self._algorithm, CountReporting):
            settled = self._reports.is_settled(start, late=late)
            self._algorithm.settle_report(self.state, start.arrays, used=settled)
        self._party.start(start.arrays, start.first + before)
        return round_type(
            start=start,
            party=self._party,
            store=store,
            unreported=self._reports.unreported(note),
            last_confirmed=self._reports.last_confirmed(start, note),
            before=before,
        )

    def _played(self, now: NodeRound) -> messages.Played:
        now.answered = True
        requests, somebody = self._reports.requests()
        return messages.Played(
            round=now.start.round,
            played=self._party.played,
            requests=requests,
            somebody=somebody,
            before=now.before,
        )

    def _report(self, query: messages.Query) -> messages.Report:
        return self._reports.answer_query(self._in_play(query.round, stopped=True), query)

    def _sign(self, request: messages.Sign) -> messages.Ready | messages.Decline:
        now = self._in_play(request.round, stopped=True)
        try:
            return self._reports.sign(now)
        except DeclinedError as declined:
            return self._decline(request, declined)

    def _contribute(self, roster: messages.Roster) -> messages.Report | messages.Decline:
        now = self._in_play(roster.round, stopped=True)
        try:
            return self._reports.answer_roster(now, roster)
        except DeclinedError as declined:
            return self._decline(roster, declined)

    def _decline(self, asked: messages.Sign | messages.Roster, reason: DeclinedError) -> messages.Decline:
        log.warning("%s: round %d: %s", self.name, asked.round, reason, extra={"node": self.name})
        return messages.Decline(asked.round, str(reason), asked.exchange)

    def _recommended(self, end: messages.End) -> LearntPolicy:
        """The policy that the server sends with the end, if it is one of this run and signed where it can be."""
        authority = None if self._tls_files is None else self._tls_files.read()[0]
        setting = self._plan.setting
        name = "the server's recommended policy"
        sizes = setting.horizon, setting.states, setting.actions
        policy = policy_of_bytes(end.policy, name, authority=authority, server=self._server, sizes=sizes)
        if (policy.run, policy.final) != (self.run, True):
            raise InputError(f"{name} does not fit the run.")
        return policy
