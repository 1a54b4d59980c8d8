"""A policy as a file: its actions, where it was learnt, from which round of which run, and who says so.

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
FROM_RUN: dict[str, type[Any]] = {
    "run": str,
    "rounds": int,
    "episodes": int,
    "final": bool,
}
SEAL = ("signature", "certificate")
LONGEST_TAIL = 16
"""How many of the last bytes of a file may be line ends and spaces."""
POLICY = b', "policy": '
"""The text that separates the policy from everything else in a file."""


@dataclass(frozen=True, eq=False)
class LearntPolicy:
    """A policy and everything that is needed to play it.

    Attributes:
        table: the policy, in one of the forms of :mod:`fed_ucbvi.problem.policies`: the action of every step and
            state, or sets or probabilities of actions, from which one is drawn at every visit.
        value: what it is worth in the common MDP; NaN where that is unknown.
        run: the run's identifier, where it has one.
        rounds: after how many it was recommended, and after how many ``episodes`` of the agent that had played most.
        final: whether the run was over then.
        signature: the server's, in base64, whose ``certificate`` follows; empty if nobody has signed it.
        guarantee: what a run certified of this policy, if it did; it is under the signature.
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
        sizes = f"S = {self.states:,}, A = {self.actions:,}"
        signed = ", signed" if self.signature else ""
        return f"<LearntPolicy for {name}: {sizes}, H = {self.horizon:,}, value {number_text(self.value)}{signed}>"

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
        if len(run.recommendations["round"]):
            rounds, episodes = (int(run.recommendations[name][-1]) for name in ("round", "episodes"))
        learnt = (
            run.policy,
            run.about.actions,
            dict(run.about.environment),
            run.in_units(OWN_UNITS).value,
        )
        return cls(*learnt, "", rounds, episodes, run.complete, guarantee=run.certificate)

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
        from fed_ucbvi.core.sampling.philox import (
            MAX_SEED,
            number_of_action,
        )  # compiled

        if seed is None:
            drawn_by = secrets.randbits(64)
        else:
            drawn_by = check_integer("seed", seed, at_most=MAX_SEED)
        who = check_integer("agent", agent)
        when = check_integer("episode", episode)
        u = number_of_action(np.uint64(drawn_by), np.uint64(who), np.uint64(when), int(step))
        return drawn_action(self.table[step, state], u)

    def _about(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "form": self.form,
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
    sizes: tuple[int, int, int] | None = None,
) -> LearntPolicy:
    """Read back the content of a file. Its length is checked before it is read, its signature before it is used.

    With the certificate of an ``authority``, one of its servers must have signed it; ``server``, if given, must be
    the name in that server's certificate. ``sizes`` are H, S and A, where they are known.
    """
    with reading(Path(name)):
        check_length(len(content), MAX_ENTRIES if sizes is None else math.prod(sizes), name)
        described, numbers = _parts(content, name)
        about = json.loads(described)
        if not isinstance(about, dict) or about.get("format") != FORMAT:
            raise InputError(f"{name} is not a policy that fed-ucbvi saved.")
        check_version(name, about, FORMAT_VERSION)
        H, S, A = (int(about[part]) for part in ("horizon", "states", "actions"))
        form = str(about["form"])
        if form not in FORMS:
            raise InputError(f"{name} is damaged: its form is none of {', '.join(FORMS)}.")
        if sizes is not None and sizes != (H, S, A):
            raise InputError(f"{name} does not fit the run: it is for H = {H}, S = {S} and A = {A}.")
        shape = shape_of(form, H, S, A)
        if min(H, S, A) < 1 or math.prod(shape) > MAX_ENTRIES:
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
        check_memory(f"The policy in {name}", JSON_FACTOR * len(numbers), SMALLER)
        table = policy_of_list(json.loads(numbers.tobytes()))
        if form_of(table) != form or table.shape != shape:
            raise InputError(f"{name} is damaged: its policy is not one of the form and the sizes it names.")
        check_actions(f"{name} is damaged: its policy", table, A)
        if not isinstance(about["environment"], dict):
            raise InputError(f"{name} is damaged: its environment is not a table of options.")
        known: dict[str, Any] = {name: kind(about[name]) for name, kind in FROM_RUN.items()}
        known |= {name: str(about.get(name, "")) for name in SEAL}
        if "guarantee" in about:
            known["guarantee"] = Certificate.from_data(about["guarantee"])
        else:
            known["guarantee"] = None
        found = LearntPolicy(table, A, about["environment"], nan_for_none(about["value"]), **known)
        _ = found.units, repr(found)  # these are read from the environment
        if found.digest != about["policy_sha256"]:
            raise InputError(f"{name} is damaged: its actions are not those whose digest it gives.")
        if found.guarantee is not None and found.guarantee.policy_sha256 != found.digest:
            raise InputError(f"{name} is damaged: what it guarantees is said of another policy.")
        return found


def _parts(content: bytes, name: str | Path) -> tuple[bytes, memoryview]:
    """The text of a file without the policy, and that of the policy, which is the last entry and not yet read.

    A file without a policy is described by all of it.
    """
    begin = content.rfind(POLICY)
    tail = content[-LONGEST_TAIL:]
    end = len(content) - len(tail) + len(tail.rstrip())
    if begin < 0 or not content.endswith(b"}", 0, end):
        check_memory(f"The content of {name}", JSON_FACTOR * len(content), SMALLER)
        return content, memoryview(b"")
    check_memory(f"The description in {name}", JSON_FACTOR * begin, SMALLER)
    return content[:begin] + b"}", memoryview(content)[begin + len(POLICY) : end - 1]


def policy_of_list(numbers: object) -> PolicyArray:
    """A policy from the lists of a JSON file, in the form that its numbers have; not checked."""
    table = np.asarray(numbers)
    form = form_of(table)
    return np.asarray(numbers, dtype=TYPES[form]) if form else table


PolicyLike = LearntPolicy | npt.ArrayLike | Callable[[int, int], Any]
"""A policy as callers may give it."""


def as_policy(
    given: PolicyLike,
    horizon: int,
    states: int,
    actions: int,
    *,
    name: str = "the policy",
    ends: bool = False,
) -> PolicyArray:
    """A policy in one of the forms of :mod:`fed_ucbvi.problem.policies`, from what a caller gives, or an error.

    The type of the numbers decides which form it is. Integers are actions ``(S,)`` or ``(H, S)``, floats are
    probabilities of actions ``(S, A)`` or ``(H, S, A)``, truth values are sets of actions of these shapes. A function
    of step and state gives an action or a row of such a table. A learnt policy will do, too.

    Args:
        given: the policy.
        horizon: H.
        states: S.
        actions: A.
        name: of the policy in messages.
        ends: true if the last state is that where live environments go when an episode terminates. Nothing depends on
            the action there, so it may be left out, and a function is not asked about it.

    >>> as_policy(lambda step, state: step + state, 2, 2, 3).tolist()
    [[0, 1], [1, 2]]
    >>> as_policy([[0.5, 0.5, 0.0], [0.0, 0.1, 0.9]], 1, 2, 3).tolist()
    [[[0.5, 0.5, 0.0], [0.0, 0.1, 0.9]]]
    """
    table = _asked(given, horizon, states - ends, name)
    form = form_of(table)
    if form:
        whole = shape_of(form, horizon, states, actions)
        without_last = (horizon, states - 1, *whole[2:])
        if table.shape == whole[1:] or (ends and table.shape == without_last[1:]):  # the same at all steps
            table = np.broadcast_to(table, (horizon, *table.shape))
        if ends and table.shape == without_last:
            table = np.concatenate([table, _anything(form, horizon, actions)], axis=1)
    return checked_policy(name, table, horizon, states, actions)


def _anything(form: str, horizon: int, actions: int) -> PolicyArray:
    """A policy of this form for one state, ``(H, 1)`` or ``(H, 1, A)``: the first action, or all alike."""
    if form == ACTIONS:
        return np.zeros((horizon, 1), dtype=np.int32)
    if form == SETS:
        return np.ones((horizon, 1, actions), dtype=np.bool_)
    return np.full((horizon, 1, actions), 1.0 / actions)


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


def _signed_text(about: Mapping[str, Any]) -> str:
    signed = {key: value for key, value in about.items() if key not in ("policy", *SEAL)}
    return json.dumps(signed, allow_nan=False, sort_keys=True, separators=(",", ":"))


def longest_file(entries: int) -> int:
    """Bytes that a policy with so many entries can have: its description, and its numbers."""
    return MAX_DESCRIPTION_BYTES + MAX_DIGITS * entries


def check_length(length: int, entries: int, name: str | Path) -> None:
    """Raise if a file of this length holds more than a policy with so many entries can have."""
    if length > longest_file(entries):
        raise InputError(f"{name} has {byte_count(length)}, more than a policy of its size can have.")


def _check_exists(name: str, number: object, limit: int) -> None:
    if not isinstance(number, int | np.integer) or not 0 <= number < limit:
        raise InputError(f"{name} {number!r} does not exist; this policy has {name}s 0 to {limit - 1}.")


def check_policy_file(path: Path) -> Path:
    if path.suffix != SUFFIX:
        raise InputError(f"a policy is kept in a {SUFFIX} file; {path} is none.")
    return path
