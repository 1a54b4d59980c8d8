"""The cuda driver against the episodes driver: the same bits, on a GPU or in numba-cuda's simulator.

Where there is no GPU, these tests run in a process of their own that simulates one, thread by thread, in Python. On a
machine with one, ``make test-gpu`` runs them for real.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fed_ucbvi import ByzanUCBVI, Federation, FedKLUCBVI, FedUCBVI, InputError, Run, gridworld, run
from fed_ucbvi.algorithms.base import Budgets, Counting, Setting
from fed_ucbvi.engine.drivers import cuda as driver
from fed_ucbvi.engine.drivers.base import Fleet, collect
from fed_ucbvi.engine.drivers.episodes import EpisodesDriver

vars(np).setdefault("row_stack", np.vstack)  # NumPy 2.5 has none, and numba-cuda 0.30 looks for it
SIMULATED = os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"


def _found() -> bool:
    """True if there is a GPU, or the simulator of one."""
    if importlib.util.find_spec("numba_cuda") is None:
        return False
    from numba import cuda

    return bool(cuda.is_available())


on_gpu = pytest.mark.skipif(not _found(), reason="no GPU here, and NUMBA_ENABLE_CUDASIM=1 is not set to simulate one")


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Agents run far ahead; in the simulator, blocks are so small that there are several; no warnings about rules."""
    monkeypatch.setattr(driver, "GROWTH", 1)
    if SIMULATED:
        monkeypatch.setattr(driver, "WARP", 1)
        monkeypatch.setattr(driver, "THREADS", 3)
        monkeypatch.setattr(driver, "ROWS", 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


def line(agents: int, eps_p: float = 0.0, **options: Any) -> Federation:
    """Three squares in a row, three steps."""
    return gridworld(agents=agents, eps_p=eps_p, rows=1, columns=3, horizon=3, **options)


def random_starts(agents: int) -> Federation:
    """Kernels that depend on the step, and a law of the initial state for every agent."""
    rng = np.random.default_rng(5)
    tables = rng.dirichlet(np.ones(2), size=(agents + 1, 2, 2, 2))
    initial = rng.dirichlet(np.ones(2), size=agents)
    return Federation.mixture(tables[0], list(tables[1:]), 0.3, rewards=rng.random((2, 2, 2)), initial=initial)


def assert_same_on_gpu(algorithm: Any, federation: Federation, episodes: int, seed: int) -> Run:
    """Check that the cuda driver gives the run of the episodes driver, and return it."""
    gpu = run(algorithm, federation, episodes, seed=seed, driver="cuda")
    cpu = run(algorithm, federation, episodes, seed=seed, driver="episodes")
    renamed = replace(gpu, about=replace(gpu.about, driver=cpu.about.driver))
    assert renamed.same_outcome(cpu)
    return gpu


CASES: dict[str, tuple[FedUCBVI | FedKLUCBVI, Federation, int]] = {
    "published": (FedUCBVI(), random_starts(4), 25),
    "mixture of rules, strict": (FedUCBVI(nu=20, strict=True), random_starts(4), 25),
    "local rule": (FedUCBVI(synchronisation="local"), random_starts(3), 40),
    "sets, rounds that grow": (FedKLUCBVI(min_round_growth=0.5), random_starts(3), 40),
    "sets, one kernel": (FedKLUCBVI(), line(4), 20),
    "sets, stationary, own kernels": (FedKLUCBVI(stationary=True), line(2, 0.2), 25),
    "sets, alone, fast": (FedKLUCBVI.fast(), random_starts(1), 30),
    "sets, random rewards": (FedKLUCBVI(), random_starts(3).with_bernoulli_rewards(), 25),
    "random rewards": (FedUCBVI(nu=0), random_starts(3).with_bernoulli_rewards(), 25),
}


@on_gpu
@pytest.mark.parametrize("case", CASES)
def test_a_run_on_a_gpu_is_that_of_the_episodes_driver_bit_for_bit(case: str) -> None:
    algorithm, federation, episodes = CASES[case]
    result = assert_same_on_gpu(algorithm, federation, episodes, seed=3)
    assert result.records["length"].max() > 1, "episodes may have to be taken back"


@on_gpu
@pytest.mark.parametrize("counting", [Counting.PAIRS, Counting.STATIONARY])
def test_a_policy_of_probabilities_is_drawn_as_by_the_episodes_driver(counting: Counting) -> None:
    federation = line(3, 0.2)
    S = federation.states
    A = federation.actions
    policy = np.random.default_rng(6).dirichlet(np.full(A, 0.5), (3, S))
    policy[0, 1] = np.eye(A)[2]
    cells = counting.shape(3, S, A)
    budgets = Budgets(
        limits=np.full((1, *cells), 10**6, dtype=np.int64),
        rule=np.ones(cells, dtype=np.int8),
    )
    setting = Setting.of(federation, 10, 1, random_rewards=False)
    rule = FedKLUCBVI(stationary=counting is Counting.STATIONARY).synchronisation_rule(setting)
    assert rule is not None
    gpu = driver.CudaDriver(Fleet.of(federation, 1, counting=counting, pooled=True), rule, 3)
    cpu = EpisodesDriver(Fleet.of(federation, 1, counting=counting, pooled=True))
    assert collect(gpu, policy, budgets, 5, 4) == collect(cpu, policy, budgets, 5, 4)
    assert np.array_equal(gpu.transitions, cpu.transitions)


@on_gpu
def test_counts_that_do_not_fit_a_block_give_the_same_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "SHARED_BYTES", 0)
    assert_same_on_gpu(FedKLUCBVI(stationary=True), line(2), 8, seed=1)


@on_gpu
def test_rounds_of_several_launches_give_the_same_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch is cut after two episodes."""
    monkeypatch.setattr(driver, "STEPS_PER_THREAD", 4)
    result = assert_same_on_gpu(FedUCBVI(nu=0), random_starts(2), 30, seed=1)
    assert result.records["length"].max() > 4


@pytest.fixture
def small_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU with 10 000 free bytes."""

    class Context:
        def get_memory_info(self) -> Any:
            return SimpleNamespace(free=10_000, total=20_000)

    from numba import cuda

    monkeypatch.setattr(cuda, "current_context", Context)


@on_gpu
@pytest.mark.usefixtures("small_memory")
def test_the_error_for_too_many_agents_names_the_number_that_fits() -> None:
    """An agent has visits by (h,s), its own by (h,s,a), and the last episode it played: 4 (9 + 36 + 1) bytes."""
    with pytest.raises(InputError, match=r"184 bytes each.*: 51 agents would fit"):
        run(FedUCBVI(), line(52), 10, driver="cuda")


@on_gpu
@pytest.mark.usefixtures("small_memory")
def test_the_largest_number_of_agents_that_fits_can_be_played() -> None:
    assert run(FedUCBVI(), line(51), 1, driver="cuda").complete


@on_gpu
@pytest.mark.skipif(SIMULATED, reason="too much for the simulator")
@pytest.mark.parametrize("algorithm", [FedUCBVI(), FedKLUCBVI(), FedKLUCBVI(stationary=True)])
@pytest.mark.parametrize("eps_p", [0.0, 0.1])
def test_a_run_of_a_thousand_agents_on_a_gpu_is_that_of_the_episodes_driver(algorithm: Any, eps_p: float) -> None:
    assert_same_on_gpu(algorithm, gridworld(agents=1000, eps_p=eps_p), 3000, seed=2)


@pytest.mark.full
@pytest.mark.skipif(_found(), reason="runs where the others of this file do not")
def test_this_file_passes_in_the_simulator() -> None:
    if importlib.util.find_spec("numba_cuda") is None:
        pytest.skip("numba-cuda is not installed")
    here = Path(__file__)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "-v", str(here)],
        cwd=here.parent.parent,
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout


@pytest.mark.skipif(_found(), reason="there is a GPU")
@pytest.mark.skipif(importlib.util.find_spec("numba_cuda") is None, reason="numba-cuda is not installed")
def test_a_missing_gpu_is_an_error() -> None:
    with pytest.raises(InputError, match="needs an NVIDIA GPU"):
        run(FedUCBVI(), line(2), 10, driver="cuda")


@pytest.mark.skipif(_found(), reason="there is a GPU")
def test_the_error_for_a_missing_numba_cuda_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"needs numba-cuda, which is not installed.*\[gpu\]"):
        run(FedUCBVI(), line(2), 10, driver="cuda")


@pytest.mark.parametrize(
    ("algorithm", "federation", "episodes", "reason"),
    [
        (ByzanUCBVI(), line(4), 10, "byzan-ucbvi is another algorithm"),
        (FedUCBVI(), line(1), 2**31, "an agent can come 2,147,483,648 times to one place"),
    ],
)
def test_the_error_for_a_run_that_the_driver_does_not_support_names_the_reason(
    algorithm: Any, federation: Federation, episodes: int, reason: str
) -> None:
    with pytest.raises(InputError, match="plays fed-kl-ucbvi and fed-ucbvi") as error:
        run(algorithm, federation, episodes, driver="cuda")
    assert reason in str(error.value)


def test_a_checkpoint_of_a_run_on_a_gpu_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no checkpoint"):
        run(FedUCBVI(), line(2), 10, driver="cuda", checkpoint=tmp_path / "kept")
    assert not (tmp_path / "kept").exists()
