"""The command line: what it prints, what it writes, and how it ends."""

from __future__ import annotations

import io
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from typer.main import get_command

from commands import PROGRAM, PUBLISHED, SMALL, Terminal, call, executed, refusal, told
from fed_ucbvi import (
    UCBVI,
    FedKLUCBVI,
    FedUCBVI,
    Inspection,
    Run,
    Sweep,
    __version__,
    compare_runs,
    gridworld,
    inspect_federation,
    load_runs,
    plan,
    resume,
    run,
    synthetic,
)
from fed_ucbvi.algorithms import ALGORITHMS
from fed_ucbvi.command_line import app
from fed_ucbvi.command_line.program import PATIENCE, Interruption
from fed_ucbvi.core.parameters import converted
from fed_ucbvi.engine.progress import progress_bar
from matrices import first_of
from sweeps import made_sweep

# ------------------------------------------------------------------------------------------- what it prints


def test_one_json_object_states_the_figures_of_the_run() -> None:
    summary = told(SMALL, "--eps-p", "0.1", "--seed", "3", "--driver", "counts")
    expected = run(FedUCBVI(nu=50), synthetic(agents=3, eps_p=0.1), 60, seed=3, driver="counts").summary()
    assert {**summary, "wall_seconds": 0} == {**json.loads(json.dumps(expected)), "wall_seconds": 0}
    wanted = "algorithm env agents episodes eps_p seed driver regret rounds bytes_up bytes_down nu"
    assert {*wanted.split(), "wall_seconds", "rules_fired"} <= set(summary)


def test_defaults_are_the_recommended_algorithm_on_the_papers_gridworld() -> None:
    summary = told("run")
    expected = run(FedKLUCBVI(), gridworld(agents=20, eps_p=0.0, seed=0), 30_000, seed=0, driver="auto")
    assert summary["regret"] == expected.regret
    assert summary["environment"] == expected.about.environment
    assert (summary["algorithm"], summary["driver"], summary["seed"]) == ("fed-kl-ucbvi", "auto", 0)


def test_people_get_an_aligned_summary() -> None:
    result = call(SMALL)
    assert result.exit_code == 0
    assert result.stderr == ""
    parts = ("fed-ucbvi on synthetic", "\n  regret ", "rounds", "local")
    for part in (*parts, "communication", "optimum", "wall"):
        assert part in result.stdout


def test_quiet_run_prints_nothing() -> None:
    assert call(SMALL, "--quiet").output == ""


def test_quiet_run_still_prints_its_json() -> None:
    assert told(SMALL, "--quiet")["rounds"] > 0


class TestRunWithAWarning:
    """A run whose global rule cannot fire, in a process of its own."""

    @pytest.fixture
    def ended(self) -> subprocess.CompletedProcess[str]:
        words = "run --env synthetic --agents 2 --episodes 20 --option nu=50 --json"
        return executed(PROGRAM, words.split(), PUBLISHED)

    def test_the_json_on_standard_output_has_the_warning(self, ended: subprocess.CompletedProcess[str]) -> None:
        assert json.loads(ended.stdout)["warnings"]

    def test_standard_error_has_the_warning_alone(self, ended: subprocess.CompletedProcess[str]) -> None:
        (line,) = ended.stderr.splitlines()
        assert line.startswith("warning: the global rule cannot fire: it needs N >= nu = 50")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("rows=4", 4),
        ("walls=[[0,1]]", [[0, 1]]),
        ("horizon=6", 6),
    ],
)
def test_option_of_the_environment_reaches_it(option: str, value: object) -> None:
    words = ("run", *PUBLISHED, "--agents", "2", "--episodes", "20", "--env-option", option)
    assert told(words)["environment"][option.partition("=")[0]] == value


def test_seed_of_the_environment_reaches_it() -> None:
    summary = told("run", PUBLISHED, "--agents", "2", "--episodes", "20", "--env-seed", "4")
    assert summary["environment"]["seed"] == 4


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("nu=1e1", 10),
        ("bonus-scale=2", 2),
        ("strict=yes", True),
        ("ties=random", "random"),
    ],
)
def test_option_of_the_algorithm_reaches_it(option: str, value: object) -> None:
    words = ("run", *PUBLISHED, "--agents", "2", "--episodes", "20", "--option", option)
    name = option.partition("=")[0].replace("-", "_")
    assert told(words)["parameters"][name] == value


def test_parameter_that_is_not_given_has_its_default() -> None:
    assert told(SMALL)["parameters"]["bonus"] == FedUCBVI().bonus


@pytest.mark.parametrize(
    ("text", "hint", "value"),
    [
        ("true", bool, True),
        ("No", bool, False),
        ("3", int, 3),
        ("1e3", int, 1000),
        ("2.5", float, 2.5),
        ("none", float | None, None),
        ("none", str, "none"),
        ("first", str | None, "first"),
        ("[1, 2]", list[int], [1, 2]),
        ("7", int | float, 7),
    ],
)
def test_values_are_read_by_the_type_of_the_parameter(text: str, hint: Any, value: object) -> None:
    read = converted("x", text, hint)
    assert read == value
    assert type(read) is type(value)


def test_parameters_of_one_algorithm_are_refused_by_name_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True)
    class Other(UCBVI):
        name: ClassVar[str] = "other"
        rate: int = 1

    monkeypatch.setattr(ALGORITHMS, "_own", {**ALGORITHMS, "other": Other})
    assert "parameter of other 'nu'" in refusal("run", "--algorithm", "other", "--option", "nu=3")
    assert "rate must be a whole number" in refusal("run", "--algorithm", "other", "--option", "rate=x")


def test_version_is_that_of_the_package() -> None:
    assert call("--version").stdout.strip() == f"fed-ucbvi {__version__}"


@pytest.mark.parametrize("words", ["", "--help", "run --help"])
def test_help_begins_with_the_usage(words: str) -> None:
    assert "Usage: fed-ucbvi" in call(words.split()).stdout


def test_help_of_run_explains_watching_with_loss_0() -> None:
    text = " ".join(call("run", "--help").stdout.split())
    assert "With --incumbent and --loss 0 the run only watches" in text


def test_environments_are_listed_with_the_types_of_their_options() -> None:
    options = {item["name"]: item for item in told("environments")["gridworld"]["parameters"]}
    assert (options["rows"]["default"], options["rows"]["type"]) == (3, "int in [1, inf)")


def test_environments_are_listed_with_the_help_of_their_options() -> None:
    options = {item["name"]: item for item in told("environments")["gridworld"]["parameters"]}
    assert options["success"]["description"] == "probability of moving as intended."


def test_algorithms_are_listed_with_the_defaults_of_their_parameters() -> None:
    parameters = {item["name"]: item["default"] for item in told("algorithms")["fed-ucbvi"]["parameters"]}
    assert parameters == {name: getattr(FedUCBVI(), name) for name in parameters}


@pytest.mark.parametrize(("command", "option"), [("environments", "horizon"), ("algorithms", "synchronisation")])
def test_list_for_people_has_the_options(command: str, option: str) -> None:
    assert option in call(command).stdout


def test_list_of_named_algorithms_has_these_alone() -> None:
    assert list(told("algorithms", "ucbvi")) == ["ucbvi"]


def test_unknown_name_in_a_list_is_refused_with_the_nearest_one() -> None:
    assert "did you mean 'gridworld'?" in refusal("environments", "synthetic", "gridwrld")


# ------------------------------------------------------------------------------------------- one JSON object


def commands_with_options() -> dict[str, set[str]]:
    """Flags of every command and subcommand, by name."""
    found = {}
    program: Any = get_command(app)
    for name, command in program.commands.items():
        found[name] = {flag for option in command.params for flag in option.opts}
        for part, subcommand in getattr(command, "commands", {}).items():
            found[f"{name} {part}"] = {flag for option in subcommand.params for flag in option.opts}
    return found


@pytest.mark.parametrize("command", commands_with_options())
def test_every_command_can_print_json(command: str) -> None:
    assert "--json" in commands_with_options()[command]


QUICK = {
    "run": " ".join(SMALL),
    "environments": "environments gridworld",
    "algorithms": "algorithms ucbvi",
    "plan": "plan --env synthetic",
    "inspect": "inspect --env synthetic --agents 2",
    "advise": "advise --states 4 --actions 2 --horizon 3 --agents 2",
    "act": "act saved --step 0 --state 1",
    "show": "show saved",
    "play": "play saved --episodes 1",
    "counts": "counts kept --out counts.npz",
    "resume": "resume kept --overwrite",
    "certs": "certs --out certs --node a",
    "certs request": "certs request b --out own",
    "leaderboard": "leaderboard",
}
"""Command lines, by command, of those that take a moment."""


@pytest.mark.parametrize("command", QUICK)
def test_json_of_a_command_is_one_object(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert call(SMALL, "--out", "saved", "--checkpoint", "kept", "--quiet").exit_code == 0
    assert isinstance(told(QUICK[command].split()), dict)


# ------------------------------------------------------------------------------------------- what it refuses


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--eps-p", "1"], "eps_p must be a number in [0, 1)"),
        (["--eps-p", "nan"], "eps_p must be a number"),
        (["--eps-p", "x"], "'--eps-p'"),
        (["--agents", "1.5"], "whole number"),
        (["--episodes", "many"], "whole number"),
        (["--episodes", "1e16"], "episodes must be at most 9007199254740992"),
        (["--env-option", "horizon=0"], "horizon must be at least 1"),
        (["--env-option", "horizon=long"], "long"),
        (["--env-option", "success=NaN"], "success must be finite"),
        (["--env-option", "success=high"], "success must be a number"),
        (["--env-option", "walls=7"], "gridworld"),
        (["--env-option", "rws=4"], "did you mean 'rows'?"),
        (["--env-option", "agents=4"], "give it as agents (--agents)"),
        (["--env", "gridwrld"], "did you mean 'gridworld'?"),
        (["--algorithm", "fed-ucb"], "did you mean 'fed-ucbvi'?"),
        (["--driver", "count"], "did you mean 'counts'?"),
        ([*PUBLISHED, "--option", "bonus=theroy"], "did you mean 'theory'?"),
        ([*PUBLISHED, "--option", "synchronisation=globl"], "did you mean 'global'?"),
        ([*PUBLISHED, "--option", "bonsu=theory"], "parameter of fed-ucbvi 'bonsu'; did you mean 'bonus'?"),
        ([*PUBLISHED, "--option", "bonus=theory", "--option", "bonus=theory"], "--option gives bonus twice"),
        ([*PUBLISHED, "--option", "nu=nan"], "nu must be a finite number or none"),
        ([*PUBLISHED, "--option", "nu=-1"], "nu must be a number in [0, inf)"),
        ([*PUBLISHED, "--option", "bonus-scale=nan"], "bonus_scale must be a finite number"),
        ([*PUBLISHED, "--option", "delta=0"], "delta must be a number in (0, 1)"),
        ([*PUBLISHED, "--option", "strict=maybe"], "strict must be true or false"),
        (["--seed", "1e30"], "seed must be at most"),
        (["--checkpoint-every", "0"], "checkpoint_every must be at least 1"),
        (["--agnts", "3"], "--agents"),
        (["surplus"], "surplus"),
    ],
)
def test_bad_input_is_refused_in_one_line(
    arguments: Sequence[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing is written."""
    monkeypatch.chdir(tmp_path)
    assert message in refusal("run", "--out", "saved", arguments)
    assert list(tmp_path.iterdir()) == []


def test_out_folders_are_checked_before_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("the run has begun")

    saved = tmp_path / "saved"
    foreign = tmp_path / "foreign"
    file = tmp_path / "file"
    assert call(SMALL, "--out", saved).exit_code == 0
    foreign.mkdir()
    (foreign / "thesis.tex").write_text("precious")
    file.write_text("precious")
    kept = tmp_path / "kept"
    assert call(SMALL, "--checkpoint", kept).exit_code == 0
    monkeypatch.setattr("fed_ucbvi.engine.run.run", never)
    assert "exists" in refusal(SMALL, "--out", saved)
    assert "not something fed-ucbvi saved" in refusal(SMALL, "--out", foreign, "--overwrite")
    assert "not a folder" in refusal(SMALL, "--out", file, "--overwrite")
    assert "is not a folder" in refusal(SMALL, "--out", file / "inside")
    assert "fed-ucbvi/run is needed" in refusal(SMALL, "--out", kept, "--overwrite")
    assert "fed-ucbvi resume" in refusal(SMALL, "--checkpoint", kept)
    assert "neither inside the other" in refusal(SMALL, "--out", tmp_path / "a", "--checkpoint", tmp_path / "a")
    assert "neither inside the other" in refusal(SMALL, "--out", tmp_path / "a", "--checkpoint", tmp_path / "a/b")
    assert (foreign / "thesis.tex").read_text() == file.read_text() == "precious"
    assert Run.load(saved).complete
    monkeypatch.undo()
    assert "saved to" in call(SMALL, "--seed", "8", "--out", saved, "--overwrite").stdout
    assert Run.load(saved).about.seed == 8
    assert sorted(tmp_path.iterdir()) == [file, foreign, kept, saved]


# ----------------------------------------------------------------------------------------------- show, resume


class TestShow:
    """``show`` of one saved run."""

    @pytest.fixture
    def saved(self, tmp_path: Path) -> Path:
        call(SMALL, "--out", tmp_path / "saved")
        return tmp_path / "saved"

    def test_the_summary_has_the_regret(self, saved: Path) -> None:
        text = " ".join(call("show", saved).stdout.split())
        assert f"regret {Run.load(saved).regret:,.2f}" in text

    def test_the_picture_is_drawn_beside_the_run(self, saved: Path) -> None:
        call("show", saved)
        assert (saved / "run.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")

    def test_the_picture_has_the_format_of_its_name(self, saved: Path, tmp_path: Path) -> None:
        summary = told("show", saved, "--out", tmp_path / "new" / "x.pdf")
        assert Path(summary["picture"]).read_bytes().startswith(b"%PDF-")

    def test_the_json_has_the_figures_of_the_run(self, saved: Path) -> None:
        assert told("show", saved)["regret"] == Run.load(saved).regret


def test_show_refuses_what_is_no_saved_run(tmp_path: Path) -> None:
    out = tmp_path / "saved"
    call(SMALL, "--out", out)
    assert ".svg or .pdf" in refusal("show", out, "--out", tmp_path / "x.jpg")
    assert "step must be at most 5" in refusal("show", out, "--step", "6")
    assert "the others compare several runs" in refusal("show", out, "--metric", "rounds")
    assert "is not a folder" in refusal("show", tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    assert "no manifest.json" in refusal("show", tmp_path / "empty")
    table = out / "run.parquet"
    manifest = out / "manifest.json"
    content = table.read_bytes()
    table.write_bytes(content[:-1])
    assert "damaged" in refusal("show", out)
    table.unlink()
    assert "run.parquet is missing" in refusal("show", out)
    table.write_bytes(content)
    manifest.write_text(manifest.read_text()[:100])
    assert "damaged" in refusal("show", out)
    assert not (out / "run.png").exists()


def test_show_compares_several_runs_in_every_format(tmp_path: Path) -> None:
    names = {tmp_path / f"{scale}-{seed}": (scale, seed) for scale in (0.1, 0.3) for seed in (1, 2, 3)}
    runs = []
    for folder, (scale, seed) in names.items():
        runs.append(run(FedUCBVI(nu=50, bonus_scale=scale), synthetic(agents=3, seed=seed), 60, seed=seed))
        runs[-1].save(folder)
    expected = compare_runs(runs, metric="rounds", baseline="0.3")
    arguments: list[str | Path] = ["show", *names, "--metric", "rounds", "--baseline", "0.3"]
    assert call(arguments).stdout == expected.to_markdown()
    assert call(arguments, "--format", "latex").stdout == expected.to_latex()
    assert call(arguments, "--format", "csv").stdout == expected.frame.write_csv()
    found = told(arguments, "--out", tmp_path / "x.png")
    assert found["groups"] == expected.frame.rows(named=True)
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert "did you mean 'latex'" in refusal(arguments, "--format", "latx")
    assert "--step belongs to" in refusal(arguments, "--step", "1")
    assert "same seeds" in refusal("show", folder, folder)
    assert "unknown setting 'colour'" in refusal(arguments, "--by", "colour")


def test_show_compares_the_runs_of_a_sweep(tmp_path: Path) -> None:
    grid = {"algorithms": ["fed-ucbvi", "fedq-hoeffding"], "environments": ["synthetic"], "agents": [2]}
    sweep = Sweep(name="two", grids=[{**grid, "episodes": [60], "seeds": 2}])
    runs = [one for _, one in load_runs(made_sweep(tmp_path / "sweep", sweep))]
    assert call("show", tmp_path / "sweep").stdout == compare_runs(runs).to_markdown()
    assert call("show", tmp_path / "sweep", "--format", "csv").stdout == compare_runs(runs).frame.write_csv()
    chosen = ("--columns", "group, mean", "--label", "fed-ucbvi=x")
    latex = call("show", tmp_path / "sweep", "--format", "latex", chosen)
    assert latex.stdout == compare_runs(runs, labels={"fed-ucbvi": "x"}).to_latex(["group", "mean"])
    assert "unknown column 'means'" in refusal("show", tmp_path / "sweep", "--columns", "means")
    assert "written NAME=TEXT" in refusal("show", tmp_path / "sweep", "--label", "fed-ucbvi")
    assert "pass --out FILE too" in refusal("show", tmp_path / "sweep", "--y-log")
    assert "such as 6.5x3" in refusal("show", tmp_path / "sweep", "--out", tmp_path / "x.svg", "--size", "6.5")
    looks = ("--facet", "agents", "--y-log", "--size", "8x5", "--colour", "fed-ucbvi=#123456")
    assert call("show", tmp_path / "sweep", "--out", tmp_path / "x.svg", looks).exit_code == 0
    assert "#123456" in (tmp_path / "x.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize("width", first_of([60, 80, 200]))
def test_on_a_terminal_a_comparison_is_a_table_that_fits(
    width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worlds = [synthetic(agents=M, states=S) for M in (2, 3) for S in (3, 4)]
    scales = (0.1, 0.2)
    for (number, world), scale, seed in itertools.product(enumerate(worlds), scales, (1, 2)):
        made = run(FedUCBVI(nu=50, bonus_scale=scale), world, 30, seed=seed)
        made.save(tmp_path / f"{number}-{scale}-{seed}")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", str(width))
    with pytest.raises(SystemExit, match="0"):
        app(["show", *sorted(map(str, tmp_path.iterdir()))])
    shown = re.sub(r"\x1b\[[\d;]*m", "", terminal.getvalue())
    lines = shown.splitlines()
    assert max(map(len, lines)) <= width
    assert "|" not in shown
    assert "\u2026" not in shown, "nothing is cut"
    said = " ".join(shown.split())
    for part in ("M = 2, S = 3", "M = 3, S = 4", "bonus_scale = 0.1", "bonus_scale = 0.2", "mean regret"):
        assert part in said
    assert ("seeds needed" in lines[0]) == (width == 200)
    for scale in scales:
        value = np.mean([Run.load(tmp_path / f"0-{scale}-{seed}").regret for seed in (1, 2)])
        assert any(f"{value:.4g} [" in line for line in lines)


def test_resume_gives_what_the_run_would_have_given(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    out = tmp_path / "saved"
    expected = told(SMALL, "--checkpoint", kept, "--checkpoint-every", "7")
    summary = told("resume", kept, "--out", out)
    assert summary["regret"] == expected["regret"]
    assert Run.load(out).rounds == expected["rounds"]
    assert "exists" in refusal("resume", kept, "--out", out)
    assert "fed-ucbvi/checkpoint is needed" in refusal("resume", out)
    assert "neither inside the other" in refusal("resume", kept, "--out", kept / "x")


def test_a_bar_appears_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fed_ucbvi.engine.progress.SECONDS_BEFORE_BAR", -1.0)
    monkeypatch.setenv("TERM", "xterm")
    for stream, shown in ((Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr(sys, "stderr", stream)
        with progress_bar("runs") as report:
            report(1, 4)
            report(2, 4, 1)
        assert ("2/4 runs, 1 failed" in stream.getvalue()) is shown


# ------------------------------------------------------------------------------------------- being interrupted


def wait_until_running(process: subprocess.Popen[str], checkpoint: Path) -> None:
    """Until the state has been kept after a round; the first generation is that before it."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and process.poll() is None:
        if any(checkpoint.glob("log-000002")):
            return
        time.sleep(0.01)
    process.kill()
    pytest.fail(f"the run has not begun: {process.communicate()}")


@pytest.mark.slow
@pytest.mark.parametrize(
    "signals",
    first_of([[signal.SIGINT, signal.SIGINT, signal.SIGTERM, signal.SIGINT], [signal.SIGINT], [signal.SIGTERM]]),
    ids=["impatient", "ctrl-c", "sigterm"],
)
def test_an_interrupted_run_saves_what_it_has(tmp_path: Path, signals: Sequence[signal.Signals]) -> None:
    out = tmp_path / "saved"
    kept = tmp_path / "kept"
    words = ("run", "--env", "synthetic", "--agents", "2", "--episodes", "1e9", "--driver", "episodes", "--json")
    where: tuple[str | Path, ...] = ("--out", out, "--checkpoint", kept, "--checkpoint-every", "1")
    command = [sys.executable, "-c", PROGRAM, *words, *where]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until_running(process, kept)
    for number in signals:
        process.send_signal(number)
        time.sleep(0.005)
    stdout, stderr = process.communicate(timeout=300)
    assert process.returncode == 130
    partial = Run.load(out)
    assert not partial.complete
    assert 0 < partial.episodes_played < 10**9
    assert json.loads(stdout)["episodes_played"] == partial.episodes_played
    assert f"the result so far is saved in {out}" in stderr
    assert f"fed-ucbvi resume {kept}" in stderr
    assert "Traceback" not in stderr
    assert sorted(tmp_path.iterdir()) == [kept, out]


def test_an_interruption_without_out_says_that_nothing_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fed_ucbvi.engine.simulation import Simulation

    advance = Simulation.advance

    def advance_and_stop(simulation: Simulation) -> None:
        if simulation.rounds == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        advance(simulation)

    monkeypatch.setattr(Simulation, "advance", advance_and_stop)
    kept = tmp_path / "kept"
    result = call(SMALL, "--checkpoint", kept, "--checkpoint-every", "2")
    assert result.exit_code == 130
    assert "interrupted" in result.stdout
    assert "no result is saved" in result.stderr
    monkeypatch.undo()
    resumed = resume(kept, progress=False)
    expected = run(FedUCBVI(nu=50), synthetic(agents=3), 60)
    assert np.array_equal(resumed.policy, expected.policy)
    assert np.array_equal(resumed.records["length"], expected.records["length"])


class TestSignals:
    """Signals during a command, without a process that would receive them."""

    def test_the_first_signal_interrupts(self) -> None:
        with pytest.raises(KeyboardInterrupt):
            Interruption().handle(signal.SIGINT, None)

    def test_a_signal_soon_after_the_first_is_ignored(self) -> None:
        interruption = Interruption()
        interruption.stopped_at = time.monotonic()
        interruption.handle(signal.SIGINT, None)

    def test_a_signal_long_after_the_first_interrupts_again(self) -> None:
        interruption = Interruption()
        interruption.stopped_at = time.monotonic() - 2 * PATIENCE
        with pytest.raises(KeyboardInterrupt):
            interruption.handle(signal.SIGINT, None)

    def test_signals_while_saving_are_ignored(self) -> None:
        interruption = Interruption()
        interruption.saving()
        interruption.handle(signal.SIGTERM, None)


# ---------------------------------------------------------------------------------------- plan and inspect


class TestPlanOfSizes:
    """``plan`` of a problem that is given by its sizes."""

    SIZES = "plan --states 8 --actions 4 --horizon 10 --episodes 1e12 --eps-p 1e-4"

    @pytest.mark.parametrize(
        "answer",
        [
            "can fire: it needs N >= nu = 2.8e+11",
            "no, the bound of one agent alone is lower",
            "at this T federation wins below eps_p = 7.39e-05",
        ],
    )
    def test_the_answer_is_in_words(self, answer: str) -> None:
        assert answer in " ".join(call(self.SIZES.split()).stdout.split())

    def test_the_json_is_the_forecast(self) -> None:
        expected = plan(states=8, actions=4, horizon=10, agents=20, episodes=10**12, eps_p=1e-4).summary()
        assert told(self.SIZES.split()) == json.loads(json.dumps(expected))


def test_plan_takes_an_environment_for_its_sizes() -> None:
    expected = plan(states=12, actions=4, horizon=10, agents=20, episodes=30_000, eps_p=0.1).summary()
    rows = ("--env-option", "rows=4")
    assert told("plan", "--env", "gridworld", "--eps-p", "0.1", rows) == json.loads(json.dumps(expected))
    by_hand = " ".join(call("plan", "--env", "gridworld", "--eps-p", "0.1").stdout.split())
    assert "can never fire, whatever T" in by_hand
    assert "the bounds cannot tell at this T" in by_hand
    assert "there is one agent only" in call("plan", "--env", "synthetic", "--agents", "1").stdout


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("reprodce", "did you mean 'reproduce'?"),
        ("run --env synthetic --env-option states=200000 --env-option horizon=100", "TB of memory, and"),
        ("plan --states 5", "a plan needs states, actions and horizon"),
        ("plan --env gridworld --states 5", "a federation (--env) brings its sizes along"),
        ("plan --states 1 --actions 1 --horizon 1 --env-option x=1", "needs --env"),
        ("plan --states 0 --actions 1 --horizon 1", "states must be at least 1"),
        ("plan --env gridwrld", "did you mean 'gridworld'?"),
        ("inspect --env gridwrld", "did you mean 'gridworld'?"),
        ("inspect --env gridworld --plot x.txt", "its name must end in .png, .svg or .pdf"),
        ("inspect --env gridworld --eps-p 1", "eps_p must be a number in [0, 1)"),
        ("advise --live CartPole-v1 --agent -1", "agent must be at least 0, got -1"),
        ("bins CartPole-v1 --bins-of x=3 --out bins.json", "unknown continuous dimension 'x'. Known: 0, 1, 2, 3."),
        ("join 127.0.0.1:1 --insecure --name a --patience inf", "patience must be a number, got inf"),
        ("join 127.0.0.1:1 --insecure --name a --patience nan", "patience must be a number, got nan"),
        ("certs --out certs --server hub --days 1e9", "days must be a number in (0, 36525]"),
    ],
)
def test_what_a_command_cannot_use_is_refused_in_one_line(command: str, words: str) -> None:
    assert words in refusal(command.split())


class TestInspect:
    """``inspect`` of five agents in GridWorld."""

    WORDS = "inspect --env gridworld --agents 5 --env-seed 2"

    @pytest.fixture
    def found(self) -> Inspection:
        return inspect_federation(gridworld(agents=5, eps_p=0.1, seed=2))

    def test_the_heterogeneity_is_printed(self, found: Inspection) -> None:
        text = " ".join(call(self.WORDS.split()).stdout.split())
        assert f"0.1 by construction; {found.eps_p_least:.4g} is the least that would do" in text

    def test_the_price_of_sharing_is_printed(self, found: Inspection) -> None:
        text = " ".join(call(self.WORDS.split()).stdout.split())
        assert f"price of sharing {found.price.lower:.4g} (exact)" in text

    def test_the_picture_is_drawn(self, tmp_path: Path) -> None:
        picture = tmp_path / "agents.png"
        call(self.WORDS.split(), "--plot", picture)
        assert picture.read_bytes().startswith(b"\x89PNG")

    def test_the_json_is_the_inspection(self, found: Inspection) -> None:
        assert told(self.WORDS.split()) == found.summary()


# --------------------------------------------------------------------------------------------- being quick


def loaded_after(statement: str) -> set[str]:
    result = executed(f"import sys; {statement}; print('\\n'.join(sys.modules))")
    assert result.returncode == 0, result.stderr
    return set(result.stdout.split())


def test_nothing_heavy_is_imported_with_the_package_or_before_a_command_runs() -> None:
    assert {"numba", "matplotlib", "polars", "typer", "numpy", "rich"}.isdisjoint(loaded_after("import fed_ucbvi"))
    loaded = loaded_after("import fed_ucbvi.command_line")
    assert "typer" in loaded
    assert {"numba", "matplotlib", "polars", "numpy"}.isdisjoint(loaded)


@pytest.mark.slow
@pytest.mark.full
def test_a_run_without_a_picture_does_not_import_matplotlib() -> None:
    words = ["fed-ucbvi", *map(str, SMALL), "--json"]
    ended = "try:\n    main()\nexcept SystemExit:\n    print()"
    program = f"sys.argv = {words!r}\nfrom fed_ucbvi.command_line import main\n{ended}\n"
    assert "matplotlib" not in loaded_after(f"exec({program!r})")


def test_the_installed_program_ends_with_2_on_bad_input() -> None:
    ended = executed(PROGRAM, "run", "--eps-p", "2")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == "error: eps_p must be a number in [0, 1) (Assumption 1), got 2.0.\n"
