"""Settings in the configurations of a run and of a node; keys are the flags of ``serve`` and ``join``."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, NamedTuple, Self

from fed_ucbvi.command_line.flags import FlagTable, flags_of, read_fields, written
from fed_ucbvi.core.addresses import check_address, host_of, ip_of, is_loopback
from fed_ucbvi.core.errors import InputError, unknown_name
from fed_ucbvi.core.parameters import Count, Size, check_value, declared
from fed_ucbvi.network.commands.flags import RULE_FLAGS
from fed_ucbvi.network.federation_spec import FederationRules, FederationSpec
from fed_ucbvi.specifications.algorithm import AlgorithmSpec
from fed_ucbvi.specifications.problem import ProblemSpec
from fed_ucbvi.specifications.run import RunOptions, RunSpec

SPECIFICATIONS: dict[str, Any] = {
    "problem": ProblemSpec,
    "algorithm": AlgorithmSpec,
    "run": RunOptions,
    "rules": FederationRules,
}
TABLES: dict[str, FlagTable] = {"rules": RULE_FLAGS}
REPEATED = ("environment_options", "parameters")
"""Fields whose flags may be repeated; a configuration has all of their values in one text."""


class Place(NamedTuple):
    """The field that a key sets: of a specification, or, if ``part`` is empty, of the settings themselves."""

    part: str
    field: str


@dataclass(frozen=True)
class _Settings:
    """Specifications, and values of their own, by the keys of a configuration."""

    problem: ProblemSpec = field(default_factory=ProblemSpec)
    of_what: ClassVar[str]
    names: ClassVar[dict[str, str]]
    """Names of the fields that may be set, by the name of the specification."""
    defaults: ClassVar[dict[str, Any]] = {}

    def __post_init__(self) -> None:
        kind: Any = type(self)
        for name, hint in declared(kind).items():
            check_value(name.replace("_", "-"), getattr(self, name), hint)

    @classmethod
    def keys(cls) -> dict[str, Place]:
        """The field that each key sets."""
        found = {}
        for part, names in cls.names.items():
            flags = flags_of(SPECIFICATIONS[part], TABLES.get(part))
            for name in names.split():
                key = written(name, flags[name]).partition("/")[0].removeprefix("--")
                found[key] = Place(part, name)
        for one in fields(cls):
            if one.name not in cls.names:
                found[one.name.replace("_", "-")] = Place("", one.name)
        return found

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self:
        """Read a configuration as Flower hands it over; an empty text leaves a key out, because TOML has no null.

        >>> NodeSettings.of({"env": "gridworld", "eps-p": 0.1}).problem.eps_p
        0.1
        >>> NodeSettings.of({"environment": "gridworld"})  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        fed_ucbvi.core.errors.InputError: the configuration of this node cannot be used: unknown key 'environment'...
        """
        try:
            return cls(**cls._read(config))
        except InputError as error:
            raise InputError(f"the configuration of this {cls.of_what} cannot be used: {error}") from error

    @classmethod
    def _read(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        keys = cls.keys()
        given: dict[str, dict[str, Any]] = {"": {}, **{part: {} for part in cls.names}}
        for key, value in {**cls.defaults, **config}.items():
            if key not in keys:
                raise unknown_name("key", key, keys)
            place = keys[key]
            if value == "":
                continue
            if place.field in REPEATED and isinstance(value, str):
                value = shlex.split(value)
            given[place.part][place.field] = value
        read = given.pop("")
        for part, values in given.items():
            kind = SPECIFICATIONS[part]
            read[part] = kind(**read_fields(kind, values, TABLES.get(part)))
        return read


@dataclass(frozen=True)
class RunSettings(_Settings):
    """``[tool.flwr.app.config]`` and ``--run-config``: what ``fed-ucbvi serve`` takes as flags.

    ``nodes`` SuperNodes share the agents evenly, in the order of ``node_ids`` or else of their numbers. ``listen`` is
    where the server listens, ``address`` where nodes find it if that is not the same; a port 0 means a free one.
    ``superlink_tls`` says that the SuperLink was started with certificates, which an app cannot see.
    """

    of_what = "run"
    names: ClassVar[dict[str, str]] = {
        "problem": "environment sizes agents eps_p env_seed environment_options random_rewards",
        "algorithm": "name parameters",
        "run": "episodes seed checkpoint out overwrite",
        "rules": "collection deadline patience gathering",
    }
    defaults: ClassVar[dict[str, Any]] = {"gathering": 600.0}

    algorithm: AlgorithmSpec = field(default_factory=AlgorithmSpec)
    run: RunOptions = field(default_factory=RunOptions)
    rules: FederationRules = field(default_factory=FederationRules)
    nodes: Size = 0
    node_ids: str | int = ""
    listen: str = "127.0.0.1:50051"
    address: str = ""
    superlink_tls: bool = False

    @property
    def spec(self) -> FederationSpec:
        """The run and its rules."""
        run = RunSpec(problem=self.problem, algorithm=self.algorithm, options=self.run)
        return FederationSpec(run=run, rules=self.rules)

    def wanted(self) -> tuple[int, ...]:
        """The SuperNodes that were named, if any were."""
        try:
            ids = tuple(int(part) for part in str(self.node_ids).replace(",", " ").split())
        except ValueError:
            raise InputError(f"node-ids must be whole numbers, got '{self.node_ids}'.") from None
        if ids and (len(ids) != self.nodes or len(set(ids)) != self.nodes):
            raise InputError(f"node-ids must name {self.nodes} different SuperNodes, got {list(ids)}.")
        return ids

    def meeting_point(self) -> str:
        """Where nodes find the server.

        Nodes are handed their certificates by Flower, so unless Flower's own connections are under TLS everything
        must stay on this machine: on the way anyone could hand out others.
        """
        address = check_address(self.address or self.listen)
        host = host_of(address)
        ip = ip_of(host)
        if ip is not None and ip.is_unspecified:
            raise InputError(f"nodes cannot find {address}; give the name or address of this machine as address.")
        if not self.superlink_tls and not (is_loopback(host_of(check_address(self.listen))) and is_loopback(host)):
            raise InputError(
                "without TLS on the SuperLink anyone on the way could take the place of the server or a node; start "
                "it with certificates and state so by superlink-tls=true in the run's configuration, or stay on "
                f"127.0.0.1 (listen is {self.listen}, address {address})."
            )
        return address


@dataclass(frozen=True)
class NodeSettings(_Settings):
    """``--node-config`` of a SuperNode: what ``fed-ucbvi join`` takes as flags.

    A node hosts the agents the server gives it, unless it says itself which (``agents`` from ``first_agent`` on).
    ``state`` is a folder on the node; every run gets one of its own in it.
    """

    of_what = "node"
    names: ClassVar[dict[str, str]] = {"problem": "environment eps_p env_seed environment_options"}

    agents: Size | None = None
    first_agent: Count | None = None
    algorithm: str | None = None
    state: str | None = None
    send_trajectories: bool = False

    def share(self, first_agent: int, agents: int) -> tuple[int, int]:
        """The first agent and the number of agents, which the server may have chosen."""
        if (self.agents is None) != (self.first_agent is None):
            raise InputError("agents and first-agent go together: a node names both, or hosts what it is given.")
        return (first_agent if self.first_agent is None else self.first_agent, self.agents or agents)
