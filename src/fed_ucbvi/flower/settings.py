"""What a run's configuration and a node's configuration say; keys are the flags of ``serve`` and ``join``."""

from __future__ import annotations

import ipaddress
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from fed_ucbvi.command_line.parameters import build_algorithm, build_plan, build_source
from fed_ucbvi.core import defaults
from fed_ucbvi.core.errors import InputError, check_positive_integer
from fed_ucbvi.engine.hosted_problem import Source
from fed_ucbvi.network.run_plan import Rules, RunPlan
from fed_ucbvi.network.transport import check_address, is_loopback

Chosen = TypeVar("Chosen")


def _or_none(value: object) -> object:
    return None if value == "" else value


def _words(value: object) -> object:
    return tuple(shlex.split(value)) if isinstance(value, str) else value


def _numbers(value: object) -> object:
    return tuple(value.replace(",", " ").split()) if isinstance(value, str) else value


OrNone = Annotated[Chosen | None, BeforeValidator(_or_none)]
"""A value that is left out by an empty text; TOML has no null."""
Words = Annotated[tuple[str, ...], BeforeValidator(_words)]
"""``KEY=VALUE`` texts, separated by spaces, quoted as in a shell."""


class _Settings(BaseModel):
    of_what: ClassVar[str]
    model_config = ConfigDict(
        extra="forbid", frozen=True, alias_generator=lambda name: name.replace("_", "-"), allow_inf_nan=False
    )

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self:
        """Read a configuration as Flower hands it over.

        >>> NodeSettings.of({"env": "gridworld", "eps-p": 0.1}).eps_p
        0.1
        >>> NodeSettings.of({"environment": "gridworld"})  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        fed_ucbvi.core.errors.InputError: the configuration of this node cannot be used: environment: not a ...
        """
        try:
            return cls.model_validate(dict(config))
        except ValidationError as error:
            wrong = "; ".join(_complaint(one) for one in error.errors())
            known = ", ".join(field.alias or name for name, field in cls.model_fields.items())
            raise InputError(
                f"the configuration of this {cls.of_what} cannot be used: {wrong}. Known: {known}."
            ) from error


def _complaint(error: Any) -> str:
    key = ".".join(str(part) for part in error["loc"]) or "it"
    return f"{key}: {'not a known key' if error['type'] == 'extra_forbidden' else error['msg']}"


class RunSettings(_Settings):
    """``[tool.flwr.app.config]`` and ``--run-config``: what ``fed-ucbvi serve`` takes as flags.

    ``nodes`` SuperNodes share the agents evenly, in the order of ``node_ids`` or else of their numbers. ``listen`` is
    where the server listens, ``address`` where nodes find it if that is not the same; a port 0 takes a free one.
    ``superlink_tls`` says that the SuperLink was started with certificates, which an app cannot see.
    """

    of_what = "run"

    nodes: int
    node_ids: Annotated[tuple[int, ...], BeforeValidator(_numbers)] = ()
    listen: str = "127.0.0.1:50051"
    address: OrNone[str] = None
    superlink_tls: bool = False
    env: OrNone[str] = None
    sizes: OrNone[str] = None
    agents: int
    episodes: int
    eps_p: OrNone[float] = None
    env_seed: int = 0
    env_option: Words = ()
    random_rewards: bool = False
    algorithm: str = defaults.ALGORITHM
    option: Words = ()
    seed: int = 0
    collection: str = "lockstep"
    deadline: float = 60.0
    patience: float = 600.0
    gathering: float = 600.0
    on_away: str = "wait"
    on_violation: str = "stop"
    checkpoint: OrNone[Path] = None
    out: OrNone[Path] = None
    overwrite: bool = False

    def wanted(self) -> tuple[int, ...]:
        """The SuperNodes that were named, if any were."""
        check_positive_integer("nodes", self.nodes)
        if self.node_ids and (len(self.node_ids) != self.nodes or len(set(self.node_ids)) != self.nodes):
            raise InputError(f"node-ids must name {self.nodes} different SuperNodes, got {list(self.node_ids)}.")
        return self.node_ids

    def rules(self) -> Rules:
        """Deadlines and policies."""
        return Rules(self.deadline, self.patience, self.on_away, self.on_violation, self.gathering)

    def plan(self, names: tuple[str, ...] | None = None) -> RunPlan:
        """The run."""
        algorithm = build_algorithm(self.algorithm, {}, self.option)
        return build_plan(
            algorithm,
            self.env,
            self.sizes,
            self.agents,
            self.episodes,
            self.eps_p,
            self.env_seed,
            self.env_option,
            self.seed,
            {"names": names, "rules": self.rules(), "collection": self.collection},
            random_rewards=self.random_rewards,
        )

    def meeting_point(self) -> str:
        """Where nodes find the server.

        Nodes are handed their certificates by Flower, so unless Flower's own connections are under TLS everything
        must stay on this machine: on the way anyone could hand out others.
        """
        address = check_address(self.address or self.listen)
        host = address.rpartition(":")[0].strip("[]")
        if _is_everywhere(host):
            raise InputError(f"nodes cannot find {address}; give the name or address of this machine as address.")
        if not self.superlink_tls and not (is_loopback(check_address(self.listen)) and is_loopback(address)):
            raise InputError(
                "without TLS on the SuperLink anyone on the way could take the place of the server or a node; start "
                "it with certificates and say so by superlink-tls=true in the run's configuration, or stay on "
                f"127.0.0.1 (listen is {self.listen}, address {address})."
            )
        return address


class NodeSettings(_Settings):
    """``--node-config`` of a SuperNode: what ``fed-ucbvi join`` takes as flags.

    A node takes the agents the server gives it, unless it says itself which it hosts (``agents`` from
    ``first_agent`` on). ``state`` is a folder on the node; every run gets one of its own in it.
    """

    of_what = "node"

    env: str = defaults.ENVIRONMENT
    eps_p: float = 0.0
    env_seed: int = 0
    env_option: Words = ()
    agents: int | None = None
    first_agent: int | None = None
    algorithm: OrNone[str] = None
    state: OrNone[Path] = None
    send_trajectories: bool = False

    def share(self, first_agent: int, agents: int) -> tuple[int, int]:
        """The first agent and the number of agents, which the server may have chosen."""
        if (self.agents is None) != (self.first_agent is None):
            raise InputError("agents and first-agent go together: a node names both, or takes what it is given.")
        return (first_agent if self.first_agent is None else self.first_agent, self.agents or agents)

    def source(self, agents: int) -> Source:
        """The problem of the node."""
        return build_source(self.env, agents, self.eps_p, self.env_seed, self.env_option)


def _is_everywhere(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False
