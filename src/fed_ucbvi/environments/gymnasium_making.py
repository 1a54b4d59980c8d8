"""Making Gymnasium's environments, and checking that they are of the kind this package can use."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fed_ucbvi.core.errors import InputError, check_integer, check_number, check_positive_integer, missing_package
from fed_ucbvi.core.plugins import load_attribute
from fed_ucbvi.environments.family import generator
from fed_ucbvi.problem.units import Units

if TYPE_CHECKING:
    from types import ModuleType

    import gymnasium

Kwargs = Mapping[str, Any]

MAX_REWARD = 1e300
"""Rewards beyond this, or returns made of them, cannot be counted with floating-point numbers."""


class NotDiscreteError(InputError):
    """A space that is not Discrete; bins may make it so."""


def gymnasium_package() -> ModuleType:
    """The package, or an error that says how to get it."""
    try:
        import gymnasium
    except ImportError as error:
        raise missing_package("this needs", "the package gymnasium", "gymnasium") from error
    return gymnasium


def make_gymnasium(id: str, kwargs: Kwargs, **more: Any) -> gymnasium.Env[Any, Any]:
    """``gymnasium.make(id, **kwargs, **more)``; whatever goes wrong becomes an :class:`InputError`."""
    package = gymnasium_package()
    if not isinstance(id, str):
        raise InputError(f"a Gymnasium environment is named by its id, such as 'FrozenLake-v1'; got {id!r}.")
    try:
        return package.make(id, **kwargs, **more)  # type: ignore[no-any-return]
    except Exception as error:
        text = " ".join(str(error).split())
        raise InputError(f"Gymnasium cannot make {id!r} with {dict(kwargs)}: {text.rstrip('.')}.") from error


def limited_maker(
    id: str, kwargs_of: Callable[[int], Kwargs], horizon: int | None
) -> Callable[[int], gymnasium.Env[Any, Any]]:
    """``make(agent)`` of live environments, which cut episodes off at the horizon if there is one."""
    if horizon is None:
        limit = {}
    else:
        limit = {"max_episode_steps": check_positive_integer("horizon", horizon)}
    return lambda agent: make_gymnasium(id, kwargs_of(agent), **limit)


def named_maker(text: str, kwargs: Kwargs, horizon: int | None) -> Callable[[int], gymnasium.Env[Any, Any]]:
    """``make(agent)`` for a Gymnasium id, made with ``kwargs`` for every agent, or for ``module:function``."""
    if text.partition(":")[2].isidentifier():
        if kwargs:
            raise InputError(f"keyword arguments are for Gymnasium ids; {text} is a function and knows its own.")
        make: Callable[[int], gymnasium.Env[Any, Any]] = load_attribute(text)
        return make
    return limited_maker(text, lambda agent: kwargs, horizon)


def discrete_sizes(env: gymnasium.Env[Any, Any], name: str) -> tuple[int, int]:
    """``(S, A)`` of an environment whose two spaces are ``Discrete`` and begin with 0, or an error."""
    package = gymnasium_package()
    if isinstance(env, package.vector.VectorEnv):
        raise InputError(f"{name} is a vector environment; give one environment for each agent instead.")
    if not isinstance(env, package.Env):
        raise InputError(f"{name} is not a Gymnasium environment but {type(env).__name__}.")
    sizes = []
    for what, space in (
        ("observations", env.observation_space),
        ("actions", env.action_space),
    ):
        if not isinstance(space, package.spaces.Discrete):
            raise NotDiscreteError(
                f"the {what} of {name} are {space}; only Discrete spaces can be tabulated. Make them "
                "finite by bins (make_finite and learn_bins; over the network 'fed-ucbvi bins', then serve --bins)."
            )
        if int(space.start) != 0:
            raise InputError(
                f"the {what} of {name} are numbered from {space.start}, but must be from 0; shift them in a wrapper."
            )
        sizes.append(int(space.n))
    return sizes[0], sizes[1]


def kwargs_of_agents(
    agents: int,
    kwargs: Kwargs | Sequence[Kwargs] | None,
    vary: Mapping[str, Sequence[float]] | None,
    seed: int,
) -> list[dict[str, Any]]:
    """Each agent's keyword arguments: those in ``kwargs``, and those of ``vary``, drawn for each agent.

    Agent i's values depend on ``(seed, i)`` and the names in ``vary``, not on the number of agents.

    >>> kwargs_of_agents(2, {"map_name": "4x4"}, {"success_rate": (0.5, 0.5)}, 0)
    [{'map_name': '4x4', 'success_rate': 0.5}, {'map_name': '4x4', 'success_rate': 0.5}]
    """
    M = check_positive_integer("agents", agents)
    root = check_integer("seed", seed)
    if kwargs is None or isinstance(kwargs, Mapping):
        kwargs_by_agent = [kwargs or {}] * M
    else:
        kwargs_by_agent = list(kwargs)
    if len(kwargs_by_agent) != M:
        raise InputError(f"kwargs are given for {len(kwargs_by_agent)} agents, but there are {M}.")
    if not all(isinstance(one, Mapping) for one in kwargs_by_agent):
        raise InputError('kwargs must be keyword arguments by name, as {"map_name": "8x8"}, or a list of such.')
    if vary is not None and not isinstance(vary, Mapping):
        raise InputError(f'vary must be ranges by name, as {{"success_rate": [0.6, 0.9]}}, got {vary!r}.')
    ranges = {name: check_range(f"vary: {name}", values) for name, values in sorted((vary or {}).items())}
    each = []
    for i, one in enumerate(kwargs_by_agent):
        rng = generator(root, i)
        each.append(
            {
                **one,
                **{name: float(rng.uniform(low, high)) for name, (low, high) in ranges.items()},
            }
        )
    try:
        json.dumps(each, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError(f"kwargs must be what JSON can write, so that results can be saved: {error}.") from error
    return each


def check_range(name: str, values: object) -> tuple[float, float]:
    """``(low, high)``, or an error."""
    if not isinstance(values, (list, tuple)) or len(values) != 2:
        raise InputError(f"{name} must be a range (low, high), got {values!r}.")
    low = check_number(f"{name}: low", values[0])
    return low, check_number(f"{name}: high", values[1], at_least=low)


def reward_bounds(reward_range: Sequence[float] | None) -> tuple[float, float] | None:
    """``(low, high)`` of rewards as given, checked; None if not given."""
    if reward_range is None:
        return None
    return check_range("reward_range", reward_range)


def live_units(reward_range: Sequence[float] | None) -> Units:
    """The units of live rewards; an error if ``reward_range`` is missing."""
    bounds = reward_bounds(reward_range)
    if bounds is None:
        raise InputError(
            "reward_range is missing: rewards are rescaled to [0, 1], and how large they can be cannot be seen from "
            "steps; pass reward_range=(low, high), on the command line --reward-range LOW,HIGH."
        )
    low, high = bounds
    if not high > low:
        raise InputError(
            f"reward_range ({low:.12g}, {high:.12g}) has no width: high must be above low. For a reward that is "
            "always c, pass (c, c + 1)."
        )
    if max(-low, high) > MAX_REWARD:
        raise InputError(
            f"reward_range ({low:.12g}, {high:.12g}) is too large to be counted with; rewards must lie between "
            f"-{MAX_REWARD:g} and {MAX_REWARD:g}."
        )
    return Units.spanning(low, high)


class BlamedOn:
    """Whatever ends the block but Ctrl-C, ``SystemExit`` included, becomes an error with agent, call and cause.

    >>> with BlamedOn(3, "step"):
    ...     raise SystemExit(0)
    Traceback (most recent call last):
    fed_ucbvi.core.errors.InputError: the environment of agent 3 failed in step: SystemExit: 0.
    """

    def __init__(self, agent: int, doing: str) -> None:
        self._agent = agent
        self._doing = doing

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None and not isinstance(error, KeyboardInterrupt | InputError):
            cause = f"{type(error).__name__}: {error}".rstrip(": .")
            raise InputError(f"the environment of agent {self._agent} failed in {self._doing}: {cause}.") from error


def make_live(make: Callable[[int], gymnasium.Env[Any, Any]], agent: int) -> gymnasium.Env[Any, Any]:
    with BlamedOn(agent, "make"):
        return make(agent)


def live_sizes(
    make: Callable[[int], gymnasium.Env[Any, Any]], agents: range, horizon: int | None
) -> tuple[int, int, int]:
    """``(S, A, H)`` of live environments, with one more state for termination; makes each environment once."""
    sizes = set()
    for i in agents:
        env = make_live(make, i)
        try:
            sizes.add(discrete_sizes(env, f"the environment of agent {i}"))
            horizon = horizon_of_spec(env, "the environment", horizon)
        finally:
            if hasattr(env, "close"):
                env.close()
        if len(sizes) > 1:
            raise InputError(
                f"the agents' spaces differ: agents {agents[0]}..{i} have (states, actions) in {sorted(sizes)}."
            )
    ((states, actions),) = sizes
    return states + 1, actions, int(horizon or 0)


def horizon_of_spec(env: gymnasium.Env[Any, Any], name: str, horizon: int | None) -> int:
    """H as given, or else the ``max_episode_steps`` of the environment's specification."""
    if horizon is not None:
        return check_positive_integer("horizon", horizon)
    limit = None if env.spec is None else env.spec.max_episode_steps
    if limit is None:
        raise InputError(f"the horizon is missing: {name} has no max_episode_steps of its own, so pass horizon=H.")
    return check_positive_integer("horizon", limit)
