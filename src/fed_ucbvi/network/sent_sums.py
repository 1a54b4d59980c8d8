"""What a node has sent under rosters: what it may send again, and how often.

What was sent and not confirmed goes with the next report. A server that only feigns a failure then has two sums that
overlap. So a node sends again

* the very same numbers in the very same company, as often as it is asked: the sum is the same;
* in other company with a signed *denial*, by a member of the earlier roster, that it answered that roster. All its
  other members must be there, with new episodes of enough nodes or of none, so that a false denial gives no more;
* otherwise only after new episodes, in a later round, and at most ``most_failures`` times a run.

What is confirmed is never sent again, and a server that takes a confirmation back is not believed.

Everything is written to the node's folder before anything is sent, so a node that is killed and started again keeps
to it. (A machine that loses power may forget the last line.)
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import Any

from fed_ucbvi.algorithms.base import Message
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.network.failures import DeclinedError
from fed_ucbvi.network.messages import Roster
from fed_ucbvi.network.node_state_store import NodeStateStore
from fed_ucbvi.network.roster import Authority, certificate_fingerprint, contributions, counts, fingerprint
from fed_ucbvi.network.secure_sums import MIN_NODES


class SentSums:
    """The reports of one node under secure sums.

    Args:
        store: where it is kept.
        name: of the node.
        run: the run's id.
        most_failures: see the module's text; 0 is strict.
        least: new episodes without which a node is no contributor, and how many contributors a sum must have.
        members: names, or fingerprints of certificates, of those whose denials count; None: all.
    """

    def __init__(
        self,
        store: NodeStateStore,
        name: str,
        run: str,
        most_failures: int,
        least: tuple[int, int] = (1, MIN_NODES),
        members: Collection[str] | None = None,
    ) -> None:
        self._store, self._name, self._run, self._most = store, name, run, most_failures
        self._least, self._members = least, members

    @property
    def failures(self) -> int:
        """How often it has sent again what was not confirmed, in other company and without a denial."""
        return int(self._store.memory.get("failures", 0))

    @property
    def confirmed(self) -> int:
        """The last round of which the server has confirmed a sum with this node's numbers; -1 if there is none."""
        return int(self._store.memory.get("confirmed", -1))

    def begin(self, number: int, confirmed: int, roster: bytes, since: int) -> None:
        """A round begins: what was reported in round ``confirmed``, in the sum over this roster, has been used.

        What the node still has to report was played after round ``since``.

        Raises:
            InputError: if what was confirmed before would be sent again.
        """
        memory = self._store.memory
        sent, known = memory.get("sent"), self.confirmed
        if sent is not None and sent["round"] == confirmed == since:
            if sent["roster"] != roster.hex():
                raise InputError(
                    f"the server confirms a roster of round {confirmed} that this node has not answered."
                )
            known = memory["confirmed"] = max(known, confirmed)  # on disk with what is sent next
        if number > int(memory.get("answered", -1)) and min(confirmed, since) < known:
            raise InputError(
                f"the server takes back that it has used what this node reported in round {known}, which would be "
                "sent a second time. If it was started from an old copy of its checkpoint, the run cannot continue."
            )

    def may_deny(self, number: int) -> bool:
        """Whether this node has certainly answered no roster of this round."""
        return number > int(self._store.memory.get("answered", -1))

    def check(self, roster: Roster, report: Message, authority: Authority) -> None:
        """Raise unless this report may be sent, and remember that it is.

        Raises:
            DeclinedError: if it may not be sent now.
            InputError: if there have been too many failures.
        """
        memory, number = self._store.memory, roster.round
        prints = [certificate_fingerprint(entry.certificate) for entry in roster.entries]
        own = [[*one, print_] for one, print_ in zip(contributions(roster), prints, strict=True)]
        now: dict[str, Any] = {
            "round": number,
            "roster": fingerprint(roster).hex(),
            "members": own,
            "episodes": next(one[3] for one in own if one[0] == self._name),
            "report": hashlib.sha256(b"".join(array.tobytes() for array in report)).hexdigest(),
        }
        failures, before, answered = self.failures, self._before(number), int(memory.get("answered", -1))
        if before is None and number <= answered:
            raise DeclinedError(f"round {number} has been answered before, and what was sent then is forgotten")
        other = before is not None and any(before[key] != now[key] for key in ("round", "members", "report"))
        if before is not None and other and (number < answered or not self._denied(before, roster, authority)):
            if now["episodes"] <= before["episodes"] or number <= before["round"]:
                raise DeclinedError(
                    f"what was sent in round {before['round']} has not been confirmed, and is sent in other company "
                    "only after new episodes"
                )
            failures += 1
        if failures > self._most:
            raise InputError(
                f"{failures} synchronisations have failed after this node had answered, and it allows {self._most} "
                "(--most-failures): a server that feigns failures gets sums that overlap. If you know why they "
                "failed, start the node with more."
            )
        if number >= answered:
            self._store.memorise(number, {**memory, "sent": now, "failures": failures, "answered": number})

    def _before(self, number: int) -> dict[str, Any] | None:
        """What was sent in this round, or else what was sent last, unless that is confirmed."""
        for memory in (self._store.remembered(number) or {}, self._store.memory):
            sent: dict[str, Any] | None = memory.get("sent")
            if sent is not None and sent["round"] == number:
                return sent
        return sent if sent is not None and sent["round"] > self.confirmed else None

    def _denied(self, before: dict[str, Any], roster: Roster, authority: Authority) -> bool:
        """Whether a member of the earlier roster says that it has not answered it, and it does no harm if it lies.

        It does none if the sums over both rosters, with or without the member, differ by the episodes of enough
        nodes, or of none.
        """
        then = {name: episodes for name, _, _, episodes, _ in before["members"]}
        certified = {(name, print_) for name, *_, print_ in before["members"] if name != self._name}
        deniers = set()
        for denial in roster.denials:
            member = denial.name, certificate_fingerprint(denial.certificate)
            about = denial.round, denial.roster.hex()
            if member in certified and about == (before["round"], before["roster"]):
                authority.check_denial(denial, self._run)
                deniers |= {denial.name} if counts(denial.name, denial.certificate, self._members) else set()
        now = {one.name: one.episodes for one in contributions(roster)}
        new = [episodes - then.get(name, 0) for name, episodes in now.items()]
        enough = not any(new) or sum(one >= self._least[0] for one in new) >= self._least[1]
        return bool(deniers) and then.keys() - deniers <= now.keys() and enough
