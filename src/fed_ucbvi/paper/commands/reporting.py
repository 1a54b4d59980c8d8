"""``fed-ucbvi report``: figures, tables and verdicts of a sweep or a reproduction."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fed_ucbvi.command_line.options import JSON, argument, option
from fed_ucbvi.command_line.outputs import print_table, warn
from fed_ucbvi.command_line.program import interruptible
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.files import read_manifest

if TYPE_CHECKING:
    from fed_ucbvi.paper.report.content import PageContent


def report(
    folder: Path = argument("DIR", "A sweep or a reproduction."),
    out: Path | None = option(None, "DIR2", "Where to write; by default DIR/report."),
    as_json: bool = JSON,
) -> None:
    """Write figures, tables and verdicts of a sweep or a reproduction as one page and as files."""
    from fed_ucbvi.paper import reproduction
    from fed_ucbvi.sweeps.store import FORMAT as SWEEP

    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder; a report is about a sweep or a reproduction.")
    kind = read_manifest(folder)["format"]
    reports = {SWEEP: report_on_sweep, reproduction.FORMAT: reproduction.report_on}
    if kind not in reports:
        raise InputError(f"{folder} holds a {kind}; a report is about a sweep or a reproduction.")
    write_and_print(reports[kind](folder), out or folder / "report", as_json)


def report_on_sweep(folder: Path) -> PageContent:
    """The report on a sweep, complete or not."""
    from fed_ucbvi.paper.report.content import PageContent
    from fed_ucbvi.paper.report.missing_runs import missing_runs, with_note
    from fed_ucbvi.paper.report.sweep_section import sweep_section
    from fed_ucbvi.paper.report.traces import Trace, table_of
    from fed_ucbvi.results.about import versions
    from fed_ucbvi.sweeps.store import Store

    store = Store.open(folder)
    sweep = store.sweep
    there = dict.fromkeys(store.finished())
    table = table_of((job, Trace.of(store.read(job))) for job in there)
    provenance = {"sweep": sweep.content(), "digest": sweep.digest, "versions": versions()}
    sections = [sweep_section(table, sweep.name)] if there else []
    missing = missing_runs(job for job in sweep.jobs() if job not in there)
    return with_note(PageContent(sweep.name, (), sections, provenance), folder, missing)


def write_files(made: PageContent, folder: Path) -> None:
    """Write the report; an earlier one is replaced."""
    from fed_ucbvi.engine.progress import progress_bar
    from fed_ucbvi.paper.report.writing import write_report

    with interruptible(), progress_bar("figures") as progress:
        write_report(made, folder, progress)


def write_and_print(made: PageContent, folder: Path, as_json: bool) -> None:
    write_files(made, folder)
    verdicts = [verdict for _, verdict in made.judged]
    missing = made.provenance.get("missing", [])
    if missing:
        warn(made.text[0])
    shown = ("claim", "outcome", "measured", "seeds", "detail")
    content: dict[str, Any] = {"out": str(folder), "missing": missing}
    content |= {name: [part.id for part in getattr(made, name)] for name in ("sections", "figures", "tables")}
    content["verdicts"] = [{name: getattr(one, name) for name in shown} for one in verdicts]
    print_table(as_json, content, made.title, [(verdict.outcome, verdict.claim) for verdict in verdicts])
    if not as_json:
        typer.echo(f"saved in {folder}")
