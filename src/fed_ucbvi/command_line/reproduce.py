"""``fed-ucbvi reproduce``: the representative experiment, from nothing to figures."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from fed_ucbvi.command_line.parameters import whole_number


def reproduce(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for runs, figures and figures' data.")] = Path(
        "results"
    ),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier reproduction in --out.")] = False,
    seeds: Annotated[int, typer.Option(parser=whole_number, metavar="N", help="Runs for each value of eps_p.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Run Fed-UCBVI on the paper's GridWorld with several seeds, and draw regret and communication."""
    from fed_ucbvi.command_line.interruption import interruptible
    from fed_ucbvi.command_line.outputs import check_out, print_json, warn
    from fed_ucbvi.experiments import representative

    check_out(out, overwrite=overwrite, kind=representative.FORMAT)
    with interruptible(), progress_bar("runs") as report:
        summary = representative.reproduce(out, seeds=seeds, overwrite=overwrite, report=report)
    for text in summary["warnings"]:
        warn(text)
    if as_json:
        print_json(summary)
    else:
        _print_table(summary, out)


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A function to tell how many of how many are done; on a terminal it shows a bar after two seconds."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    from fed_ucbvi.progress import PATIENCE

    count = TextColumn(f"{{task.completed}}/{{task.total}} {what}")
    columns = (count, BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    began = time.perf_counter()
    task = bar.add_task("")

    def report(done: int, total: int) -> None:
        bar.update(task, completed=done, total=total)
        if time.perf_counter() - began > PATIENCE:
            bar.start()

    try:
        yield report
    finally:
        if bar.live.is_started:
            bar.stop()


def _print_table(summary: dict[str, Any], out: Path) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    settings = summary["settings"]
    table = Table(
        title=f"{settings['algorithm']} on {settings['environment']}: {settings['agents']} agents, "
        f"{settings['episodes']:,} episodes, H = {settings['horizon']}",
        caption=f"runs for each eps_p: {settings['seeds']}; \u00b1 is half a 95 % interval of the mean",
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
    )
    for column in ("eps_p", "common regret", "rounds", "MB up", "MB down", "value (optimum)"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in summary["results"]:
        table.add_row(
            f"{row['eps_p']:g}",
            _with_margin(row["common_regret"]),
            _with_margin(row["rounds"]),
            f"{row['bytes_up']['mean'] / 1e6:,.1f}",
            f"{row['bytes_down']['mean'] / 1e6:,.1f}",
            f"{row['value']['mean']:.3f} ({row['optimal_value']:.3f})",
        )
    console = Console(highlight=False)
    console.print(table)
    console.print(f"saved in {out}", soft_wrap=True)


def _with_margin(figures: dict[str, Any]) -> str:
    mean, margin = figures["mean"], figures["margin"]
    return f"{mean:,.1f}" if margin is None else f"{mean:,.1f} \u00b1 {margin:,.1f}"
