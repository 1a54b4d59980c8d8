"""``fed-ucbvi play``: the recommended policy at work."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fed_ucbvi.command_line.parameters import whole_number
from fed_ucbvi.command_line.shared_options import environment_flag
from fed_ucbvi.problem.units import Units

if TYPE_CHECKING:
    from fed_ucbvi.analysis.play import Played

MILLISECONDS = 250
"""How long a frame of a GIF is shown."""


def play(
    path: Annotated[Path, typer.Argument(metavar="DIR", help="A saved run, or a policy exported from one.")],
    agent: Annotated[
        int, typer.Option(parser=whole_number, metavar="i", help="In whose environment to play, from 0.")
    ] = 0,
    episodes: Annotated[int, typer.Option(parser=whole_number, metavar="N", help="How many episodes.")] = 10,
    seed: Annotated[int, typer.Option(parser=whole_number, metavar="N", help="Seed of the environment.")] = 0,
    env: Annotated[
        str | None,
        environment_flag("The environment, if it is code of your own or not on record.", show_default="as recorded"),
    ] = None,
    render: Annotated[
        str | None, typer.Option(metavar="HOW", help="text: print every step; human: open a window.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.gif", help="Save all episodes as one moving picture.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Play the policy that a run recommends, and compare what it is paid with what the run says it is worth."""
    from fed_ucbvi.analysis.play import play as play_policy
    from fed_ucbvi.command_line.interruption import interruptible
    from fed_ucbvi.command_line.outputs import print_json, print_rows
    from fed_ucbvi.core.errors import InputError
    from fed_ucbvi.engine.progress import progress_bar
    from fed_ucbvi.results.policy import load_policy

    if render is not None and (out is not None or as_json):
        raise InputError("--render shows episodes on the screen; it does not go with --out or --json.")
    mode = _mode(render, out)
    policy = load_policy(path)
    frames: list[Any] = []
    with interruptible(), progress_bar("episodes") as report:
        played = play_policy(
            policy,
            agent=agent,
            episodes=episodes,
            seed=seed,
            environment=env,
            render_mode=mode,
            show=_print if mode == "ansi" else frames.append,
            report=report,
        )
    if out is not None:
        _save_gif(out, frames)
    if as_json:
        print_json({**played.summary(), "picture": None if out is None else str(out)})
        return
    title = f"{policy.environment.get('id', policy.environment.get('name'))}, agent {agent}, seed {seed}"
    print_rows(title, [*_rows(played), *([] if out is None else [("saved to", str(out))])])


def _mode(render: str | None, out: Path | None) -> str | None:
    """Gymnasium's render mode."""
    from fed_ucbvi.core.errors import InputError, check_choice

    if out is not None:
        if out.suffix.lower() != ".gif" or out.is_dir():
            raise InputError(f"cannot write a moving picture to {out}: its name must end in .gif.")
        return "rgb_array"
    if render is None:
        return None
    check_choice("way to render", render, ("text", "human"))
    return "ansi" if render == "text" else render


def _print(frame: Any) -> None:
    """Text as the environment gives it: colours often say where the agent is, so they are kept in a pipe too."""
    typer.echo(frame, color=True)


def _save_gif(path: Path, frames: list[Any]) -> None:
    from PIL import Image

    from fed_ucbvi.core.files import new_file

    pictures = [Image.fromarray(frame) for frame in frames]
    with new_file(path) as draft:
        pictures[0].save(
            draft, format="GIF", save_all=True, append_images=pictures[1:], duration=MILLISECONDS, loop=0
        )


def _rows(played: Played) -> list[tuple[str, str]]:
    """The figures for people; in one kind of units where the two are the same."""
    figures = played.summary()
    length = f"{figures['mean_length']:.1f} steps on average (H = {figures['horizon']})"
    rows = [("episodes", f"{figures['episodes']:,}, of {length}")]
    same = played.policy.units == Units()
    kinds = [("mean return", "original")] if same else [("its own units", "original"), ("in [0, 1]", "rescaled")]
    for name, kind in kinds:
        one = figures[kind]
        error = "" if one["standard_error"] is None else f" \u00b1 {one['standard_error']:.2g} (s.e.)"
        values = [("", one["value_of_the_run"]), ("for this agent ", one["value_for_the_agent"])]
        known = ", ".join(f"{where}{value:.4g}" for where, value in values if value is not None)
        rows.append((name, f"{one['mean_return']:.4g}{error}; value {known or 'unknown'}"))
    return rows
