"""What commands write and print: folders checked beforehand, a summary for people, one JSON object for programs."""

from __future__ import annotations

import json
import math
import os
import shlex
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fed_ucbvi.errors import InputError
from fed_ucbvi.files import check_free
from fed_ucbvi.problem.units import Units

if TYPE_CHECKING:
    from fed_ucbvi.results.run import Run


def check_out(folder: Path, *, overwrite: bool, kind: str) -> None:
    """Raise unless ``folder`` can be written once the work is done, and holds nothing but what it may replace."""
    check_free(folder, kind, overwrite=overwrite)
    above = folder.absolute().parent
    while not above.exists():
        above = above.parent
    if not above.is_dir():
        raise InputError(f"cannot write {folder}: {above} is not a folder.")
    if not os.access(above, os.W_OK | os.X_OK):
        raise InputError(f"cannot write {folder}: {above} does not allow it.")


def check_checkpoint(folder: Path) -> None:
    """Raise unless a new checkpoint can be kept in ``folder``."""
    from fed_ucbvi.checkpoint import FORMAT

    try:
        check_free(folder, FORMAT, overwrite=False)
    except InputError as error:
        again = f"go on with it by 'fed-ucbvi resume {shlex.quote(str(folder))}'"
        raise InputError(f"{folder} exists. If it holds a checkpoint, {again}; or choose another name.") from error


def check_apart(out: Path, checkpoint: Path) -> None:
    """Raise if one of the two folders is, or lies in, the other: the second to be written would be refused."""
    one, other = out.resolve(), checkpoint.resolve()
    if one == other or one in other.parents or other in one.parents:
        raise InputError(f"--out {out} and --checkpoint {checkpoint} must be two folders, neither inside the other.")


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Cautions are printed at once, as ``warning: ...`` on standard error."""
    from fed_ucbvi.simulation import Caution

    others = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *rest: object) -> None:
        if issubclass(category, Caution):
            warn(str(message))
        else:
            others(message, category, *rest)  # type: ignore[arg-type]

    with warnings.catch_warnings():
        warnings.simplefilter("always", Caution)
        warnings.showwarning = show  # type: ignore[assignment]
        yield


def warn(text: str) -> None:
    """One warning on standard error."""
    typer.echo(f"warning: {text}", err=True)


def print_json(content: Mapping[str, object]) -> None:
    """One JSON object on standard output."""
    typer.echo(json.dumps(content, indent=2, allow_nan=False, default=str))


def print_rows(title: str, rows: Iterable[tuple[str, ...]]) -> None:
    """A title and rows with aligned columns on standard output; the last column may wrap."""
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2, 0, 0))
    for row in rows:
        while len(table.columns) < len(row):
            table.add_column(no_wrap=len(table.columns) < len(row) - 1, overflow="fold")
        table.add_row(*(Text(text) for text in row))
    console = Console(highlight=False)
    console.print(Text(title, style="bold"))
    console.print(Padding(table, (0, 0, 0, 2), expand=False))


def summary_rows(run: Run) -> tuple[str, list[tuple[str, str]]]:
    """A run in a few lines."""
    from fed_ucbvi.results.style import byte_count

    about = run.about
    setting = f"{about.agents:,} agents, {about.episodes:,} episodes, H = {about.horizon}, eps_p = {about.eps_p:g}"
    share = f" ({run.value / about.optimal_value:.2%})" if about.optimal_value > 0 else ""
    learnt = f"value {run.value:.4f}, optimum {about.optimal_value:.4f}{share}"
    rules = ", ".join(f"{count:,} {rule}" for rule, count in run.rules_fired.items())
    rows = [
        ("setting", f"{setting}, seed {about.seed}"),
        ("common regret", "unknown" if math.isnan(run.common_regret) else f"{run.common_regret:,.2f}"),
        ("federated regret", str(run.federated_regret)),
        ("rounds", f"{run.rounds:,} ({rules})" if rules else f"{run.rounds:,}"),
        ("communication", f"{byte_count(run.bytes_up)} up, {byte_count(run.bytes_down)} down"),
        ("learnt policy", "value unknown" if math.isnan(run.value) else learnt),
        *(("in its own units", own) for own in _own_units(run)),
        *((name, f"{value:,.6g}" if abs(value) < 1000 else f"{value:,.0f}") for name, value in about.facts.items()),
        ("wall time", f"{run.wall_seconds:,.2f} s (driver {about.driver})"),
    ]
    if not run.complete:
        rows.insert(1, ("interrupted", f"after {run.episodes_played:,} episodes; the figures are those so far"))
    return f"{about.algorithm} on {about.environment.get('name', 'custom')}", rows


def _own_units(run: Run) -> list[str]:
    """The same figures in the environment's own units, if those are others."""
    figures = {name: figure for name, figure in run.original_units.items() if not math.isnan(figure)}
    if not figures or Units.of(run.about.environment) == Units():
        return []
    names = {"value": "value", "optimal_value": "optimum", "average_reward": "paid per episode"}
    return [", ".join(f"{names[name]} {figure:,.4g}" for name, figure in figures.items())]


def save_somewhere(run: Run, out: Path, *, overwrite: bool) -> tuple[Path | None, InputError | None]:
    """Save a run in ``out``, or in a new folder elsewhere if the system does not let us: it may have taken days.

    Returns:
        Where the run is, if anywhere, and what there is to tell at the end, if anything.
    """
    from fed_ucbvi.command_line.program import plain_reason

    try:
        run.save(out, overwrite=overwrite)
        return out, None
    except OSError as error:
        reason = plain_reason(error).rstrip(".")
    for place in (Path(tempfile.gettempdir()), Path.cwd()):
        elsewhere = place / f"fed-ucbvi-run-{os.getpid()}"
        try:
            run.save(elsewhere)
        except (OSError, InputError):
            continue
        return elsewhere, InputError(f"cannot write {out}: {reason}. The run is saved in {elsewhere} instead.")
    return None, InputError(f"cannot write {out}, nor anywhere else: {reason}. Only what is printed is left.")


def finish(
    run: Run,
    *,
    out: Path | None,
    overwrite: bool,
    as_json: bool,
    quiet: bool,
    checkpoint: Path | None,
) -> None:
    """Save a run, print it, and end with 130 if it was interrupted.

    It is printed even if it cannot be saved; if it cannot be saved anywhere, also where nothing was to be printed.
    """
    from fed_ucbvi.command_line.program import INTERRUPTED

    saved, failure = (None, None) if out is None else save_somewhere(run, out, overwrite=overwrite)
    if as_json:
        print_json(run.summary())
    elif not quiet or (out is not None and saved is None):
        title, rows = summary_rows(run)
        if saved is not None:
            rows.append(("saved to", str(saved)))
        print_rows(title, rows)
    if not run.complete:
        kept = "no result is saved" if saved is None else f"the result so far is saved in {saved}"
        again = f"; go on with: fed-ucbvi resume {shlex.quote(str(checkpoint))}" if checkpoint is not None else ""
        typer.echo(
            f"stopped after {run.episodes_played:,} of {run.about.episodes:,} episodes; {kept}{again}", err=True
        )
    if failure is not None:
        raise failure
    if not run.complete:
        raise typer.Exit(INTERRUPTED)
