"""ICU-Sepsis of Choudhary, Gupta and Thomas (2024), from the tables of the package ``icu-sepsis``.

Its authors estimated them from records of intensive care. It is a benchmark, and no medical advice. Only the file of
tables is read: no code of that package is imported.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np

from fed_ucbvi.core.errors import InputError, missing_package
from fed_ucbvi.core.files import reading
from fed_ucbvi.core.memory import ProblemSize
from fed_ucbvi.core.parameters import Help, Size
from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.environments.family import EpsP, Family, Horizon, Seed, environment
from fed_ucbvi.problem.kernel import Kernel
from fed_ucbvi.problem.mdp import check_initial

PACKAGE = "icu_sepsis"
TABLES = Path("envs", "assets", "dynamics.npz")
SURVIVED = 714
"""The state in which a patient has survived; 713 is death, and both lead to 715, which is never left."""


class SepsisTables(NamedTuple):
    """Tables of the package: kernel, law of the first state ``(S,)``, and clinicians' frequencies ``(S, A)``."""

    kernel: Kernel
    initial: FloatArray
    clinicians: FloatArray


@cache
def sepsis_tables() -> SepsisTables:
    """The package's tables; where clinicians have nothing to decide, all actions are equally frequent."""
    path = _tables_file()
    with reading(path), np.load(path, allow_pickle=False) as data:
        kernel = Kernel.from_dense(data["tx_mat"])
        initial = data["d_0"]
        clinicians = data["expert_policy"]
    S = kernel.states
    A = kernel.actions
    if S <= SURVIVED + 1 or clinicians.shape != (S, A):
        raise InputError(f"{path} does not hold the tables of icu-sepsis 2.0: S = {S}, A = {A}.")
    total = clinicians.sum(axis=1, keepdims=True)
    positive_total = np.where(total > 0, total, 1.0)
    frequencies = np.where(total > 0, clinicians / positive_total, 1.0 / A)
    return SepsisTables(
        kernel=kernel,
        initial=check_initial(initial, S),
        clinicians=frequencies,
    )


def _tables_file() -> Path:
    spec = find_spec(PACKAGE)  # finds the package without importing it
    folders = [] if spec is None else list(spec.submodule_search_locations or ())
    for folder in folders:
        path = Path(folder) / TABLES
        if path.is_file():
            return path
    raise missing_package("the environment icu_sepsis takes its tables from", "icu-sepsis", "icu-sepsis")


def _size() -> ProblemSize:
    kernel = sepsis_tables().kernel
    return ProblemSize(kernel.states, kernel.actions, kernel.width, by_row=False)


@environment("ICU-Sepsis", lambda _: _size())
def icu_sepsis(
    agents: Annotated[Size, Help("number of hospitals, M.")] = 10,
    eps_p: Annotated[
        EpsP,
        Help("weight of the individual kernels (Assumption 1): other weights on the same next states."),
    ] = 0.0,
    seed: Seed = 0,
    *,
    horizon: Horizon = 51,
    bernoulli_rewards: Annotated[bool, Help("changes nothing, because every reward is 0 or 1.")] = False,
) -> Family:
    """Patients with sepsis in intensive care: 716 states, 25 doses of fluids and vasopressors, 1 for survival.

    The package pays 1 on arrival in the state of survivors. Here a step in that state pays 1, one step later, and
    leads to a state that is never left. So H = 51 has the values of 50 decisions. It is a benchmark, and no medical
    advice.
    It needs the package icu-sepsis (``pip install 'fed-ucbvi[icu-sepsis]'``).
    """
    tables = sepsis_tables()
    rewards = np.zeros((tables.kernel.states, tables.kernel.actions))
    rewards[SURVIVED] = 1.0
    return Family(
        kernel=lambda _: tables.kernel,
        rewards=rewards,
        initial=tables.initial,
    )


def clinicians_policy(step: int, state: int) -> FloatArray:
    """Frequency of each dose in a state among clinicians, for ``incumbent=`` and ``evaluate``; no step matters.

    Its value is 0.7778 for H = 51.
    """
    return np.asarray(sepsis_tables().clinicians[state])
