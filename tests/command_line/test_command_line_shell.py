"""The command line among other programs: its help, the shell, pipes, terminals and full disks."""

from __future__ import annotations

import dataclasses
import inspect
import json
import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from commands import PROGRAM, SMALL, Terminal, call, executed
from fed_ucbvi import AlgorithmSpec, FedUCBVI, InputError, ProblemSpec, Run, RunOptions, run, synthetic
from fed_ucbvi.algorithms import ALGORITHMS
from fed_ucbvi.command_line import COMMANDS, FIRST, all_commands, app, main
from fed_ucbvi.command_line.commands import GROUP, HEADINGS, Command
from fed_ucbvi.command_line.flags import FlagTable, flags_of, read_fields, written
from fed_ucbvi.command_line.options import Output, arguments_of
from fed_ucbvi.command_line.program import Program
from fed_ucbvi.core.version import __version__
from fed_ucbvi.engine.drivers import NAMES
from fed_ucbvi.environments import ENVIRONMENTS
from fed_ucbvi.network.commands.flags import RULE_FLAGS, TERM_FLAGS
from fed_ucbvi.network.commands.outputs import finish_federation, show_federation
from fed_ucbvi.network.federation_spec import FederationRules
from fed_ucbvi.network.node_terms import NodeTerms
from fed_ucbvi.network.run_plan import plan_for
from fed_ucbvi.network.server import Outcome
from fed_ucbvi.network.transport import WireCount
from matrices import first_of
from network import federate, make_nodes

pytestmark = pytest.mark.slow


EVERY_COMMAND = all_commands()
SUBCOMMANDS = [(one.name, part) for one in EVERY_COMMAND for part in one.subcommands]
EXAMPLES = [example for one in EVERY_COMMAND for example in one.examples]
EXAMPLES += [example for _, part in SUBCOMMANDS for example in part.examples]


@pytest.mark.full
@pytest.mark.parametrize("example", [*EXAMPLES, *FIRST])
def test_every_example_is_a_command_line_that_is_accepted(example: str) -> None:
    result = call(*shlex.split(example), "--help")  # unknown options are refused before the help is printed
    assert result.exit_code == 0, result.output


@pytest.mark.full
@pytest.mark.parametrize("command", EVERY_COMMAND, ids=lambda command: str(command.name))
def test_the_help_of_every_command_ends_with_its_examples(command: Command) -> None:
    text = " ".join(call(command.name, "--help").stdout.split())
    assert command.examples
    for example in command.examples:
        assert example.split()[0] == command.name
        assert f"fed-ucbvi {example}" in text


@pytest.mark.parametrize(("group", "part"), SUBCOMMANDS, ids=lambda one: getattr(one, "name", one))
def test_the_help_of_every_subcommand_ends_with_its_examples(group: str, part: Command) -> None:
    text = " ".join(call(group, part.name, "--help").stdout.split())
    for example in part.examples:
        assert f"fed-ucbvi {example}" in text


@pytest.mark.parametrize(
    "command", [*EVERY_COMMAND, *(part for _, part in SUBCOMMANDS)], ids=lambda command: str(command.name)
)
def test_the_summary_of_every_command_is_the_first_paragraph_of_its_help(command: Command) -> None:
    documentation = inspect.cleandoc(command.load().__doc__ or "")
    assert documentation.partition("\n\n")[0].replace("\n", " ") == command.summary


def test_the_help_of_the_program_lists_every_command_under_its_heading() -> None:
    text = call("--help").stdout
    boxes = {heading: text.partition(f" {heading} ")[2].partition("╰")[0] for heading in HEADINGS}
    for command in EVERY_COMMAND:
        assert f"│ {command.name} " in boxes[command.heading]


def test_the_help_of_the_program_ends_with_examples() -> None:
    text = " ".join(call("--help").stdout.split())
    for example in FIRST:
        assert f"fed-ucbvi {example}" in text


def test_the_help_of_the_program_lists_exit_codes() -> None:
    assert "Exit codes: 0: " in " ".join(call("--help").stdout.split())


class TestMissingExtra:
    """A command whose package is not installed: an import of ``grpc`` fails, as it does without the extra."""

    CODE = "import sys; sys.modules['grpc'] = None; from fed_ucbvi.command_line import main; main()"

    def test_the_extra_is_named_when_the_command_is_called(self) -> None:
        called = executed(self.CODE, "join", "127.0.0.1:1", "--insecure", "--name", "a", "--env", "synthetic")
        assert called.returncode == 2
        assert "pip install 'fed-ucbvi[network]'" in called.stderr

    def test_the_help_of_the_command_is_shown(self) -> None:
        assert executed(self.CODE, "join", "--help").returncode == 0


MINE = Command(
    name="mine",
    summary="Print a number.",
    module="own_commands",
    function="mine",
    heading="Mine",
    examples=("mine --number 3",),
)
OWN_COMMANDS = """
from fed_ucbvi.command_line.options import JSON, option
from fed_ucbvi.command_line.outputs import print_result


def mine(number: int = option(1, "N", "A number."), as_json: bool = JSON) -> None:
    print_result(as_json, {"number": number}, str(number))
"""


def register(monkeypatch: pytest.MonkeyPatch, entry: EntryPoint) -> None:
    """Register a command as an installed package does, in place of all others, and call it."""
    for module in ("fed_ucbvi.command_line", "fed_ucbvi.core.plugins"):
        monkeypatch.setattr(f"{module}.registered", lambda group: {entry.name: entry})
    monkeypatch.setattr("sys.argv", ["fed-ucbvi", entry.name, "--json"])
    monkeypatch.setattr(Program, "ends_process", False)


class TestCommandOfAnotherPackage:
    """A command that an installed package registers as an entry point."""

    @pytest.fixture(autouse=True)
    def _installed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "own_commands.py").write_text(OWN_COMMANDS)
        monkeypatch.syspath_prepend(str(tmp_path))
        register(monkeypatch, EntryPoint("mine", f"{__name__}:MINE", GROUP))

    def test_it_is_listed_after_the_commands_of_the_core(self) -> None:
        assert all_commands() == [*COMMANDS, MINE]

    def test_it_runs_as_a_command_of_the_program(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit, match="0"):
            main()
        assert json.loads(capsys.readouterr().out) == {"number": 1}


class TestCommandThatCannotBeLoaded:
    """A command of a package whose module is missing."""

    @pytest.fixture(autouse=True)
    def _installed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        register(monkeypatch, EntryPoint("broken", "no_such_module:COMMAND", GROUP))

    def test_it_is_left_out_of_the_list(self) -> None:
        assert all_commands() == [*COMMANDS]

    def test_the_list_warns_of_it(self, capsys: pytest.CaptureFixture[str]) -> None:
        all_commands()
        assert "warning: 'broken' is registered as no_such_module:COMMAND" in capsys.readouterr().err

    def test_calling_it_names_the_missing_module(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit, match="2"):
            main()
        assert "No module named 'no_such_module'" in capsys.readouterr().err


@pytest.mark.full
def test_quick_examples_run_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    grid = 'algorithms = ["fed-ucbvi", "fed-kl-ucbvi"]\nenvironments = ["synthetic"]\nepisodes = [20]\nseeds = 2\n'
    Path("log.csv").write_text("episode,step,state,action,reward,next_state\n0,0,2,1,0.5,3\n")
    Path("sweep.toml").write_text(f'name = "small"\n[[grid]]\n{grid}')
    assert call("sweep", "sweep.toml", "--out", "sweep").exit_code == 0
    examples = {command.name: command.examples for command in EVERY_COMMAND}
    for command in ("run", "resume", "counts", "show", "plan", "inspect", "environments", "algorithms"):
        for example in examples[command]:
            again = ["--overwrite"] if command == "resume" else []
            assert call(*shlex.split(example), again).exit_code == 0, example
    assert {path.name for path in tmp_path.iterdir()} == {
        "my-run",
        "my-longer-run",
        "kept",
        "counts.npz",
        "my-run.pdf",
        "agents.png",
        "sweep.toml",
        "sweep",
        "log.csv",
        "policy.json",
    }


def flags_of_all_commands() -> set[str]:
    program: Any = get_command(app)
    options = [option for command in program.commands.values() for option in command.params]
    return {flag for option in options for flag in [*option.opts, *option.secondary_opts]}


def test_no_command_has_a_flag_of_one_algorithm() -> None:
    flags = flags_of_all_commands()
    own = {f"--{field.name}".replace("_", "-") for kind in ALGORITHMS.values() for field in dataclasses.fields(kind)}
    assert flags & own <= {"--delta", "--stationary"}, "plan's is the theory's, advise's a property of the problem"


SPECIFICATIONS: dict[Any, FlagTable | None] = {
    ProblemSpec: None,
    AlgorithmSpec: None,
    RunOptions: None,
    FederationRules: RULE_FLAGS,
    NodeTerms: TERM_FLAGS,
}
"""Every specification, with its flags if the core does not know them."""
every_specification = pytest.mark.parametrize("kind", SPECIFICATIONS)


@every_specification
def test_every_field_of_a_specification_is_a_flag_of_some_command(kind: type) -> None:
    known = flags_of_all_commands()
    for name, flag in flags_of(kind, SPECIFICATIONS[kind]).items():
        assert set(written(name, flag).split("/")) <= known or name == "label"


@every_specification
def test_every_field_of_a_specification_has_a_help_text(kind: type) -> None:
    for name, flag in flags_of(kind, SPECIFICATIONS[kind]).items():
        assert flag.help.endswith("."), name


@pytest.mark.parametrize(
    ("kind", "texts", "message"),
    [
        (ProblemSpec, {"sizes": "8,4"}, "three whole numbers above 0 as S,A,H, got '8,4'"),
        (ProblemSpec, {"environment_options": ["rows=NaN"]}, "rows must be finite, got NaN"),
        (ProblemSpec, {"agents": "many"}, "agents must be a whole number or none, got 'many'"),
        (AlgorithmSpec, {"parameters": ["bonus"]}, "--option takes KEY=VALUE, got 'bonus'"),
        (AlgorithmSpec, {"parameters": ["nu=1", "nu=2"]}, "--option gives nu twice"),
        (RunOptions, {"return_range": "1"}, "--return-range takes two numbers as LOW,HIGH, got '1'"),
    ],
)
def test_text_that_cannot_be_read_is_an_error_that_names_the_flag(
    kind: Any, texts: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        read_fields(kind, texts)


@pytest.mark.parametrize(
    ("kind", "texts", "values"),
    [
        (ProblemSpec, {"sizes": "8,4,10"}, {"sizes": (8, 4, 10)}),
        (ProblemSpec, {"environment_options": ["rows=5"]}, {"environment_options": {"rows": 5}}),
        (ProblemSpec, {"environment_options": ["walls=[[1,1]]"]}, {"environment_options": {"walls": [[1, 1]]}}),
        (
            AlgorithmSpec,
            {"name": "fed-ucbvi", "parameters": ["nu=1e3"]},
            {"name": "fed-ucbvi", "parameters": {"nu": 1e3}},
        ),
        (RunOptions, {"return_range": "0,2.5"}, {"return_range": (0.0, 2.5)}),
        (RunOptions, {"episodes": "1e4"}, {"episodes": 10_000}),
        (FederationRules, {"nodes": "a, b"}, {"nodes": ("a", "b")}),
    ],
)
def test_text_of_the_command_line_is_read_into_the_value_of_its_field(
    kind: Any, texts: dict[str, Any], values: dict[str, Any]
) -> None:
    assert read_fields(kind, texts, SPECIFICATIONS[kind]) == values


@pytest.mark.parametrize(
    ("group", "names", "words"),
    [
        (RunOptions(episodes=500), "episodes overwrite", "--episodes 500"),
        (RunOptions(return_range=(0.0, 2.5)), "return_range", "--return-range 0.0,2.5"),
        (ProblemSpec(environment_options={"rows": 5}), "environment_options", "--env-option rows=5"),
        (FederationRules(secure_sums=True), "secure_sums", "--secure-sums"),
        (Output(quiet=True), "log_format quiet", "--log-format text --quiet"),
    ],
)
def test_fields_are_written_as_the_command_line_of_another_process(group: Any, names: str, words: str) -> None:
    assert arguments_of(group, names, SPECIFICATIONS.get(type(group))) == words.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_words_once_completion_is_installed(tmp_path: Path) -> None:
    """bash runs ``fed-ucbvi --install-completion``, another bash reads what it was told and is asked to complete."""
    program = tmp_path / "bin" / "fed-ucbvi"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -c {shlex.quote(PROGRAM)} "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    own = {"HOME": str(tmp_path), "PATH": f"{program.parent}:{os.environ['PATH']}"}

    def bash(script: str) -> list[str]:
        ended = subprocess.run(
            ["bash", "-c", script], env={**os.environ, **own}, capture_output=True, text=True, timeout=300
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout.split()

    bash("fed-ucbvi --install-completion; exit $?")
    ask = (
        "source ~/.bashrc; COMP_WORDS=({0}); COMP_CWORD={1}; _fed_ucbvi_completion fed-ucbvi; echo ${{COMPREPLY[@]}}"
    )
    assert bash(ask.format("fed-ucbvi lead", 1)) == ["leaderboard"]
    assert bash(ask.format("fed-ucbvi run --epis", 2)) == ["--episodes"]
    assert "_fed_ucbvi_completion" in bash("source ~/.bashrc; complete -p fed-ucbvi")


@pytest.mark.parametrize(
    ("flag", "names"),
    [
        ("--env", ENVIRONMENTS),
        ("--leave-out", ENVIRONMENTS),
        ("--algorithm", ALGORITHMS),
        ("--driver", NAMES),
    ],
)
def test_every_command_completes_the_names_that_a_flag_takes(flag: str, names: Iterable[str]) -> None:
    program: Any = get_command(app)
    options = [(command, option) for command in program.commands.values() for option in command.params]
    takers = [(command, option) for command, option in options if flag in option.opts]
    assert takers
    for command, option in takers:
        context = command.make_context("fed-ucbvi", [], resilient_parsing=True)
        for begun in ("", "fed-", "gr", "c"):
            found = [item.value for item in option.shell_complete(context, begun)]
            assert found == [one for one in names if one.startswith(begun)], command.name


def test_python_runs_the_package_as_the_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fed_ucbvi", "--version"], capture_output=True, text=True, timeout=300, check=True
    )
    assert done.stdout == f"fed-ucbvi {__version__}\n"


@pytest.mark.parametrize(
    "words", first_of(["environments --json", "environments", "--help", "run --help", "--version"], 1)
)
def test_a_reader_that_has_gone_ends_the_program_quietly(words: str) -> None:
    """The reading end is closed before the program writes anything, as by ``| head -0``."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-c", PROGRAM, *words.split()]
    ended = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=300)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (141, "")


@pytest.mark.parametrize("words", first_of(["run --help", "environments"]))
def test_a_terminal_of_no_columns_is_one_of_unknown_width(words: str) -> None:
    nothing, none = (executed(PROGRAM, words.split(), env={"COLUMNS": columns}) for columns in ("0", None))
    assert nothing.returncode == none.returncode == 0
    assert nothing.stdout == none.stdout != ""


def test_what_a_server_says_stands_on_a_line_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    world = synthetic(agents=2)
    with show_federation(quiet=False) as display:
        display.say("listening on port 1")
        federate(plan_for(FedUCBVI(nu=5), world, 20), make_nodes(world, (1, 1)), report=display.report)
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue()).replace("\r", "\n").splitlines()
    assert any("waiting for nodes" in line for line in lines)
    assert "listening on port 1" in [line.strip() for line in lines]
    shown = " ".join(" ".join(lines).split())
    assert re.search(r"2 nodes, round \d+, \d+ of 20 episodes, \S+ \S+ up, \S+ \S+ down.* asked", shown)


# -------------------------------------------------------------------------------------------------- full disks

FULL_DISK = """
import resource, subprocess, sys, tempfile
folder, *command = sys.argv[1:]
if folder == "everywhere":
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
else:
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", folder], capture_output=True, text=True)
    if made.returncode:
        sys.exit("no mount: " + made.stderr)
sys.argv = ["fed-ucbvi", *command]
from fed_ucbvi.command_line import main
main()
"""


def test_a_run_for_which_the_disk_is_full_is_saved_elsewhere(tmp_path: Path) -> None:
    """The disk is a real one of four kilobytes, mounted in a namespace of the test's own."""
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare")
    small = tmp_path / "small"
    elsewhere = tmp_path / "elsewhere"
    small.mkdir()
    elsewhere.mkdir()
    ended = subprocess.run(
        ["unshare", "-m", sys.executable, "-c", FULL_DISK, small, *SMALL, "--out", small / "saved", "--json"],
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": str(elsewhere)},
    )
    if "no mount" in ended.stderr or ended.stderr.startswith("unshare:"):
        pytest.skip("file systems cannot be mounted here")
    assert ended.returncode == 2
    (kept,) = elsewhere.iterdir()
    wanted = f"cannot write {small / 'saved'}: No space left on device. The run is saved in {kept} instead."
    assert ended.stderr == f"error: {wanted}\n"
    assert json.loads(ended.stdout)["regret"] == Run.load(kept).regret


@pytest.mark.parametrize("flags", first_of([["--json"], ["--quiet"], []]))
def test_a_run_that_can_be_saved_nowhere_is_printed(tmp_path: Path, flags: list[str]) -> None:
    ended = executed(FULL_DISK, "everywhere", SMALL, "--out", tmp_path / "saved", flags, cwd=tmp_path)
    assert ended.returncode == 2
    assert "regret" in ended.stdout
    (line,) = ended.stderr.splitlines()
    assert line.startswith(f"error: cannot write {tmp_path / 'saved'}, nor anywhere else: ")
    assert "File too large" in line
    assert list(tmp_path.iterdir()) == []


def test_a_federations_run_for_which_the_disk_is_full_is_saved_elsewhere_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    result = run(FedUCBVI(nu=5), synthetic(agents=2), 20, progress=False)
    saved = tmp_path / "saved"
    save = Run.save

    def fail(one: Run, path: Path, *, overwrite: bool = False) -> None:
        if path == saved:
            raise OSError(28, "No space left on device")
        save(one, path, overwrite=overwrite)

    monkeypatch.setattr(Run, "save", fail)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    outcome = Outcome(run=result, wire=WireCount(), events=[])
    with pytest.raises(InputError, match=r"is saved in .* instead"):
        finish_federation(outcome, RunOptions(out=saved), Output(as_json=True), secure_sums=False)
    (kept,) = tmp_path.iterdir()
    assert Run.load(kept) == result
    assert json.loads(capsys.readouterr().out)["regret"] == result.regret
