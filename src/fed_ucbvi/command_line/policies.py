"""``fed-ucbvi play`` and ``act``: the recommended policy at work."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fed_ucbvi.command_line.options import JSON, argument, option
from fed_ucbvi.command_line.outputs import print_json, print_rows
from fed_ucbvi.command_line.program import interruptible
from fed_ucbvi.core.errors import InputError, check_choice
from fed_ucbvi.problem.units import Units
from fed_ucbvi.run_spec import environment_names

if TYPE_CHECKING:
    from fed_ucbvi.analysis.play import PlayedEpisodes

MILLISECONDS = 250
"""How long a frame of a GIF is shown."""


def act(
    path: Path = argument("POLICY", "A policy file, or the folder of a saved run."),
    step: int | None = option(None, "h", "The step, from 0."),
    state: int | None = option(None, "s", "The state, from 0."),
    certs: Path | None = option(None, "DIR", "Accept only a policy signed under the authority in it (ca.crt)."),
    server_name: str | None = option(None, "NAME", "In the server's certificate, if not HOST."),
    as_json: bool = option(False, "", "Print a JSON object for each answer.", name="--json"),
) -> None:
    """Print the action of a policy; without --step and --state, one for each line 'h s' of standard input."""
    from fed_ucbvi.results.run import load_policy

    if (step is None) != (state is None):
        raise InputError("pass both --step and --state, or neither and write lines 'h s' to standard input.")
    if server_name is not None and certs is None:
        raise InputError("--server-name names the expected signer; pass --certs DIR as well.")
    policy = load_policy(path, authority=None if certs is None else certs / "ca.crt", server=server_name)
    known = {} if policy.guarantee is None else {"guarantee": policy.guarantee.to_data()}
    asked = _lines() if step is None or state is None else iter([(step, state)])
    for h, s in asked:
        action = policy.act(h, s)
        answer = json.dumps({"step": h, "state": s, "action": action, **known}) if as_json else str(action)
        sys.stdout.write(answer + "\n")
        sys.stdout.flush()  # whoever asks line by line waits for it


def _lines() -> Iterator[tuple[int, int]]:
    """What standard input asks for, line by line."""
    for number, line in enumerate(sys.stdin, 1):
        if not line.strip():
            continue
        parts = line.split()
        if len(parts) != 2 or not all(part.isdecimal() and part.isascii() for part in parts):
            raise InputError(
                f"line {number} of standard input is {line.strip()!r}; expected a step and a state, 'h s'."
            )
        yield int(parts[0]), int(parts[1])


def play(
    path: Path = argument("DIR", "A saved run, or a policy exported from one."),
    agent: int = option(0, "i", "In whose environment to play, from 0."),
    episodes: int = option(10, "N", "How many episodes."),
    seed: int = option(0, "N", "Seed of the environment."),
    env: str | None = option(
        *(None, "NAME|FILE|MODULE:ATTRIBUTE", "The environment, if it is code of your own or not on record."),
        default="as recorded",
        names=environment_names,
    ),
    render: str | None = option(None, "HOW", "text: print every step; human: open a window."),
    out: Path | None = option(None, "FILE.gif", "Save all episodes as one moving picture."),
    as_json: bool = JSON,
) -> None:
    """Play the policy that a run recommends, and compare what it is paid with what the run says it is worth."""
    from fed_ucbvi.analysis.play import play as play_policy
    from fed_ucbvi.engine.progress import progress_bar
    from fed_ucbvi.results.run import load_policy

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
        certified = None if policy.guarantee is None else policy.guarantee.to_data()
        print_json({**played.summary(), "guarantee": certified, "picture": None if out is None else str(out)})
        return
    title = f"{policy.environment.get('id', policy.environment.get('name'))}, agent {agent}, seed {seed}"
    issued = [] if policy.guarantee is None else [("certificate", str(policy.guarantee))]
    print_rows(title, [*_rows(played), *issued, *([] if out is None else [("saved to", str(out))])])


def _mode(render: str | None, out: Path | None) -> str | None:
    """Gymnasium's render mode."""
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


def _rows(played: PlayedEpisodes) -> list[tuple[str, str]]:
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
        worth = f"{one['worth_at_least']:.4g} to {one['worth_at_most']:.4g}"
        rows.append(("", f"worth {worth}, with probability {1 - figures['delta']:g}"))
    return rows
