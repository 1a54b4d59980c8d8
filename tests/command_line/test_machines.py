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

from commands import PROGRAM, SMALL, call, refusal
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
    result = call(*ALONE, "--log-format", "json", "--dashboard", "127.0.0.1:0", "--metrics", "127.0.0.1:0")
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
def test_a_node_without_server_and_a_federation_that_cannot_start_say_so_in_json(command: str, message: str) -> None:
    result = call(*command.split(), "--log-format", "json")
    assert result.exit_code == 2
    (line,) = lines_of(result.stderr)
    assert line["level"] == "error"
    assert message in line["message"]


def test_plain_lines_are_as_they_were() -> None:
    lines = call(*ALONE).stderr.splitlines()
    assert lines[0].startswith("listening on port")
    assert lines[-1].startswith("error: after 0.05 s 4 agents are missing")
    assert "unknown format of the log 'xml'" in refusal(*ALONE, "--log-format", "xml")


def record(message: str, **extra: object) -> logging.LogRecord:
    made = logging.makeLogRecord({"name": "n", "levelno": logging.WARNING, "levelname": "WARNING", "msg": message})
    made.__dict__.update(extra)
    return made


def test_a_line_is_bounded_and_holds_nothing_that_steers_a_terminal() -> None:
    line = JsonLines().format(record("\x1b[31mred\nüber\u202e" + "x" * 10_000, node="shop-a", round=7, other=1))
    assert line.isascii()
    assert line.isprintable()
    found = json.loads(line)
    assert found["message"].startswith("\\x1b[31mred über\\u202exxx")
    assert len(found["message"]) == LONGEST_MESSAGE
    assert (found["node"], found["round"]) == ("shop-a", 7)
    assert "other" not in found


def test_warnings_and_failures_of_python_are_lines_too(capsys: pytest.CaptureFixture[str]) -> None:
    write_log("json", logging.WARNING)
    assert writes_json()
    say("told in any case")
    logging.getLogger("py.warnings").warning("a warning")
    logging.getLogger("any").info("too little")
    try:
        raise RuntimeError("a slip")
    except RuntimeError as error:
        sys.excepthook(type(error), error, error.__traceback__)
    lines = lines_of(capsys.readouterr().err)
    assert [line["message"] for line in lines] == ["told in any case", "a warning", "the program has failed: a slip"]
    assert lines[2]["level"] == "critical"
    assert lines[2]["exception"].endswith("RuntimeError: a slip")


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

    found = {call("algorithms").exit_code, call("run", "--env", "nowhere").exit_code, call(*ALONE).exit_code}
    with monkeypatch.context() as patched:
        failed = SweepOutcome("s", tmp_path, 1, 0, 0, {"a": "b"}, (), 0.0)
        patched.setattr("fed_ucbvi.sweeps.execution.run_sweep", lambda *_, **__: failed)
        sweep = ROOT / "examples" / "sweep.toml"
        found.add(call("sweep", sweep, "--out", tmp_path / "out", "--json").exit_code)
    with monkeypatch.context() as patched:
        patched.setattr("fed_ucbvi.engine.run.run", interrupt)
        found.add(call(*SMALL).exit_code)
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
    result = call(*SMALL, *tracks, "--track-every", "5", "--json")
    assert result.exit_code == 0
    assert result.stderr.count("a tracker's own words") == 2
    summary = json.loads(result.stdout)
    for place in places:
        events = events_in(place)
        rounds = [int(one.value) for one in events.Scalars("round")]
        assert rounds[:3] == [1, 6, 11]
        assert events.Scalars("regret")[-1].value == pytest.approx(summary["regret"], rel=1e-6)


def test_a_tracker_that_fails_is_let_go_and_the_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def fail(self: object, episodes: int, figures: object) -> None:
        calls.append(episodes)
        raise OSError("no space left")

    monkeypatch.setattr(TensorBoardTracker, "write", fail)
    result = call(*SMALL, "--track", f"tensorboard:{tmp_path / 'one'}", "--json")
    assert result.exit_code == 0
    json.loads(result.stdout)
    assert len(calls) == 1
    failed = f"TensorBoardTracker cannot write to {tmp_path / 'one'}: no space left"
    assert result.stderr.count(f"warning: {failed}. The run continues") == 1


def test_a_tracker_that_is_not_known_is_refused_with_the_nearest_name() -> None:
    assert "unknown tracker 'tensorbord'; did you mean 'tensorboard'?" in refusal(*SMALL, "--track", "tensorbord:x")


def test_a_run_is_saved_and_printed_before_its_results_are_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tracker that hangs at the end is interrupted, and the result is there."""
    saved = []

    def hang(self: TensorBoardTracker, *_: object) -> None:
        saved.append((tmp_path / "run").exists())
        raise KeyboardInterrupt

    monkeypatch.setattr(TensorBoardTracker, "describe", hang)
    result = call(*SMALL, "--track", f"tensorboard:{tmp_path / 'one'}", "--out", str(tmp_path / "run"), "--json")
    assert saved == [True]
    assert json.loads(result.stdout)["complete"] is True
    assert Run.load(tmp_path / "run").complete
