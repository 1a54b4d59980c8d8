"""The server's checkpoint: every finished round, so that a server that is killed goes on from there.

A folder with ``manifest.json`` (the plan), ``state.snapshot`` (the server's arrays, its members, what it recommends,
and how many rows count) and ``rows.bin`` (the records, 16 numbers a round, only ever added to). A round counts once
the snapshot that speaks of it has replaced the one before.
"""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fed_ucbvi.algorithms import algorithm_name, parameters_of
from fed_ucbvi.algorithms.base import Array
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.files import check_free, new_folder, read_manifest, reading, write_manifest
from fed_ucbvi.engine.saved_state import restore
from fed_ucbvi.network.members import Member
from fed_ucbvi.network.node_stream import WireCount
from fed_ucbvi.network.run_plan import RunPlan
from fed_ucbvi.network.snapshots import read_snapshot, sweep, write_snapshot
from fed_ucbvi.results.recommendations import COLUMNS as RECOMMENDATIONS
from fed_ucbvi.results.recommendations import Recommended
from fed_ucbvi.results.records import COLUMNS

if TYPE_CHECKING:
    from fed_ucbvi.network.coordinator import Coordinator

FORMAT = "fed-ucbvi/federation"
FORMAT_VERSION = 3
STATE, ROWS = "state.snapshot", "rows.bin"
ROW_BYTES = 8 * len(COLUMNS)


def _task(plan: RunPlan) -> dict[str, Any]:
    """What must be the same for a run to be gone on with; policies for trouble may change."""
    return {
        "algorithm": algorithm_name(plan.algorithm),
        "parameters": parameters_of(plan.algorithm),
        "setting": asdict(plan.setting),
        "collection": plan.collection,
        "environment": None if plan.federation is None else dict(plan.federation.description),
    }


class ServerCheckpoint:
    """A folder with the state after the last finished round."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._written = 0

    def adopt(self, plan: RunPlan) -> RunPlan:
        """The plan of the run in the folder, if it is the same task; a new folder is made for a new run."""
        if self.folder.is_dir() and any(self.folder.iterdir()):
            manifest = read_manifest(self.folder, FORMAT)
            if manifest.get("format_version") != FORMAT_VERSION or manifest.get("task") != _task(plan):
                raise InputError(
                    f"{self.folder} holds another run; give it the same task as before, or choose another folder."
                )
            return replace(plan, run=str(manifest["run"]))
        check_free(self.folder, FORMAT, overwrite=False)
        with new_folder(self.folder, FORMAT) as draft:
            (draft / ROWS).touch()
            about = {"format": FORMAT, "format_version": FORMAT_VERSION, "run": plan.run, "task": _task(plan)}
            write_manifest(draft, about)
        return plan

    def load(self, run: Coordinator) -> None:
        """Put a coordinator into the state on record, if there is one."""
        sweep(self.folder)
        if not (self.folder / STATE).exists():
            return
        with reading(self.folder):
            about, arrays = read_snapshot(self.folder / STATE)
            restore(run.records.server, arrays, "server.")
            run.records.set_clock(arrays["clock"])
            self._written = int(about["rows"])
            data = (self.folder / ROWS).read_bytes()[: self._written * ROW_BYTES]
            table = np.frombuffer(data, dtype="<f8").reshape(self._written, len(COLUMNS))
            run.records.restore_rows(
                [tuple(row) for row in table.tolist()], [tuple(row) for row in arrays["recommended.rows"].tolist()]
            )
            if about["kind"]:
                policy, V = arrays["recommended.policy"], arrays["recommended.V"]
                run.records.recommended = Recommended(policy, V, about["kind"])
            run.records.events = list(about["events"])
            run.records.seconds = float(about["seconds"])
            run.registry.wire = WireCount(**about["wire"])
            for record in about["members"]:
                member = Member.of(record)
                run.registry.members[member.name] = member
            keys = [name.split(".", 1)[1].rsplit(".", 2) for name in arrays if name.startswith("report.")]
            for node, exchange, place in sorted((node, int(exchange), int(place)) for node, exchange, place in keys):
                reports = run.registry.members[node].reports
                reports[exchange] = (*reports.get(exchange, ()), arrays[f"report.{node}.{exchange}.{place}"])

    def write(self, run: Coordinator) -> None:
        """Put the state after a finished round on record."""
        rows = run.records.rows[self._written :]
        path = self.folder / ROWS
        with path.open("r+b") as file:
            file.seek(self._written * ROW_BYTES)
            file.write(np.array(rows, dtype="<f8").tobytes())
            file.truncate()
            file.flush()
            os.fsync(file.fileno())
        arrays: dict[str, Array] = {f"server.{name}": array for name, array in run.records.server.arrays().items()}
        recommended = np.array(run.records.recommendations, dtype=np.float64)
        arrays["recommended.rows"] = recommended.reshape(-1, len(RECOMMENDATIONS))
        kept = run.records.recommended
        arrays["clock"] = run.records.clock
        if kept is not None:
            arrays |= {"recommended.policy": kept.policy, "recommended.V": kept.V}
        for member in run.registry.everyone:
            for exchange, report in sorted(member.reports.items()):
                for place, array in enumerate(report):
                    arrays[f"report.{member.name}.{exchange}.{place}"] = array
        about = {
            "round": run.round,
            "kind": "" if kept is None else kept.kind,
            "rows": len(run.records.rows),
            "seconds": run.records.seconds,
            "events": run.records.events,
            "wire": asdict(run.registry.wire),
            "members": [member.record() for member in run.registry.everyone],
        }
        write_snapshot(self.folder / STATE, about, arrays)
        self._written = len(run.records.rows)
