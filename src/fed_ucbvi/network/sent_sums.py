"""What a node has sent under rosters: what it may send again, and how often.

What was sent and not confirmed goes with the next report. A server that only feigns a failure then has two sums that
overlap. So a node sends again

* the very same numbers in the very same company, as often as it is asked: the sum is the same;
* in other company with a signed *denial*, by a member of the earlier roster, that it answered that roster. All its
  other members must be there, with new episodes of enough nodes or of none, so that a false denial gives no more;
* otherwise only after new episodes, in a later round, and at most ``most_failures`` times a run.

What is confirmed is never sent again, and a server that takes a confirmation back is not believed.

Counts and rewards are confirmed each by itself: a round without a request has a sum of its rewards alone, and the
counts of its episodes go with a later sum. Rewards and initial states follow from counts to a large part. Were
the counts of some episodes added up over other nodes than their rewards, the two sums would show what a node has that
is in one of them only. So a sum of counts must be over the very episodes, of the very nodes, whose rewards have been
added up since the last one or are with it. If it is not, because a node has left, it is like a failure.

Everything is written to the node's folder before anything is sent, so a node that is killed and started again keeps
to it. (A machine that loses power may forget the last line.)
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from fed_ucbvi.algorithms.base import Message
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.network.failures import DeclinedError
from fed_ucbvi.network.messages import COUNTS, PARTS, REWARDS, Roster
from fed_ucbvi.network.node_state_store import NodeStateStore
from fed_ucbvi.network.roster import ANYONE, Authority, Company, certificate_fingerprint, fingerprint, new_episodes
from fed_ucbvi.network.secure_sums import framed


class SentSums:
    """The reports of node ``name`` in a run under secure sums, kept in ``store``.

    It allows ``most_failures``, see the module's text; 0 is strict.
    """

    def __init__(
        self, store: NodeStateStore, name: str, run: str, most_failures: int, company: Company = ANYONE
    ) -> None:
        self._store = store
        self._name = name
        self._run = run
        self._most = most_failures
        self._company = company

    @property
    def failures(self) -> int:
        """How often it has sent again what was not confirmed, in other company and without a denial."""
        return int(self._store.memory.get("failures", 0))

    def confirmed(self, part: str) -> int:
        """The last round of which the server has confirmed a sum with this part of the node's numbers, or -1."""
        return int(self._by("confirmed").get(part, -1))

    def _by(self, name: str) -> dict[str, Any]:
        """What is remembered of each part, or of each node."""
        return dict(self._store.memory.get(name, {}))

    def _answered(self, part: str) -> int:
        """The last round in which this part was sent, or -1."""
        return int(self._by("sent").get(part, {"round": -1})["round"])

    def begin(self, number: int, confirmed: Mapping[str, tuple[int, bytes]], since: Mapping[str, int]) -> None:
        """A round begins: what was reported in the rounds ``confirmed``, in sums over these rosters, has been used.

        What the node still has to report was played after the rounds in ``since``.

        Raises:
            InputError: if what was confirmed before would be sent again.
        """
        memory = self._store.memory
        for part in (REWARDS, COUNTS):
            (last, roster), sent, known = confirmed[part], self._by("sent").get(part), self.confirmed(part)
            if sent is not None and sent["round"] == last == since[part]:
                if sent["roster"] != roster.hex():
                    raise InputError(f"the server confirms a roster of round {last} that this node has not answered.")
                if last > known:  # on disk with what is sent next
                    memory["credited"] = self._credited(sent) if part == REWARDS else {}
                    known, memory["confirmed"] = last, {**self._by("confirmed"), part: last}
            if number > self._answered(part) and min(last, since[part]) < known:
                raise InputError(
                    f"the server takes back that it has used what this node reported in round {known}, which would "
                    "be sent a second time. If it was started from an old copy of its checkpoint, the run cannot "
                    "continue."
                )

    def may_deny(self, number: int, roster: bytes) -> bool:
        """Whether this node has certainly not answered that roster of this round."""
        last = max(map(self._answered, PARTS))
        return number > last or (number == last and roster.hex() not in self._store.memory["rosters"])

    def check(self, roster: Roster, own: Mapping[str, Message], authority: Authority) -> None:
        """Raise unless these parts of a report may be sent, and remember that they are.

        Raises:
            DeclinedError: if they may not be sent now.
            InputError: if there have been too many failures.
        """
        memory = self._store.memory
        number = roster.round
        if "sent" not in memory and number > 0:  # it comes later than others, or has forgotten everything
            new = new_episodes(roster)
            memory["credited"] = {name: counted - new[REWARDS][name] for name, counted in new[COUNTS].items()}
        now = {part: self._record(roster, part, report) for part, report in own.items()}
        failed = [self._is_failure(part, now[part], roster, authority) for part in now]
        sent = self._by("sent") | now
        if roster.counts and number > 0 and not _is_again(self._before(COUNTS, number), now[COUNTS]):
            failed.append(not self._is_of_the_same(sent))
        failures = self.failures + any(failed)
        if failures > self._most:
            raise InputError(
                f"{failures} synchronisations have failed after this node had answered, and it allows {self._most} "
                "(--most-failures): a server that feigns failures gets sums that overlap. If you know why they "
                "failed, start the node with more."
            )
        if all(number >= self._answered(part) for part in now):
            again = number in map(self._answered, PARTS)
            rosters = [*(memory["rosters"] if again else ()), fingerprint(roster).hex()]
            self._store.memorise(number, {**memory, "sent": sent, "failures": failures, "rosters": rosters})

    def _record(self, roster: Roster, part: str, report: Message) -> dict[str, Any]:
        """What is remembered of a part that is sent: in which company, and what."""
        new = new_episodes(roster)[part]
        members = [
            [one.name, one.first_agent, one.agents, new[one.name], certificate_fingerprint(one.certificate)]
            for one in roster.entries
        ]
        return {
            "round": roster.round,
            "roster": fingerprint(roster).hex(),
            "members": members,
            "episodes": new[self._name],
            "report": _digest(report),
        }

    def _is_failure(self, part: str, now: dict[str, Any], roster: Roster, authority: Authority) -> bool:
        """Whether what was sent and not confirmed is sent again in other company, and nobody has denied."""
        number = roster.round
        before = self._before(part, roster.round)
        answered = self._answered(part)
        if before is None and number <= answered:
            raise DeclinedError(f"round {number} has been answered before, and what was sent then is forgotten")
        if before is None or _is_again(before, now):
            return False
        if number >= answered and self._denied(part, before, roster, authority):
            return False
        if now["episodes"] <= before["episodes"] or number <= before["round"]:
            raise DeclinedError(
                f"what was sent in round {before['round']} has not been confirmed, and is sent in other company "
                "only after new episodes"
            )
        return True

    def _is_of_the_same(self, sent: dict[str, Any]) -> bool:
        """Whether a sum of counts is of the episodes whose rewards were added up, or are with it."""
        last = sent.get(REWARDS)
        told = Counter(self._by("credited"))
        if last is not None and last["round"] > self.confirmed(REWARDS):
            told = self._credited(last)
        return told == _episodes(sent[COUNTS])

    def _credited(self, sent: dict[str, Any]) -> Counter[str]:
        """Episodes by node whose rewards have been added up since the last sum of counts, those of ``sent`` too."""
        return Counter(self._by("credited")) + _episodes(sent)

    def _before(self, part: str, number: int) -> dict[str, Any] | None:
        """What was sent in this round, or else what was sent last, unless that is confirmed."""
        for memory in (self._store.remembered(number) or {}, self._store.memory):
            sent: dict[str, Any] | None = memory.get("sent", {}).get(part)
            if sent is not None and sent["round"] == number:
                return sent
        return sent if sent is not None and sent["round"] > self.confirmed(part) else None

    def _denied(self, part: str, before: dict[str, Any], roster: Roster, authority: Authority) -> bool:
        """Whether a member of the earlier roster says that it has not answered it, and it does no harm if it lies.

        It does none if the sums over both rosters, with or without the member, differ by the episodes of enough
        nodes, or of none. To no other member may the server have said that the earlier sum is used: the later one
        would have its numbers no more.
        """
        then = _episodes(before)
        certified = {(name, print_) for name, *_, print_ in before["members"] if name != self._name}
        deniers = set()
        for denial in roster.denials:
            member = denial.name, certificate_fingerprint(denial.certificate)
            about = denial.round, denial.roster.hex()
            if member in certified and about == (before["round"], before["roster"]):
                authority.check(denial, self._run, roster.round)
                deniers |= {denial.name} if self._company.counts(denial) else set()
        now = new_episodes(roster)[part]
        others = then.keys() - deniers
        since = {one.name: one.ready.since[PARTS.index(part)] for one in roster.entries}
        if not deniers or not others <= now.keys() or any(since[name] >= before["round"] for name in others):
            return False
        new = [episodes - then[name] for name, episodes in now.items()]
        least, needed, _ = self._company
        return not any(new) or sum(one >= least for one in new) >= needed


def _digest(report: Message) -> str:
    """Of all numbers; only few of them are not 0."""
    digest = hashlib.sha256()
    for array in report:
        flat = array.reshape(-1)
        where = np.flatnonzero(flat)
        digest.update(framed(str(array.shape).encode(), where.tobytes(), flat[where].tobytes()))
    return digest.hexdigest()


def _is_again(before: dict[str, Any] | None, now: dict[str, Any]) -> bool:
    """Whether the very same numbers are sent in the very same company."""
    return before is not None and all(before[key] == now[key] for key in ("round", "members", "report"))


def _episodes(sent: dict[str, Any]) -> Counter[str]:
    return Counter({name: episodes for name, _, _, episodes, _ in sent["members"]})
