"""Trackers keep what the run's own record says, read back by the trackers' own packages."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any
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


def test_one_round_in_so_many_is_kept_and_the_last_and_which_run_it_was() -> None:
    with pytest.raises(InputError, match="every must be at least 1"):
        Kept(every=0)
    kept = Kept(every=7)
    _, seen = tracked(kept)
    assert (len(seen) - 1) % 7 != 0, "the last round is not one of every seven"
    assert [row["round"] for _, row in kept.rows] == [
        *range(1, len(seen) + 1, 7),
        len(seen),
    ]
    for episodes, row in kept.rows:
        record = seen[int(row["round"]) - 1]
        assert episodes == record.episodes
        assert row == {name: getattr(record, name) for name in FIGURES if not math.isnan(getattr(record, name))}
    assert kept.failed is False
    expected = {
        "algorithm": "fed-ucbvi",
        "environment": "synthetic",
        "agents": 3,
        "episodes": EPISODES,
        "seed": 7,
    }
    expected |= {
        "environment.seed": 4,
        "algorithm.nu": 100,
        "driver": "auto",
        "eps_p": 0.0,
    }
    assert expected.items() <= kept.parameters.items()


def test_a_run_that_fails_leaves_the_last_round_and_says_so() -> None:
    kept = Kept(every=1000)

    def fail(record: RoundRecord) -> None:
        if record.round == 3:
            raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"), kept:
        run(ALGORITHM, WORLD, EPISODES, on_round=CallbackList(kept, fail))
    assert [row["round"] for _, row in kept.rows] == [1, 3]
    assert kept.failed is True


class Failing(Kept):
    """Fails to write its second round, and would fail to close."""

    def write(self, episodes: int, figures: Mapping[str, float]) -> None:
        super().write(episodes, figures)
        if len(self.rows) == 2:
            raise OSError("no space left")

    def close(self, *, failed: bool) -> None:
        raise AssertionError("a tracker that has failed is not called again")


def test_a_tracker_that_fails_warns_once_and_logs_nothing_more() -> None:
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


def test_an_error_when_a_tracker_starts_names_the_tracker_and_the_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wandb = MagicMock()
    wandb.init.side_effect = RuntimeError("no API key")
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    with pytest.raises(InputError, match=r"Weights & Biases cannot use 'shops': no API key\."):
        make_tracker("wandb:shops")


def test_tensorboard_reads_back_figures_and_parameters(tmp_path: Path) -> None:
    result, seen = tracked(make_tracker(f"tensorboard:{tmp_path / 'first'}"))
    from tensorboard.plugins.hparams import metadata
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    events = events_in(tmp_path / "first")
    for name in ("regret", "gap", "bytes_up", "round"):
        read = events.Scalars(name)
        assert [one.step for one in read] == [record.episodes for record in seen]
        expected = [getattr(record, name) for record in seen]
        assert [one.value for one in read] == pytest.approx(expected, rel=1e-6, nan_ok=False)
    (final,) = events.Scalars("final_regret")
    assert final.value == pytest.approx(result.regret, rel=1e-6)
    content = events.SummaryMetadata(metadata.SESSION_START_INFO_TAG).plugin_data.content
    parameters = HParamsPluginData.FromString(content).session_start_info.hparams
    assert parameters["algorithm"].string_value == "fed-ucbvi"
    assert parameters["agents"].number_value == 3
    assert parameters["algorithm.strict"].HasField("bool_value")


@pytest.mark.slow
@pytest.mark.full
def test_mlflow_reads_back_figures_and_parameters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store is a folder: mlflow-skinny has no database, and a folder needs MLflow's own leave."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "shops")
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
    assert (found.data.params["seed"], found.data.params["environment.seed"]) == (
        "7",
        "4",
    )
    for name in ("regret", "reward", "bytes_down"):
        history = sorted(client.get_metric_history(found.info.run_id, name), key=lambda one: one.step)
        assert [(one.step, one.value) for one in history] == [
            (record.episodes, getattr(record, name)) for record in seen
        ]
    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE")
    with pytest.raises(InputError, match="MLflow cannot use 'file://"):
        make_tracker(f"mlflow:{(tmp_path / 'another').as_uri()}")
    monkeypatch.setitem(sys.modules, "alembic", None)
    with pytest.raises(
        InputError,
        match=r"MLflow cannot use 'sqlite://.*alembic.*; install the whole of MLflow",
    ):
        make_tracker(f"mlflow:sqlite:///{tmp_path / 'store.db'}")


def test_weights_and_biases_is_told_figures_and_parameters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wandb = MagicMock()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    result, seen = tracked(make_tracker("wandb:shops", every=10))
    wandb.init.assert_called_once_with(project="shops")
    told = wandb.init.return_value
    told.finish.assert_called_once_with(exit_code=0)
    rows = [(call.kwargs["step"], call.args[0]) for call in told.log.call_args_list]
    assert all(step < later for (step, _), (later, _) in pairwise(rows)), "wandb drops steps that do not grow"
    assert [row["round"] for _, row in rows][:3] == [1, 11, 21]
    assert rows[-1] == (
        EPISODES,
        {name: float(getattr(seen[-1], name)) for name in FIGURES},
    )
    assert told.config.update.call_args.args[0]["algorithm"] == "fed-ucbvi"
    assert told.summary.update.call_args.args[0]["final_regret"] == result.regret


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
def test_a_tracker_is_a_known_name_and_a_place(text: str) -> None:
    with pytest.raises(InputError, match=r"tracker"):
        make_tracker(text)
