"""The server's checkpoint: every finished round, so that a server that is killed can resume from there.

A folder with ``manifest.json`` (the task) and the log of the state (:mod:`fed_ucbvi.engine.log`): the engine's, who
takes part, and the nodes' last reports. A round counts once it is in the log.

Where all agents stop together, a second log, ``history``, holds what began every round and how long it was. From that
a node that has lost its state plays all its rounds again: episodes are functions of seed, agent, number and policy.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from fed_ucbvi.algorithms import algorithm_name, make_algorithm, parameters_of
from fed_ucbvi.algorithms.base import Setting, added_up
from fed_ucbvi.algorithms.counts import Counts
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
from fed_ucbvi.engine.going_on import PLANNED, grown, planned_in
from fed_ucbvi.engine.lock import FolderLock
from fed_ucbvi.engine.log import Log
from fed_ucbvi.engine.saved_state import SavedState, named, restore
from fed_ucbvi.network.members import GONE, Member
from fed_ucbvi.network.node_registry import NodeRegistry, PastRound
from fed_ucbvi.network.records import Records
from fed_ucbvi.network.run_plan import RunPlan, epoch_now
from fed_ucbvi.network.wire_count import WireCount

POLICY_FILE = "policy.json"
"""Once the run is over: the recommended policy, for nodes that do not hear of the end."""
FORMAT = "fed-ucbvi/federation"
FORMAT_VERSION = 5
REPORT = "report."
MODEL_ARRAYS = 4
"""Of the one message in which a node sends all its counts."""
HISTORY = "history"

log = logging.getLogger("fed_ucbvi.engine.checkpoint")


def _task(plan: RunPlan) -> dict[str, Any]:
    """What a run is; the rules for failures may change."""
    bins = {} if plan.bins is None else {"bins": plan.bins.digest}
    return {
        **bins,
        "algorithm": algorithm_name(plan.algorithm),
        "parameters": parameters_of(plan.algorithm),
        "setting": asdict(plan.setting),
        "collection": plan.collection,
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
        manifest = read_manifest(self.folder, FORMAT)
        check_version(self.folder, manifest, FORMAT_VERSION)
        with reading(self.folder):
            same = _fixed(manifest["task"]) == _fixed(_task(plan))
        if not same:
            raise InputError(
                f"{self.folder} holds another run; give it the same task as before, or choose another folder."
            )
        self._lock = FolderLock(self.folder)
        try:
            self._log = Log(self.folder, manifest_digest(self.folder), durable=True)
            self._saved = None if self._log.empty else self._log.read()
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
        return replace(plan, run=str(manifest["run"]), epoch=self._epoch, setting=setting, counts=counts)

    def _setting(self, plan: RunPlan, begun: Mapping[str, Any]) -> Setting:
        """The setting with which the run goes on: with more episodes or agents than before, if the plan has more."""
        before = Setting(**{**begun, **({} if self._saved is None else planned_in(self._saved.about))})
        if self._saved is None or self._saved.round == 0:
            if (plan.setting.episodes, plan.setting.agents) != (before.episodes, before.agents):
                raise InputError(f"{self.folder} holds a run that has not begun; give it the same task as before.")
            return before
        setting = grown(plan.algorithm, before, episodes=plan.setting.episodes, agents=plan.setting.agents)
        if setting != before:
            log.warning(
                "%s: the run goes on with %d agents and %d episodes each, after %d and %d",
                *(self.folder, setting.agents, setting.episodes, before.agents, before.episodes),
            )
            (self.folder / POLICY_FILE).unlink(missing_ok=True)
        return setting

    def _counts(self, plan: RunPlan) -> Counts | None:
        """The counts that the run was started from; others than then are refused."""
        path = self.folder / COUNTS
        kept = Counts.load(path) if path.exists() else None
        if plan.counts is not None and (kept is None or not kept.equals(plan.counts)):
            raise InputError(f"{self.folder} holds a run that was not started from these counts.")
        return kept

    def _open_history(self, run: str) -> None:
        """A history that cannot be read is begun anew; then nodes that have lost their state are not brought back."""
        folder = self.folder / HISTORY
        folder.mkdir(exist_ok=True)
        try:
            self._history = Log(folder, run, durable=False, kept=None)
        except InputError as error:
            log.warning("%s; it is begun anew", error)
            shutil.rmtree(folder)
            self._open_history(run)

    def remember(self, past: PastRound) -> None:
        """Add a round to the history; later rounds in it were played before the server went back, and are dropped."""
        arrays = {str(place): array for place, array in enumerate(past.broadcast)}
        state = SavedState(past.number, {"first": past.first, "length": past.length}, arrays, {})
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
                tuple(np.array(array) for array in state.arrays.values()),
            )
            for state in self._history.between(first, last)
        )

    def load(self, records: Records, registry: NodeRegistry) -> None:
        """Put the server into the saved state, if there is one, and log that it resumes from there."""
        saved, self._saved = self._saved, None
        if saved is not None:
            with reading(self.folder):
                self._restore(saved, records, registry)
        self.write(records, registry)

    def _restore(self, saved: SavedState, records: Records, registry: NodeRegistry) -> None:
        records.restore(saved)
        records.events = list(saved.about["events"])
        registry.wire = WireCount(**saved.about["wire"])
        for record in saved.about["members"]:
            member = Member.of(record)
            registry.members[member.name] = member
        reports = named(REPORT, saved.arrays)
        keys = [name.rsplit(".", 2) for name in reports]
        for node, exchange, place in sorted((node, int(exchange), int(place)) for node, exchange, place in keys):
            kept = registry.members[node].reports
            kept[exchange] = (*kept.get(exchange, ()), reports[f"{node}.{exchange}.{place}"])

    def write(self, records: Records, registry: NodeRegistry) -> None:
        """Save the state after a finished round."""
        saved = records.saved()
        for member in registry.everyone:
            for exchange, report in sorted(member.reports.items()):
                for place, array in enumerate(report):
                    saved.arrays[f"{REPORT}{member.name}.{exchange}.{place}"] = array
        saved.about.update(
            epoch=self._epoch,
            events=records.events,
            wire=asdict(registry.wire),
            members=[member.record() for member in registry.everyone],
        )
        self._log.write(saved)

    def close(self) -> None:
        """Release the folder."""
        if self._lock is not None:
            self._lock.close()


def counts_in(folder: Path) -> Counts:
    """What the nodes of a run have counted, as far as its server knows: in runs that exchange counts, without masks.

    Raises:
        InputError: if the server does not know.
    """
    manifest = read_manifest(folder, FORMAT)
    check_version(folder, manifest, FORMAT_VERSION)
    with reading(folder):
        task, saved = manifest["task"], Log(folder, manifest_digest(folder), durable=False).read()
        algorithm = make_algorithm(task["algorithm"], task["parameters"])
        setting = Setting(**{**task["setting"], **planned_in(saved.about)})
        if algorithm.server_counts:
            server = algorithm.new_server(setting)
            restore(server, saved.arrays, "server.")
            known: Counts = algorithm.counts_of(setting, server)
            return known
        members = [Member.of(record) for record in saved.about["members"]]
        reports = named(REPORT, saved.arrays)
        models = [
            [array for name, array in sorted(reports.items()) if name.rsplit(".", 2)[0] == member.name]
            for member in members
            if member.status != GONE and member.episodes > 0
        ]
        if (
            not algorithm.has_models
            or not models
            or any(len(model) != MODEL_ARRAYS or model[0].ndim != 5 for model in models)
        ):
            raise InputError(
                f"{folder}: the server does not know what its nodes have counted. It does in runs with --exchange "
                "model and without --secure-sums, of an algorithm that can start from counts."
            )
        model = added_up(tuple(np.concatenate(arrays) for arrays in zip(*models, strict=True)))
        counts: Counts = algorithm.counts(setting, model)
        return counts
