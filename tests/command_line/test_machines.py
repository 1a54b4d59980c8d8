"""What other programs rely on: JSON lines on standard error, exit codes, trackers by the command line."""

from __future__ import annotations

import datetime
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from commands import PROGRAM, SMALL, Result, call, refusal
from events import events_in
from fed_ucbvi import Run
from fed_ucbvi.command_line.program import EXIT_CODES, LONGEST_MESSAGE, JsonLines, say, write_log, writes_json
from fed_ucbvi.sweeps.execution import SweepOutcome
from fed_ucbvi.trackers import TensorBoardTracker
from repository import ROOT

ALONE = ("serve", "--insecure", "--listen", "127.0.0.1:0", "--sizes", "3,2,3", "--gathering", "0.05")
"""A server to which nobody comes."""


@pytest.fixture(autouse=True)
def _logging_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    level = root.level
    hook = sys.excepthook
    yield
    root.setLevel(level)
    sys.excepthook = hook
    logging.captureWarnings(False)


def lines_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


# ---------------------------------------------------------------------------------------------------- JSON lines


def test_a_server_says_everything_in_json_errors_too() -> None:
    before = datetime.datetime.now(datetime.UTC) - datetime.timedelta(milliseconds=1)
    result = call(ALONE, "--log-format", "json", "--dashboard", "127.0.0.1:0", "--metrics", "127.0.0.1:0")
    assert result.exit_code == 2
    lines = lines_of(result.stderr)
    for line in lines:
        assert list(line) == ["time", "level", "logger", "message"]
        time = datetime.datetime.fromisoformat(line["time"])
        assert time.utcoffset() == datetime.timedelta(0)
        assert before <= time <= datetime.datetime.now(datetime.UTC)
    for line, begins in zip(lines, ("page: http://", "listening on port", "metrics at http://"), strict=False):
        assert line["message"].startswith(begins)
        assert line["level"] == "info"
    assert lines[-1]["level"] == "error"
    assert "4 agents are missing" in lines[-1]["message"]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("join 127.0.0.1:1 --insecure --name shop-a --patience 0", "no connection to 127.0.0.1:1 for 0 s"),
        ("federate --nodes 3 --agents 2", "2 agents make at most 2 nodes, not 3"),
    ],
)
def test_command_that_cannot_start_says_so_in_json(command: str, message: str) -> None:
    result = call(command.split(), "--log-format", "json")
    assert result.exit_code == 2
    (line,) = lines_of(result.stderr)
    assert line["level"] == "error"
    assert message in line["message"]


def test_plain_lines_are_as_they_were() -> None:
    lines = call(ALONE).stderr.splitlines()
    assert lines[0].startswith("listening on port")
    assert lines[-1].startswith("error: after 0.05 s 4 agents are missing")
    assert "unknown format of the log 'xml'" in refusal(ALONE, "--log-format", "xml")


def record(message: str, **extra: object) -> logging.LogRecord:
    made = logging.makeLogRecord({"name": "n", "levelno": logging.WARNING, "levelname": "WARNING", "msg": message})
    made.__dict__.update(extra)
    return made


class TestJsonLine:
    """One line of the log for a record with control characters and a long message."""

    RECORD = record("\x1b[31mred\nüber\u202e" + "x" * 10_000, node="shop-a", round=7, other=1)

    @property
    def line(self) -> str:
        return JsonLines().format(self.RECORD)

    def test_it_has_printable_ascii_only(self) -> None:
        assert self.line.isascii()
        assert self.line.isprintable()

    def test_its_message_has_control_characters_escaped(self) -> None:
        assert json.loads(self.line)["message"].startswith("\\x1b[31mred über\\u202exxx")

    def test_its_message_is_cut(self) -> None:
        assert len(json.loads(self.line)["message"]) == LONGEST_MESSAGE

    def test_it_has_the_known_fields_of_the_record(self) -> None:
        found = json.loads(self.line)
        assert (found["node"], found["round"]) == ("shop-a", 7)

    def test_it_has_no_other_fields_of_the_record(self) -> None:
        assert "other" not in json.loads(self.line)


class TestLogInJson:
    """The log of a process that writes JSON."""

    def test_what_is_said_is_a_line_whatever_the_level(self, capsys: pytest.CaptureFixture[str]) -> None:
        write_log("json", logging.WARNING)
        say("said in any case")
        (line,) = lines_of(capsys.readouterr().err)
        assert (line["message"], line["level"]) == ("said in any case", "info")

    def test_warning_of_python_is_a_line(self, capsys: pytest.CaptureFixture[str]) -> None:
        write_log("json", logging.WARNING)
        logging.getLogger("py.warnings").warning("a warning")
        (line,) = lines_of(capsys.readouterr().err)
        assert line["message"] == "a warning"

    def test_record_below_the_level_is_left_out(self, capsys: pytest.CaptureFixture[str]) -> None:
        write_log("json", logging.WARNING)
        logging.getLogger("any").info("too little")
        assert capsys.readouterr().err == ""

    def test_exception_that_ends_the_program_is_a_line(self, capsys: pytest.CaptureFixture[str]) -> None:
        write_log("json", logging.WARNING)
        try:
            raise RuntimeError("a slip")
        except RuntimeError as error:
            sys.excepthook(type(error), error, error.__traceback__)
        (line,) = lines_of(capsys.readouterr().err)
        assert (line["level"], line["message"]) == ("critical", "the program has failed: a slip")
        assert line["exception"].endswith("RuntimeError: a slip")

    def test_the_program_knows_that_it_writes_json(self) -> None:
        write_log("json", logging.WARNING)
        assert writes_json()


# ---------------------------------------------------------------------------------------------------- exit codes


def documented() -> dict[int, str]:
    """The table of docs/operate.md."""
    text = (ROOT / "docs" / "operate.md").read_text(encoding="utf-8")
    section = text.partition("\n## Exit codes\n")[2].partition("\n## ")[0]
    return {int(code): meaning for code, meaning in re.findall(r"^\| (\d+) \| (.*?) \|", section, flags=re.MULTILINE)}


def test_documented_codes_are_those_of_the_program() -> None:
    assert documented().keys() == EXIT_CODES.keys()
    told = " ".join(call("--help").stdout.split())
    for code, meaning in EXIT_CODES.items():
        assert f"{code}: {meaning.partition(';')[0]}" in told


def test_every_code_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One cheap command for each of them."""

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    found = {call("algorithms").exit_code, call("run", "--env", "nowhere").exit_code, call(ALONE).exit_code}
    with monkeypatch.context() as patched:
        failed = SweepOutcome("s", tmp_path, 1, 0, 0, {"a": "b"}, (), 0.0)
        patched.setattr("fed_ucbvi.sweeps.execution.run_sweep", lambda *_, **__: failed)
        sweep = ROOT / "examples" / "sweep.toml"
        found.add(call("sweep", sweep, "--out", tmp_path / "out", "--json").exit_code)
    with monkeypatch.context() as patched:
        patched.setattr("fed_ucbvi.engine.run.run", interrupt)
        found.add(call(SMALL).exit_code)
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run([sys.executable, "-c", PROGRAM, "--version"], stdout=writing, timeout=300)
    os.close(writing)
    assert found | {ended.returncode} == EXIT_CODES.keys()


# ---------------------------------------------------------------------------------------------------- trackers


def test_a_run_is_tracked_by_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    close = TensorBoardTracker.close

    def talk(self: TensorBoardTracker, *, failed: bool) -> None:
        print("a tracker's own words")  # noqa: T201
        close(self, failed=failed)

    monkeypatch.setattr(TensorBoardTracker, "close", talk)
    places = [tmp_path / "one", tmp_path / "two"]
    tracks = [word for place in places for word in ("--track", f"tensorboard:{place}")]
    result = call(SMALL, tracks, "--track-every", "5", "--json")
    assert result.exit_code == 0
    assert result.stderr.count("a tracker's own words") == 2
    summary = json.loads(result.stdout)
    for place in places:
        events = events_in(place)
        rounds = [int(one.value) for one in events.Scalars("round")]
        assert rounds[:3] == [1, 6, 11]
        assert events.Scalars("regret")[-1].value == pytest.approx(summary["regret"], rel=1e-6)


class TestFailingTracker:
    """A run with a tracker whose disk is full."""

    @pytest.fixture
    def calls(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        calls: list[int] = []

        def fail(self: object, episodes: int, figures: object) -> None:
            calls.append(episodes)
            raise OSError("no space left")

        monkeypatch.setattr(TensorBoardTracker, "write", fail)
        return calls

    @pytest.fixture
    def result(self, calls: list[int], tmp_path: Path) -> Result:
        return call(SMALL, "--track", f"tensorboard:{tmp_path / 'one'}", "--json")

    def test_the_run_is_finished(self, result: Result) -> None:
        assert result.exit_code == 0
        assert json.loads(result.stdout)["complete"] is True

    def test_nothing_more_is_logged(self, result: Result, calls: list[int]) -> None:
        assert len(calls) == 1

    def test_one_warning_names_the_tracker(self, result: Result, tmp_path: Path) -> None:
        failed = f"TensorBoardTracker cannot write to {tmp_path / 'one'}: no space left"
        assert result.stderr.count(f"warning: {failed}. The run continues") == 1


def test_a_tracker_that_is_not_known_is_refused_with_the_nearest_name() -> None:
    assert "unknown tracker 'tensorbord'; did you mean 'tensorboard'?" in refusal(SMALL, "--track", "tensorbord:x")


class TestHangingTracker:
    """A run with a tracker that hangs at the end and is interrupted."""

    @pytest.fixture
    def result(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Result:
        def hang(self: TensorBoardTracker, *_: object) -> None:
            assert (tmp_path / "run").exists(), "the run is saved first"
            raise KeyboardInterrupt

        monkeypatch.setattr(TensorBoardTracker, "describe", hang)
        return call(SMALL, "--track", f"tensorboard:{tmp_path / 'one'}", "--out", tmp_path / "run", "--json")

    def test_the_result_is_printed(self, result: Result) -> None:
        assert json.loads(result.stdout)["complete"] is True

    def test_the_result_is_saved(self, result: Result, tmp_path: Path) -> None:
        assert Run.load(tmp_path / "run").complete
