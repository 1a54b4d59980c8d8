"""What a node has sent under rosters: what it may send again, and how often.

What was sent and not confirmed goes with the next report. A server that only feigns a failure then has two sums that
overlap. So a node sends again

* the very same numbers in the very same company, as often as it is asked: the sum is the same;
* in other company with a signed *denial*, by a member of the earlier roster, that it answered that roster;
* otherwise only after new episodes, in a later round, and at most ``most_failures`` times a run.

Everything is written to the node's folder before anything is sent, so a node that is killed and started again keeps
to it. (A machine that loses power may forget the last line.)
"""

from __future__ import annotations

import hashlib
from typing import Any

from fed_ucbvi.algorithms.base import Message
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.network.failures import DeclinedError
from fed_ucbvi.network.messages import Roster
from fed_ucbvi.network.node_state_store import NodeStateStore
from fed_ucbvi.network.roster import Authority, contributions, fingerprint


class SentSums:
    """The reports of one node under secure sums.

    Args:
        store: where it is kept.
        name: of the node.
        run: the run's id.
        most_failures: see the module's text; 0 is strict.
    """

    def __init__(self, store: NodeStateStore, name: str, run: str, most_failures: int) -> None:
        self._store, self._name, self._run, self._most = store, name, run, most_failures

    @property
    def failures(self) -> int:
        """How often it has sent again what was not confirmed, in other company and without a denial."""
        return int(self._store.memory.get("failures", 0))

    @property
    def confirmed(self) -> int:
        """The last round of which the server has confirmed a sum with this node's numbers; -1 if there is none."""
        return int(self._store.memory.get("confirmed", -1))

    def confirm(self, number: int, roster: bytes) -> None:
        """The server has used what was reported in this round, in the sum over this roster."""
        sent = self._store.memory.get("sent")
        if sent is not None and sent["round"] == number:
            if sent["roster"] != roster.hex():
                raise InputError(f"the server confirms a roster of round {number} that this node has not answered.")
            self._store.memory["confirmed"] = number  # on disk with what is sent next

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
        own = [list(one) for one in contributions(roster)]
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
        if before is not None and other and not self._denied(before, roster, authority):
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
        new = {"sent": now, "failures": failures, "answered": max(number, answered)}
        self._store.memorise(number, {**memory, **new})

    def _before(self, number: int) -> dict[str, Any] | None:
        """What was sent in this round, or else what was sent last, unless that is confirmed."""
        for memory in (self._store.remembered(number) or {}, self._store.memory):
            sent: dict[str, Any] | None = memory.get("sent")
            if sent is not None and sent["round"] == number:
                return sent
        return sent if sent is not None and sent["round"] > self.confirmed else None

    def _denied(self, before: dict[str, Any], roster: Roster, authority: Authority) -> bool:
        """Whether a member of the earlier roster says that it has not answered it."""
        names = {member[0] for member in before["members"]} - {self._name}
        for denial in roster.denials:
            if denial.name in names and (denial.round, denial.roster.hex()) == (before["round"], before["roster"]):
                authority.check_denial(denial, self._run)
                return True
        return False
