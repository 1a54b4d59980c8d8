"""A run over the network, computed again from what its rounds added up.

With nodes that come and go the result depends on who took part in which round, and on whose reports were in which
sum. A :class:`Recorder` notes both while the run lasts. From that, without nodes or messages, it computes the run
again: the policy and the values of every round, the records, the recommended policies.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from fed_ucbvi.algorithms.count_table import CountTable
from fed_ucbvi.core.types import MaskArray
from fed_ucbvi.engine.rounds import Play, PlayedRound
from fed_ucbvi.network.coordinator import Coordinator
from fed_ucbvi.network.network_engine import NetworkEngine
from fed_ucbvi.network.rounds import NetworkRound
from fed_ucbvi.network.run_plan import RunPlan
from fed_ucbvi.results.round_record import columns_of


@dataclass
class RecordedRound:
    """Input of the engine in one round.

    Attributes:
        present: agents that took part, when the round began, when it ended and when a policy was recommended.
        played: what the agents played; None until the round has ended.
        sums: counts that were added to the server, in order; in round 0 those of logs.
        planner_sums: counts that were added to a planner, in order.
        used: names of the nodes whose reports were used.
    """

    present: list[MaskArray] = field(default_factory=list)
    played: PlayedRound | None = None
    sums: list[dict[str, Any]] = field(default_factory=list)
    planner_sums: list[dict[str, Any]] = field(default_factory=list)
    used: list[str] = field(default_factory=list)


class Recorder:
    """The rounds of a run whose nodes report what is new, by number.

    A round that a server plays again, after it was started again, replaces the one before.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, algorithm: Any) -> None:
        self.rounds: dict[int, RecordedRound] = {}
        self._now = RecordedRound()
        self._planner: Any = None
        take_logs = Coordinator._take_logs
        advance = Coordinator._advance
        begin_round = NetworkEngine.begin_round
        end_round = NetworkEngine.end_round
        new_planner = NetworkEngine.new_planner
        recommend = NetworkEngine.recommend
        close = NetworkRound.close
        add_counts = algorithm.add_counts

        async def begin_logs(run: Coordinator) -> None:
            self._begin(0)
            await take_logs(run)

        async def begin_advance(run: Coordinator) -> NetworkRound:
            self._begin(run.round + 1)
            return await advance(run)

        def note_begin(engine: NetworkEngine) -> Play:
            self._now.present.append(engine.present.copy())
            return begin_round(engine)

        def note_end(engine: NetworkEngine, play: Play, played: PlayedRound) -> None:
            self._now.present.append(engine.present.copy())
            self._now.played = played
            end_round(engine, play, played)

        def note_planner(engine: NetworkEngine) -> Any:
            self._planner = new_planner(engine)
            return self._planner

        def note_recommendation(engine: NetworkEngine, planner: Any) -> None:
            self._now.present.append(engine.present.copy())
            recommend(engine, planner)

        def note_sum(own: Any, server: Any, new: CountTable) -> None:
            arrays = {name: np.array(array) for name, array in new.listed().items()}
            planning = server is self._planner
            sums = self._now.planner_sums if planning else self._now.sums
            sums.append(arrays)
            add_counts(own, server, new)

        def note_nodes(now: NetworkRound) -> None:
            self.rounds[now.number].used = [*now.reported]
            close(now)

        monkeypatch.setattr(Coordinator, "_take_logs", begin_logs)
        monkeypatch.setattr(Coordinator, "_advance", begin_advance)
        monkeypatch.setattr(NetworkEngine, "begin_round", note_begin)
        monkeypatch.setattr(NetworkEngine, "end_round", note_end)
        monkeypatch.setattr(NetworkEngine, "new_planner", note_planner)
        monkeypatch.setattr(NetworkEngine, "recommend", note_recommendation)
        monkeypatch.setattr(NetworkRound, "close", note_nodes)
        monkeypatch.setattr(algorithm, "add_counts", note_sum)
        self._begin_round = begin_round
        self._end_round = end_round
        self._recommend = recommend
        self._add_counts = add_counts

    def _begin(self, number: int) -> None:
        self._now = RecordedRound()
        self.rounds[number] = self._now

    def recomputed(self, plan: RunPlan) -> NetworkEngine:
        """An engine that has been given the recorded rounds."""
        engine = NetworkEngine(plan)
        for number in sorted(self.rounds):
            recorded = self.rounds[number]
            if number == 0:
                self._add(plan, engine.server, recorded.sums)
            else:
                self._recompute(plan, engine, recorded)
        return engine

    def _add(self, plan: RunPlan, server: Any, sums: list[dict[str, Any]]) -> None:
        """Add recorded sums to a server or a planner."""
        for arrays in sums:
            self._add_counts(plan.algorithm, server, plan.table_of(arrays))

    def _recompute(self, plan: RunPlan, engine: NetworkEngine, recorded: RecordedRound) -> None:
        """Give an engine one recorded round; a sum is missing where too few nodes had anything new."""
        present = iter(recorded.present)
        engine.take_part(next(present))
        play = self._begin_round(engine)
        assert recorded.played is not None
        self._add(plan, engine.server, recorded.sums)
        engine.take_part(next(present))
        self._end_round(engine, play, recorded.played)
        if not engine.wants_recommendation:
            return
        planner = engine.new_planner()
        self._add(plan, planner, recorded.planner_sums)
        engine.take_part(next(present))
        self._recommend(engine, planner)

    def differences(self, run: Coordinator) -> list[str]:
        """Names of what of a finished run is not the same, bit for bit, if it is computed again."""
        now = self.recomputed(run.plan).saved()
        saved = run.engine.saved()
        wrong = []
        for name, array in now.arrays.items():
            if name.startswith(("server.", "recommended.")) or name in (
                "clock",
                "starts",
            ):
                other = saved.arrays.get(name)
                if other is None or array.tobytes() != other.tobytes():
                    wrong.append(name)
        mine = columns_of(now.rows["records"])
        theirs = columns_of(saved.rows["records"])
        for name, column in mine.items():
            if not np.array_equal(column, theirs[name], equal_nan=column.dtype.kind == "f"):
                wrong.append(f"records.{name}")
        return wrong
