"""Costs of absences: 200 nodes with an agent each, 30 % of them away at any time, against all of them in lockstep.

    python benchmarks/absences.py [--nodes 200] [--episodes 1000] [--away 0.3] [--spell 10] [--seeds 3] [--json]

Nodes are parties in memory. A node that goes away has played the round and not reported it: what is new goes with its
first report after it has come back, ``--spell`` rounds later. It plays nothing in between. Every round closes with
those that are there, so nobody waits. The regret of both runs is that of all agents together after the same number of
episodes of all agents together (M times ``--episodes``).
"""

from __future__ import annotations

import statistics
from typing import Any, NamedTuple

import numpy as np

from fed_ucbvi import Federation, FedKLUCBVI, gridworld
from fed_ucbvi.algorithms.base import Message
from fed_ucbvi.algorithms.count_reporting import as_count_reporting
from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.engine.parts import part_of
from fed_ucbvi.engine.play_ahead import PartyMessage, PlayAhead, StopRound, play_in_step
from fed_ucbvi.engine.rounds import Play, PlayedRound
from fed_ucbvi.engine.simulated_party import SimulatedParty
from fed_ucbvi.network.network_engine import NetworkEngine
from fed_ucbvi.network.run_plan import plan_for
from fed_ucbvi.network.secure_sums import summed
from measuring import read_options, show


class Absences(NamedTuple):
    """Who is away when: of a ring of nodes, in random order, an arc that moves on from round to round."""

    order: list[int]
    away: int
    step: int

    @classmethod
    def of(cls, nodes: int, share: float, spell: int, seed: int) -> Absences:
        """So that a node is away for ``spell`` rounds at a time."""
        away = round(share * nodes)
        return cls(np.random.default_rng(seed).permutation(nodes).tolist(), away, max(1, away // spell))

    def at(self, number: int) -> set[int]:
        return {self.order[(number * self.step + i) % len(self.order)] for i in range(self.away)}


class Federated:
    """A run whose nodes come and go.

    Args:
        world: the problem.
        episodes: of an agent that is never away.
        absences: who is away when.
        seed: of the run.
    """

    def __init__(self, world: Federation, episodes: int, absences: Absences, seed: int) -> None:
        self.plan = plan_for(FedKLUCBVI(), world, episodes, seed=seed)
        self.algorithm = as_count_reporting(self.plan.algorithm, "does not report counts.")
        self.engine = NetworkEngine(self.plan)
        self.absences = absences
        self.parties = [
            SimulatedParty(self.plan.algorithm, self.plan.setting, part_of(world, i, 1), "episodes", i, pooled=False)
            for i in range(world.agents)
        ]
        self.used = [False] * world.agents
        """True for each node whose last report has been used."""
        self.reports: list[int] = []
        """Number of reports that each synchronisation has used."""

    def run(self) -> None:
        while not self.engine.done:
            number = len(self.engine.rows)
            gone = self.absences.at(number)
            here = [i for i in range(len(self.parties)) if i not in gone]
            leaving = self.absences.at(number + 1) - gone
            reporting = [i for i in here if i not in leaving]
            self.engine.take_part(np.array([i not in gone for i in range(len(self.parties))]))
            self._advance(here, reporting)

    def _advance(self, here: list[int], reporting: list[int]) -> None:
        engine = self.engine
        play = engine.begin_round()
        played = self._play(play, here)
        if played.stop.requests:
            self._synchronise(engine.server, reporting)
            self.reports.append(len(reporting))
            for i in reporting:
                self.used[i] = True
        engine.end_round(play, played)
        if engine.wants_recommendation:
            planner = engine.new_planner()
            if engine.planner_needs_reports:
                self._synchronise(planner, reporting)
            engine.recommend(planner)

    def _synchronise(self, server: Any, reporting: list[int]) -> None:
        total = summed(self._report(i) for i in reporting)
        self.algorithm.add_counts(server, self.plan.read_counts(total))

    def _report(self, i: int) -> Message:
        return self.plan.listed(self.algorithm.new_counts(self.parties[i].agents, ()))

    def _play(self, request: Play, here: list[int]) -> PlayedRound:
        engine = self.engine
        for i in here:
            self.algorithm.settle_report(self.parties[i].agents, request.broadcast, used=self.used[i])
            self.used[i] = False

        def ask_all(message: PartyMessage) -> list[Any]:
            return [self.parties[i].answer(message) for i in here]

        ahead = PlayAhead(1, self.plan.setting.horizon, engine.last_length, request.most)
        length = play_in_step(ask_all, request.broadcast, engine.played, ahead)
        ends = ask_all(StopRound(length))
        lengths = np.zeros(len(self.parties), dtype=np.int64)
        lengths[here] = length
        requesting = [end for end in ends if end.stop.requests]
        first = (requesting or ends)[0]
        stop = first.stop._replace(requests=sum(end.stop.requests for end in ends))
        return PlayedRound(stop, lengths=lengths)

    def regret_after(self, agent_episodes: int) -> float:
        """Regret of all agents together, linear within a round."""
        records = self.engine.records()
        ends: FloatArray = np.cumsum([0, *records["agent_episodes"]]).astype(np.float64)
        regret: FloatArray = np.cumsum([0.0, *(records["regret"] * records["agents"])])
        if ends[-1] < agent_episodes:
            raise SystemExit(f"only {ends[-1]:,.0f} episodes were played.")
        return float(np.interp(agent_episodes, ends, regret))


def compare(nodes: int, episodes: int, share: float, spell: int, seed: int) -> dict[str, Any]:
    world = gridworld(agents=nodes)
    nobody = Absences(list(range(nodes)), 0, 1)
    lockstep = Federated(world, episodes, nobody, seed)
    longer = int(np.ceil(1.05 * episodes / (1.0 - share)))
    absent = Federated(world, longer, Absences.of(nodes, share, spell, seed), seed)
    for one in (lockstep, absent):
        one.run()
    both = [one.regret_after(nodes * episodes) / nodes for one in (lockstep, absent)]
    rounds = [len(one.reports) for one in (lockstep, absent)]
    return {"regret": both, "ratio": both[1] / both[0], "synchronisations": rounds, "fewest": min(absent.reports)}


def main() -> None:
    options = read_options(__doc__, nodes=200, episodes=1000, away=0.3, spell=10, seeds=3, json=False)
    shape = options.nodes, options.episodes, options.away, options.spell
    found = [compare(*shape, seed) for seed in range(options.seeds)]
    ratios = [one["ratio"] for one in found]
    figures = {
        **vars(options),
        "lockstep_regret": [round(one["regret"][0], 2) for one in found],
        "regret_with_absences": [round(one["regret"][1], 2) for one in found],
        "ratios": [round(ratio, 3) for ratio in ratios],
        "median_ratio": round(statistics.median(ratios), 3),
        "synchronisations": [one["synchronisations"] for one in found],
        "fewest_reports_in_one": min(one["fewest"] for one in found),
    }
    show(figures, options.json)


if __name__ == "__main__":
    main()
