"""A policy as a file: its actions, the environment and the run where it was learnt, and its signature.

There is one format, written by :meth:`Run.export_policy`, by a server beside its checkpoint and by the nodes of a
federation. A server signs what it gives out: the text under the signature is the JSON of all fields but the policy,
the signature and the certificate, with sorted names and no spaces. The policy is in it by its SHA-256.
"""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fed_ucbvi.core.errors import InputError, check_integer
from fed_ucbvi.core.files import check_version, new_file, reading
from fed_ucbvi.core.limits import MAX_SEED
from fed_ucbvi.core.memory import JSON_FACTOR, SMALLER, check_memory
from fed_ucbvi.core.numbers import byte_count, nan_for_none, none_for_nan, number_text
from fed_ucbvi.core.types import PolicyArray
from fed_ucbvi.problem.policies import (
    ACTIONS,
    FORMS,
    SETS,
    TYPES,
    check_actions,
    checked_policy,
    drawn_action,
    form_of,
    shape_of,
)
from fed_ucbvi.problem.units import OWN_UNITS, Units
from fed_ucbvi.results.recommendations import Certificate, policy_digest
from fed_ucbvi.results.run_data import RunData

FORMAT = "fed-ucbvi/policy"
FORMAT_VERSION = 3
SUFFIX = ".json"
MAX_ENTRIES = 1 << 26
"""Numbers of a policy in a file: 256 MiB of actions, or 512 MiB of probabilities, in memory."""
MAX_DESCRIPTION_BYTES = 1 << 24
"""The longest description of a policy in a file."""
MAX_DIGITS = 26
"""The longest number in JSON with what separates it from the next one: a probability."""
RUN_FIELDS: dict[str, type[Any]] = {
    "run": str,
    "rounds": int,
    "episodes": int,
    "final": bool,
}
"""Fields that say at which point of which run a policy was recommended, with their types."""
SIGNATURE_FIELDS = ("signature", "certificate")
LONGEST_TAIL = 16
"""Number of bytes at the end of a file that may be line ends and spaces."""
POLICY_KEY = b', "policy": '
"""The text that separates the policy from everything else in a file."""


@dataclass(frozen=True, eq=False)
class LearntPolicy:
    """A policy and everything that is needed to play it.

    table: the policy, in one of the forms of :mod:`fed_ucbvi.problem.policies`: the action of every step and
        state, or sets or probabilities of actions, from which one is drawn at every visit.
    value: value of the policy in the common MDP; NaN where that is unknown.
    run: identifier of the run, where it has one.
    rounds: number of rounds after which it was recommended.
    episodes: number of episodes after which it was recommended, of the agent that had played most.
    final: true if the run was over then.
    signature: the server's, in base64, whose ``certificate`` follows; empty if it is not signed.
    guarantee: the certificate of the run for this policy, if there is one; it is under the signature.
    """

    table: PolicyArray
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
        name = self.environment.get("name", "custom")
        sizes = f"S = {self.states:,}, A = {self.actions:,}, H = {self.horizon:,}"
        signed = ", signed" if self.signature else ""
        return f"<LearntPolicy for {name}: {sizes}, value {number_text(self.value)}{signed}>"

    @property
    def horizon(self) -> int:
        return int(self.table.shape[0])

    @property
    def states(self) -> int:
        return int(self.table.shape[1])

    @property
    def form(self) -> str:
        """``actions``, ``sets`` or ``probabilities``; see :mod:`fed_ucbvi.problem.policies`."""
        return form_of(self.table)

    @property
    def units(self) -> Units:
        return Units.of(self.environment)

    @property
    def digest(self) -> str:
        """The SHA-256 of the policy; see :func:`~fed_ucbvi.results.recommendations.policy_digest`."""
        return policy_digest(self.table)

    @classmethod
    def of(cls, run: RunData) -> LearntPolicy:
        rounds = len(run.records["length"])
        episodes = run.episodes_played
        recommendations = run.recommendations
        if len(recommendations["round"]):
            rounds = int(recommendations["round"][-1])
            episodes = int(recommendations["episodes"][-1])
        return cls(
            table=run.policy,
            actions=run.about.actions,
            environment=dict(run.about.environment),
            value=run.in_units(OWN_UNITS).value,
            rounds=rounds,
            episodes=episodes,
            final=run.complete,
            guarantee=run.certificate,
        )

    def act(
        self,
        step: int | np.integer[Any],
        state: int | np.integer[Any],
        *,
        seed: int | None = None,
        agent: int = 0,
        episode: int = 0,
    ) -> int:
        """The action at a step in a state; all of these numbers count from 0.

        Where the policy draws its actions, the draw is a function of ``seed``, ``agent``, ``episode`` and step: it is
        the action that a simulated agent takes there. Without a seed every call draws anew, from the randomness of
        the operating system.
        """
        _check_exists("step", step, self.horizon)
        _check_exists("state", state, self.states)
        if self.form == ACTIONS:
            return int(self.table[step, state])
        from fed_ucbvi.core.sampling.philox import number_of_action  # compiled

        if seed is None:
            drawn_by = secrets.randbits(64)
        else:
            drawn_by = check_integer("seed", seed, at_most=MAX_SEED)
        agent_number = check_integer("agent", agent)
        episode_number = check_integer("episode", episode)
        u = number_of_action(
            np.uint64(drawn_by),
            np.uint64(agent_number),
            np.uint64(episode_number),
            int(step),
        )
        return drawn_action(self.table[step, state], u)

    def _description(self) -> dict[str, Any]:
        """All entries of the file but the policy."""
        description: dict[str, Any] = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "form": self.form,
            "horizon": self.horizon,
            "states": self.states,
            "actions": self.actions,
            "environment": dict(self.environment),
            "units": asdict(self.units),
            "value": none_for_nan(self.value),
            "run": self.run,
            "rounds": self.rounds,
            "episodes": self.episodes,
            "final": self.final,
            "policy_sha256": self.digest,
        }
        if self.guarantee is not None:
            description["guarantee"] = self.guarantee.to_data()
        if self.signature:
            description["signature"] = self.signature
            description["certificate"] = self.certificate
        return description

    def signed(self, certificate: bytes, private_key: bytes) -> LearntPolicy:
        from fed_ucbvi.core.signatures import sign

        text = _signed_text(self._description())
        return replace(self, signature=sign(text, private_key), certificate=certificate.decode())

    def to_bytes(self) -> bytes:
        content = self._description()
        content["policy"] = self.table.tolist()
        return json.dumps(content, allow_nan=False).encode() + b"\n"

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
    sizes: tuple[int, int, int] | None = None,
) -> LearntPolicy:
    """Read back the content of a file. Its length is checked before it is read, its signature before it is used.

    With the certificate of an ``authority``, one of its servers must have signed it; ``server``, if given, must be
    the name in that server's certificate. ``sizes`` are H, S and A, where they are known.
    """
    with reading(Path(name)):
        # The description: its format, sizes and signature.
        check_length(len(content), MAX_ENTRIES if sizes is None else math.prod(sizes), name)
        description_text, policy_text = _parts(content, name)
        description = json.loads(description_text)
        if not isinstance(description, dict) or description.get("format") != FORMAT:
            raise InputError(f"{name} is not a policy that fed-ucbvi saved.")
        check_version(name, description, FORMAT_VERSION)
        H = int(description["horizon"])
        S = int(description["states"])
        A = int(description["actions"])
        form = str(description["form"])
        if form not in FORMS:
            raise InputError(f"{name} is damaged: its form is none of {', '.join(FORMS)}.")
        if sizes is not None and sizes != (H, S, A):
            raise InputError(f"{name} does not fit the run: it is for H = {H}, S = {S} and A = {A}.")
        shape = shape_of(form, H, S, A)
        if min(H, S, A) < 1 or math.prod(shape) > MAX_ENTRIES:
            raise InputError(f"{name} is damaged, or too large: policies have 1 to {MAX_ENTRIES:,} entries.")
        if authority is not None:
            _check_signed(description, name, authority, server)
        # The policy itself.
        check_memory(f"The policy in {name}", JSON_FACTOR * len(policy_text), SMALLER)
        table = policy_of_list(json.loads(policy_text.tobytes()))
        if form_of(table) != form or table.shape != shape:
            raise InputError(f"{name} is damaged: its policy does not have the form and the sizes that it names.")
        check_actions(f"{name} is damaged: its policy", table, A)
        if not isinstance(description["environment"], dict):
            raise InputError(f"{name} is damaged: its environment is not a table of options.")
        # The remaining fields, and whether they belong to this policy.
        guarantee = None
        if "guarantee" in description:
            guarantee = Certificate.from_data(description["guarantee"])
        run_fields = {field: kind(description[field]) for field, kind in RUN_FIELDS.items()}
        policy = LearntPolicy(
            table=table,
            actions=A,
            environment=description["environment"],
            value=nan_for_none(description["value"]),
            signature=str(description.get("signature", "")),
            certificate=str(description.get("certificate", "")),
            guarantee=guarantee,
            **run_fields,
        )
        _ = policy.units, repr(policy)  # these are read from the environment
        if policy.digest != description["policy_sha256"]:
            raise InputError(f"{name} is damaged: its actions do not have the digest that it gives.")
        if policy.guarantee is not None and policy.guarantee.policy_sha256 != policy.digest:
            raise InputError(f"{name} is damaged: its guarantee is for another policy.")
        return policy


def _check_signed(description: Mapping[str, Any], name: str | Path, authority: bytes, server: str | None) -> None:
    """Raise unless a server of this authority has signed the description."""
    from fed_ucbvi.core.signatures import check_signature

    if not description.get("signature"):
        raise InputError(f"{name} is not to be trusted: it is not signed.")
    try:
        check_signature(
            _signed_text(description),
            str(description["signature"]),
            str(description["certificate"]),
            authority,
            server,
        )
    except InputError as error:
        raise InputError(f"{name} is not to be trusted: {error}") from error


def _parts(content: bytes, name: str | Path) -> tuple[bytes, memoryview]:
    """The description in a file, and the text of the policy, which is the last entry and not yet parsed.

    A file without a policy is all description.
    """
    begin = content.rfind(POLICY_KEY)
    tail = content[-LONGEST_TAIL:]
    end = len(content) - len(tail) + len(tail.rstrip())
    if begin < 0 or not content.endswith(b"}", 0, end):
        check_memory(f"The content of {name}", JSON_FACTOR * len(content), SMALLER)
        return content, memoryview(b"")
    check_memory(f"The description in {name}", JSON_FACTOR * begin, SMALLER)
    description = content[:begin] + b"}"
    policy = memoryview(content)[begin + len(POLICY_KEY) : end - 1]
    return description, policy


def policy_of_list(numbers: object) -> PolicyArray:
    """A policy from the lists of a JSON file, in the form that its numbers have; not checked."""
    table = np.asarray(numbers)
    form = form_of(table)
    if not form:
        return table
    return np.asarray(numbers, dtype=TYPES[form])


PolicyLike = LearntPolicy | npt.ArrayLike | Callable[[int, int], Any]
"""A policy as callers may give it."""


def as_policy(
    policy: PolicyLike,
    horizon: int,
    states: int,
    actions: int,
    *,
    name: str = "the policy",
    ends: bool = False,
) -> PolicyArray:
    """Convert a policy as a caller gives it to one of the forms of :mod:`fed_ucbvi.problem.policies`.

    The type of the numbers decides which form it is. Integers are actions ``(S,)`` or ``(H, S)``, floats are
    probabilities of actions ``(S, A)`` or ``(H, S, A)``, truth values are sets of actions of these shapes. A function
    of step and state gives an action or a row of such a table. A :class:`LearntPolicy` is accepted, too.

    Args:
        policy: the policy.
        horizon: H.
        states: S.
        actions: A.
        name: name of the policy in messages.
        ends: true if the last state is that where live environments go when an episode terminates. Nothing depends on
            the action there, so it may be left out, and a function is not called for it.

    >>> as_policy(lambda step, state: step + state, 2, 2, 3).tolist()
    [[0, 1], [1, 2]]
    >>> as_policy([[0.5, 0.5, 0.0], [0.0, 0.1, 0.9]], 1, 2, 3).tolist()
    [[[0.5, 0.5, 0.0], [0.0, 0.1, 0.9]]]
    """
    table = _policy_table(policy, horizon, states - ends, name)
    form = form_of(table)
    if form:
        whole = shape_of(form, horizon, states, actions)
        without_last = (horizon, states - 1, *whole[2:])
        same_at_all_steps = table.shape == whole[1:] or (ends and table.shape == without_last[1:])
        if same_at_all_steps:
            table = np.broadcast_to(table, (horizon, *table.shape))
        if ends and table.shape == without_last:
            last_state = _arbitrary_policy(form, horizon, actions)
            table = np.concatenate([table, last_state], axis=1)
    return checked_policy(name, table, horizon, states, actions)


def _arbitrary_policy(form: str, horizon: int, actions: int) -> PolicyArray:
    """A policy of this form for one state, ``(H, 1)`` or ``(H, 1, A)``: the first action, or all alike."""
    if form == ACTIONS:
        return np.zeros((horizon, 1), dtype=np.int32)
    if form == SETS:
        return np.ones((horizon, 1, actions), dtype=np.bool_)
    return np.full((horizon, 1, actions), 1.0 / actions)


def _policy_table(policy: PolicyLike, horizon: int, states: int, name: str) -> npt.NDArray[Any]:
    """The policy as a table; a function is called for every step and state."""
    if isinstance(policy, LearntPolicy):
        return policy.table
    if callable(policy):
        rows = []
        try:
            for h in range(horizon):
                rows.append([policy(h, s) for s in range(states)])
        except Exception as error:
            raise InputError(f"{name} fails for some step and state: {type(error).__name__}: {error}") from error
        policy = rows
    try:
        return np.asarray(policy)
    except ValueError:
        return np.asarray("no table")


def _signed_text(description: Mapping[str, Any]) -> str:
    unsigned_keys = ("policy", *SIGNATURE_FIELDS)
    signed = {key: value for key, value in description.items() if key not in unsigned_keys}
    return json.dumps(signed, allow_nan=False, sort_keys=True, separators=(",", ":"))


def longest_file(entries: int) -> int:
    """Largest length in bytes of a file with so many entries: its description, and its numbers."""
    return MAX_DESCRIPTION_BYTES + MAX_DIGITS * entries


def check_length(length: int, entries: int, name: str | Path) -> None:
    """Raise if a file of this length cannot be a policy with so many entries."""
    if length > longest_file(entries):
        raise InputError(f"{name} has {byte_count(length)}, more than a policy of its size can have.")


def _check_exists(name: str, number: object, limit: int) -> None:
    if not isinstance(number, int | np.integer) or not 0 <= number < limit:
        raise InputError(f"{name} {number!r} does not exist; this policy has {name}s 0 to {limit - 1}.")


def check_policy_file(path: Path) -> Path:
    if path.suffix != SUFFIX:
        raise InputError(f"a policy is saved in a {SUFFIX} file; {path} is not one.")
    return path
