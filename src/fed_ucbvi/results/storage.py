"""Runs on disk: a folder with Parquet and JSON, or everything in one Parquet file."""

from __future__ import annotations

import hashlib
import io
import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from fed_ucbvi.core.bracket import Bracket
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.files import check_version, new_folder, read_manifest, reading, write_manifest, write_parquet
from fed_ucbvi.core.unknown import nan_for_none, none_for_nan
from fed_ucbvi.core.version import PROGRAM
from fed_ucbvi.results.about import About
from fed_ucbvi.results.recommendations import COLUMNS as RECOMMENDATIONS
from fed_ucbvi.results.recommendations import KINDS
from fed_ucbvi.results.records import COLUMNS
from fed_ucbvi.results.run_data import RunData

if TYPE_CHECKING:
    import polars as pl

RunT = TypeVar("RunT", bound=RunData)

FORMAT = "fed-ucbvi/run"
FORMAT_VERSION = 3
ROUNDS = "rounds.parquet"
MANIFEST_KEY, CHECKSUM_KEY = PROGRAM, f"{PROGRAM}-checksum"
"""Keys of the Parquet metadata where a run in one file keeps its manifest and its checksum."""
SEAL, UNSEALED = b"sha256:", "sha256:" + "0" * 64
"""The prefix of the checksum, and the placeholder that takes its place while it is computed."""


def save_run(run: RunData, folder: Path, *, overwrite: bool) -> None:
    """Write ``folder``: ``rounds.parquet`` and ``manifest.json``."""
    import polars as pl

    with new_folder(folder, FORMAT, overwrite=overwrite) as draft:
        write_parquet(pl.DataFrame(dict(run.records)), draft / ROUNDS)
        digest = hashlib.sha256((draft / ROUNDS).read_bytes()).hexdigest()
        write_manifest(draft, {**manifest_of(run), "rounds_sha256": digest})


def load_run(kind: type[RunT], folder: Path) -> RunT:
    """Read back what :func:`save_run` wrote; a damaged or foreign folder is refused."""
    import polars as pl

    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder; a saved run is a folder with {ROUNDS} and manifest.json.")
    manifest = read_manifest(folder, FORMAT)
    check_version(folder, manifest, FORMAT_VERSION)
    table = folder / ROUNDS
    if not table.is_file():
        raise InputError(f"{folder} is damaged: {ROUNDS} is missing.")
    if hashlib.sha256(table.read_bytes()).hexdigest() != manifest.get("rounds_sha256"):
        raise InputError(f"{table} is damaged: it is not the file the manifest describes.")
    with reading(folder):
        return _from_parts(kind, folder, manifest, pl.read_parquet(table))


def run_to_bytes(run: RunData) -> bytes:
    """The whole run as one Parquet file: records as rows, the manifest and a checksum in the metadata.

    The checksum covers every byte of the file, with :data:`UNSEALED` in the place of the checksum itself.
    """
    import polars as pl

    buffer = io.BytesIO()
    manifest = json.dumps(manifest_of(run), allow_nan=False)
    pl.DataFrame(dict(run.records)).write_parquet(buffer, metadata={MANIFEST_KEY: manifest, CHECKSUM_KEY: UNSEALED})
    content = buffer.getvalue()
    return content.replace(UNSEALED.encode(), SEAL + hashlib.sha256(content).hexdigest().encode())


def run_from_bytes(kind: type[RunT], content: bytes, name: str | Path) -> RunT:
    """Read back the bytes of :func:`run_to_bytes`; ``name`` is the name in error messages."""
    import polars as pl

    start = content.rfind(SEAL)
    seal = content[start : start + len(UNSEALED)]
    digest = hashlib.sha256(content.replace(seal, UNSEALED.encode())).hexdigest() if start >= 0 else ""
    if seal != SEAL + digest.encode():
        raise InputError(f"{name} is damaged, or no run of fed-ucbvi's: its checksum is missing or wrong.")
    with reading(Path(name)):
        manifest = json.loads(pl.read_parquet_metadata(io.BytesIO(content))[MANIFEST_KEY])
        check_version(name, manifest, FORMAT_VERSION)
        return _from_parts(kind, name, manifest, pl.read_parquet(io.BytesIO(content)))


def manifest_of(run: RunData) -> dict[str, Any]:
    """Everything but the records, ready for JSON."""
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "about": none_for_nan(asdict(run.about)),
        "summary": run.summary(),
        "complete": run.complete,
        "wall_seconds": none_for_nan(run.wall_seconds),
        "value": none_for_nan(run.value),
        "estimated_value": none_for_nan(run.estimated_value),
        "optimistic_value": none_for_nan(run.optimistic_value),
        "by_agent": none_for_nan(tuple(run.by_agent.tolist())),
        "recommendations": none_for_nan({name: tuple(c.tolist()) for name, c in run.recommendations.items()}),
        "policy_kind": run.policy_kind,
        "policy": run.policy.tolist(),
        "exploring_policy": run.exploring_policy.tolist(),
        "V": run.V.tolist(),
    }


def _from_parts(kind: type[RunT], name: str | Path, manifest: Mapping[str, Any], frame: pl.DataFrame) -> RunT:
    """A run from its manifest and its records; ``name`` is where they came from."""
    about = dict(manifest["about"])
    about["rules"], about["cautions"] = tuple(about["rules"]), tuple(about["cautions"])
    numbers = ("optimal_value", "own_optimal_value", "eps_p", "eps_r")
    about |= {name: nan_for_none(about[name]) for name in numbers}
    about["best_common_value"] = Bracket(*(nan_for_none(end) for end in about["best_common_value"]))
    exploring, recommended = np.array(manifest["exploring_policy"]), manifest["recommendations"]
    run = kind(
        about=About(**about),
        records={name: frame[name].to_numpy().astype(dtype) for name, dtype in COLUMNS.items()},
        policy=np.array(manifest["policy"], dtype=np.int32),
        policy_kind=str(manifest["policy_kind"]),
        exploring_policy=exploring.astype(np.int32 if exploring.ndim == 2 else np.bool_),
        V=np.array(manifest["V"], dtype=np.float64),
        value=nan_for_none(manifest["value"]),
        estimated_value=nan_for_none(manifest["estimated_value"]),
        optimistic_value=nan_for_none(manifest["optimistic_value"]),
        by_agent=np.array([nan_for_none(value) for value in manifest["by_agent"]]),
        recommendations={
            name: np.array([nan_for_none(entry) for entry in recommended[name]]).astype(dtype)
            for name, dtype in RECOMMENDATIONS.items()
        },
        wall_seconds=nan_for_none(manifest["wall_seconds"]),
        complete=bool(manifest["complete"]),
    )
    sizes = (run.about.horizon, run.about.states)
    shapes = (sizes, (*sizes, run.about.actions))
    if run.policy.shape != sizes or exploring.shape not in shapes or run.V.shape != (sizes[0] + 1, sizes[1]):
        raise InputError(f"{name} is damaged: its policies and values are not those of {sizes[1]} states.")
    if run.policy_kind not in KINDS or len({len(column) for column in run.recommendations.values()}) > 1:
        raise InputError(f"{name} is damaged: what it says about its recommended policy makes no sense.")
    if math.isnan(run.value) != math.isnan(run.about.optimal_value):
        raise InputError(f"{name} is damaged: of value and optimal value one is known and the other not.")
    if run.by_agent.shape != (run.about.agents,):
        raise InputError(f"{name} is damaged: it has values for {len(run.by_agent)} of {run.about.agents} agents.")
    if min(run.policy.min(), exploring.min()) < 0 or max(run.policy.max(), exploring.max()) >= run.about.actions:
        raise InputError(f"{name} is damaged: its policy takes actions that do not exist.")
    return run
