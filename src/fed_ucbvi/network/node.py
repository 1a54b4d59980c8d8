"""A node: a fleet of agents that plays, keeps its counts to itself and answers the server.

Nothing here knows of networks: :meth:`Node.answer` takes a message and gives the answer, if there is one. The same
message twice gives the same answer twice, and a round can be started again from the state before it.

In a live collection nodes do not wait for each other. After a start the node is :attr:`Node.playing`, and its caller
calls :meth:`Node.play_on` until the node has an answer or the server says to stop. Before the node tells how many
episodes it played, its agents add the round to their counts and the node saves it. So what it has told never has to
be played again.

A node's logs are its first increments: they are in its reports until the server confirms one of them. The server asks
for them before the first round, as round 0.
"""

from __future__ import annotations

import dataclasses
import hashlib
import logging
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import asdict, replace

from fed_ucbvi.algorithms import algorithm_name, class_of, make_algorithm
from fed_ucbvi.algorithms.base import Algorithm, Array, Message
from fed_ucbvi.algorithms.experience import OwnCounts
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.engine.assurance import stated_range
from fed_ucbvi.engine.extension import PLANNED
from fed_ucbvi.engine.rounds import Paid
from fed_ucbvi.environments.bins import Bins
from fed_ucbvi.network import messages
from fed_ucbvi.network.certificates import TLSFiles
from fed_ucbvi.network.failures import DeclinedError
from fed_ucbvi.network.messages import COUNTS, REWARDS
from fed_ucbvi.network.node_state_store import NodeStateStore
from fed_ucbvi.network.query_guard import QueryGuard
from fed_ucbvi.network.rewards import RewardGrid, added, listed, paid_in, paid_of
from fed_ucbvi.network.roster import Company, Credentials, binding_of, fingerprint
from fed_ucbvi.network.run_plan import RunPlan, read_spec
from fed_ucbvi.network.secure_sums import framed, masked
from fed_ucbvi.network.sent_sums import SentSums
from fed_ucbvi.network.sources import Hosted, LiveSource, Source, check_room, host, read_reported_logs
from fed_ucbvi.network.transcript import NOBODY
from fed_ucbvi.problem.units import Units
from fed_ucbvi.results.policy import LearntPolicy, policy_of_bytes
from fed_ucbvi.results.round_record import EVALUATING
from fed_ucbvi.run_spec import NodeTerms, RunSpec

log = logging.getLogger("fed_ucbvi.federation")


@dataclasses.dataclass
class RoundInPlay:
    """The round the server has started, and how far it is.

    ``length`` is known once it is stopped, and ``paid`` once the agents have counted it. ``owed`` is what the
    episodes before it paid that no confirmed report has, and ``uncounted`` is how many of each agent no confirmed
    report has counted, all after the rounds in ``since``. The server does not know of ``before`` of them.
    """

    start: messages.Start
    owed: Paid
    uncounted: int
    since: Mapping[str, int]
    before: int = 0
    told: bool = False
    length: int | None = None
    paid: Paid | None = None
    ready: messages.Ready | None = None

    @property
    def most(self) -> int:
        """How many episodes may be played in it."""
        return self.start.most - self.before

    @property
    def owed_by_now(self) -> Paid:
        """What episodes paid that no confirmed report has, those of this round included once they are counted."""
        return self.owed if self.paid is None else added(self.owed, self.paid)


def key_of(start: messages.Start) -> str:
    """What makes two starts those of one round: all but how far to play, and what is asked besides."""
    bare = replace(start, chunk=0, roster=b"", credited_roster=b"", missed=0, missed_roster=b"")
    return hashlib.sha256(messages.encode(bare)).hexdigest()


@dataclasses.dataclass(eq=False)
class Node(NodeTerms):
    """One node of the federation; code that is not registered runs only if :attr:`algorithm` names it.

    Args:
        name: as in its certificate.
        source: the problem, or real environments.
        first_agent: the number of its first agent in the federation.
        agents: how many it hosts.
        folder: where it keeps its agents' counters; without one a node that is killed cannot come back.
        members: names, or fingerprints of certificates, of the nodes that count as contributors; None: all.
        logs: episodes that were recorded before the run, as :func:`~fed_ucbvi.counts_from_logs` takes them.
    """

    name: str
    source: Source | LiveSource
    first_agent: int
    agents: int
    folder: Path | None = None
    _: dataclasses.KW_ONLY
    members: Collection[str] | None = None
    logs: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_room(self.agents)
        self._environments = (
            self.source.check(self.first_agent, self.agents) if isinstance(self.source, LiveSource) else None
        )
        self._only_name = None if self.algorithm is None else algorithm_name(class_of(self.algorithm))
        self._tls_files: TLSFiles | None = None
        self._server = ""
        self._credentials: Credentials | None = None
        self._logs: Message = ()
        self._logged = 0, 0
        self._round: RoundInPlay | None = None
        self.welcome: messages.Welcome | None = None
        self.finished = False
        self.policy: LearntPolicy | None = None
        """The policy to deploy, once the server has sent it with the end of the run."""
        self.secret = self.logs is not None
        """Whether the server is to learn nothing of this node alone, not even from its errors."""
        self.transcript = NOBODY
        self.run = ""
        """The run this node is part of; empty before it has been told."""
        self.units = Units()

    @property
    def state(self) -> Any:
        return self._party.agents

    @property
    def playing(self) -> bool:
        """Whether a live round is under way, in which the node plays without further messages."""
        now = self._round
        return now is not None and self._plan.live and not now.told and now.length is None

    @property
    def rounds(self) -> int:
        return 0 if self.welcome is None else self._generations.current

    def own_counts(self, agent: int) -> OwnCounts:
        """What one of its agents, by its place on this node, has counted in the run it is part of."""
        if self.welcome is None:
            raise InputError(
                f"'{self.name}' has not taken part in this process, so it has no counts to advise from; it has them "
                "if the server is started again and the node with it."
            )
        return self._party.own_counts(agent)

    def identify(self, tls_files: TLSFiles | None, server: str) -> None:
        """Take part with this certificate, which secure sums need, in a run of ``server``."""
        self._tls_files, self._server = tls_files, server

    def enter(self, welcome: messages.Welcome) -> messages.Joining:
        """Build the problem and the agents, or, after a reconnection, say where they stand."""
        if welcome.protocol != messages.PROTOCOL:
            ours = messages.PROTOCOL
            raise InputError(f"the server speaks protocol {welcome.protocol}, this node {ours}.")
        spec = read_spec(welcome.spec, self._only_name)
        if self.welcome is None:
            self._build(welcome, spec)
        elif self._is_extended(welcome, spec):
            self._grow(welcome, spec)
        self._generations.meet(welcome.epoch)
        self.welcome, self._spec, self.run = welcome, spec, welcome.run
        about = f"{welcome.run} {welcome.epoch}".encode()
        self._welcomed = hashlib.sha256(framed(about, welcome.support)).digest()
        self._questions.begin(welcome.epoch)
        if spec.secure_sums:  # the certificate may have been renewed
            assert self._tls_files is not None
            self._credentials = Credentials(self.name, self.first_agent, self.agents, welcome.run, self._tls_files)
            if self._round is not None:
                self._round.ready = None  # its key is gone
        hosted, rounds, units = self._hosted, self._generations.rounds, self.units
        return messages.Joining(*hosted.sizes, hosted.digest, rounds, units.offset, units.scale, *self._logged)

    def close(self) -> None:
        """Leave the environments; they are made anew if there is more to play."""
        if self.welcome is not None:
            self._party.close()

    def _is_extended(self, welcome: messages.Welcome, spec: RunSpec) -> bool:
        """Whether a server goes on with the same run, with more episodes or agents; raises if it is another one."""
        assert self.welcome is not None
        told = (self.welcome, self._spec), (welcome, spec)
        before, now = ({**spec.to_data(), **asdict(replace(one, spec=b"", epoch=0))} for one, spec in told)
        changed = {name for name in now if now[name] != before[name]}
        more = changed & {"episodes", "agents"}
        fewer = any(now[name] < before[name] for name in more)
        if changed and (fewer or not more or not changed <= {*PLANNED, "support"}):
            raise InputError("the server has changed the run since this node joined; start the node again.")
        return bool(changed)

    def _build(self, welcome: messages.Welcome, spec: RunSpec) -> None:
        self._check_company(spec)
        self.secret = self.secret or spec.secure_sums  # before environments are made
        algorithm = make_algorithm(self.algorithm or spec.algorithm, dict(spec.parameters))
        if not spec.live:
            check_room(spec.agents or 0, whose="agents of the server's run")
        hosted = self._hosted = self._host(welcome, spec)
        self.units = hosted.units
        if hosted.sizes != spec.sizes:
            remark = "" if hosted.federation else " (one state more than its environments have, for what terminates)"
            raise InputError(
                f"the server's problem has (S, A, H) = {spec.sizes}, this node's {hosted.sizes}{remark}."
            )
        known = hosted.federation
        if known is not None and known.reward_variances is not None and not spec.random_rewards:
            raise InputError(
                "this node's rewards are random, those of the server's run are not; serve it with --random-rewards."
            )
        S, A, H = hosted.sizes
        check_room(self.agents, 8 * S * A * H)
        self._make_party(welcome, spec, algorithm)
        self._questions = QueryGuard(self._algorithm, self._plan.setting, self.agents)
        if self._algorithm.sends_trajectories and not self.send_trajectories:
            raise InputError(
                f"{algorithm.name} sends trajectories to the server. If this node may, pass --send-trajectories."
            )
        if self.logs is not None:
            self._logs, self._logged = read_reported_logs(self.logs, hosted, self._plan)
        identity = {
            "run": welcome.run,
            "node": self.name,
            "agents": [self.first_agent, self.agents],
            "problem": hosted.digest.hex(),
            "logs": hashlib.sha256(b"".join(array.tobytes() for array in self._logs)).hexdigest(),
        }
        self._generations = NodeStateStore(self._party, identity, self.folder)
        self._company = Company(spec.least_episodes, spec.least_members, self.members)
        self._sent = SentSums(self._generations, self.name, welcome.run, self.most_failures, self._company)

    def _host(self, welcome: messages.Welcome, spec: RunSpec) -> Hosted:
        """What the agents play in, finite by the server's bins if it has some."""
        source, who = self.source, (self.first_agent, self.agents)
        if not isinstance(source, LiveSource):
            return host(source(spec.agents or 0), *who)
        if not spec.live:
            raise InputError(
                "this node's agents have real environments, which cannot be taken back to an earlier episode, as "
                "lockstep needs it; serve the run with --collection live."
            )
        if welcome.bins:
            return source.host(*who, Bins.parse(welcome.bins.decode(errors="replace"), "what the server calls bins"))
        return self._environments or source.host(*who)

    def _make_party(self, welcome: messages.Welcome, spec: RunSpec, algorithm: Algorithm[Any, Any]) -> None:
        """The plan of the run, and the agents, which have seen nothing."""
        hosted, plan = self._hosted, RunPlan.told_by(welcome, spec, algorithm)
        if welcome.support and hosted.federation is not None:
            plan.support.check_has(hosted.federation.successors)
        self._plan, self._algorithm, self._party = plan, plan.algorithm, hosted.party(plan.algorithm, plan.setting)
        if spec.return_range is not None:
            self._party.within = stated_range(spec.return_range, self.units, plan.setting.horizon)

    def _grow(self, welcome: messages.Welcome, spec: RunSpec) -> None:
        """Go on in a run that has more episodes or agents by now, with the same counts."""
        if self._algorithm.extension.episodes and spec.episodes > self._spec.episodes:
            raise InputError(f"{self._algorithm.name} cannot be extended: {self._algorithm.extension.episodes}.")
        log.warning(
            "%s: the run continues with %d agents and %d episodes each", self.name, spec.agents, spec.episodes
        )
        self._party.close()
        self._make_party(welcome, spec, self._algorithm)
        self._questions.change(self._plan.setting)
        self._generations.change(self._party)
        self._round = None

    def _check_company(self, spec: RunSpec) -> None:
        """Raise unless this node agrees to what the server would learn."""
        if self.require_secure_sums and not spec.secure_sums:
            raise InputError(
                "this node takes part in runs with secure sums only (--require-secure-sums), and this one has none; "
                "serve it with --secure-sums."
            )
        if spec.secure_sums and self._tls_files is None:
            raise InputError("secure sums need certificates; an insecure federation cannot have them.")
        for name in ("least_episodes", "least_members") if spec.secure_sums else ():
            has, least, flag = getattr(spec, name), getattr(self, name), f"--{name.replace('_', '-')}"
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
                return self._end(now) if self._plan.live else self._play(now, message.chunk)
            case messages.Stop():
                self._stop(self._in_play(message.round), message.length)
            case messages.Roster():
                return self._contribute(message)
            case messages.Query():
                return self._report(message)
            case messages.End():
                self.policy = self._recommended(message)
                self.finished = True
            case _:
                raise InputError(f"the server sent a {type(message).__name__} where none belongs.")
        return None

    def play_on(self) -> messages.Played | None:
        """One more episode of a live round; the answer, once there is one."""
        now, party = self._round, self._party
        assert now is not None
        party.play(min(party.played + 1, now.most))
        return self._end(now) if party.asked or party.played >= now.most else None

    def _in_play(self, number: int, *, stopped: bool = False) -> RoundInPlay:
        now = self._round
        if now is None or now.start.round != number:
            raise InputError(f"the server names round {number}, which it has not started.")
        if stopped and now.length is None:
            raise InputError(f"the server asks about round {number}, which it has not stopped.")
        return now

    def _start(self, start: messages.Start) -> messages.Played | None:
        """Begin a round from the state after round ``base``; in a live collection, continue it if it has begun."""
        self._questions.check_start(start)
        now = self._round = (self._begun(start) if self._plan.live else None) or self._begin(start)
        now.told = False
        return None if self.playing and start.chunk > 0 else self._play(now, start.chunk)

    def _begin(self, start: messages.Start) -> RoundInPlay:
        """Go to the state after round ``base``; what was reported then is new no more if it is confirmed.

        A live node goes on from where it is if the last rounds have closed without it: they cannot be played again.
        """
        if self._logs and start.confirmed < 0 <= self._sent.confirmed(COUNTS) < start.round:
            raise InputError("the server asks for logs again that it has had, which an honest one never does.")
        secure, base = self._plan.secure_sums, self._base_of(start)
        late = base > start.base
        before = int(self._generations.note(base)["clock"]) - start.first if late else 0
        counted, credited = start.confirmed == base, start.credited == base or not secure
        used = {COUNTS: counted and not late, REWARDS: credited and not late}
        self._generations.return_to(base)
        self._algorithm.settle_report(self.state, start.arrays, used=used[COUNTS])
        note = self._generations.note(base) if secure or late else {}
        owed = Paid(0, 0.0, np.zeros(self._plan.setting.states, dtype=np.int64))
        owed = owed if used[REWARDS] or "owed" not in note else paid_of(note["owed"])
        owed = owed._replace(returns={n: one for n, one in owed.returns.items() if n in start.judged})
        confirmed = {COUNTS: (start.confirmed, start.roster), REWARDS: (start.credited, start.credited_roster)}
        since = {part: confirmed[part][0] if used[part] or not note else note["since"][part] for part in used}
        if secure:
            self._sent.begin(start.round, confirmed, since)
        self._party.start(start.arrays, start.first + before, asking=start.playing != EVALUATING)
        return RoundInPlay(start, owed, 0 if used[COUNTS] else note.get("uncounted", 0), since, before)

    def _base_of(self, start: messages.Start) -> int:
        """The round after which this one begins: ``base``, or a later one that the server has closed without it."""
        kept = self._generations.rounds if self._plan.live and self._algorithm.server_counts else ()
        last = max((number for number in kept if number < start.round), default=0)
        note = self._generations.note(last) if last > start.base else {}
        unused = bool(note) and note["since"][COUNTS] == start.confirmed and note["clock"] > start.first
        return last if unused else start.base

    def _begun(self, start: messages.Start) -> RoundInPlay | None:
        """The very round that ``start`` begins, if this node is in the middle of it or has kept it."""
        if self._round is not None and key_of(self._round.start) == key_of(start):
            return self._round
        if self._generations.note(start.round).get("start") != key_of(start):
            return None
        now = self._begin(start)
        now.length = self._generations.recall(start.round)
        now.paid = paid_in(self._party, start)
        return now

    def _play(self, now: RoundInPlay, chunk: int) -> messages.Played:
        """Play until ``chunk`` episodes of the round are played or one of these agents requests a synchronisation."""
        if now.length is None:
            self._party.play(min(chunk, now.most))
        return self._played(now)

    def _end(self, now: RoundInPlay) -> messages.Played:
        self._stop(now, self._party.played)
        return self._played(now)

    def _played(self, now: RoundInPlay) -> messages.Played:
        now.told = True
        party, number, H = self._party, now.start.round, len(self._party.policy)
        if self._plan.secure_sums:
            return messages.Played(number, party.played, (), party.asked, self._ready(now), now.before)
        requests = [
            messages.Request(end.agent, end.step if end.step >= 0 else H, end.state, end.action, end.rule)
            for end in (party.requests() if party.asked else ())
        ]
        return messages.Played(number, party.played, tuple(requests), before=now.before)

    def _ready(self, now: RoundInPlay) -> messages.Ready:
        """What this node signs for the round; the same as before, if it is asked again."""
        assert self._credentials is not None
        start, owed = now.start, now.owed_by_now if self._plan.live else now.owed
        binding = binding_of(self._welcomed, start)
        counted = now.uncounted + (now.length or 0 if self._plan.live else 0) if start.round else self._logged[0]
        episodes = counted, int(owed.starts.sum()) // self.agents
        if now.ready is None or (now.ready.episodes, now.ready.uncredited) != episodes:
            since = now.since[COUNTS], now.since[REWARDS]
            ready = self._credentials.ready(start.round, binding, episodes, since, rewards=not self.no_rewards)
            if start.missed and self._sent.may_deny(start.missed, start.missed_roster):
                ready = replace(ready, denial=self._credentials.denial(start.missed, start.missed_roster))
            now.ready = ready
        return now.ready

    def _stop(self, now: RoundInPlay, length: int) -> None:
        """End the round after ``length`` episodes: play more or take some back, and add the round to the counts."""
        if now.paid is not None and (before := self._party.played) != length:
            raise InputError(f"round {now.start.round} was stopped after {before} episodes, not {length}.")
        if now.length is not None:
            return
        if now.start.round == 0:  # for logs: nothing is played, and nothing is kept
            now.length, now.paid = 0, now.owed
            return
        if length > now.most:
            raise InputError(
                f"the server stops round {now.start.round} after {length} episodes; {now.most} are left."
            )
        if now.paid is None:
            self._party.stop(length)
            now.paid = paid_in(self._party, now.start)
        note: dict[str, Any] = {}
        if self._plan.secure_sums or self._plan.live:
            note = {"owed": listed(now.owed_by_now), "uncounted": now.uncounted + length, "since": now.since}
        if self._plan.live:
            clock = now.start.first + now.before + length
            note |= {"start": key_of(now.start), "played": length, "clock": clock}
        self._generations.keep(now.start.round, note, self._party.counts() if self._plan.live else {})
        now.length = length

    def _report(self, query: messages.Query) -> messages.Report:
        """The agents' answer in one exchange: one row for each, or one for all where the server takes sums."""
        now = self._in_play(query.round, stopped=True)
        if self._plan.secure_sums:
            raise InputError("the server asks for this node's numbers in the open, in a run with secure sums.")
        rewards = (self._told(now, tell=not self.no_rewards),) if query.rewards else ()
        alone = query.rewards and query.exchange == messages.REWARDS_ALONE and not query.arrays
        own = () if alone else self._own_report(query.arrays, self._questions.exchange_of(query))
        self._questions.check(query, (*own, *rewards))
        return messages.Report(query.round, query.exchange, (*own, *rewards))

    def _told(self, now: RoundInPlay, *, tell: bool) -> Array:
        """What episodes paid that no confirmed report has, on the grid."""
        grid = RewardGrid.of(self._plan.setting)._replace(judged=now.start.judged)
        return grid.report(now.owed_by_now, tell=tell)

    def _own_report(self, query: Message, exchange: int) -> Message:
        if self._algorithm.server_counts:
            new = self._plan.listed(self._algorithm.new_counts(self.state, query))
            if self._logs and self._round is not None and self._round.start.confirmed < 0:
                new = tuple(one + logged for one, logged in zip(new, self._logs, strict=True))
            return new
        return tuple(np.array(array) for array in self._party.report(query, exchange))

    def _contribute(self, roster: messages.Roster) -> messages.Report | messages.Decline:
        """What is new, masked between the nodes of a roster, if the roster is right and it may be sent."""
        now = self._in_play(roster.round, stopped=True)
        if self._credentials is None or roster.length != (0 if self._plan.live else now.length):
            raise InputError("the server sent a roster that does not belong to the run, or to this round.")
        if roster.counts and now.start.playing == EVALUATING:
            raise InputError("the server asks for counts where it has a policy evaluated.")
        try:
            pairs = self._credentials.pairs(roster, self._plan.setting.agents, self._company)
            own: dict[str, Message] = {}
            if roster.counts:
                own[COUNTS] = self._own_report((), 0)
            if roster.rewards:
                tell = not self.no_rewards and self._company.tells_rewards(roster)
                own[REWARDS] = (self._told(now, tell=tell),)
            failures = self._sent.failures
            self._sent.check(roster, own, self._credentials.authority)
            if self._sent.failures > failures:
                what = f"failure {self._sent.failures} of {self.most_failures}: sent again without a denial"
                self.transcript.add("failed", round=roster.round, note=what)
        except DeclinedError as declined:
            log.warning("%s: round %d: %s", self.name, roster.round, declined, extra={"node": self.name})
            return messages.Decline(roster.round, str(declined), roster.exchange)
        whole = tuple(array for part in own.values() for array in part)
        return messages.Report(roster.round, roster.exchange, masked(whole, self.name, pairs, fingerprint(roster)))

    def _recommended(self, end: messages.End) -> LearntPolicy:
        """The policy that the server sends with the end, if it is one of this run and signed where it can be."""
        authority = None if self._tls_files is None else self._tls_files.read()[0]
        setting, name = self._plan.setting, "the server's recommended policy"
        sizes = setting.horizon, setting.states
        policy = policy_of_bytes(end.policy, name, authority=authority, server=self._server, sizes=sizes)
        if (policy.actions, policy.run, policy.final) != (setting.actions, self.run, True):
            raise InputError(f"{name} does not fit the run.")
        return policy
