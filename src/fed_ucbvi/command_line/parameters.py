"""Turns the texts of a command line into values."""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fed_ucbvi.core.errors import InputError

if TYPE_CHECKING:
    from fed_ucbvi.algorithms.base import Algorithm
    from fed_ucbvi.engine.hosted_problem import Source
    from fed_ucbvi.network.run_plan import RunPlan
    from fed_ucbvi.problem.federation import Federation

TRUE = ("true", "yes", "on", "1")
FALSE = ("false", "no", "off", "0")
NONE = ("none", "null")
USUAL_AGENTS, USUAL_AGENTS_SERVED = 20, 4
"""The default number of agents, in a simulation and in a federation over the network."""


def whole_number(text: str | int) -> int:
    """A whole number, also when written ``1e9`` or ``30_000``.

    >>> whole_number("1e9")
    1000000000
    """
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not number.is_integer():
        raise typer.BadParameter(f"it must be a whole number, got '{text}'.")
    return int(number)


def pairs(flag: str, texts: Iterable[str]) -> dict[str, str]:
    """``KEY=VALUE`` texts as a dictionary; dashes in keys may stand for underscores.

    >>> pairs("--option", ["bonus-scale=2"])
    {'bonus_scale': '2'}
    """
    values: dict[str, str] = {}
    for text in texts:
        key, sign, value = text.partition("=")
        key = key.strip().replace("-", "_")
        if not sign or not key:
            raise InputError(f"{flag} takes KEY=VALUE, got '{text}'.")
        if key in values:
            raise InputError(f"{flag} gives {key} twice.")
        values[key] = value.strip()
    return values


def json_or_text(name: str, text: str) -> object:
    """A value written as JSON, or else the text itself.

    >>> json_or_text("walls", "[[1, 1], [2, 3]]")
    [[1, 1], [2, 3]]
    """

    def refuse(constant: str) -> object:
        raise InputError(f"{name} must be finite, got {constant}.")

    try:
        return json.loads(text, parse_constant=refuse)
    except json.JSONDecodeError:
        return text


def environment_options(texts: Iterable[str]) -> dict[str, object]:
    """What ``--env-option`` says; what has a flag of its own is refused."""
    options = pairs("--env-option", texts)
    for name, flag in (("agents", "--agents"), ("eps_p", "--eps-p"), ("seed", "--env-seed")):
        if name in options:
            raise InputError(f"--env-option {name}: give it as {flag} instead.")
    return {name: json_or_text(name, text) for name, text in options.items()}


def build_environment(
    name: str, agents: int | None, eps_p: float, seed: int, texts: Iterable[str], *, usual: int = USUAL_AGENTS
) -> Federation:
    """The environment that ``--env`` names with what the flags and ``--env-option`` say.

    Without ``agents`` the environment has its own number of agents or, if this can be chosen, the default number.
    """
    from fed_ucbvi.environments import find_environment

    environment, told = find_environment(name), environment_options(texts)
    if agents is not None or environment.accepts("agents"):
        told["agents"] = usual if agents is None else agents
    with _plain_errors(name):
        return environment.make(eps_p=eps_p, seed=seed, **told)


def build_source(env: str, agents: int, eps_p: float, seed: int, texts: Iterable[str]) -> Source:
    """The problem of a node, for M agents or, if it has fewer, with the node's own alone.

    What can be wrong with a registered environment of ``agents`` agents is told at once.
    """
    from fed_ucbvi.environments import REGISTRY, find_environment

    environment, options = find_environment(env), environment_options(texts)

    def source(M: int) -> Federation:
        with _plain_errors(env):
            return environment.build(agents=M, eps_p=eps_p, seed=seed, **options)

    environment.given(agents=agents, eps_p=eps_p, seed=seed, **options)
    if environment.name in REGISTRY:
        source(agents)
    return source


@contextmanager
def _plain_errors(name: str) -> Iterator[None]:
    """Values that an environment cannot be made with are told as such."""
    try:
        yield
    except InputError:
        raise
    except (ValueError, OverflowError) as error:
        raise InputError(f"{name}: {error}.") from error


def build_algorithm(name: str, flags: Mapping[str, str | bool | None], texts: Iterable[str]) -> Algorithm[Any, Any]:
    """The algorithm that ``--algorithm`` names with what flags and ``--option`` say."""
    from fed_ucbvi.algorithms import make_algorithm

    return make_algorithm(name, algorithm_options(name, flags, texts))


def build_plan(
    algorithm: Algorithm[Any, Any],
    env: str | None,
    sizes: str | None,
    agents: int | None,
    episodes: int,
    eps_p: float | None,
    env_seed: int,
    env_option: Iterable[str],
    seed: int,
    rest: dict[str, Any],
    *,
    random_rewards: bool = False,
    bins: Path | None = None,
) -> RunPlan:
    """A run over the network, from an environment's name or from sizes alone, when eps_p may be unknown (None).

    An environment knows whether its rewards are random; if there are only sizes, ``random_rewards`` says so. A file
    of ``bins`` may replace the sizes.
    """
    from fed_ucbvi.algorithms.base import Setting
    from fed_ucbvi.environments.bins import Bins
    from fed_ucbvi.network.run_plan import RunPlan, plan_for
    from fed_ucbvi.problem.federation import check_eps_p

    if (env is not None) + (sizes is not None) + (bins is not None) != 1:
        raise InputError(
            "say one of --env NAME (the server scores), --sizes S,A,H (it knows nothing else), and --bins FILE (for "
            "real environments that are made finite)."
        )
    if env is not None:
        if random_rewards:
            raise InputError("--random-rewards goes with --sizes; an environment says itself whether rewards are.")
        federation = build_environment(env, agents, eps_p or 0.0, env_seed, env_option, usual=USUAL_AGENTS_SERVED)
        return plan_for(algorithm, federation, episodes, seed=seed, **rest)
    if bins is not None:
        learnt = rest["bins"] = Bins.load(bins)
        sizes = f"{learnt.states + 1},{learnt.number_of_actions},{learnt.horizon}"
    try:
        S, A, H = (int(part) for part in str(sizes).split(","))
        if min(S, A, H) < 1:
            raise ValueError
    except ValueError:
        raise InputError(f"--sizes takes three whole numbers above 0 as S,A,H, got '{sizes}'.") from None
    M = USUAL_AGENTS_SERVED if agents is None else agents
    told, known = check_eps_p(eps_p or 0.0), eps_p is not None
    return RunPlan(algorithm, Setting(S, A, H, M, episodes, told, seed, known, random_rewards), **rest)


def algorithm_options(name: str, flags: Mapping[str, str | bool | None], texts: Iterable[str]) -> dict[str, object]:
    """Parameters of the algorithm ``name`` from flags that were given and from ``--option``, by the fields' types.

    What the algorithm does not know is passed on, for :func:`~fed_ucbvi.algorithms.make_algorithm` to refuse.
    """
    from fed_ucbvi.algorithms import class_of

    options: dict[str, str | bool] = {key: value for key, value in flags.items() if value is not None}
    for key, text in pairs("--option", texts).items():
        if key in options:
            raise InputError(f"{key} is given twice, as --{key.replace('_', '-')} and as --option {key}={text}.")
        options[key] = text
    kind = class_of(name)
    hints = typing.get_type_hints(kind)
    known = {field.name: hints[field.name] for field in dataclasses.fields(kind)}
    return {
        key: by_type(f"{key} of {name}", value, known[key]) if isinstance(value, str) and key in known else value
        for key, value in options.items()
    }


def by_type(name: str, text: str, hint: Any) -> object:
    """A text as a value of an annotated type: bool, int, float, str, None, a union of these, or else JSON.

    >>> by_type("nu", "none", float | None), by_type("nu", "1e3", float | None), by_type("strict", "yes", bool)
    (None, 1000.0, True)
    """
    union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    kinds = typing.get_args(hint) if union else (hint,)
    word = text.lower()
    if type(None) in kinds and word in NONE:
        return None
    if bool in kinds and word in TRUE + FALSE:
        return word in TRUE
    if int in kinds or float in kinds:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if int in kinds and number.is_integer():
            return whole_number(text)
        if float in kinds and math.isfinite(number):
            return number
    if str in kinds:
        return text
    if not {bool, int, float}.isdisjoint(kinds):
        wanted = {bool: "true or false", int: "a whole number", float: "a finite number", type(None): "none"}
        raise InputError(f"{name} must be {' or '.join(wanted[kind] for kind in kinds)}, got '{text}'.")
    return json_or_text(name, text)
