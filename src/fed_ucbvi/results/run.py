"""A run as users have it: figures, files that load back equal, a picture, and the policy to deploy.

On disk a run is one Parquet file, or a folder with that file and a summary in JSON.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.files import MANIFEST, check_version, new_file, new_folder, read_manifest, reading, write_manifest
from fed_ucbvi.core.numbers import Bracket, nan_for_none, none_for_nan
from fed_ucbvi.core.version import PROGRAM
from fed_ucbvi.results.about import About
from fed_ucbvi.results.policy import MAX_ENTRIES, LearntPolicy, check_length, check_policy_file, policy_of_bytes
from fed_ucbvi.results.recommendations import COLUMNS as RECOMMENDATIONS
from fed_ucbvi.results.recommendations import KINDS, Certificate
from fed_ucbvi.results.round_record import COLUMNS
from fed_ucbvi.results.run_data import RunData

if TYPE_CHECKING:
    import polars as pl

    from fed_ucbvi.charts.picture import Picture

FORMAT = "fed-ucbvi/run"
FORMAT_VERSION = 5
RUN = "run.parquet"
NUMBERS = ("value", "estimated_value", "optimistic_value", "wall_seconds")
MANIFEST_KEY, CHECKSUM_KEY = PROGRAM, f"{PROGRAM}-checksum"
"""Keys of the Parquet metadata where a run in one file keeps its manifest and its checksum."""
SEAL, UNSEALED = b"sha256:", "sha256:" + "0" * 64
"""The prefix of the checksum, and the placeholder that takes its place while it is computed."""


@dataclass(frozen=True, eq=False, repr=False)
class Run(RunData):
    """A finished (or interrupted) run. :class:`~fed_ucbvi.results.run_data.RunData` describes its attributes."""

    def plot(self, path: str | Path | None = None) -> Picture:
        """Regret (or rewards), round lengths and (on a grid) the recommended policy; written to ``path`` if given."""
        from fed_ucbvi.results.plotting import plot_run

        return plot_run(self, path)

    def export_policy(self, path: str | Path) -> None:
        """Write the recommended policy to a ``.json`` file, for :func:`~fed_ucbvi.load_policy`."""
        LearntPolicy.of(self).save(Path(path))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Run):
            return NotImplemented
        same = self.records.keys() == other.records.keys() and all(
            np.array_equal(column, other.records[name], equal_nan=True) for name, column in self.records.items()
        )
        return same and _content(self) == _content(other)

    __hash__ = None  # type: ignore[assignment]

    def same_outcome(self, other: Run) -> bool:
        """Whether two runs agree in everything except wall time, dates and versions."""

        def plain(run: Run) -> Run:
            undated = tuple(replace(one, date="") for one in run.certificates)
            return replace(run, wall_seconds=0.0, about=replace(run.about, versions={}), certificates=undated)

        return plain(self) == plain(other)

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the folder ``path``: the run in one file, ``run.parquet``, and its summary, ``manifest.json``."""
        with new_folder(Path(path), FORMAT, overwrite=overwrite) as draft:
            (draft / RUN).write_bytes(self.to_bytes())
            write_manifest(draft, _summary(self))

    @classmethod
    def load(cls, path: str | Path) -> Run:
        """Read back what :meth:`save` wrote; a damaged or foreign folder is rejected."""
        folder = Path(path)
        if not folder.is_dir():
            raise InputError(f"{folder} is not a folder; a saved run is a folder with {RUN} and {MANIFEST}.")
        manifest = read_manifest(folder, FORMAT)
        check_version(folder, manifest, FORMAT_VERSION)
        if not (folder / RUN).is_file():
            raise InputError(f"{folder} is damaged: {RUN} is missing.")
        run = cls.read_file(folder / RUN)
        if manifest != json.loads(json.dumps(_summary(run))):
            raise InputError(f"{folder} is damaged: {MANIFEST} does not belong to {RUN}.")
        return run

    def to_bytes(self) -> bytes:
        """The whole run as one Parquet file: records as rows, the manifest and a checksum in the metadata.

        The checksum covers every byte of the file, with :data:`UNSEALED` in the place of the checksum itself.
        """
        import polars as pl

        buffer = io.BytesIO()
        metadata = {MANIFEST_KEY: json.dumps(manifest_of(self), allow_nan=False), CHECKSUM_KEY: UNSEALED}
        pl.DataFrame(dict(self.records)).write_parquet(buffer, metadata=metadata)
        content = buffer.getvalue()
        return content.replace(UNSEALED.encode(), SEAL + hashlib.sha256(content).hexdigest().encode())

    @classmethod
    def from_bytes(cls, content: bytes, name: str | Path = "the run") -> Run:
        """Read back the bytes of :meth:`to_bytes`; ``name`` is the name in error messages."""
        import polars as pl

        start = content.rfind(SEAL)
        seal = content[start : start + len(UNSEALED)]
        digest = hashlib.sha256(content.replace(seal, UNSEALED.encode())).hexdigest() if start >= 0 else ""
        if seal != SEAL + digest.encode():
            raise InputError(f"{name} is damaged, or no run of fed-ucbvi's: its checksum is missing or wrong.")
        with reading(Path(name)):
            manifest = json.loads(pl.read_parquet_metadata(io.BytesIO(content))[MANIFEST_KEY])
            check_version(name, manifest, FORMAT_VERSION)
            return _from_parts(name, manifest, pl.read_parquet(io.BytesIO(content)))

    def write_file(self, path: str | Path) -> None:
        """Write the whole run to one Parquet file, replacing what is there."""
        with new_file(Path(path)) as draft:
            draft.write_bytes(self.to_bytes())

    @classmethod
    def read_file(cls, path: str | Path) -> Run:
        """Read back what :meth:`write_file` wrote; a damaged or foreign file is rejected."""
        if not Path(path).is_file():
            raise InputError(f"{path} is not a file; a run in one file is a Parquet file.")
        return cls.from_bytes(Path(path).read_bytes(), path)


def manifest_of(run: Run) -> dict[str, Any]:
    """Everything but the records, ready for JSON."""
    return {**_summary(run), **_content(run)}


def _summary(run: Run) -> dict[str, Any]:
    return {"format": FORMAT, "format_version": FORMAT_VERSION, "summary": run.summary()}


def _content(run: Run) -> dict[str, Any]:
    return {
        "about": none_for_nan(asdict(run.about)),
        "complete": run.complete,
        "certificates": [one.to_data() for one in run.certificates],
        **{name: none_for_nan(getattr(run, name)) for name in NUMBERS},
        "by_agent": none_for_nan(tuple(run.by_agent.tolist())),
        "recommendations": none_for_nan({name: tuple(c.tolist()) for name, c in run.recommendations.items()}),
        "policy_kind": run.policy_kind,
        "policy": run.policy.tolist(),
        "exploring_policy": run.exploring_policy.tolist(),
        "V": run.V.tolist(),
    }


def _from_parts(name: str | Path, manifest: Mapping[str, Any], frame: pl.DataFrame) -> Run:
    about = dict(manifest["about"])
    about["rules"], about["cautions"] = tuple(about["rules"]), tuple(about["cautions"])
    numbers = ("optimal_value", "own_optimal_value", "eps_p", "eps_r")
    about |= {name: nan_for_none(about[name]) for name in numbers}
    about["best_common_value"] = Bracket(*(nan_for_none(end) for end in about["best_common_value"]))
    exploring, recommended = np.array(manifest["exploring_policy"]), manifest["recommendations"]
    run = Run(
        about=About(**about),
        records={name: frame[name].to_numpy().astype(dtype) for name, dtype in COLUMNS.items()},
        policy=np.array(manifest["policy"], dtype=np.int32),
        policy_kind=str(manifest["policy_kind"]),
        exploring_policy=exploring.astype(np.int32 if exploring.ndim == 2 else np.bool_),
        V=np.array(manifest["V"], dtype=np.float64),
        by_agent=np.array([nan_for_none(value) for value in manifest["by_agent"]]),
        recommendations={
            name: np.array([nan_for_none(entry) for entry in recommended[name]]).astype(dtype)
            for name, dtype in RECOMMENDATIONS.items()
        },
        complete=bool(manifest["complete"]),
        certificates=tuple(Certificate.from_data(one) for one in manifest["certificates"]),
        **{name: nan_for_none(manifest[name]) for name in NUMBERS},
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


def load_policy(path: str | Path, *, authority: str | Path | None = None, server: str | None = None) -> LearntPolicy:
    """Read a policy from a file, or from the folder of a saved run; a damaged or foreign one is rejected.

    Args:
        path: what :meth:`Run.export_policy` or a node of a federation wrote, or what :meth:`Run.save` did.
        authority: the certificate of the federation's authority (``ca.crt``). With it, a policy that no server of
            this authority has signed is rejected.
        server: the name in that server's certificate, if it matters which one it was.
    """
    file, trusted = Path(path), None
    if authority is not None:
        if not Path(authority).is_file():
            raise InputError(f"{authority} is missing; it is to hold the certificate of the federation's authority.")
        trusted = Path(authority).read_bytes()
    if file.is_dir():
        if trusted is not None:
            raise InputError(f"{file} is not to be trusted: it is a saved run, and only policies are signed.")
        return LearntPolicy.of(Run.load(file))
    check_policy_file(file)
    if not file.is_file():
        raise InputError(f"there is no file {file}.")
    check_length(file.stat().st_size, MAX_ENTRIES, file)
    return policy_of_bytes(file.read_bytes(), file, authority=trusted, server=server)
