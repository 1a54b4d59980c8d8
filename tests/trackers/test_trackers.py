"""Trackers keep what the run's own record says, read back by the trackers' own packages."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import MagicMock

import pytest

from events import events_in
from fed_ucbvi import Caution, FedUCBVI, InputError, RoundRecord, Run, make_tracker, run, synthetic
from fed_ucbvi.results.run_data import CallbackList
from fed_ucbvi.trackers import FIGURES, TRACKERS, Tracker

ALGORITHM = FedUCBVI(nu=100)
WORLD = synthetic(agents=3, seed=4)
EPISODES = 200


def tracked(tracker: Tracker) -> tuple[Run, list[RoundRecord]]:
    """A run with this tracker, and the records of its rounds."""
    seen: list[RoundRecord] = []
    with tracker:
        result = run(
            ALGORITHM,
            WORLD,
            EPISODES,
            seed=7,
            on_round=CallbackList(tracker, seen.append),
        )
        tracker.finish(result)
    return result, seen


class Kept(Tracker):
    """Keeps everything as it comes."""

    def __init__(self, every: int = 1) -> None:
        super().__init__("memory", every)
        self.rows: list[tuple[int, dict[str, float]]] = []
        self.parameters: dict[str, Any] = {}
        self.failed: bool | None = None

    def write(self, episodes: int, figures: Mapping[str, float]) -> None:
        self.rows.append((episodes, dict(figures)))

    def describe(self, parameters: Mapping[str, Any], results: Mapping[str, float], episodes: int) -> None:
        self.parameters = dict(parameters)

    def close(self, *, failed: bool) -> None:
        self.failed = failed


def test_rounds_cannot_be_logged_more_than_once() -> None:
    with pytest.raises(InputError, match="every must be at least 1"):
        Kept(every=0)


@pytest.fixture(scope="module")
def every_seventh() -> tuple[Kept, list[RoundRecord]]:
    """A tracker of every seventh round after a run, and all rounds of the run."""
    tracker = Kept(every=7)
    _, seen = tracked(tracker)
    assert (len(seen) - 1) % 7 != 0, "the last round is not one of every seven"
    return tracker, seen


def test_every_seventh_round_is_logged_besides_the_last(every_seventh: tuple[Kept, list[RoundRecord]]) -> None:
    tracker, seen = every_seventh
    expected = [*range(1, len(seen) + 1, 7), len(seen)]
    assert [row["round"] for _, row in tracker.rows] == expected


def test_the_figures_of_a_logged_round_are_those_of_its_record(
    every_seventh: tuple[Kept, list[RoundRecord]],
) -> None:
    tracker, seen = every_seventh
    for episodes, row in tracker.rows:
        record = seen[int(row["round"]) - 1]
        figures = {name: getattr(record, name) for name in FIGURES}
        known = {name: figure for name, figure in figures.items() if not math.isnan(figure)}
        assert episodes == record.episodes
        assert row == known


def test_the_parameters_of_a_logged_run_are_its_settings(every_seventh: tuple[Kept, list[RoundRecord]]) -> None:
    tracker, _ = every_seventh
    expected = {
        "algorithm": "fed-ucbvi",
        "environment": "synthetic",
        "agents": 3,
        "episodes": EPISODES,
        "seed": 7,
        "environment.seed": 4,
        "algorithm.nu": 100,
        "driver": "auto",
        "eps_p": 0.0,
    }
    assert tracker.failed is False
    assert expected.items() <= tracker.parameters.items()


def test_a_tracker_of_a_failed_run_logs_its_last_round() -> None:
    tracker = Kept(every=1000)

    def fail(record: RoundRecord) -> None:
        if record.round == 3:
            raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"), tracker:
        run(ALGORITHM, WORLD, EPISODES, on_round=CallbackList(tracker, fail))
    assert [row["round"] for _, row in tracker.rows] == [1, 3]
    assert tracker.failed is True


class Failing(Kept):
    """Fails to write its second round, and would fail to close."""

    def write(self, episodes: int, figures: Mapping[str, float]) -> None:
        super().write(episodes, figures)
        if len(self.rows) == 2:
            raise OSError("no space left")

    def close(self, *, failed: bool) -> None:
        raise AssertionError("a tracker that has failed is not called again")


def test_a_tracker_that_fails_warns_once() -> None:
    failing = Failing()
    with pytest.warns(
        Caution,
        match=r"^Failing cannot write to memory: no space left\. The run continues",
    ) as caught:
        tracked(failing)
    assert len(caught) == 1
    assert len(failing.rows) == 2
    assert failing.parameters == {}


def test_a_run_is_the_same_with_a_tracker_that_fails() -> None:
    with pytest.warns(Caution):
        result, seen = tracked(Failing())
    assert result.same_outcome(run(ALGORITHM, WORLD, EPISODES, seed=7))
    assert len(seen) == len(result.records["length"])


def test_an_error_at_the_start_of_a_tracker_names_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wandb = MagicMock()
    wandb.init.side_effect = RuntimeError("no API key")
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    with pytest.raises(InputError, match=r"Weights & Biases cannot use 'shops': no API key\."):
        make_tracker("wandb:shops")


@pytest.fixture
def tensorboard_run(tmp_path: Path) -> tuple[Any, Run, list[RoundRecord]]:
    """The events of a run, the run, and its rounds."""
    result, seen = tracked(make_tracker(f"tensorboard:{tmp_path / 'first'}"))
    return events_in(tmp_path / "first"), result, seen


def test_tensorboard_reads_back_the_figures_of_rounds(tensorboard_run: tuple[Any, Run, list[RoundRecord]]) -> None:
    events, _, seen = tensorboard_run
    for name in ("regret", "gap", "bytes_up", "round"):
        scalars = events.Scalars(name)
        expected = [getattr(record, name) for record in seen]
        assert [scalar.step for scalar in scalars] == [record.episodes for record in seen]
        assert [scalar.value for scalar in scalars] == pytest.approx(expected, rel=1e-6, nan_ok=False)


def test_tensorboard_reads_back_the_results_of_a_run(tensorboard_run: tuple[Any, Run, list[RoundRecord]]) -> None:
    events, result, _ = tensorboard_run
    (final,) = events.Scalars("final_regret")
    assert final.value == pytest.approx(result.regret, rel=1e-6)


def test_tensorboard_reads_back_the_parameters_of_a_run(tensorboard_run: tuple[Any, Run, list[RoundRecord]]) -> None:
    from tensorboard.plugins.hparams import metadata
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    events, _, _ = tensorboard_run
    content = events.SummaryMetadata(metadata.SESSION_START_INFO_TAG).plugin_data.content
    parameters = HParamsPluginData.FromString(content).session_start_info.hparams
    assert parameters["algorithm"].string_value == "fed-ucbvi"
    assert parameters["agents"].number_value == 3
    assert parameters["algorithm.strict"].HasField("bool_value")


@pytest.fixture
def mlflow_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store is a folder: mlflow-skinny has no database, and a folder needs MLflow's own leave."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "shops")


@pytest.mark.slow
@pytest.mark.full
@pytest.mark.usefixtures("mlflow_settings")
def test_mlflow_reads_back_a_run(tmp_path: Path) -> None:
    from mlflow import MlflowClient

    uri = (tmp_path / "store").as_uri()
    result, seen = tracked(make_tracker(f"mlflow:{uri}"))
    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("shops")
    assert experiment is not None
    (found,) = client.search_runs([experiment.experiment_id])
    assert found.info.status == "FINISHED"
    assert found.data.metrics["final_regret"] == result.regret
    assert found.data.params["algorithm"] == "fed-ucbvi"
    assert found.data.params["seed"] == "7"
    assert found.data.params["environment.seed"] == "4"
    for name in ("regret", "reward", "bytes_down"):
        history = client.get_metric_history(found.info.run_id, name)
        logged = sorted((metric.step, metric.value) for metric in history)
        assert logged == [(record.episodes, getattr(record, name)) for record in seen]


@pytest.mark.slow
@pytest.mark.full
@pytest.mark.usefixtures("mlflow_settings")
def test_an_mlflow_store_that_cannot_be_used_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE")
    with pytest.raises(InputError, match="MLflow cannot use 'file://"):
        make_tracker(f"mlflow:{(tmp_path / 'another').as_uri()}")


@pytest.mark.slow
@pytest.mark.full
@pytest.mark.usefixtures("mlflow_settings")
def test_an_incomplete_mlflow_is_named_in_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "alembic", None)
    with pytest.raises(InputError, match=r"MLflow cannot use 'sqlite://.*alembic.*; install the whole of MLflow"):
        make_tracker(f"mlflow:sqlite:///{tmp_path / 'store.db'}")


class LoggedRun(NamedTuple):
    """A tracked run with Weights & Biases replaced by a mock."""

    wandb: MagicMock
    result: Run
    records: list[RoundRecord]

    @property
    def calls(self) -> MagicMock:
        """The mock of the run of Weights & Biases."""
        run: MagicMock = self.wandb.init.return_value
        return run


@pytest.fixture
def wandb_run(monkeypatch: pytest.MonkeyPatch) -> LoggedRun:
    wandb = MagicMock()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    result, seen = tracked(make_tracker("wandb:shops", every=10))
    return LoggedRun(wandb, result, seen)


def test_weights_and_biases_has_one_run_per_run(wandb_run: LoggedRun) -> None:
    wandb_run.wandb.init.assert_called_once_with(project="shops")
    wandb_run.calls.finish.assert_called_once_with(exit_code=0)


def test_weights_and_biases_logs_rounds_at_growing_steps(wandb_run: LoggedRun) -> None:
    steps = [call.kwargs["step"] for call in wandb_run.calls.log.call_args_list]
    rounds = [call.args[0]["round"] for call in wandb_run.calls.log.call_args_list]
    assert all(step < later for step, later in pairwise(steps)), "wandb drops steps that do not grow"
    assert rounds[:3] == [1, 11, 21]


def test_weights_and_biases_logs_the_last_round(wandb_run: LoggedRun) -> None:
    last = wandb_run.calls.log.call_args_list[-1]
    figures = {name: float(getattr(wandb_run.records[-1], name)) for name in FIGURES}
    assert last.kwargs["step"] == EPISODES
    assert last.args[0] == figures


def test_weights_and_biases_stores_the_parameters_of_a_run(wandb_run: LoggedRun) -> None:
    assert wandb_run.calls.config.update.call_args.args[0]["algorithm"] == "fed-ucbvi"


def test_weights_and_biases_stores_the_results_of_a_run(wandb_run: LoggedRun) -> None:
    results = wandb_run.calls.summary.update.call_args.args[0]
    assert results["final_regret"] == wandb_run.result.regret


@pytest.mark.parametrize("module", TRACKERS)
def test_a_package_that_is_missing_is_named_with_the_way_to_get_it(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(
        InputError,
        match=rf"which is not installed: run pip install 'fed-ucbvi\[{module}\]'",
    ):
        make_tracker(f"{module}:x")


@pytest.mark.parametrize("text", ["tensorboard", "tensorboard:", "tensorbord:x", ""])
def test_a_tracker_without_a_known_name_or_a_place_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"tracker"):
        make_tracker(text)
