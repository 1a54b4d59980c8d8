"""The server's checkpoint: every finished round, so that a server that is killed can resume from there.

A folder with ``manifest.json`` (the task) and the state (:mod:`fed_ucbvi.engine.state_store`): the engine's, who
takes part, and the nodes' last reports. A round counts once it is in the log.

A second log, ``history``, holds what began every round, how long it was and, where reports are what is new, whose
reports were in it and what they add up to; nodes' logs are its round 0. From that a node that has lost its state
plays all its rounds again, where all agents stop together (episodes are functions of seed, agent, number and policy),
and ``fed-ucbvi replay`` recomputes the run.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from fed_ucbvi.algorithms import algorithm_name, parameters_of, recorded_algorithm
from fed_ucbvi.algorithms.base import Algorithm, Setting
from fed_ucbvi.algorithms.count_table import CountTable
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.files import manifest_digest, new_folder, reading, write_manifest
from fed_ucbvi.core.types import MaskArray
from fed_ucbvi.core.version import __version__
from fed_ucbvi.engine.checkpoint import COUNTS as COUNTS_FILE
from fed_ucbvi.engine.drivers.base import RoundEnd
from fed_ucbvi.engine.extension import PLANNED, extended_setting
from fed_ucbvi.engine.rounds import Paid, Play, PlayedRound, Request, answered
from fed_ucbvi.engine.state_store import SavedState, StateStore, named, restore
from fed_ucbvi.network.members import Member
from fed_ucbvi.network.messages import COUNTS, REWARDS, Continue, Down, Start, Stop
from fed_ucbvi.network.network_engine import NetworkEngine
from fed_ucbvi.network.registry import NodeRegistry
from fed_ucbvi.network.rewards import listed, paid_of
from fed_ucbvi.network.rounds import NetworkRound
from fed_ucbvi.network.run_plan import RunPlan, epoch_now
from fed_ucbvi.network.transcript import Transcript
from fed_ucbvi.network.transport import WireCount
from fed_ucbvi.results.round_record import columns_of

POLICY_FILE = "policy.json"
"""Once the run is over: the recommended policy, for nodes that do not hear of the end."""
FORMAT = "fed-ucbvi/federation"
FORMAT_VERSION = 12
REPORT = "report."
HISTORY = "history"
NOT_RECOMPUTED = ("regret", "value")
"""Columns that take the problem, which the log does not have."""

log = logging.getLogger("fed_ucbvi.engine.checkpoint")


def past_round(now: NetworkRound, present: Sequence[MaskArray]) -> SavedState:
    """A round that is over, for the history: what began it, its episodes and, if reports are what is new, their sums.

    ``present`` says which agents took part, each time that the engine's round was answered.
    """
    plan, paid = now.plan, now.paid
    about: dict[str, Any] = {
        **{"first": now.first, "length": now.end.length, "playing": now.playing, "judged": list(now.grid.judged)},
        "used_before": now.used_before,
    }
    arrays = {str(place): array for place, array in enumerate(now.broadcast)}
    if plan.algorithm.server_counts:
        about |= {
            "end": [int(part) for part in now.end[:-1]],
            "rule": int(now.end.rule),
            "paid": None if paid is None else listed(paid),
            "setting": asdict(plan.setting),
            "used": [*(now.used[REWARDS] | now.used[COUNTS])],
        }
        arrays |= {"lengths": np.array(now.played.lengths), "present": np.array(present)}
        for planning, new in now.sums.items():  # what was visited, so that it can be read without the problem
            for name, array in new.listed().items():
                arrays[f"sum.{planning:d}.{name}"] = array
    return SavedState(now.number, about, arrays, {})


def played_again(past: SavedState, plan: RunPlan) -> list[Down]:
    """What a node that has lost its state is told of a round in the history, to play it again as it was."""
    number, about = past.round, past.about
    broadcast = tuple(np.array(array) for name, array in past.arrays.items() if name.isdigit())
    before = about["used_before"]
    confirmed = before[COUNTS] if plan.algorithm.server_counts else number - 1
    where = number, number - 1, about["first"], plan.setting.episodes - about["first"], 0
    what = about["playing"], tuple(about["judged"]), before[REWARDS]
    start = Start(*where, broadcast, confirmed, b"", 0, b"", *what)
    return [start, Stop(number, about["length"]), Continue(number, about["length"])]


def _task(plan: RunPlan) -> dict[str, Any]:
    """What a run is; the rules for failures may change."""
    bins = {} if plan.bins is None else {"bins": plan.bins.digest}
    promises = {} if plan.promises is None else {"promises": plan.promises.to_data()}
    return {
        **bins,
        **promises,
        "algorithm": algorithm_name(plan.algorithm),
        "parameters": parameters_of(plan.algorithm),
        "setting": asdict(plan.setting),
        "collection": plan.collection,
        "secure_sums": plan.secure_sums,
        "environment": None if plan.federation is None else dict(plan.federation.description),
    }


def _fixed(task: Mapping[str, Any]) -> dict[str, Any]:
    """What must be the same for a run to be resumed; episodes and agents may become more."""
    setting = {name: value for name, value in task["setting"].items() if name not in (*PLANNED, "earlier_visits")}
    about = task["environment"] and {name: one for name, one in task["environment"].items() if name != "agents"}
    return {**task, "setting": setting, "environment": about}


class ServerCheckpoint:
    """A folder with the state after the last finished round; it is this process's own until it is closed.

    ``plan`` becomes that of the run in the folder, which must be the same task; a new folder is made for a new run.
    The epoch is the time in milliseconds, and larger than that of any server before. So nodes take a server that
    resumes from a copy of the folder for newer than all that were started before it.
    """

    def __init__(self, folder: Path, plan: RunPlan) -> None:
        self.folder = folder
        if not (folder.is_dir() and any(folder.iterdir())):
            about = {"format": FORMAT, "format_version": FORMAT_VERSION, "version": __version__}
            with new_folder(folder, FORMAT) as draft:
                if plan.counts is not None:
                    plan.counts.save(draft / COUNTS_FILE)
                write_manifest(draft, {**about, "run": plan.run, "task": _task(plan)})
                first = SavedState(0, {"new": True, "epoch": 0, "setting": asdict(plan.setting)}, {}, {})
                StateStore(draft, manifest_digest(draft)).write(first)
        self._log = StateStore.open(folder, FORMAT, FORMAT_VERSION, durable=True)
        try:
            self.plan = self._adopted(plan, self._log.manifest)
            self.transcript = Transcript(folder, run=self.plan.run)
        except BaseException:
            self._log.close()
            raise

    def _adopted(self, plan: RunPlan, manifest: Mapping[str, Any]) -> RunPlan:
        with reading(self.folder):
            run, task = str(manifest["run"]), manifest["task"]
            same = _fixed(task) == _fixed(_task(plan))
        if not same:
            raise InputError(
                f"{self.folder} holds another run; start it with the same task as before, or choose another folder."
            )
        self._saved = self._log.read()
        self._open_history(manifest_digest(self.folder))
        setting = self._setting(plan, Setting(**self._saved.about["setting"]))
        counts = _kept_counts(self.folder)
        if plan.counts is not None and (counts is None or not counts.equals(plan.counts)):
            raise InputError(f"{self.folder} holds a run that was not started from these counts.")
        epoch = max(int(self._saved.about["epoch"]) + 1, epoch_now())
        return replace(plan, run=run, epoch=epoch, setting=setting, counts=counts)

    def _setting(self, plan: RunPlan, before: Setting) -> Setting:
        """The setting with which the run goes on: with more episodes or agents than before, if the plan has more."""
        if self._saved.round == 0:
            if (plan.setting.episodes, plan.setting.agents) != (before.episodes, before.agents):
                raise InputError(
                    f"{self.folder} holds a run that has not begun; start it with the same task as before."
                )
            return before
        setting = extended_setting(plan.algorithm, before, episodes=plan.setting.episodes, agents=plan.setting.agents)
        if setting != before:
            log.warning(
                "%s: the run continues with %d agents and %d episodes each, after %d and %d",
                *(self.folder, setting.agents, setting.episodes, before.agents, before.episodes),
            )
            (self.folder / POLICY_FILE).unlink(missing_ok=True)
        return setting

    def _open_history(self, run: str) -> None:
        """A history that cannot be read is begun anew; then nodes that have lost their state are not brought back."""
        folder = self.folder / HISTORY
        folder.mkdir(exist_ok=True)
        try:
            self._history = StateStore(folder, run, durable=False, kept=None)
        except InputError as error:
            log.warning("%s; it is started again", error)
            shutil.rmtree(folder)
            self._open_history(run)

    def remember(self, past: SavedState) -> None:
        """Add a round to the history; later rounds in it were played before the server went back, and are dropped."""
        again = self._history.last >= past.round
        (self._history.begin if again else self._history.write)(past)

    def past(self, first: int, last: int) -> Iterator[SavedState] | None:
        """These rounds; None if not all of them are in the history."""
        known = [number for number in self._history.rounds if first <= number <= last]
        return self._history.between(first, last) if known == list(range(first, last + 1)) else None

    def load(self, registry: NodeRegistry) -> None:
        """Put the server into the saved state, if there is one, and log that it resumes from there."""
        saved = self._saved
        del self._saved  # it can be large
        if "new" not in saved.about:
            with reading(self.folder):
                registry.engine.restore(saved)
                registry.engine.events = list(saved.about["events"])
                registry.wire = WireCount(**saved.about["wire"])
                members = msgspec.convert(saved.about["members"], list[Member])
                registry.members.update({member.name: member for member in members})
                for name, array in named(REPORT, saved.arrays).items():  # in the order of their places
                    node, exchange, _ = name.rsplit(".", 2)
                    kept = registry.members[node].reports
                    kept[int(exchange)] = (*kept.get(int(exchange), ()), array)
        self.write(registry)

    def write(self, registry: NodeRegistry) -> None:
        saved = registry.engine.saved()
        for member in registry.everyone:
            for exchange, report in sorted(member.reports.items()):
                for place, array in enumerate(report):
                    saved.arrays[f"{REPORT}{member.name}.{exchange}.{place}"] = array
        saved.about.update(
            epoch=self.plan.epoch,
            events=registry.engine.events,
            wire=asdict(registry.wire),
            members=[member.record() for member in registry.everyone],
        )
        self._log.write(saved)

    def close(self) -> None:
        self.transcript.close()
        self._log.close()


def _kept_counts(folder: Path) -> CountTable | None:
    path = folder / COUNTS_FILE
    return CountTable.load(path) if path.exists() else None


def _recorded(folder: Path) -> tuple[dict[str, Any], Algorithm[Any, Any], SavedState]:
    """The task of the run in a folder, its algorithm, and the last state."""
    store = StateStore.open(folder, FORMAT, FORMAT_VERSION, lock=False)
    with reading(folder):
        task, saved = store.manifest["task"], store.read()
        algorithm = recorded_algorithm(task["algorithm"], task["parameters"])
        return task, algorithm.with_increments() if task["secure_sums"] else algorithm, saved


def counts_in(folder: Path) -> CountTable:
    """What the nodes of a run have reported; raises if the server does not know."""
    _, algorithm, saved = _recorded(folder)
    if not algorithm.server_counts:
        raise InputError(
            f"{folder}: the server does not know what its nodes have counted. It does in runs of fed-kl-ucbvi, and "
            "of fed-ucbvi with secure sums."
        )
    with reading(folder):
        server = algorithm.new_server(Setting(**saved.about["setting"]))
        restore(server, saved.arrays, "server.")
        return algorithm.counts_of(server, None)


# ------------------------------------------------------------------------------------------------------------- replay


class Replayed(NamedTuple):
    """A run that was computed again.

    Attributes:
        reports: for each round the nodes whose reports were used.
        differs: names of what is not as the server has kept it; empty if everything is, bit for bit.
    """

    rounds: int
    reports: list[list[str]]
    differs: list[str]


def replay(folder: Path) -> Replayed:
    """Compute the run in a server's checkpoint again, from the sums in its history, and compare it with the state.

    With nodes that come and go the result depends on which reports were in which round. Everything that follows from
    their sums is computed again: the policy and the values of every round, the records, the recommended policies.
    """
    task, algorithm, kept = _recorded(folder)
    if "promises" in task:
        raise InputError(f"{folder} holds a run with an incumbent or a certified gap, which cannot be replayed.")
    if not algorithm.server_counts:
        raise InputError(f"a run of {algorithm.name} cannot be replayed: its reports are not what is new.")
    with reading(folder):
        history = StateStore(folder / HISTORY, manifest_digest(folder), kept=None)
        first = 0 if 0 in history.rounds else 1  # round 0 has the nodes' logs
        if history.rounds[: kept.round + 1 - first] != tuple(range(first, kept.round + 1)):
            raise InputError(f"{folder / HISTORY} does not have all of the run's {kept.round} rounds.")
        engine: NetworkEngine | None = None
        reports = []
        for state in history.between(first, kept.round):
            setting = Setting(**state.about["setting"])
            if engine is None or engine.setting != setting:
                plan = RunPlan(algorithm, setting, collection=task["collection"], counts=_kept_counts(folder))
                before, engine = engine, NetworkEngine(plan)
                if before is not None:
                    engine.restore(before.saved())
            if state.round == 0:
                _aggregate(plan, engine.server, state, planning=False)
                continue
            _advance(plan, engine, state)
            reports.append(list(state.about["used"]))
    return Replayed(kept.round, reports, [] if engine is None else _differences(engine.saved(), kept))


def _advance(plan: RunPlan, engine: NetworkEngine, state: SavedState) -> None:
    """One round of the engine, answered from the log."""
    about, presents = state.about, iter(state.arrays["present"])
    paid, lengths = about["paid"] and paid_of(about["paid"]), np.array(state.arrays["lengths"])
    played = PlayedRound(RoundEnd._make([*about["end"], about["rule"]]), lengths=lengths, paid=paid)

    def answer(request: Request) -> PlayedRound | Paid | None:
        engine.present[:] = next(presents)
        if isinstance(request, Play):
            return played
        _aggregate(plan, request.server, state, planning=request.planning)
        return None if request.planning else paid

    answered(engine.round(), answer)


def _aggregate(plan: RunPlan, server: Any, state: SavedState, *, planning: bool) -> None:
    new = named(f"sum.{planning:d}.", state.arrays)
    if new:
        plan.algorithm.add_counts(server, plan.table_of(new))


def _differences(now: SavedState, kept: SavedState) -> list[str]:
    """What of the server's state, clocks and records is not the same."""
    wrong = []
    for name, array in now.arrays.items():
        if name.startswith(("server.", "recommended.")) or name in ("clock", "starts"):
            other = kept.arrays.get(name)
            if other is None or array.tobytes() != other.tobytes():
                wrong.append(name)
    mine, theirs = (columns_of(saved.rows.get("records", ())) for saved in (now, kept))
    for name, column in mine.items():
        if name not in NOT_RECOMPUTED and not np.array_equal(
            column, theirs[name], equal_nan=column.dtype.kind == "f"
        ):
            wrong.append(f"records.{name}")
    return wrong
