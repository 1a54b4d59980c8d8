"""``fed-ucbvi report``: figures, tables and verdicts of a sweep or a reproduction."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from fed_ucbvi.report.content import PageContent


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A sweep or a reproduction.")],
    out: Annotated[Path | None, typer.Option(metavar="DIR2", help="Where to write; by default DIR/report.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Write figures, tables and verdicts of a sweep or a reproduction as one page and as files."""
    from fed_ucbvi.core.errors import InputError
    from fed_ucbvi.paper import reproduction

    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder; a report is about a sweep or a reproduction.")
    made = reproduction.report_on(folder)
    target = folder / reproduction.REPORT if out is None else out
    write(made, target)
    print_report(made, target, as_json=as_json)


def write(made: PageContent, folder: Path) -> None:
    """Write the report; an earlier one gives way."""
    from fed_ucbvi.command_line.interruption import interruptible
    from fed_ucbvi.engine.progress import progress_bar
    from fed_ucbvi.report.writing import write_report

    with interruptible(), progress_bar("figures") as progress:
        write_report(made, folder, progress)


def print_report(made: PageContent, folder: Path, *, as_json: bool) -> None:
    """The verdicts, and where everything is."""
    from fed_ucbvi.command_line.outputs import print_json, print_rows, warn

    verdicts = [verdict for section in made.sections for verdict in section.verdicts]
    missing = made.provenance.get("missing", [])
    if missing:
        warn(made.text[0])
    if as_json:
        print_json(
            {
                "out": str(folder),
                "sections": [section.id for section in made.sections],
                "figures": [figure.id for section in made.sections for figure in section.figures],
                "tables": [table.id for section in made.sections for table in section.tables],
                "verdicts": [
                    {
                        "claim": verdict.claim,
                        "outcome": verdict.outcome,
                        "measured": verdict.measured,
                        "seeds": verdict.seeds,
                        "detail": verdict.detail,
                    }
                    for verdict in verdicts
                ],
                "missing": missing,
            }
        )
        return
    print_rows(made.title, [(verdict.outcome, verdict.claim) for verdict in verdicts])
    typer.echo(f"saved in {folder}")
