"""A storm over a federation of processes: kills, freezes and partitions by seeded chance, and then the accounts."""

from __future__ import annotations

import json
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from fed_ucbvi import Run
from federation_processes import PROBLEM, SERVER, SIZES, THREE, Line, Processes, simulated
from network import assert_same
from saved_states import saved_in

FIVE = {f"node-{i}": (i, 1) for i in range(5)}
QUORUM = ("--collection", "live", "--quorum", "3", "--wait", "0.3")


KINDS: dict[str, tuple[dict[str, tuple[int, int]], bool, tuple[str, ...]]] = {
    "plain, quorum": (FIVE, False, QUORUM),
    "secure, lockstep": (THREE, True, ()),
    "secure, quorum": (FIVE, True, QUORUM),
}
"""Federations: nodes, whether with secure sums, and the server's rules."""


class Storm(Processes):
    """One federation in a storm of so many blows; it ends when the run is over.

    Args:
        kind: of the federation, a key of :data:`KINDS`.
        folder: an empty one.
        seed: of what happens when.
    """

    def __init__(self, kind: str, folder: Path, seed: int) -> None:
        nodes, secure, rules = KINDS[kind]
        self._chance = random.Random(seed)
        super().__init__(
            folder,
            "--deadline",
            "2",
            "--patience",
            "60",
            *rules,
            secure_sums=secure,
            nodes=nodes,
            problem=("--agents", str(len(nodes)), *PROBLEM),
        )
        self.blows: Counter[str] = Counter()

    def blow(self, blows: int) -> dict[str, Any]:
        """Let it blow, wait for the end, and check the accounts; figures about it."""
        began = time.monotonic()
        with ExitStack() as stack:
            stack.enter_context(self)
            self.start(SERVER)
            self.lines = {name: stack.enter_context(Line(self.port)) for name in self.nodes}
            self.start(*self.nodes)
            happenings = self._happenings()
            for _ in range(blows):
                if self._over_by(self.round() + self._chance.randrange(1, 10)):
                    break
                time.sleep(self._chance.uniform(0.0, 0.05))
                name = self._chance.choice(list(happenings))
                happenings[name]()
                self.blows[name] += 1
            assert self.server.end() == 0
            self.kill(*self.nodes)  # one that was away at the end would look for the server
            summary = json.loads("".join(self.server.said["stdout"]))
            assert self.leftovers() == []
        return {
            **self._accounts(summary),
            "blows": dict(self.blows),
            "seconds": time.monotonic() - began,
        }

    def _over_by(self, number: int) -> bool:
        """Wait for a round to be on record; whether the server has ended before."""
        alive = self.server.process.is_alive
        self.wait(lambda: self.round() >= number or not alive(), f"round {number}")
        return not alive()

    def _some(self) -> list[str]:
        return self._chance.sample(list(self.nodes), self._chance.randrange(1, len(self.nodes)))

    def _happenings(self) -> dict[str, Callable[[], None]]:
        def kill(*names: str) -> None:
            self.kill(*names)
            time.sleep(self._chance.uniform(0.0, 1.0))
            self.start(*self._chance.sample(names, len(names)))

        def freeze(name: str) -> None:
            self.signal(name, signal.SIGSTOP)
            time.sleep(self._chance.uniform(0.1, 3.0))
            self.signal(name, signal.SIGCONT)

        def part(*names: str) -> None:
            for name in names:
                self.lines[name].stall()
            time.sleep(self._chance.uniform(0.1, 3.0))
            for name in names:
                self.lines[name].restore()

        def cut(*names: str) -> None:
            for name in names:
                self.lines[name].cut()

        return {
            "nodes killed": lambda: kill(*self._some()),
            "server killed": lambda: kill(SERVER),
            "all killed": lambda: kill(SERVER, *self.nodes),
            "node frozen": lambda: freeze(self._some()[0]),
            "server frozen": lambda: freeze(SERVER),
            "nodes parted": lambda: part(*self._some()),
            "lines cut": lambda: cut(*self._some()),
        }

    def joining(self, name: str) -> Sequence[str]:
        """The command of a node; under secure sums it notes what it answers."""
        command = super().joining(name)
        return ("@noted_answers:take_part", str(self._notes(name)), *command) if self._secure else command

    def _notes(self, name: str) -> Path:
        return self.folder / f"{name}.answers"

    def _accounts(self, summary: dict[str, Any]) -> dict[str, Any]:
        """Check that no episode is counted twice, and that the server's table has what its members' accounts say.

        In lockstep the run is the simulation's.
        """
        server = saved_in(self.folder / "checkpoint")
        held = server.arrays.get("held.transitions", np.zeros(0))  # for the next round that has a request
        H = SIZES["horizon"]
        members = server.about["members"]
        in_table = int(server.arrays["server.table_visits"].sum() + held.sum())
        assert in_table == H * sum(member["agents"] * member["reported_episodes"] for member in members)
        account = self._answered if self._secure else self._unreported
        episodes = in_table // H + sum(account(member) for member in members)
        if "--quorum" not in self._rules:
            assert_same(Run.load(self.folder / "run"), simulated(secure=True), secure=True)
            assert summary["events"] == []
        return {
            "rounds": server.round,
            "episodes": episodes,
            "in_table": in_table // H,
            "closed_without": sum("closes without it" in event["done"] for event in summary["events"]),
            "failed": sum(event["what"].startswith("no sum") for event in summary["events"]),
        }

    def _unreported(self, member: dict[str, Any]) -> int:
        """Number of episodes of a node that are still to be reported."""
        node = saved_in(self.folder / member["name"])
        new = int(node.arrays["state.agents.table_transitions"].sum()) // SIZES["horizon"]
        return 0 if member["reported_round"] == node.round else new

    def _answered(self, member: dict[str, Any]) -> int:
        """Number of episodes of a node that are in no sum; none is in two answers to different rosters."""
        answers = {}
        for line in self._notes(member["name"]).read_text(encoding="utf-8").splitlines():
            answer = json.loads(line)
            answers[answer["roster"]] = range(answer["first"], answer["first"] + answer["episodes"])
        numbers = [number for episodes in answers.values() for number in episodes]
        assert len(numbers) == len(set(numbers)), "an episode is in two answers"
        assert member["reported_episodes"] <= len(numbers)
        return int(member["agents"] * (member["episodes"] - member["reported_episodes"]))
