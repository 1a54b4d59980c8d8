"""The result of a run: figures, files that load back equal, a picture, and the policy to deploy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.files import new_file
from fed_ucbvi.results.policy import LearntPolicy
from fed_ucbvi.results.run_data import RunData
from fed_ucbvi.results.storage import load_run, run_from_bytes, run_to_bytes, save_run

if TYPE_CHECKING:
    from fed_ucbvi.charts.picture import Picture


@dataclass(frozen=True, eq=False, repr=False)
class Run(RunData):
    """A finished (or interrupted) run. :class:`~fed_ucbvi.results.run_data.RunData` describes its attributes."""

    def plot(self, path: str | Path | None = None) -> Picture:
        """Regret (or rewards), round lengths and (on a grid) the recommended policy; written to ``path`` if given."""
        from fed_ucbvi.results.plotting import plot_run

        return plot_run(self, path)

    def export_policy(self, path: str | Path) -> None:
        """Write the recommended policy to one file, ``.json`` or ``.npz``, for :func:`~fed_ucbvi.load_policy`."""
        LearntPolicy.of(self).save(Path(path))

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the folder ``path``: ``rounds.parquet`` and ``manifest.json``."""
        save_run(self, Path(path), overwrite=overwrite)

    @classmethod
    def load(cls, path: str | Path) -> Run:
        """Read back what :meth:`save` wrote; a damaged or foreign folder is refused."""
        return load_run(cls, Path(path))

    def to_bytes(self) -> bytes:
        """The whole run as one Parquet file."""
        return run_to_bytes(self)

    @classmethod
    def from_bytes(cls, content: bytes, name: str | Path = "the run") -> Run:
        """Read back the bytes of :meth:`to_bytes`; ``name`` is the name in error messages."""
        return run_from_bytes(cls, content, name)

    def write_file(self, path: str | Path) -> None:
        """Write the whole run to one Parquet file, replacing what is there."""
        with new_file(Path(path)) as draft:
            draft.write_bytes(self.to_bytes())

    @classmethod
    def read_file(cls, path: str | Path) -> Run:
        """Read back what :meth:`write_file` wrote; a damaged or foreign file is refused."""
        if not Path(path).is_file():
            raise InputError(f"{path} is not a file; a run in one file is a Parquet file.")
        return cls.from_bytes(Path(path).read_bytes(), path)
