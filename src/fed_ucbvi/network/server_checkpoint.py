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
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fed_ucbvi.algorithms import algorithm_name, parameters_of, recorded_algorithm
from fed_ucbvi.algorithms.base import Array, Message, Setting
from fed_ucbvi.algorithms.count_table import CountTable
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.files import (
    check_free,
    check_version,
    manifest_digest,
    new_folder,
    read_manifest,
    reading,
    write_manifest,
)
from fed_ucbvi.core.version import __version__
from fed_ucbvi.engine.checkpoint import COUNTS
from fed_ucbvi.engine.extension import PLANNED, extended_setting, planned_in
from fed_ucbvi.engine.state_store import FolderLock, SavedState, StateStore, missing_log, named, restore
from fed_ucbvi.network.members import Member, NodeRegistry
from fed_ucbvi.network.network_engine import NetworkEngine
from fed_ucbvi.network.run_plan import RunPlan, epoch_now
from fed_ucbvi.network.transcript import NOBODY, Transcript
from fed_ucbvi.network.transport import WireCount
from fed_ucbvi.results.round_record import EXPLORING

POLICY_FILE = "policy.json"
"""Once the run is over: the recommended policy, for nodes that do not hear of the end."""
FORMAT = "fed-ucbvi/federation"
FORMAT_VERSION = 9
REPORT = "report."
HISTORY = "history"
NOTHING_YET: dict[str, Any] = {"new": True}
"""What the first entry of a log says, before the server has a state."""

log = logging.getLogger("fed_ucbvi.engine.checkpoint")


class PastRound(NamedTuple):
    """What began a round that is over, and its episodes: the number of the first, and how many there were.

    ``confirmed`` is the last round before it whose reports were used; ``playing`` and ``judged`` are as in its start.
    ``about`` and ``told`` have what came back, for :mod:`fed_ucbvi.network.replay`.
    """

    number: int
    first: int
    length: int
    broadcast: Message
    confirmed: int
    playing: int = EXPLORING
    judged: tuple[int, ...] = ()
    about: Mapping[str, Any] = {}
    told: Mapping[str, Array] = {}


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
    environment = task["environment"]
    if environment is not None:
        environment = {name: value for name, value in environment.items() if name != "agents"}
    return {**task, "setting": setting, "environment": environment}


class ServerCheckpoint:
    """A folder with the state after the last finished round; it is this process's own until it is closed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock: FolderLock | None = None
        self._saved: SavedState | None = None
        self._epoch = 0
        self.transcript = NOBODY

    def adopt(self, plan: RunPlan) -> RunPlan:
        """The plan of the run in the folder, if it is the same task; a new folder is made for a new run.

        The epoch is the time in milliseconds, and larger than that of any server before. So nodes take a server that
        resumes from a copy of the folder for newer than all that were started before it.
        """
        if not (self.folder.is_dir() and any(self.folder.iterdir())):
            check_free(self.folder, FORMAT, overwrite=False)
            about = {"format": FORMAT, "format_version": FORMAT_VERSION, "version": __version__}
            with new_folder(self.folder, FORMAT) as draft:
                if plan.counts is not None:
                    plan.counts.save(draft / COUNTS)
                write_manifest(draft, {**about, "run": plan.run, "task": _task(plan)})
                StateStore(draft, manifest_digest(draft)).write(SavedState(0, NOTHING_YET, {}, {}))
        manifest = read_manifest(self.folder, FORMAT)
        check_version(self.folder, manifest, FORMAT_VERSION)
        with reading(self.folder):
            same = _fixed(manifest["task"]) == _fixed(_task(plan))
        if not same:
            raise InputError(
                f"{self.folder} holds another run; start it with the same task as before, or choose another folder."
            )
        self._lock = FolderLock(self.folder)
        try:
            self._log = StateStore(self.folder, manifest_digest(self.folder), durable=True)
            if self._log.empty:
                raise missing_log(self.folder)
            saved = self._log.read()
            self._saved = None if saved.about == NOTHING_YET else saved
            self._open_history(manifest_digest(self.folder))
        except BaseException:
            self.close()
            raise
        before = 0 if self._saved is None else int(self._saved.about["epoch"])
        self._epoch = max(before + 1, epoch_now())
        try:
            setting, counts = self._setting(plan, manifest["task"]["setting"]), self._counts(plan)
        except BaseException:
            self.close()
            raise
        self.transcript = Transcript(self.folder, run=str(manifest["run"]))
        return replace(plan, run=str(manifest["run"]), epoch=self._epoch, setting=setting, counts=counts)

    def _setting(self, plan: RunPlan, begun: Mapping[str, Any]) -> Setting:
        """The setting with which the run goes on: with more episodes or agents than before, if the plan has more."""
        before = Setting(**{**begun, **({} if self._saved is None else planned_in(self._saved.about))})
        if self._saved is None or self._saved.round == 0:
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

    def _counts(self, plan: RunPlan) -> CountTable | None:
        """The counts that the run was started from; others than then are refused."""
        kept = kept_counts(self.folder)
        if plan.counts is not None and (kept is None or not kept.equals(plan.counts)):
            raise InputError(f"{self.folder} holds a run that was not started from these counts.")
        return kept

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

    def remember(self, past: PastRound) -> None:
        """Add a round to the history; later rounds in it were played before the server went back, and are dropped."""
        arrays = {str(place): array for place, array in enumerate(past.broadcast)}
        about = {"first": past.first, "length": past.length, "confirmed": past.confirmed, **past.about}
        about |= {"playing": past.playing, "judged": list(past.judged)}
        state = SavedState(past.number, about, {**arrays, **past.told}, {})
        if self._history.last >= past.number:
            self._history.begin(state)
        else:
            self._history.write(state)

    def past(self, first: int, last: int) -> Iterator[PastRound] | None:
        """These rounds; None if not all of them are in the history."""
        known = [number for number in self._history.rounds if first <= number <= last]
        if known != list(range(first, last + 1)):
            return None
        return (
            PastRound(
                state.round,
                state.about["first"],
                state.about["length"],
                tuple(np.array(array) for name, array in state.arrays.items() if name.isdigit()),
                state.about["confirmed"],
                state.about["playing"],
                tuple(state.about["judged"]),
            )
            for state in self._history.between(first, last)
        )

    def load(self, engine: NetworkEngine, registry: NodeRegistry) -> None:
        """Put the server into the saved state, if there is one, and log that it resumes from there."""
        saved, self._saved = self._saved, None
        if saved is not None:
            with reading(self.folder):
                self._restore(saved, engine, registry)
        self.write(engine, registry)

    def _restore(self, saved: SavedState, engine: NetworkEngine, registry: NodeRegistry) -> None:
        engine.restore(saved)
        engine.events = list(saved.about["events"])
        registry.wire = WireCount(**saved.about["wire"])
        for record in saved.about["members"]:
            member = Member.of(record)
            registry.members[member.name] = member
        reports = named(REPORT, saved.arrays)
        keys = [name.rsplit(".", 2) for name in reports]
        for node, exchange, place in sorted((node, int(exchange), int(place)) for node, exchange, place in keys):
            kept = registry.members[node].reports
            kept[exchange] = (*kept.get(exchange, ()), reports[f"{node}.{exchange}.{place}"])

    def write(self, engine: NetworkEngine, registry: NodeRegistry) -> None:
        saved = engine.saved()
        for member in registry.everyone:
            for exchange, report in sorted(member.reports.items()):
                for place, array in enumerate(report):
                    saved.arrays[f"{REPORT}{member.name}.{exchange}.{place}"] = array
        saved.about.update(
            epoch=self._epoch,
            events=engine.events,
            wire=asdict(registry.wire),
            members=[member.record() for member in registry.everyone],
        )
        self._log.write(saved)

    def close(self) -> None:
        self.transcript.close()
        if self._lock is not None:
            self._lock.close()


def kept_counts(folder: Path) -> CountTable | None:
    """The counts that a run was started from, if it was."""
    path = folder / COUNTS
    return CountTable.load(path) if path.exists() else None


def counts_in(folder: Path) -> CountTable:
    """What the nodes of a run have reported, if their reports are counts.

    Raises:
        InputError: if the server does not know.
    """
    manifest = read_manifest(folder, FORMAT)
    check_version(folder, manifest, FORMAT_VERSION)
    with reading(folder):
        task, saved = manifest["task"], StateStore(folder, manifest_digest(folder), durable=False).read()
        algorithm = recorded_algorithm(task["algorithm"], task["parameters"])
        setting = Setting(**{**task["setting"], **planned_in(saved.about)})
        if task["secure_sums"]:
            algorithm = algorithm.with_increments()
        if not algorithm.server_counts:
            raise InputError(
                f"{folder}: the server does not know what its nodes have counted. It does in runs of fed-kl-ucbvi, "
                "and of fed-ucbvi with secure sums."
            )
        server = algorithm.new_server(setting)
        restore(server, saved.arrays, "server.")
        return algorithm.counts_of(server, None)
