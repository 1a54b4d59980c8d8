"""A recommended policy as a file: its actions, where it was learnt, from which round of which run, and who says so.

There is one format, written by :meth:`Run.export_policy`, by a server beside its checkpoint and by the nodes of a
federation. A server signs what it gives out: the text under the signature is the JSON of all fields but the actions,
the signature and the certificate, with sorted names and no spaces. The actions are in it by their SHA-256.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.files import new_file, reading
from fed_ucbvi.core.numbers import number_text
from fed_ucbvi.core.types import IndexArray
from fed_ucbvi.problem.units import Units
from fed_ucbvi.results.run_data import RunData
from fed_ucbvi.results.storage import load_run

FORMAT = "fed-ucbvi/policy"
FORMAT_VERSION = 2
JSON, NPZ = SUFFIXES = (".json", ".npz")


class _Clock:
    """The step of each episode that :meth:`LearntPolicy.predict` is in the middle of."""

    steps: npt.NDArray[np.int64] | None = None


@dataclass(frozen=True, eq=False)
class LearntPolicy:
    """A deterministic policy ``(H, S)`` and everything that is needed to play it.

    Attributes:
        table: the action of every step and state.
        actions: A.
        environment: the description of the environment.
        value: what it is worth in the common MDP; NaN where that is unknown.
        run: the run's identifier, where it has one.
        rounds: after how many rounds it was recommended.
        episodes: after how many episodes of the agent that had played most.
        final: whether the run was over then.
        signature: the server's, in base64; empty if nobody has signed it.
        certificate: that of the server.
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
    _clock: _Clock = field(default_factory=_Clock, init=False, repr=False)

    def __repr__(self) -> str:
        name, sizes = self.environment.get("name", "custom"), f"S = {self.states:,}, A = {self.actions:,}"
        signed = ", signed" if self.signature else ""
        return f"<LearntPolicy for {name}: {sizes}, H = {self.horizon:,}, value {number_text(self.value)}{signed}>"

    @property
    def horizon(self) -> int:
        """H."""
        return int(self.table.shape[0])

    @property
    def states(self) -> int:
        """S."""
        return int(self.table.shape[1])

    @property
    def units(self) -> Units:
        """The units of rewards."""
        return Units.of(self.environment)

    @property
    def digest(self) -> str:
        """The SHA-256 of the actions, as 32-bit integers, little endian, step by step."""
        return hashlib.sha256(np.ascontiguousarray(self.table, dtype="<i4").tobytes()).hexdigest()

    @classmethod
    def of(cls, run: RunData) -> LearntPolicy:
        """The recommended policy of a run."""
        rounds, episodes = len(run.records["length"]), run.episodes_played
        if len(run.recommendations["round"]):
            rounds, episodes = (int(run.recommendations[name][-1]) for name in ("round", "episodes"))
        about = run.about
        return cls(run.policy, about.actions, dict(about.environment), run.value, "", rounds, episodes, run.complete)

    # --------------------------------------------------------------------------------------------------- using it

    def act(self, step: int | np.integer[Any], state: int | np.integer[Any]) -> int:
        """What to do; steps and states count from 0."""
        _check_exists("step", step, self.horizon)
        _check_exists("state", state, self.states)
        return int(self.table[step, state])

    def predict(
        self,
        observation: npt.ArrayLike,
        state: tuple[npt.NDArray[np.int64], ...] | None = None,
        episode_start: npt.ArrayLike | None = None,
        deterministic: bool = True,
    ) -> tuple[Any, tuple[npt.NDArray[np.int64], ...]]:
        """What to do next, called as the models of Stable-Baselines3 are.

        The policy depends on the step, so it counts steps: from 0 in the first call, and anew wherever
        ``episode_start`` is true. Say so at the start of every episode; an episode that goes on beyond H steps is an
        error.

        Args:
            observation: the state, or one state for each of several environments.
            state: what the last call returned; by default the count goes on from there.
            episode_start: whether an episode begins here, for all environments or for each.
            deterministic: is of no consequence, for the policy is.

        Returns:
            The action, or one for each environment, and the steps that come next.
        """
        places = np.asarray(observation)
        if not np.issubdtype(places.dtype, np.integer):
            raise InputError(f"an observation is a state from 0 to {self.states - 1}, got {observation!r}.")
        steps = self._clock.steps if state is None else np.asarray(state[0])
        if steps is None or steps.shape != places.shape:
            steps = np.zeros(places.shape, dtype=np.int64)
        if episode_start is not None:
            begins = np.asarray(episode_start, dtype=np.bool_)
            begins = begins.reshape(places.shape) if begins.size == places.size else begins
            steps = np.where(np.broadcast_to(begins, places.shape), 0, steps)
        if places.size and not 0 <= places.min() <= places.max() < self.states:
            raise InputError(f"state {observation!r} does not exist; this policy has states 0 to {self.states - 1}.")
        if places.size and steps.max() >= self.horizon:
            raise InputError(
                f"the episode has had its {self.horizon} steps; say episode_start=True where a new one begins."
            )
        self._clock.steps = steps + 1
        return self.table[steps, places], (self._clock.steps,)

    # ---------------------------------------------------------------------------------------------------- signing

    def _about(self) -> dict[str, Any]:
        """All fields of the file but the actions, the signature and the certificate."""
        return {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "horizon": self.horizon,
            "states": self.states,
            "actions": self.actions,
            "environment": dict(self.environment),
            "units": asdict(self.units),
            "value": None if np.isnan(self.value) else self.value,
            "run": self.run,
            "rounds": self.rounds,
            "episodes": self.episodes,
            "final": self.final,
            "policy_sha256": self.digest,
        }

    def _text(self) -> str:
        return json.dumps(self._about(), allow_nan=False, sort_keys=True, separators=(",", ":"))

    def signed(self, certificate: bytes, private_key: bytes) -> LearntPolicy:
        """The same, signed with a server's key."""
        from fed_ucbvi.core.signatures import sign

        return replace(self, signature=sign(self._text(), private_key), certificate=certificate.decode())

    def check_signature(self, authority: bytes, server: str | None = None) -> None:
        """Raise unless a server of this authority has signed it, one whose certificate is for ``server`` if given."""
        from fed_ucbvi.core.signatures import check_signature

        if not self.signature:
            raise InputError("it is not signed.")
        check_signature(self._text(), self.signature, self.certificate, authority, server)

    # ------------------------------------------------------------------------------------------------------ files

    def to_bytes(self) -> bytes:
        """The content of a ``.json`` file."""
        content = {**self._about(), **self._seal(), "policy": self.table.tolist()}
        return json.dumps(content, allow_nan=False).encode() + b"\n"

    def _seal(self) -> dict[str, str]:
        return {"signature": self.signature, "certificate": self.certificate} if self.signature else {}

    def save(self, path: str | Path) -> None:
        """Write a ``.json`` or ``.npz`` file; one that exists is replaced."""
        file = check_policy_file(Path(path))
        file.parent.mkdir(parents=True, exist_ok=True)
        content = self.to_bytes()
        if file.suffix == NPZ:
            buffer = io.BytesIO()
            about = json.dumps({**self._about(), **self._seal()}, allow_nan=False)
            np.savez_compressed(buffer, policy=self.table, about=np.array(about))
            content = buffer.getvalue()
        with new_file(file) as draft:
            draft.write_bytes(content)


def load_policy(path: str | Path, *, authority: str | Path | None = None, server: str | None = None) -> LearntPolicy:
    """Read a policy from a file, or from the folder of a saved run; a damaged or foreign one is refused.

    Args:
        path: what :meth:`Run.export_policy` or a node of a federation wrote, or what :meth:`Run.save` did.
        authority: the certificate of the federation's authority (``ca.crt``). With it, a policy that no server of
            this authority has signed is refused.
        server: the name in that server's certificate, if it matters which one it was.
    """
    file = Path(path)
    if file.is_dir():
        policy = LearntPolicy.of(load_run(RunData, file))
    else:
        check_policy_file(file)
        if not file.is_file():
            raise InputError(f"there is no file {file}.")
        policy = policy_of_bytes(file.read_bytes(), file)
    if authority is not None:
        if not Path(authority).is_file():
            raise InputError(f"{authority} is missing; it is to hold the certificate of the federation's authority.")
        try:
            policy.check_signature(Path(authority).read_bytes(), server)
        except InputError as error:
            raise InputError(f"{file} is not to be trusted: {error}") from error
    return policy


def policy_of_bytes(content: bytes, name: str | Path) -> LearntPolicy:
    """Read back the content of a file; ``name`` is its name in error messages."""
    with reading(Path(name)):
        if content[:2] == b"PK":
            with np.load(io.BytesIO(content), allow_pickle=False) as data:
                about, table = json.loads(str(data["about"])), data["policy"]
        else:
            about = json.loads(content)
            table = about.get("policy") if isinstance(about, dict) else None
        if not isinstance(about, dict) or about.get("format") != FORMAT:
            raise InputError(f"{name} is not a policy that fed-ucbvi saved.")
        version = about.get("format_version")
        if version not in (1, FORMAT_VERSION):
            raise InputError(f"{name} has format version {version}; this program reads 1 and {FORMAT_VERSION}.")
        policy = np.array(table, dtype=np.int32)
        actions, value = int(about["actions"]), about["value"]
        if policy.shape != (about["horizon"], about["states"]) or policy.min() < 0 or policy.max() >= actions:
            raise InputError(f"{name} is damaged: its policy is not one of the sizes it names.")
        found = LearntPolicy(policy, actions, about["environment"], float("nan") if value is None else float(value))
        if version == FORMAT_VERSION:
            found = replace(
                found,
                run=str(about["run"]),
                rounds=int(about["rounds"]),
                episodes=int(about["episodes"]),
                final=bool(about["final"]),
                signature=str(about.get("signature", "")),
                certificate=str(about.get("certificate", "")),
            )
            if found.digest != about["policy_sha256"]:
                raise InputError(f"{name} is damaged: its actions are not those whose digest it gives.")
        return found


def _check_exists(name: str, number: object, limit: int) -> None:
    if not isinstance(number, int | np.integer) or not 0 <= number < limit:
        raise InputError(f"{name} {number!r} does not exist; this policy has {name}s 0 to {limit - 1}.")


def check_policy_file(path: Path) -> Path:
    """Return the path of a policy, or raise."""
    if path.suffix not in SUFFIXES:
        raise InputError(f"a policy is kept in a .json or .npz file; {path} is neither.")
    return path
