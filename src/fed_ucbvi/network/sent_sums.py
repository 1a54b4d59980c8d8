"""Statements and answers of a node under secure sums: one of each per round, written down before they are sent."""

from __future__ import annotations

from msgspec.structs import replace

from fed_ucbvi.algorithms.base import Message
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.network.failures import DeclinedError
from fed_ucbvi.network.messages import Ready, Report, Roster, decode_up, encode
from fed_ucbvi.network.node_memory import NodeMemory
from fed_ucbvi.network.roster import Credentials, SumPolicy, fingerprint
from fed_ucbvi.network.secure_sums import masked


class SentSums:
    """The statements and answers of one node in a run with so many agents."""

    def __init__(self, memory: NodeMemory, credentials: Credentials, policy: SumPolicy, agents: int) -> None:
        self._memory = memory
        self._credentials = credentials
        self._policy = policy
        self._agents = agents

    def sign(self, number: int, first: int, digest: bytes, episodes: int, *, rewards: bool) -> Ready:
        """The statement for a round after ``first`` episodes of each agent; the same bytes if it is asked again."""
        record = self._memory.sums
        last = record.entry
        if last is not None and last.certificate == self._credentials.certificate:
            said = (last.ready.round, last.ready.digest, last.ready.episodes, last.ready.rewards)
            if said == (number, digest, episodes, rewards):
                return last.ready
        if last is not None and last.ready.round >= number:
            raise DeclinedError(f"this node has signed for round {last.ready.round}, and signs once per round")
        if first < record.until:
            raise DeclinedError(f"the first {record.until} episodes of each agent have been in a sum or missed it")
        entry, key = self._credentials.sign(number, digest, episodes, rewards=rewards)
        end = first + episodes if number > 0 else 0
        self._memory.keep_sums(replace(record, entry=entry, key=key, end=end, roster=b"", answer=b""))
        return entry.ready

    def answer(self, roster: Roster, report: Message) -> Report:
        """The masked report for a roster; raises unless it may be sent."""
        record = self._memory.sums
        if record.roster and record.roster != fingerprint(roster):
            raise DeclinedError(f"this node has answered another roster in round {roster.round}")
        if not record.roster:
            if record.entry is None:
                raise InputError("the server sent a roster for which this node has signed nothing.")
            pairs = self._credentials.pairs(roster, record.entry, record.key, self._agents)
            self._policy.check(roster)
            arrays = masked(report, self._credentials.name, pairs, fingerprint(roster))
            answer = encode(Report(roster.round, roster.exchange, arrays))
            record = replace(record, key=b"", until=record.end, roster=fingerprint(roster), answer=answer)
            self._memory.keep_sums(record)
        sent = decode_up(record.answer)
        assert isinstance(sent, Report)
        return sent
