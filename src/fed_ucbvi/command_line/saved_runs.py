"""``fed-ucbvi show``, ``play`` and ``act``: saved runs drawn, summed up and compared; their policies at work."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

import fed_ucbvi
from fed_ucbvi.command_line.flags import environment_names
from fed_ucbvi.command_line.options import JSON, argument, option
from fed_ucbvi.command_line.outputs import print_json, print_table, summary_rows
from fed_ucbvi.command_line.program import interruptible
from fed_ucbvi.core.errors import InputError, check_choice, check_integer
from fed_ucbvi.core.files import MANIFEST, new_file, read_manifest
from fed_ucbvi.problem.units import OWN_UNITS, PER_STEP

if TYPE_CHECKING:
    from rich.table import Table

    from fed_ucbvi.analysis.comparison import Comparison
    from fed_ucbvi.analysis.play import PlayedEpisodes
    from fed_ucbvi.results.run import Run

FORMATS = ("table", "markdown", "latex", "csv")
ENDLESS_WIDTH = 10_000
"""More columns than any terminal has."""
MIN_LABEL_WIDTH = 16
"""Columns that the label of a group may have before it is folded."""
LESS_NEEDED = ("seeds_needed", "failing", "lower_in", "difference", "median", "seeds", "ratio")
"""Columns to leave out where a terminal is too narrow for all, the first one first."""
FRAME_MILLISECONDS = 250
"""Time for which a frame of a GIF is shown."""


def show(
    folders: list[Path] = argument("DIR...", "Folders of 'run --out DIR' or 'sweep --out DIR'."),
    out: Path | None = option(
        None,
        "FILE",
        "The picture, .png, .svg or .pdf; replaced if it exists.",
        default="DIR/run.png for one run, none for several",
    ),
    step: int | None = option(
        None,
        "h",
        "For one run: step (from 1) whose policy is drawn; by default the first at which each square can be reached.",
    ),
    by: list[str] | None = option(
        None,
        "NAME",
        "Settings that form groups of runs: algorithm, environment, agents, a parameter; may be repeated.",
        default="algorithm",
    ),
    metric: str = option("regret", "NAME", "The figure to compare: regret, rounds, bytes..."),
    baseline: str | None = option(
        None, "GROUP", "The group with which the others are compared.", default="the first group"
    ),
    format_: str | None = option(
        None,
        "KIND",
        f"Format of a comparison: {', '.join(FORMATS)}.",
        default="table on a terminal, else markdown",
    ),
    columns: str | None = option(
        None,
        "NAME,NAME...",
        "Columns of a comparison: group, seeds, mean, median, deviation, ratio...",
    ),
    label: list[str] | None = option(
        None,
        "NAME=TEXT",
        "Name of an algorithm or a group in table and picture; may be repeated.",
    ),
    colour: list[str] | None = option(
        None,
        "NAME=#RRGGBB",
        "Colour of an algorithm or a group in the picture; may be repeated.",
    ),
    facet: list[str] | None = option(
        None,
        "NAME",
        "Draw a panel for each value: environment, agents, a parameter...; may be repeated.",
        default="none while all curves can be told apart",
    ),
    y_log: bool = option(False, "", "Draw on logarithmic vertical axes."),
    size: str | None = option(None, "WxH", "Size of the picture in inches, such as 6.5x3."),
    units: str = option(OWN_UNITS, "NAME", f"Units of rewards, values and regret: {OWN_UNITS}, or '{PER_STEP}'."),
    as_json: bool = JSON,
) -> None:
    """Draw a saved run and print its summary; compare several runs, or those of a sweep, over their seeds."""
    from fed_ucbvi.charts.picture_files import check_picture

    if out is not None:
        check_picture(out)
    if format_ is not None:
        check_choice("format", format_, FORMATS)
    labels = _pairs("--label", label)
    colours = _pairs("--colour", colour)
    inches = None if size is None else _inches(size)
    runs = [run.in_units(units) for folder in folders for run in _read(folder)]
    if len(folders) == len(runs) == 1:
        if any((by, metric != "regret", baseline, format_, columns, label, colour, facet, y_log, size)):
            raise InputError("one run takes --out, --step and --json only; the others compare several runs.")
        _show_one(runs[0], folders[0] / "run.png" if out is None else out, step, as_json=as_json)
        return
    if step is not None:
        raise InputError("--step belongs to the picture of one run; leave it out, or name one run.")
    if out is None and (colours or facet or y_log or inches):
        raise InputError("--colour, --facet, --y-log and --size are about the picture; pass --out FILE too.")
    comparison = fed_ucbvi.compare_runs(
        runs,
        by=by or "algorithm",
        metric=metric,
        baseline=baseline,
        labels=labels,
    )
    if out is not None:
        fed_ucbvi.plot_runs(
            runs,
            out,
            facet=facet or None,
            y_log=y_log,
            labels=labels,
            colours=colours,
            size=inches,
        )
    names = None if columns is None else [name.strip() for name in columns.split(",")]
    usual = "table" if sys.stdout.isatty() else "markdown"
    _print(comparison, names, format_ or usual, as_json=as_json)


def _show_one(run: Run, picture: Path, step: int | None, *, as_json: bool) -> None:
    """Draw a run and print its summary; ``step`` is counted from 1."""
    from fed_ucbvi.results.run_picture import plot_run

    if step is not None:
        step = check_integer("step", step, at_least=1, at_most=run.about.horizon) - 1
    plot_run(run, picture, step=step)
    title, rows = summary_rows(run)
    content = {**run.summary(), "picture": str(picture)}
    print_table(as_json, content, title, [*rows, ("picture", str(picture))])


def _read(folder: Path) -> Sequence[Run]:
    from fed_ucbvi.sweeps.store import FORMAT

    if (folder / MANIFEST).is_file() and read_manifest(folder)["format"] == FORMAT:
        return [run for _, run in fed_ucbvi.load_runs(folder)]
    return [fed_ucbvi.Run.load(folder)]


def _pairs(option: str, texts: Sequence[str] | None) -> dict[str, str]:
    """The values of a repeated option NAME=TEXT, by name; a name may contain the sign."""
    pairs = [text.rpartition("=") for text in texts or ()]
    for name, sign, value in pairs:
        if not (name.strip() and sign and value.strip()):
            raise InputError(f"{option} is written NAME=TEXT, got '{name}{sign}{value}'.")
    return {name.strip(): value.strip() for name, _, value in pairs}


def _inches(text: str) -> tuple[float, float]:
    try:
        width, height = (float(side) for side in text.lower().split("x"))
    except ValueError:
        raise InputError(f"--size is written WxH in inches, such as 6.5x3, got '{text}'.") from None
    return width, height


def _print(comparison: Comparison, columns: Sequence[str] | None, format_: str, *, as_json: bool) -> None:
    if as_json:
        rows = comparison.frame.rows(named=True)
        print_json({"metric": comparison.metric, "baseline": comparison.baseline, "groups": rows})
    elif format_ == "table":
        _print_table(comparison, columns)
    else:
        write = {"csv": comparison.to_csv, "latex": comparison.to_latex, "markdown": comparison.to_markdown}[format_]
        typer.echo(write(columns), nl=False)


def _print_table(comparison: Comparison, columns: Sequence[str] | None) -> None:
    """The comparison as wide as the terminal: columns that say nothing, or do not fit, are left out."""
    from rich.console import Console
    from rich.text import Text

    from fed_ucbvi.analysis.comparison import PAIRED, USUAL

    console = Console(highlight=False)
    frame = comparison.frame
    names = list(USUAL if columns is None else columns)
    if columns is None:
        alone = frame["problem"].n_unique() == frame.height > 1
        empty = [name for name in (*PAIRED, "failing") if set(frame[name].to_list()) <= {None, "baseline"}]
        names = ["problem" if alone and name == "group" else name for name in names if name not in empty]
    for name in LESS_NEEDED if columns is None else ():
        width = Console(width=ENDLESS_WIDTH, height=1).measure(_table(comparison, names, headed=False)).maximum
        if width > console.width and name in names:
            names.remove(name)
    console.print(_table(comparison, names, headed="problem" not in names))
    console.print(Text(comparison.caption_of(names), style="dim"))


def _table(comparison: Comparison, names: Sequence[str], *, headed: bool) -> Table:
    """A table for the terminal; if ``headed``, problems are headings in it."""
    from rich.table import Table
    from rich.text import Text

    from fed_ucbvi.analysis.comparison import TEXT_COLUMNS

    header, rows = comparison.texts(names)
    problems = comparison.frame["problem"].to_list()
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name, text in zip(names, header, strict=True):
        if name in ("group", "problem"):
            table.add_column(text, overflow="fold", min_width=MIN_LABEL_WIDTH)
        else:
            table.add_column(text, justify="left" if name in TEXT_COLUMNS else "right", no_wrap=True)
    for place, (problem, row) in enumerate(zip(problems, rows, strict=True)):
        if headed and problem and problem not in problems[:place]:
            table.add_row(Text(problem, style="bold"))
        table.add_row(*(Text(text) for text in row))
    return table


def act(
    path: Path = argument("POLICY", "A policy file, or the folder of a saved run."),
    step: int | None = option(None, "h", "The step, from 0."),
    state: int | None = option(None, "s", "The state, from 0."),
    certs: Path | None = option(None, "DIR", "Accept only a policy signed under the authority in it (ca.crt)."),
    server_name: str | None = option(None, "NAME", "Name in the server's certificate, if it is not HOST."),
    seed: int | None = option(
        None,
        "SEED",
        "Seed of the draws, if the policy draws its actions; random by default.",
    ),
    episode: int = option(0, "t", "The number of the episode, from 0; with --seed it decides what is drawn."),
    as_json: bool = option(False, "", "Print a JSON object for each answer.", name="--json"),
) -> None:
    """Print the action of a policy; without --step and --state, one for each line 'h s' of standard input.

    A line may also be 'h s t', with the number t of the episode. Without t every line is an episode of its own.
    """
    if (step is None) != (state is None):
        raise InputError("pass both --step and --state, or neither and write lines 'h s' to standard input.")
    if server_name is not None and certs is None:
        raise InputError("--server-name names the expected signer; pass --certs DIR as well.")
    policy = fed_ucbvi.load_policy(path, authority=None if certs is None else certs / "ca.crt", server=server_name)
    known = {} if policy.guarantee is None else {"guarantee": policy.guarantee.to_data()}
    asked = _lines(episode) if step is None or state is None else iter([(step, state, episode)])
    for h, s, t in asked:
        action = policy.act(h, s, seed=seed, episode=t)
        answer = json.dumps({"step": h, "state": s, "action": action, **known}) if as_json else str(action)
        sys.stdout.write(answer + "\n")
        sys.stdout.flush()  # a program that asks line by line waits for it


def _lines(first_episode: int) -> Iterator[tuple[int, int, int]]:
    """Step, state and episode of each line of standard input."""
    for number, line in enumerate(sys.stdin, 1):
        if not line.strip():
            continue
        parts = line.split()
        if len(parts) not in (2, 3) or not all(part.isdecimal() and part.isascii() for part in parts):
            raise InputError(
                f"line {number} of standard input is {line.strip()!r}; expected a step and a state, 'h s', or these "
                "and the number of the episode, 'h s t'."
            )
        yield int(parts[0]), int(parts[1]), int(parts[2]) if len(parts) == 3 else first_episode + number - 1


def play(
    path: Path = argument("DIR", "A saved run, or a policy exported from one."),
    agent: int = option(0, "i", "Number of the agent in whose environment to play, from 0."),
    episodes: int = option(10, "N", "Number of episodes."),
    seed: int = option(0, "N", "Seed of the environment."),
    env: str | None = option(
        None,
        "NAME|FILE|MODULE:ATTRIBUTE",
        "The environment, if it is code of your own or not on record.",
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

    if render is not None and (out is not None or as_json):
        raise InputError("--render shows episodes on the screen; it does not go with --out or --json.")
    mode = _mode(render, out)
    policy = fed_ucbvi.load_policy(path)
    frames: list[Any] = []
    with interruptible(), progress_bar("episodes") as report:
        played = play_policy(
            policy,
            agent=agent,
            episodes=episodes,
            seed=seed,
            environment=env,
            render_mode=mode,
            show=partial(typer.echo, color=True) if mode == "ansi" else frames.append,  # colours say where it is
            report=report,
        )
    if out is not None:
        from PIL import Image

        first, *others = map(Image.fromarray, frames)
        with new_file(out) as draft:
            first.save(draft, format="GIF", save_all=True, append_images=others, duration=FRAME_MILLISECONDS, loop=0)
    certified = None if policy.guarantee is None else policy.guarantee.to_data()
    content = {**played.summary(), "guarantee": certified, "picture": None if out is None else str(out)}
    title = f"{policy.environment.get('id', policy.environment.get('name'))}, agent {agent}, seed {seed}"
    rows = _played_rows(played)
    if policy.guarantee is not None:
        rows.append(("certificate", str(policy.guarantee)))
        rows += [("assumed", sentence) for sentence in policy.guarantee.assumed]
    print_table(as_json, content, title, rows if out is None else [*rows, ("saved to", str(out))])


def _mode(render: str | None, out: Path | None) -> str | None:
    if out is not None:
        if out.suffix.lower() != ".gif" or out.is_dir():
            raise InputError(f"cannot write a moving picture to {out}: its name must end in .gif.")
        return "rgb_array"
    if render is None:
        return None
    check_choice("way to render", render, ("text", "human"))
    return "ansi" if render == "text" else render


def _played_rows(played: PlayedEpisodes) -> list[tuple[str, str]]:
    """The figures for people, in the environment's own units."""
    figures = played.summary()
    length = f"{figures['mean_length']:.1f} steps on average (H = {figures['horizon']})"
    rows = [("episodes", f"{figures['episodes']:,}, of {length}")]
    error = "" if figures["standard_error"] is None else f" \u00b1 {figures['standard_error']:.2g} (s.e.)"
    values = [("", figures["value_of_the_run"]), ("for this agent ", figures["value_for_the_agent"])]
    known = ", ".join(f"{where}{value:,.4g}" for where, value in values if value is not None)
    rows.append(("mean return", f"{figures['mean_return']:,.4g}{error}; value {known or 'unknown'}"))
    worth = f"{figures['worth_at_least']:,.4g} to {figures['worth_at_most']:,.4g}"
    rows.append(("", f"worth {worth}, with probability {1 - figures['delta']:g}"))
    return rows
