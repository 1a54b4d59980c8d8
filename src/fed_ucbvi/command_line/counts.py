"""``fed-ucbvi counts``: the counts of a run, for a later one to start from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fed_ucbvi.command_line.shared_options import Json

if TYPE_CHECKING:
    from fed_ucbvi.algorithms.counts import Counts


def counts(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="The checkpoint of a run, a live run, or a server that was sent counts."),
    ],
    out: Annotated[Path, typer.Option(metavar="FILE.npz", help="File to write the counts to; it is replaced.")],
    as_json: Json = False,
) -> None:
    """Write what the agents of a run have counted to a file, for 'run' and 'serve' with --warm-start."""
    from fed_ucbvi.command_line.outputs import print_json

    found = counts_at(folder)
    found.save(out)
    steps, S, A, _ = found.transitions.shape
    visits = int(found.visits.sum())
    if as_json:
        sizes = {"states": S, "actions": A, "horizon": found.horizon, "steps": steps}
        print_json({"counts": str(out), **sizes, "visits": visits, "most_visits": found.most})
    else:
        typer.echo(
            f"{visits:,} visits, at most {found.most:,} to one place, S = {S}, A = {A}, H = {found.horizon}: {out}"
        )


def counts_at(path: Path) -> Counts:
    """The counts in a file or in a checkpoint of whatever kind."""
    from fed_ucbvi.core.files import MANIFEST, read_manifest
    from fed_ucbvi.engine.checkpoint import FORMAT
    from fed_ucbvi.engine.warm_start import load_counts

    if not (path / MANIFEST).is_file() or read_manifest(path)["format"] == FORMAT:
        return load_counts(path)
    from fed_ucbvi.network.server_checkpoint import counts_in

    return counts_in(path)
