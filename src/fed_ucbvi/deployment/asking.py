"""Asking nodes, waiting for them, and what is done about those that do not answer or break the rules."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from fed_ucbvi.deployment.checks import ViolationError
from fed_ucbvi.deployment.hub import Hub
from fed_ucbvi.deployment.links import Link, LinkLostError
from fed_ucbvi.deployment.members import GONE, Member
from fed_ucbvi.deployment.plan import Rules
from fed_ucbvi.deployment.records import Records
from fed_ucbvi.errors import InputError

log = logging.getLogger("fed_ucbvi.federation")

MOST_FAULTS = 20
"""A node whose streams break so often without one answer in between is taken to be away."""

AnswerT = TypeVar("AnswerT")
Ask = Callable[[Member, Link], Awaitable[AnswerT]]


class FederationStoppedError(InputError):
    """The run cannot go on; what is finished is in the checkpoint."""


class Asker:
    """Asks all nodes at once and knows which of them are away."""

    def __init__(self, hub: Hub, records: Records, rules: Rules) -> None:
        self._hub, self._records, self._rules = hub, records, rules
        self._round = 0
        self._absent: set[str] = set()

    def begin(self, round_number: int) -> None:
        """A new round: nodes that were away and have come back take part again."""
        self._round = round_number
        for member in self._hub.everyone:
            if member.name in self._absent and member.link is not None and member.status != GONE:
                self._absent.remove(member.name)
                self._note(member, "came back", "takes part again")

    @property
    def present(self) -> list[Member]:
        """Members that take part in this round."""
        return [member for member in self._hub.seated if member.name not in self._absent]

    async def all(self, ask: Ask[AnswerT], *, deadline: bool = True) -> dict[str, AnswerT]:
        """Ask every node that takes part, at once; answers by name, without those that turned out to be away.

        With ``deadline=False`` the question may take as long as it likes, while the connection lives.
        """
        members = self.present
        tasks = [asyncio.ensure_future(self._ask(member, ask, deadline)) for member in members]
        try:
            answers = await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        if not self.present:
            raise FederationStoppedError(f"no node is left in round {self._round}.")
        return {member.name: answer for member, answer in zip(members, answers, strict=True) if answer is not None}

    async def _ask(self, member: Member, ask: Ask[AnswerT], deadline: bool) -> AnswerT | None:
        """Ask one node, again after every reconnection, until it answers or patience ends."""
        rules = self._rules
        faults = 0
        while member.status != GONE and member.name not in self._absent:
            link = member.link
            if link is None:
                back = faults < MOST_FAULTS and await self._hub.wait_until(
                    lambda: member.link is not None, rules.patience
                )
                if not back:
                    await self._stayed_away(member)
                continue
            try:
                async with asyncio.timeout(rules.deadline if deadline else None):
                    return await ask(member, link)
            except LinkLostError as lost:
                await self._hub.give_up(member, link, str(lost))
            except TimeoutError:
                await self._hub.give_up(member, link, f"no answer within {rules.deadline:g} s")
            except ViolationError as violation:
                await self._violated(member, violation)
            faults += 1
        return None

    async def _stayed_away(self, member: Member) -> None:
        """Do what the policy says about a node that has not come back."""
        rules = self._rules
        if rules.away == "wait":
            raise FederationStoppedError(
                f"'{member.name}' has stayed away for {rules.patience:g} s in round {self._round}; finished rounds "
                "are kept."
            )
        self._absent.add(member.name)
        self._note(member, f"away for {rules.patience:g} s", rules.away)
        if rules.away == "exclude":
            await self._hub.exclude(member, "away too long")

    async def _violated(self, member: Member, violation: ViolationError) -> None:
        """Do what the policy says about a node whose report cannot be true."""
        log.error("%s: %s", member.name, violation)
        if self._rules.violation == "stop":
            raise FederationStoppedError(f"'{member.name}' broke the rules in round {self._round}: {violation}.")
        self._absent.add(member.name)
        self._note(member, str(violation), "drop")
        await self._hub.exclude(member, str(violation))

    def _note(self, member: Member, what: str, done: str) -> None:
        log.warning("%s: %s: %s", member.name, what, done)
        self._records.events.append({"round": self._round, "node": member.name, "what": what, "done": done})
