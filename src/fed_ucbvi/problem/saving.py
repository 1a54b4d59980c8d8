"""A federation as one ``.npz`` file: tables, and JSON for the rest. No pickle; everything is checked when read."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.files import TableForm, check_version, new_file, reading_npz
from fed_ucbvi.core.memory import SMALLER, check_memory
from fed_ucbvi.problem.kernel import Kernel
from fed_ucbvi.problem.mdp import MDP

FORMAT = "fed-ucbvi/federation"
FORMAT_VERSION = 1
SUFFIX = ".npz"
Kind = tuple[type[np.generic], str]
TABLES: dict[str, Kind] = {
    "successors": (np.int32, "steps S A K"),
    "probabilities": (np.float64, "M steps S A K"),
    "rewards": (np.float64, "M|1 H|1 S A"),
    "initial": (np.float64, "M S"),
    "common_successors": (np.int32, "steps S A K'"),
    "common_probabilities": (np.float64, "steps S A K'"),
    "common_rewards": (np.float64, "H|1 S A"),
    "common_initial": (np.float64, "S"),
}
"""Type and shape of every table. ``steps`` is 1 or H; ``M|1`` means M or 1."""
COPIES = 8
"""Tables of the size of one agent's kernel that are made while it is checked."""
VARIANCES = "reward_variances"
"""An optional table with the shape of ``rewards``, where rewards are random."""
LAWS = "laws"
"""Laws ``(M, G, W)``, where dynamics are known."""
DYNAMICS = "dynamics_"
"""Prefix of the tables of known dynamics."""


def write_tables(path: Path, tables: Mapping[str, npt.NDArray[Any]], text: Mapping[str, object]) -> None:
    """Write the tables of :data:`TABLES`, and ``text`` as JSON; a file that exists is replaced when all went well."""
    if path.suffix != SUFFIX:
        raise InputError(f"a federation is saved as one {SUFFIX} file; {path} does not end in {SUFFIX}.")
    content = {"format": FORMAT, "format_version": FORMAT_VERSION}
    content.update(text)
    try:
        about = json.dumps(content, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError(f"the federation cannot be saved: {error}; use plain, finite values.") from error
    path.parent.mkdir(parents=True, exist_ok=True)
    with new_file(path) as draft, draft.open("wb") as file:
        np.savez_compressed(file, about=np.array(about), **tables)  # type: ignore[arg-type]


def read_tables(path: Path) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any], MDP]:
    """Read the tables of :func:`write_tables` and the common MDP; a damaged or foreign file is refused."""
    what = f"a federation that fed-ucbvi saved as one {SUFFIX} file (Federation.save)"
    with reading_npz(path, FORMAT, what) as (about, data):
        check_version(path, about, FORMAT_VERSION)
        kinds = dict(TABLES)
        if VARIANCES in data:
            kinds[VARIANCES] = TABLES["rewards"]
        _check_shapes(path, data.forms, kinds, int(about["horizon"]))
        check_memory(f"The federation in {path}", _bytes_to_check(data.forms), SMALLER)
        known = [name for name in data.forms if name == LAWS or name.startswith(DYNAMICS)]
        tables = {name: data[name] for name in [*kinds, *known]}
        common = _check_values(tables, about)
    for table in tables.values():
        table.setflags(write=False)
    return tables, about, common


def _bytes_to_check(forms: Mapping[str, TableForm]) -> int:
    """Memory that the tables take, and the copies that are made of one agent's while it is checked."""
    tables = sum(form.bytes for form in forms.values())
    return tables + COPIES * forms["successors"].bytes * 2


def _check_shapes(path: Path, tables: Mapping[str, TableForm], kinds: Mapping[str, Kind], H: int) -> None:
    sizes: dict[str, int] = {"1": 1, "H": H}
    if missing := [name for name in kinds if name not in tables]:
        raise InputError(f"{path} is damaged: {', '.join(missing)} missing.")
    for name, (dtype, shape) in kinds.items():
        table = tables[name]
        axes = shape.split()
        fits = table.dtype == dtype and len(table.shape) == len(axes) and 0 not in table.shape
        for axis, length in zip(axes, table.shape, strict=False):
            if axis == "steps":
                fits &= length in (1, H)
            # The first table with an axis fixes its size.
            first_name, *other_names = axis.split("|")
            possible = [sizes.setdefault(first_name, length)]
            possible += [sizes[other] for other in other_names]
            fits &= length in possible
        if not fits:
            raise InputError(
                f"{path} is damaged: {name} is a {table.dtype} table of shape {table.shape}, not one of "
                f"{np.dtype(dtype)} with axes {shape} that fit the others."
            )


def _check_values(tables: Mapping[str, npt.NDArray[Any]], about: Mapping[str, Any]) -> MDP:
    """Check kernel, rewards and initial distribution of every agent and of the common MDP, which is returned."""
    rewards = tables["rewards"]
    variances = tables.get(VARIANCES)
    horizon = int(about["horizon"])
    if variances is not None and variances.shape[1:] != rewards.shape[1:]:
        raise InputError(f"rewards have shape {rewards.shape}, their variances {variances.shape}.")
    for i, probabilities in enumerate(tables["probabilities"]):
        kernel = Kernel(tables["successors"], probabilities)
        own_variances = None if variances is None else variances[i % len(variances)]
        MDP(
            kernel=kernel,
            rewards=rewards[i % len(rewards)],
            initial=tables["initial"][i],
            horizon=horizon,
            reward_variances=own_variances,
        )
    for name in ("eps_p", "eps_r"):
        if not (math.isfinite(about[name]) and 0.0 <= about[name] <= 1.0):
            raise InputError(f"{name} is {about[name]}, not a number in [0, 1].")
    kernel = Kernel(tables["common_successors"], tables["common_probabilities"])
    return MDP(
        kernel=kernel,
        rewards=tables["common_rewards"],
        initial=tables["common_initial"],
        horizon=horizon,
    )
