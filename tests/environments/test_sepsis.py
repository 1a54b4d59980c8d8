"""ICU-Sepsis: the tables of another package, with the reward one step later."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fed_ucbvi import FedKLUCBVI, InputError, Run, clinicians_policy, counts_from_logs, icu_sepsis, run
from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.environments import sepsis
from repository import ROOT

S = 716
A = 2
H = 6
DEATH = 713
SURVIVED = 714
END = 715


@pytest.fixture
def made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, FloatArray]]:
    """Tables of the package's form: a few states of patients lead to each other, to death and to survival."""
    rng = np.random.default_rng(3)
    kernel = np.zeros((S, A, S))
    paid = np.zeros((S, A, S))
    kernel[:4, :, [0, 1, 2, 3, DEATH, SURVIVED]] = rng.dirichlet(np.ones(6), size=(4, A))
    kernel[4:, :, END] = 1.0
    paid[:SURVIVED, :, SURVIVED] = 1.0
    policy = np.zeros((S, A))
    policy[:DEATH] = rng.dirichlet(np.ones(A), size=DEATH)
    first = np.zeros(S)
    first[:4] = rng.dirichlet(np.ones(4))
    tables: dict[str, Any] = {
        "tx_mat": kernel,
        "r_mat": paid,
        "d_0": first,
        "expert_policy": policy,
    }
    np.savez(tmp_path / "dynamics.npz", **tables)
    monkeypatch.setattr(sepsis, "_tables_file", lambda: tmp_path / "dynamics.npz")
    sepsis.sepsis_tables.cache_clear()
    yield tables
    sepsis.sepsis_tables.cache_clear()


def value_on_arrival(tables: dict[str, FloatArray], policy: FloatArray, decisions: int) -> float:
    """Value of a stationary random policy ``(S, A)`` where rewards are paid on arrival."""
    V = np.zeros(S)
    for _ in range(decisions):
        V = (policy * (tables["tx_mat"] * (tables["r_mat"] + V)).sum(axis=2)).sum(axis=1)
    return float(tables["d_0"] @ V)


def test_policies_are_worth_what_they_are_where_survival_pays_on_arrival(
    made_up: dict[str, FloatArray],
) -> None:
    """A policy that takes every dose equally often, and the clinicians'."""
    mdp = icu_sepsis(agents=2, horizon=H).common
    clinicians = np.array([[clinicians_policy(h, s) for s in range(S)] for h in range(H)])
    for played, policy in (
        (np.ones((H, S, A), dtype=np.bool_), np.full((S, A), 1 / A)),
        (clinicians, made_up["expert_policy"]),
    ):
        expected = value_on_arrival(made_up, policy, H - 1)
        assert float(mdp.initial @ mdp.evaluate(played)[0]) == pytest.approx(expected, abs=1e-12)


def test_hospitals_that_differ_keep_the_next_states(
    made_up: dict[str, FloatArray],
) -> None:
    made = icu_sepsis(agents=3, eps_p=0.05, horizon=H)
    dense = np.stack([made.agent(i).kernel.dense()[0] for i in range(3)])
    assert np.array_equal(dense > 0, np.broadcast_to(made_up["tx_mat"] > 0, dense.shape))
    assert not np.array_equal(dense[0], dense[1])
    assert made.eps_p == 0.05


@pytest.mark.slow
@pytest.mark.full
def test_hospitals_as_processes_learn_what_one_run_does(made_up: dict[str, FloatArray], tmp_path: Path) -> None:
    """The example, with tables as in the package but with two doses."""
    assets = tmp_path / "packages" / "icu_sepsis" / "envs" / "assets"
    assets.mkdir(parents=True)
    (assets.parents[1] / "__init__.py").touch()  # or an installed package of that name comes first
    np.savez(assets / "dynamics.npz", **made_up)  # type: ignore[arg-type]
    few = (
        "--network",
        "--hospitals",
        "3",
        "--logged",
        "30",
        "--online",
        "20",
        "--folder",
        "kept",
    )
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "sepsis" / "hospitals.py"), *few],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(tmp_path / "packages"))),
        },
    )
    assert done.returncode == 0, done.stderr
    assert "with secure sums and logs: worth 0." in done.stdout
    files = [tmp_path / "kept" / f"hospital-{i}.parquet" for i in range(3)]
    logs = [counts_from_logs(file, (S, A, 51), stationary=True) for file in files]
    world = icu_sepsis(agents=3)
    algorithm = FedKLUCBVI(stationary=True, min_round_growth=0.1)
    pooled = logs[0].merge(logs[1]).merge(logs[2])
    promised: dict[str, Any] = {"incumbent": clinicians_policy, "return_range": (0, 1)}
    expected = run(algorithm, world, 20, warm_start=pooled, driver="episodes", **promised)
    made = Run.load(tmp_path / "kept" / "run")
    assert np.array_equal(made.policy, expected.policy)
    assert np.array_equal(made.V, expected.V)


def test_without_the_package_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sepsis.sepsis_tables.cache_clear()
    monkeypatch.setattr(sepsis, "find_spec", lambda name: None)
    with pytest.raises(
        InputError,
        match=r"icu-sepsis, which is not installed: run pip install 'fed-ucbvi\[icu-s",
    ):
        icu_sepsis()


@pytest.mark.parametrize("content", [b"", b"PK nothing"])
def test_a_damaged_file_is_an_error(content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sepsis.sepsis_tables.cache_clear()
    (tmp_path / "dynamics.npz").write_bytes(content)
    monkeypatch.setattr(sepsis, "_tables_file", lambda: tmp_path / "dynamics.npz")
    with pytest.raises(InputError, match=r"dynamics.npz is damaged"):
        icu_sepsis()


@pytest.mark.full
@pytest.mark.skipif(find_spec("icu_sepsis") is None, reason="the package icu-sepsis is not installed")
def test_the_published_tables_have_the_known_values() -> None:
    """0.869, 0.778 and 0.775 for 50 decisions: computed from the tables by another program."""
    sepsis.sepsis_tables.cache_clear()
    mdp = icu_sepsis(agents=2).common
    assert mdp.states == 716
    assert mdp.actions == 25
    assert mdp.horizon == 51
    assert mdp.kernel.width == 213
    assert float(mdp.initial @ mdp.solve().V[0]) == pytest.approx(0.8691, abs=5e-5)
    clinicians = np.broadcast_to(sepsis.sepsis_tables().clinicians, (51, 716, 25))
    assert float(mdp.initial @ mdp.evaluate(clinicians)[0]) == pytest.approx(0.7778, abs=5e-5)
    assert float(mdp.initial @ mdp.evaluate(np.ones((51, 716, 25), dtype=np.bool_))[0]) == pytest.approx(
        0.7754, abs=5e-5
    )
