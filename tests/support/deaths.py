"""Nodes that die at a chosen moment, and runs in which they do."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest

from fed_ucbvi.algorithms.base import Message
from fed_ucbvi.network.client import run_node
from fed_ucbvi.network.messages import COUNTS, REWARDS, Decline, Down, Played, Report, Roster, Up
from fed_ucbvi.network.node import Node
from fed_ucbvi.network.run_plan import RunPlan
from fed_ucbvi.network.server import Outcome
from fed_ucbvi.network.transport import RemoteServer
from network import Problem, Served, TLSByName, make_nodes, tell

T = TypeVar("T")


class CrashError(Exception):
    """The process dies here."""


class Fragile(Node):
    """A node that dies when it has been given something to do for the ``dies_at``-th time, or just after that."""

    dies_at, after, calls = -1, False, 0

    def answer(self, message: Down) -> Up | None:
        return self._survive(self._is_last(message), lambda: super(Fragile, self).answer(message))

    def play_on(self) -> Played | None:
        return self._survive(self._is_last(None), super().play_on)

    def _is_last(self, message: Down | None) -> bool:
        self.calls += 1
        return self.calls == self.dies_at

    def _survive(self, last: bool, work: Callable[[], T]) -> T:
        if last and not self.after:
            raise CrashError
        done = work()
        if last:
            raise CrashError
        return done


class Noting(Fragile):
    """A node that notes what rosters ask for, and its counts before they are masked.

    At the first one in round ``dies_in`` or later that asks for ``dies_with``, it dies.
    """

    dies_in = -1
    dies_with: tuple[str, ...] = (COUNTS, REWARDS)

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.asked: list[tuple[int, tuple[str, ...]]] = []
        self.reports: dict[int, Message] = {}

    def _is_last(self, message: Down | None) -> bool:
        if not isinstance(message, Roster):
            return False
        self.asked.append((message.round, message.parts))
        return 0 < self.dies_in <= message.round and message.parts == self.dies_with

    def _contribute(self, roster: Roster) -> Report | Decline:
        answer = super()._contribute(roster)
        self.reports[roster.round] = tuple(array.copy() for array in self._own_report((), 0))
        return answer


async def keep_alive(make: Callable[[], Node], server: RemoteServer) -> None:
    """Start a node again, from its state folder if it has one, whenever it dies."""
    while True:
        with suppress(CrashError):
            await run_node(make(), server)
            return


def mortal(
    problem: Problem, split: Sequence[int], folder: Path | None, deaths: list[int], *after: bool, **options: Any
) -> Callable[[], Node]:
    """Makes node-0 again and again; it dies after so many answers, before or after work, until no death is left."""
    in_turn = itertools.cycle(after or (False,))

    def born() -> Node:
        node: Fragile = make_nodes(problem, split, folder, Fragile, **options)[0]
        node.dies_at, node.after = (deaths.pop(0) if deaths else -1), next(in_turn)
        return node

    return born


def with_deaths(
    plan: RunPlan,
    problem: Problem,
    split: Sequence[int],
    folder: Path,
    deaths: Sequence[int],
    *after: bool,
    others: Sequence[Node] | None = None,
    tls_files: TLSByName | None = None,
    **options: Any,
) -> Outcome:
    """A run in which node-0 dies all these deaths, and comes back from its folder each time."""
    left = list(deaths)

    async def story() -> Outcome:
        served = Served(plan, None, tls_files)
        make = mortal(problem, split, folder, left, *after, **options)
        served.begin(keep_alive(make, served.remote("node-0")))
        served.join(*(make_nodes(problem, split)[1:] if others is None else others))
        return await served.finish()

    outcome = tell(story())
    assert left == []
    return outcome


def one_vanishes(plan: RunPlan, nodes: Sequence[Node], tls_files: TLSByName) -> Outcome:
    """A run to the end in which the first of the nodes dies and does not come back."""

    async def story() -> Outcome:
        served = Served(plan, None, tls_files)

        async def vanish() -> None:
            with pytest.raises(CrashError):
                await run_node(nodes[0], served.remote(nodes[0].name))

        served.begin(vanish())
        served.join(*nodes[1:])
        return await served.finish()

    return tell(story())


def failing(
    monkeypatch: pytest.MonkeyPatch,
    place: Any,
    name: str,
    calls: Sequence[int],
    error: Exception,
    *,
    after: bool = False,
) -> list[int]:
    """Have these calls of a function raise an error, before or after their work; the list grows with every call."""
    original, made = getattr(place, name), list[int]()

    def sometimes(*arguments: Any, **options: Any) -> Any:
        made.append(len(made) + 1)
        fails = made[-1] in calls
        done = None if fails and not after else original(*arguments, **options)
        if fails:
            raise error
        return done

    monkeypatch.setattr(place, name, sometimes)
    return made
