"""The result of a run: figures, a picture, the policy to deploy, and files that load back equal.

On disk a run is one Parquet file, or a folder with that file and a summary in JSON.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fed_ucbvi.core.errors import InputError, printable
from fed_ucbvi.core.files import MANIFEST, check_version, new_file, new_folder, read_manifest, reading, write_manifest
from fed_ucbvi.core.foreign_tables import read_table
from fed_ucbvi.core.memory import JSON_FACTOR, SMALLER, check_memory
from fed_ucbvi.core.numbers import nan_for_none, none_for_nan
from fed_ucbvi.core.version import PROGRAM
from fed_ucbvi.problem.policies import check_actions, form_of, shape_of
from fed_ucbvi.problem.units import UNITS
from fed_ucbvi.results.about import About
from fed_ucbvi.results.policy import (
    MAX_ENTRIES,
    LearntPolicy,
    check_length,
    check_policy_file,
    policy_of_bytes,
    policy_of_list,
)
from fed_ucbvi.results.recommendations import COLUMNS as RECOMMENDATIONS
from fed_ucbvi.results.recommendations import KINDS, Certificate
from fed_ucbvi.results.round_record import COLUMNS
from fed_ucbvi.results.run_data import RunData

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.axes import Axes

    from fed_ucbvi.charts.figures import Panels
    from fed_ucbvi.charts.picture_files import Size

FORMAT = "fed-ucbvi/run"
FORMAT_VERSION = 6
RUN = "run.parquet"
MAX_ROUNDS = 10_000_000
"""The most rounds of a run in a file; while it is in progress, such a run takes several gigabytes."""
NUMBER_TYPES = (int, float, type(None))
ABOUT_TYPES: dict[str, tuple[type, ...]] = {
    "algorithm": (str,),
    "driver": (str,),
    "label": (str,),
    "colour": (str,),
    "environment_label": (str,),
    "agents": (int,),
    "states": (int,),
    "actions": (int,),
    "horizon": (int,),
    "episodes": (int,),
    "seed": (int,),
    "parameters": (dict,),
    "environment": (dict,),
    "facts": (dict,),
    "versions": (dict,),
    "rules": (list,),
    "cautions": (list,),
    "eps_p": NUMBER_TYPES,
    "eps_r": NUMBER_TYPES,
    "optimal_value": NUMBER_TYPES,
    "layout": (dict, type(None)),
    "alike": (bool, type(None)),
    "random_rewards": (bool,),
}
"""Types of the fields of :class:`~fed_ucbvi.results.about.About` in a manifest."""
MANIFEST_KEY = PROGRAM
CHECKSUM_KEY = f"{PROGRAM}-checksum"
"""Keys of the Parquet metadata where a run in one file has its manifest and its checksum."""
CHECKSUM_PREFIX = b"sha256:"
CHECKSUM_PLACEHOLDER = "sha256:" + "0" * 64
"""The prefix of the checksum, and the placeholder that takes its place while it is computed."""


@dataclass(frozen=True, eq=False, repr=False)
class Run(RunData):
    """A finished (or interrupted) run. :class:`~fed_ucbvi.results.run_data.RunData` describes its attributes."""

    def plot(
        self,
        path: str | Path | None = None,
        *,
        step: int | None = None,
        size: Size | None = None,
        axes: Iterable[Axes] | None = None,
    ) -> Panels:
        """Regret (or rewards), communication, round lengths and, on a grid, the recommended policy.

        Draws on ``axes``, one for each panel, or on a new figure of ``size`` inches, and returns the axes. See
        :func:`~fed_ucbvi.results.run_picture.plot_run`.
        """
        from fed_ucbvi.results.run_picture import plot_run

        return plot_run(self, path, step=step, size=size, axes=axes)

    def export_policy(self, path: str | Path) -> None:
        """Write the recommended policy to a ``.json`` file, for :func:`~fed_ucbvi.load_policy`."""
        LearntPolicy.of(self).save(Path(path))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Run):
            return NotImplemented
        if self.records.keys() != other.records.keys():
            return False
        for name, column in self.records.items():
            if not np.array_equal(column, other.records[name], equal_nan=True):
                return False
        return _content(self) == _content(other)

    __hash__ = None  # type: ignore[assignment]

    def same_outcome(self, other: Run) -> bool:
        """Compare two runs in everything except wall time, dates and versions."""
        return self._without_provenance() == other._without_provenance()

    def _without_provenance(self) -> Run:
        """The run without wall time, dates and versions."""
        undated = tuple(replace(certificate, date="") for certificate in self.certificates)
        return replace(
            self,
            wall_seconds=0.0,
            about=replace(self.about, versions={}),
            certificates=undated,
        )

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

        The checksum covers every byte of the file, with :data:`CHECKSUM_PLACEHOLDER` in its own place.
        """
        import polars as pl

        buffer = io.BytesIO()
        metadata = {
            MANIFEST_KEY: json.dumps(manifest_of(self), allow_nan=False),
            CHECKSUM_KEY: CHECKSUM_PLACEHOLDER,
        }
        pl.DataFrame(dict(self.records)).write_parquet(buffer, metadata=metadata)
        content = buffer.getvalue()
        checksum = CHECKSUM_PREFIX + hashlib.sha256(content).hexdigest().encode()
        return content.replace(CHECKSUM_PLACEHOLDER.encode(), checksum)

    @classmethod
    def from_bytes(cls, content: bytes, name: str | Path = "the run") -> Run:
        """Read back the bytes of :meth:`to_bytes`; ``name`` is the name in error messages."""
        check_memory(f"The content of {name}", 3 * len(content), SMALLER)
        start = content.rfind(CHECKSUM_PREFIX)
        checksum = content[start : start + len(CHECKSUM_PLACEHOLDER)]
        digest = ""
        if start >= 0:
            unsealed = content.replace(checksum, CHECKSUM_PLACEHOLDER.encode())
            digest = hashlib.sha256(unsealed).hexdigest()
        if checksum != CHECKSUM_PREFIX + digest.encode():
            raise InputError(f"{name} is damaged, or no run of fed-ucbvi's: its checksum is missing or wrong.")
        with reading(Path(name)):
            table = read_table(
                content,
                "parquet",
                list(COLUMNS),
                metadata=[MANIFEST_KEY],
                most_rows=MAX_ROUNDS,
            )
            text = table.metadata[MANIFEST_KEY]
            check_memory(f"The manifest of {name}", JSON_FACTOR * len(text), SMALLER)
            manifest = json.loads(text)
            check_version(name, manifest, FORMAT_VERSION)
            return _from_parts(name, manifest, table.frame)

    def write_file(self, path: str | Path) -> None:
        """Write the whole run to one Parquet file, replacing what is there."""
        with new_file(Path(path)) as draft:
            draft.write_bytes(self.to_bytes())

    @classmethod
    def read_file(cls, path: str | Path) -> Run:
        """Read back what :meth:`write_file` wrote; a damaged or foreign file is rejected."""
        if not Path(path).is_file():
            raise InputError(f"{path} is not a file; a run in one file is a Parquet file.")
        check_memory(f"The content of {path}", 3 * Path(path).stat().st_size, SMALLER)
        return cls.from_bytes(Path(path).read_bytes(), path)


def manifest_of(run: Run) -> dict[str, Any]:
    """Everything but the records, ready for JSON."""
    content = _summary(run)
    content.update(_content(run))
    return content


def _summary(run: Run) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "summary": run.summary(),
    }


def _content(run: Run) -> dict[str, Any]:
    recommendations = {name: tuple(column.tolist()) for name, column in run.recommendations.items()}
    return {
        "about": none_for_nan(asdict(run.about)),
        "complete": run.complete,
        "certificates": [certificate.to_data() for certificate in run.certificates],
        "value": none_for_nan(run.value),
        "estimated_value": none_for_nan(run.estimated_value),
        "optimistic_value": none_for_nan(run.optimistic_value),
        "wall_seconds": none_for_nan(run.wall_seconds),
        "by_agent": none_for_nan(tuple(run.by_agent.tolist())),
        "recommendations": none_for_nan(recommendations),
        "policy_kind": run.policy_kind,
        "units": run.units,
        "policy": run.policy.tolist(),
        "exploring_policy": run.exploring_policy.tolist(),
        "V": run.V.tolist(),
    }


def _from_parts(name: str | Path, manifest: Mapping[str, Any], frame: pl.DataFrame) -> Run:
    records = {}
    for column, dtype in COLUMNS.items():
        records[column] = _typed(name, column, frame[column].to_numpy(), dtype)
    recommendations = {}
    for column, dtype in RECOMMENDATIONS.items():
        entries = np.array([nan_for_none(entry) for entry in manifest["recommendations"][column]])
        recommendations[column] = _typed(name, column, entries, dtype)
    run = Run(
        about=_read_about(name, manifest["about"]),
        records=records,
        policy=policy_of_list(manifest["policy"]),
        policy_kind=str(manifest["policy_kind"]),
        units=str(manifest["units"]),
        exploring_policy=policy_of_list(manifest["exploring_policy"]),
        V=np.array(manifest["V"], dtype=np.float64),
        value=nan_for_none(manifest["value"]),
        estimated_value=nan_for_none(manifest["estimated_value"]),
        optimistic_value=nan_for_none(manifest["optimistic_value"]),
        wall_seconds=nan_for_none(manifest["wall_seconds"]),
        by_agent=np.array([nan_for_none(value) for value in manifest["by_agent"]]),
        recommendations=recommendations,
        complete=bool(manifest["complete"]),
        certificates=tuple(Certificate.from_data(data) for data in manifest["certificates"]),
    )
    _check_consistent(name, run)
    return run


def _read_about(name: str | Path, manifest: Mapping[str, Any]) -> About:
    """The description of a run from its manifest; raise where a field has another type."""
    about = dict(manifest)
    for field, types in ABOUT_TYPES.items():
        entry = about[field]
        bool_for_int = int in types and isinstance(entry, bool)
        if bool_for_int or not isinstance(entry, types):
            raise InputError(f"{name} is damaged: its {field} is {printable(str(entry)[:80])}.")
    about["rules"] = tuple(about["rules"])
    about["cautions"] = tuple(about["cautions"])
    for field in ("optimal_value", "eps_p", "eps_r"):
        about[field] = nan_for_none(about[field])
    return About(**about)


def _check_consistent(name: str | Path, run: Run) -> None:
    """Raise where the parts of a run contradict each other."""
    H = run.about.horizon
    S = run.about.states
    A = run.about.actions
    policies = (run.policy, run.exploring_policy)
    fitting = all(policy.shape == shape_of(form_of(policy), H, S, A) for policy in policies)
    if not fitting or run.V.shape != (H + 1, S):
        raise InputError(f"{name} is damaged: its policies and values are not those of {S} states.")
    if run.units not in UNITS:
        raise InputError(f"{name} is damaged: its figures are in unknown units '{run.units}'.")
    lengths = {len(column) for column in run.recommendations.values()}
    if run.policy_kind not in KINDS or len(lengths) > 1:
        raise InputError(f"{name} is damaged: inconsistent fields of the recommended policy.")
    if math.isnan(run.value) != math.isnan(run.about.optimal_value):
        raise InputError(f"{name} is damaged: of value and optimal value one is known and the other not.")
    if run.by_agent.shape != (run.about.agents,):
        raise InputError(f"{name} is damaged: it has values for {len(run.by_agent)} of {run.about.agents} agents.")
    for policy in policies:
        check_actions(f"{name} is damaged: its policy", policy, A)


def _typed(name: str | Path, column: str, numbers: npt.NDArray[Any], dtype: type[np.generic]) -> npt.NDArray[Any]:
    """A column as numbers of this type; raise where the type cannot represent them."""
    try:
        with np.errstate(invalid="raise", over="raise"):
            return numbers.astype(dtype)
    except FloatingPointError as error:
        raise InputError(
            f"{name} is damaged: not all of its {column} are numbers of type {np.dtype(dtype)}."
        ) from error


def load_policy(path: str | Path, *, authority: str | Path | None = None, server: str | None = None) -> LearntPolicy:
    """Read a policy from a file, or from the folder of a saved run; a damaged or foreign one is rejected.

    Args:
        path: a file that :meth:`Run.export_policy` or a node of a federation wrote, or a folder of :meth:`Run.save`.
        authority: the certificate of the federation's authority (``ca.crt``). With it, a policy that no server of
            this authority has signed is rejected.
        server: the name in that server's certificate, if it matters which one it was.
    """
    file = Path(path)
    trusted = None
    if authority is not None:
        if not Path(authority).is_file():
            raise InputError(f"{authority} is missing; it should be the certificate of the federation's authority.")
        trusted = Path(authority).read_bytes()
    if file.is_dir():
        if trusted is not None:
            raise InputError(f"{file} is not to be trusted: it is a saved run, and only policies are signed.")
        return LearntPolicy.of(Run.load(file))
    check_policy_file(file)
    if not file.is_file():
        raise InputError(f"there is no file {file}.")
    length = file.stat().st_size
    check_length(length, MAX_ENTRIES, file)
    check_memory(f"The content of {file}", 2 * length, SMALLER)
    return policy_of_bytes(file.read_bytes(), file, authority=trusted, server=server)
