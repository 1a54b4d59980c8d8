"""The server's checkpoint: every finished round, so that a server that is killed can resume from there.

A folder with ``manifest.json`` (the task) and the state (:mod:`fed_ucbvi.engine.state_store`): the engine's, who
takes part, and the nodes' last reports. A round counts once it is in the log. Under secure sums the file
``sum`` has the roster of the round in progress, and the answers to it so far.

A second log, ``history``, is kept where all agents stop together. It has the broadcast and the length of every round;
nodes' logs are its round 0. From that a node that has lost its state plays all its rounds again: episodes are
functions of seed, agent, number and policy.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import msgspec

from fed_ucbvi.algorithms import algorithm_name, parameters_of, recorded_algorithm
from fed_ucbvi.algorithms.base import Algorithm, Setting
from fed_ucbvi.algorithms.count_reporting import CountReporting
from fed_ucbvi.algorithms.count_table import CountTable
from fed_ucbvi.core.errors import InputError, check_integer
from fed_ucbvi.core.files import manifest_digest, new_folder, reading, write_manifest
from fed_ucbvi.core.version import __version__
from fed_ucbvi.engine.checkpoint import COUNTS as COUNTS_FILE
from fed_ucbvi.engine.checkpoint import saved_setting
from fed_ucbvi.engine.extension import PLANNED, extended_setting
from fed_ucbvi.engine.state_arrays import SavedState, named, restore
from fed_ucbvi.engine.state_store import StateStore
from fed_ucbvi.network.members import Member
from fed_ucbvi.network.registry import NodeRegistry
from fed_ucbvi.network.run_plan import EPOCHS_AHEAD, RunPlan, epoch_now
from fed_ucbvi.network.transport import WireCount

POLICY_FILE = "policy.json"
"""Once the run is over: the recommended policy, for nodes that do not hear of the end."""
FORMAT = "fed-ucbvi/federation"
FORMAT_VERSION = 14
REPORT = "report."
HISTORY = "history"
MAX_EPOCH = 1 << 62
"""Epochs are times in milliseconds."""

log = logging.getLogger("fed_ucbvi.engine.checkpoint")


def _task(plan: RunPlan) -> dict[str, Any]:
    """Task of a run; the rules for failures may change."""
    bins = {} if plan.bins is None else {"bins": plan.bins.digest}
    promises = {} if plan.promises is None else {"promises": plan.promises.to_data()}
    return {
        **bins,
        **promises,
        "algorithm": algorithm_name(plan.algorithm),
        "parameters": parameters_of(plan.algorithm),
        "setting": asdict(plan.setting),
        "collection": plan.rules.collection,
        "secure_sums": plan.rules.secure_sums,
        "environment": None if plan.federation is None else dict(plan.federation.description),
    }


def _fixed(task: Mapping[str, Any]) -> dict[str, Any]:
    """Part of the task that must be the same for a run to be resumed; there may be more episodes."""
    setting = {name: value for name, value in task["setting"].items() if name not in (*PLANNED, "earlier_visits")}
    return {**task, "setting": setting}


class ServerCheckpoint:
    """A folder with the state after the last finished round; it is this process's own until it is closed.

    ``plan`` becomes that of the run in the folder, which must be the same task; a new folder is made for a new run.
    The epoch is the time in milliseconds, and larger than that of any server before. So nodes take a server that
    resumes from a copy of the folder for newer than all that were started before it. A saved epoch far in the future,
    from a clock that was wrong, does not count: nodes have refused it.
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
        except BaseException:
            self._log.close()
            raise

    def _adopted(self, plan: RunPlan, manifest: Mapping[str, Any]) -> RunPlan:
        with reading(self.folder):
            run = str(manifest["run"])
            task = manifest["task"]
            same = _fixed(task) == _fixed(_task(plan))
        if not same:
            raise InputError(
                f"{self.folder} holds another run; start it with the same task as before, or choose another folder."
            )
        self._saved = self._log.read()
        self._open_history(manifest_digest(self.folder))
        with reading(self.folder):
            before = saved_setting(self._saved.about["setting"])
            if _fixed({"setting": asdict(before)}) != _fixed({"setting": asdict(plan.setting)}):
                raise InputError(f"{self.folder} is damaged: its state is that of another run.")
            saved_epoch = check_integer("epoch", self._saved.about["epoch"], at_most=MAX_EPOCH)
        setting = self._setting(plan, before)
        counts = _kept_counts(self.folder)
        if plan.counts is not None and (counts is None or not counts.equals(plan.counts)):
            raise InputError(f"{self.folder} holds a run that was not started from these counts.")
        epoch = epoch_now()
        if saved_epoch <= epoch + EPOCHS_AHEAD:
            epoch = max(epoch, saved_epoch + 1)
        return replace(plan, run=run, epoch=epoch, setting=setting, counts=counts)

    def _setting(self, plan: RunPlan, before: Setting) -> Setting:
        """The setting with which the run goes on: with more episodes than before, if the plan has more."""
        if self._saved.round == 0:
            if plan.setting.episodes != before.episodes:
                raise InputError(
                    f"{self.folder} holds a run that has not begun; start it with the same task as before."
                )
            return before
        setting = extended_setting(plan.algorithm, before, plan.setting.episodes)
        if setting != before:
            log.warning(
                "%s: the run continues with %d episodes for each agent, after %d",
                self.folder,
                setting.episodes,
                before.episodes,
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
        self._log.close()


def _kept_counts(folder: Path) -> CountTable | None:
    path = folder / COUNTS_FILE
    return CountTable.load(path) if path.exists() else None


def _recorded(folder: Path) -> tuple[dict[str, Any], Algorithm[Any, Any], SavedState]:
    """The task of the run in a folder, its algorithm, and the last state."""
    store = StateStore.open(folder, FORMAT, FORMAT_VERSION, lock=False)
    with reading(folder):
        task = store.manifest["task"]
        saved = store.read()
        algorithm = recorded_algorithm(task["algorithm"], task["parameters"])
        return task, algorithm, saved


def counts_in(folder: Path) -> CountTable:
    """Counts that the nodes of a run have reported; raises if the server does not know them."""
    _, algorithm, saved = _recorded(folder)
    if not isinstance(algorithm, CountReporting):
        raise InputError(
            f"{folder}: the server of {algorithm.name} does not know the counts of its nodes. In runs of "
            "fed-kl-ucbvi it does."
        )
    with reading(folder):
        server = algorithm.new_server(saved_setting(saved.about["setting"]))
        restore(server, saved.arrays, "server.")
        return algorithm.counts_of(server, None)
