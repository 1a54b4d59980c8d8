"""A recommended policy as a file: its actions, where it was learnt, from which round of which run, and who says so.

There is one format, written by :meth:`Run.export_policy`, by a server beside its checkpoint and by the nodes of a
federation. A server signs what it gives out: the text under the signature is the JSON of all fields but the actions,
the signature and the certificate, with sorted names and no spaces. The actions are in it by their SHA-256.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.files import check_version, new_file, reading
from fed_ucbvi.core.numbers import byte_count, nan_for_none, none_for_nan, number_text
from fed_ucbvi.core.types import FloatArray, IndexArray, PolicyArray
from fed_ucbvi.problem.dynamic_programming import WEIGHTS
from fed_ucbvi.problem.units import Units
from fed_ucbvi.results.recommendations import Certificate, policy_digest
from fed_ucbvi.results.run_data import RunData

FORMAT = "fed-ucbvi/policy"
FORMAT_VERSION = 2
SUFFIX = ".json"
MAX_ENTRIES = 1 << 26
"""Steps times states of a policy in a file, which take 256 MiB of memory."""
FROM_RUN: dict[str, type[Any]] = {"run": str, "rounds": int, "episodes": int, "final": bool}
SEAL = ("signature", "certificate")


@dataclass(frozen=True, eq=False)
class LearntPolicy:
    """A deterministic policy ``(H, S)`` and everything that is needed to play it.

    Attributes:
        table: the action of every step and state.
        value: what it is worth in the common MDP; NaN where that is unknown.
        run: the run's identifier, where it has one.
        rounds: after how many it was recommended, and after how many ``episodes`` of the agent that had played most.
        final: whether the run was over then.
        signature: the server's, in base64, whose ``certificate`` follows; empty if nobody has signed it.
        guarantee: what a run certified of this policy, if it did; it is under the signature.
    """

    table: IndexArray
    actions: int
    environment: Mapping[str, Any]
    value: float
    run: str = ""
    rounds: int = 0
    episodes: int = 0
    final: bool = True
    signature: str = ""
    certificate: str = ""
    guarantee: Certificate | None = None

    def __repr__(self) -> str:
        name, sizes = self.environment.get("name", "custom"), f"S = {self.states:,}, A = {self.actions:,}"
        signed = ", signed" if self.signature else ""
        return f"<LearntPolicy for {name}: {sizes}, H = {self.horizon:,}, value {number_text(self.value)}{signed}>"

    @property
    def horizon(self) -> int:
        return int(self.table.shape[0])

    @property
    def states(self) -> int:
        return int(self.table.shape[1])

    @property
    def units(self) -> Units:
        return Units.of(self.environment)

    @property
    def digest(self) -> str:
        """The SHA-256 of the actions, as 32-bit integers, little endian, step by step."""
        return policy_digest(self.table)

    @classmethod
    def of(cls, run: RunData) -> LearntPolicy:
        rounds, episodes = len(run.records["length"]), run.episodes_played
        if len(run.recommendations["round"]):
            rounds, episodes = (int(run.recommendations[name][-1]) for name in ("round", "episodes"))
        learnt = (run.policy, run.about.actions, dict(run.about.environment), run.value)
        return cls(*learnt, "", rounds, episodes, run.complete, guarantee=run.certificate)

    def act(self, step: int | np.integer[Any], state: int | np.integer[Any]) -> int:
        """What to do; steps and states count from 0."""
        _check_exists("step", step, self.horizon)
        _check_exists("state", state, self.states)
        return int(self.table[step, state])

    def _about(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            **{name: getattr(self, name) for name in ("horizon", "states", "actions")},
            "environment": dict(self.environment),
            "units": asdict(self.units),
            "value": none_for_nan(self.value),
            **{name: getattr(self, name) for name in FROM_RUN},
            "policy_sha256": self.digest,
            **({} if self.guarantee is None else {"guarantee": self.guarantee.to_data()}),
            **({name: getattr(self, name) for name in SEAL} if self.signature else {}),
        }

    def signed(self, certificate: bytes, private_key: bytes) -> LearntPolicy:
        from fed_ucbvi.core.signatures import sign

        text = _signed_text(self._about())
        return replace(self, signature=sign(text, private_key), certificate=certificate.decode())

    def to_bytes(self) -> bytes:
        return json.dumps({**self._about(), "policy": self.table.tolist()}, allow_nan=False).encode() + b"\n"

    def save(self, path: str | Path) -> None:
        """Write a ``.json`` file; one that exists is replaced."""
        file = check_policy_file(Path(path))
        file.parent.mkdir(parents=True, exist_ok=True)
        with new_file(file) as draft:
            draft.write_bytes(self.to_bytes())


def policy_of_bytes(
    content: bytes,
    name: str | Path,
    *,
    authority: bytes | None = None,
    server: str | None = None,
    sizes: tuple[int, int] | None = None,
) -> LearntPolicy:
    """Read back the content of a file. Its length is checked before it is read, its signature before it is used.

    With the certificate of an ``authority``, one of its servers must have signed it; ``server``, if given, must be
    the name in that server's certificate. ``sizes`` are H and S, where they are known.
    """
    with reading(Path(name)):
        check_length(len(content), MAX_ENTRIES if sizes is None else sizes[0] * sizes[1], name)
        about = json.loads(content)
        if not isinstance(about, dict) or about.get("format") != FORMAT:
            raise InputError(f"{name} is not a policy that fed-ucbvi saved.")
        check_version(name, about, FORMAT_VERSION)
        shape, actions = (int(about["horizon"]), int(about["states"])), int(about["actions"])
        if sizes is not None and shape != sizes:
            raise InputError(f"{name} does not fit the run: it is for H = {shape[0]} and S = {shape[1]}.")
        if min(shape) < 1 or shape[0] * shape[1] > MAX_ENTRIES:
            raise InputError(f"{name} is damaged, or too large: policies have 1 to {MAX_ENTRIES:,} entries.")
        if authority is not None:
            if not about.get("signature"):
                raise InputError(f"{name} is not to be trusted: it is not signed.")
            from fed_ucbvi.core.signatures import check_signature

            signature, certificate = (str(about[part]) for part in SEAL)
            try:
                check_signature(_signed_text(about), signature, certificate, authority, server)
            except InputError as error:
                raise InputError(f"{name} is not to be trusted: {error}") from error
        table = np.asarray(about["policy"], dtype=np.int32)
        if table.shape != shape or table.min() < 0 or table.max() >= actions:
            raise InputError(f"{name} is damaged: its policy is not one of the sizes it names.")
        known: dict[str, Any] = {name: kind(about[name]) for name, kind in FROM_RUN.items()}
        known |= {name: str(about.get(name, "")) for name in SEAL}
        known["guarantee"] = Certificate.from_data(about["guarantee"]) if "guarantee" in about else None
        found = LearntPolicy(table, actions, about["environment"], nan_for_none(about["value"]), **known)
        if found.digest != about["policy_sha256"]:
            raise InputError(f"{name} is damaged: its actions are not those whose digest it gives.")
        if found.guarantee is not None and found.guarantee.policy_sha256 != found.digest:
            raise InputError(f"{name} is damaged: what it guarantees is said of another policy.")
        return found


PolicyLike = LearntPolicy | npt.ArrayLike | Callable[[int, int], Any]
"""A policy as callers may give it."""


def policy_sets(given: PolicyLike, horizon: int, states: int, actions: int, *, name: str, ends: bool) -> PolicyArray:
    """As :func:`policy_table`; or by action, ``(S, A)`` or ``(H, S, A)``: a function then gives a row.

    Truth values are sets of equally likely actions. Probabilities come back as weights, whole with the sum 120
    (:data:`~fed_ucbvi.problem.dynamic_programming.WEIGHTS`), by the largest remainders.

    >>> policy_sets([[0.5, 0.5, 0], [0, 0.1, 0.9]], 1, 2, 3, name="the rule", ends=False).tolist()
    [[[60, 60, 0], [0, 12, 108]]]
    """
    table = _asked(given, horizon, states - ends, name)
    rows_are_one = table.dtype.kind == "f" and table.ndim == 2 and _are_one(table.sum(axis=1))
    if rows_are_one and table.shape == (horizon, states - ends) and (table % 1 == 0).all():
        raise InputError(
            f"{name} of shape {table.shape} can be read as actions and as probabilities; give actions as integers, "
            "not floats, and probabilities by step, (H, S, A)."
        )
    sets = table.dtype == np.bool_
    if not sets and not rows_are_one and table.ndim != 3:
        return policy_table(table, horizon, states, actions, name=name, ends=ends)
    rows = np.broadcast_to(table, (horizon, *table.shape)) if table.ndim == 2 else table
    if ends and rows.shape == (horizon, states - 1, actions):
        last = np.ones((horizon, 1, actions), dtype=np.bool_)
        rows = np.concatenate([rows, last if sets else last / actions], axis=1)
    whole = rows.any(axis=-1).all() if sets else (rows >= 0).all() and _are_one(rows.sum(axis=-1))
    if rows.shape != (horizon, states, actions) or not whole:
        kind, wrong = ("sets", "empty") if sets else ("probabilities", "below 0 or not 1 together")
        raise InputError(
            f"{name} must have an action or more for each step, state, (H, S, A) = ({horizon}, {states}, {actions}); "
            f"got {kind} of shape {table.shape}{'' if whole else f', some of them {wrong}'}."
        )
    return np.ascontiguousarray(rows) if sets else _weights(rows)


def _are_one(sums: FloatArray) -> bool:
    return bool((np.abs(sums - 1.0) <= 1e-6).all())


def _weights(probabilities: FloatArray) -> PolicyArray:
    """Probabilities along the last axis as whole numbers with the sum :data:`WEIGHTS`, by the largest remainders."""
    parts = probabilities / probabilities.sum(axis=-1, keepdims=True) * WEIGHTS
    made = np.floor(parts)
    rank = np.argsort(np.argsort(made - parts, axis=-1, kind="stable"), axis=-1, kind="stable")
    return np.asarray(made + (rank < WEIGHTS - made.sum(axis=-1, keepdims=True)), dtype=np.int8)


def _asked(given: PolicyLike, horizon: int, states: int, name: str) -> npt.NDArray[Any]:
    """A policy as a table, whoever gives it: a function is asked for every step and state."""
    if isinstance(given, LearntPolicy):
        return given.table
    if callable(given):
        try:
            given = [[given(h, s) for s in range(states)] for h in range(horizon)]
        except Exception as error:
            raise InputError(f"{name} fails for some step and state: {type(error).__name__}: {error}") from error
    try:
        return np.asarray(given)
    except ValueError:
        return np.asarray("no table")


def policy_table(
    given: PolicyLike, horizon: int, states: int, actions: int, *, name: str = "the policy", ends: bool = False
) -> IndexArray:
    """A policy as actions ``(H, S)``, or raise; ``name`` says in messages what it is.

    It is given as actions ``(S,)`` or ``(H, S)``, a learnt policy, or a function of step and state. ``ends`` says
    that the last state is that where live environments go when an episode terminates. Nothing depends on the action
    there, so it may be left out, and a function is not asked about it.

    >>> policy_table(lambda step, state: step + state, 2, 2, 3).tolist()
    [[0, 1], [1, 2]]
    """
    table = _asked(given, horizon, states - ends, name)
    try:
        whole = np.array_equal(table, table.astype(np.int32))
    except (TypeError, ValueError):
        table, whole = np.zeros(0), False
    table = np.broadcast_to(table, (horizon, table.shape[0])) if table.ndim == 1 else table
    if whole and ends and table.shape == (horizon, states - 1):
        table = np.concatenate([table, np.zeros((horizon, 1), dtype=table.dtype)], axis=1)
    if not whole or table.shape != (horizon, states):
        raise InputError(
            f"{name} must be one action for each step and state, (H, S) = ({horizon}, {states}), or for each state; "
            f"got {'an array of shape ' + str(table.shape) if whole else 'something else'}."
        )
    if not 0 <= table.min() <= table.max() < actions:
        raise InputError(f"{name} takes actions from {table.min()} to {table.max()}; there are 0 to {actions - 1}.")
    return np.ascontiguousarray(table, dtype=np.int32)


def _signed_text(about: Mapping[str, Any]) -> str:
    signed = {key: value for key, value in about.items() if key not in ("policy", *SEAL)}
    return json.dumps(signed, allow_nan=False, sort_keys=True, separators=(",", ":"))


def check_length(length: int, entries: int, name: str | Path) -> None:
    """Raise if a file of this length holds more than a policy with so many entries can have."""
    if length > (1 << 24) + 12 * entries:  # bytes of what it says about the policy, and of an action in JSON
        raise InputError(f"{name} has {byte_count(length)}, more than a policy of its size can have.")


def _check_exists(name: str, number: object, limit: int) -> None:
    if not isinstance(number, int | np.integer) or not 0 <= number < limit:
        raise InputError(f"{name} {number!r} does not exist; this policy has {name}s 0 to {limit - 1}.")


def check_policy_file(path: Path) -> Path:
    if path.suffix != SUFFIX:
        raise InputError(f"a policy is kept in a {SUFFIX} file; {path} is none.")
    return path
