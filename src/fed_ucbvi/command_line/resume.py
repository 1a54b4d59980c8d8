"""``fed-ucbvi resume``: resume a run from its checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fed_ucbvi.command_line.parameters import whole_number
from fed_ucbvi.command_line.shared_options import Dashboard, DashboardCert, DashboardToken

if TYPE_CHECKING:
    from fed_ucbvi.dashboard.state import LiveState


def resume(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="What 'run --checkpoint DIR' wrote.")],
    episodes: Annotated[
        int | None,
        typer.Option(
            parser=whole_number, metavar="T", help="Episodes per agent, if there are to be more than planned."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder to save the run in.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier run in --out.")] = False,
    dashboard: Dashboard = None,
    dashboard_cert: DashboardCert = None,
    dashboard_token: DashboardToken = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar and no summary.")] = False,
) -> None:
    """Go on with an interrupted run; the result equals that of a run that was never interrupted.

    With --episodes it goes on beyond what was planned, also after its end, for algorithms that allow it.
    """
    from fed_ucbvi.command_line.interruption import interruptible
    from fed_ucbvi.command_line.live_page import PageOptions, live_page
    from fed_ucbvi.command_line.outputs import check_apart, check_out, finish
    from fed_ucbvi.engine.running import resume as go_on
    from fed_ucbvi.engine.simulation import Interrupted
    from fed_ucbvi.results.storage import FORMAT

    if out is not None:
        check_out(out, overwrite=overwrite, kind=FORMAT)
        check_apart(out, folder)

    def state() -> LiveState:
        from fed_ucbvi.dashboard.folders import state_of_folder

        return state_of_folder(folder)[0]

    page_options = PageOptions(dashboard, dashboard_cert, dashboard_token)
    with interruptible() as interruption, live_page(page_options, state) as page:
        try:
            result = go_on(folder, episodes=episodes, progress=not quiet, on_round=page.on_round)
        except Interrupted as stop:
            result = stop.partial
        interruption.saving()
        page.finish(result)
        finish(result, out=out, overwrite=overwrite, as_json=as_json, quiet=quiet, checkpoint=folder)
