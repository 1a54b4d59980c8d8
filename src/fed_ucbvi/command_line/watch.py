"""``fed-ucbvi watch``: the live page of a folder, or a running page in the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fed_ucbvi.command_line.shared_options import DashboardCert, DashboardToken, Json

if TYPE_CHECKING:
    from fed_ucbvi.dashboard.client import Target

SECONDS_BETWEEN, SECONDS_TO_TRY_AGAIN = 2.0, 1.0
"""Between two looks at a folder, and between two attempts to reach a page."""


def watch(
    source: Annotated[
        str,
        typer.Argument(
            metavar="DIR|URL",
            help="A saved run, a sweep or the checkpoint of a run; or http://HOST:PORT/ of a running page.",
        ),
    ],
    dashboard: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where to serve the page of DIR; port 0 takes a free one.")
    ] = "127.0.0.1:0",
    dashboard_cert: DashboardCert = None,
    dashboard_token: DashboardToken = None,
    authority: Annotated[
        Path | None,
        typer.Option("--ca", metavar="FILE", help="Of an https URL: the authority that signed its certificate."),
    ] = None,
    text: Annotated[bool, typer.Option("--text", help="In the terminal; a URL always is.")] = False,
    as_json: Json = False,
) -> None:
    """Show how a run, a federation or a sweep stands or went: DIR on a page of its own, URL in the terminal.

    The page of DIR is served until Ctrl-C. What is shown of a URL follows it until its run is over.
    """
    from fed_ucbvi.command_line.live_page import PageOptions
    from fed_ucbvi.command_line.outputs import print_json

    if source.startswith(("http://", "https://")):
        from fed_ucbvi.core.errors import InputError
        from fed_ucbvi.dashboard.client import LOST, Target

        target = Target.parse(source, dashboard_token, authority)
        if not as_json:
            _follow(target, source)
            return
        try:
            print_json(target.snapshot())
        except LOST as error:
            raise InputError(f"{source} cannot be reached: {error}.") from error
        return
    if as_json or text:
        from fed_ucbvi.dashboard.folders import state_of_folder

        content = state_of_folder(Path(source))[0].snapshot()
        if as_json:
            print_json(content)
        else:
            _print(content)
        return
    _serve(Path(source), PageOptions(dashboard, dashboard_cert, dashboard_token))


def _serve(folder: Path, options: Any) -> None:
    """Serve the page of a folder until Ctrl-C."""
    import threading

    from fed_ucbvi.command_line.interruption import interruptible
    from fed_ucbvi.command_line.live_page import live_page
    from fed_ucbvi.dashboard.folders import state_of_folder

    state, look = state_of_folder(folder)
    with interruptible(), live_page(options, lambda: state):
        typer.echo("Ctrl-C ends it", err=True)
        pause = threading.Event()
        try:
            while not pause.wait(SECONDS_BETWEEN):
                if look is not None:
                    look()
        except KeyboardInterrupt:
            return


def _follow(target: Target, source: str) -> None:
    """Show a page in the terminal until its run is over; where nobody looks, only how it was in the end."""
    import sys
    import time

    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from fed_ucbvi.core.errors import InputError
    from fed_ucbvi.dashboard.client import LOST
    from fed_ucbvi.dashboard.state import OVER, STOPPED
    from fed_ucbvi.dashboard.text_view import text_view

    content: dict[str, Any] | None = None
    shown = Console(stderr=not sys.stdout.isatty())
    with Live(console=shown, auto_refresh=False, transient=True) as live:
        while True:
            try:
                for content in target.follow():
                    if shown.is_terminal:
                        live.update(text_view(content), refresh=True)
                    if content["status"]["phase"] in (OVER, STOPPED):
                        break
            except LOST as error:
                if content is None:
                    raise InputError(f"{source} cannot be reached: {error}.") from error
            if content is not None and content["status"]["phase"] in (OVER, STOPPED):
                break
            live.update(Text("the connection to the server is lost; trying again"), refresh=shown.is_terminal)
            time.sleep(SECONDS_TO_TRY_AGAIN)
    _print(content)


def _print(content: dict[str, Any]) -> None:
    from rich.console import Console

    from fed_ucbvi.dashboard.text_view import text_view

    Console(highlight=False).print(text_view(content))
