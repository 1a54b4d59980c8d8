"""One run of a sweep: what to run, and how its result is recognised."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fed_ucbvi.environments import current_name, make_environment
from fed_ucbvi.problem.federation import BERNOULLI_REWARDS
from fed_ucbvi.results.about import label_of
from fed_ucbvi.specifications.algorithm import AlgorithmSpec
from fed_ucbvi.specifications.problem import ProblemSpec
from fed_ucbvi.specifications.run import run_id, simulated_content

if TYPE_CHECKING:
    from fed_ucbvi.results.run import Run


@dataclass(frozen=True, kw_only=True, eq=False)
class Job:
    """One run of a sweep: a complete problem and a complete algorithm, with the number of episodes and the seed.

    Jobs are equal if they make the same run, whatever their labels.

    >>> problem = ProblemSpec(environment="synthetic", environment_options={"states": 3}, agents=4).complete()
    >>> job = Job(problem=problem, algorithm=AlgorithmSpec(name="fed-ucbvi").complete(), episodes=1000, seed=7)
    >>> Job.from_content(job.content()) == job
    True
    >>> job.run().episodes_played
    1000
    """

    problem: ProblemSpec
    algorithm: AlgorithmSpec
    episodes: int
    seed: int = 0
    driver: str = "auto"

    def __eq__(self, other: object) -> bool:
        return self.id == other.id if isinstance(other, Job) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.id)

    @classmethod
    def from_content(cls, content: Mapping[str, Any]) -> Job:
        """The job with this :meth:`content`."""
        problem = ProblemSpec(
            environment=content["environment"],
            environment_options=content["environment_options"],
            agents=content["agents"],
            eps_p=content["eps_p"],
            env_seed=content["env_seed"],
        )
        algorithm = AlgorithmSpec(
            name=content["algorithm"],
            parameters=content["parameters"],
            label=content["label"],
        )
        return cls(
            problem=problem,
            algorithm=algorithm,
            episodes=content["episodes"],
            seed=content["seed"],
            driver=content["driver"],
        )

    def content(self) -> dict[str, Any]:
        """Everything on which the result depends, and the label, ready for JSON."""
        return {**self._simulated, "label": self.algorithm.label}

    @cached_property
    def id(self) -> str:
        """Identifier of the run; labels are not part of it."""
        return run_id(self._simulated)

    @property
    def _simulated(self) -> dict[str, Any]:
        return simulated_content(
            self.problem,
            self.algorithm,
            episodes=self.episodes,
            seed=self.seed,
            driver=self.driver,
        )

    @property
    def settings(self) -> dict[str, Any]:
        """Everything but seeds and driver, as :func:`~fed_ucbvi.results.run_table.settings_of` has it of the run."""
        problem = self.problem
        algorithm = self.algorithm
        environment = str(problem.environment)
        return {
            "algorithm": algorithm.name,
            "environment": environment,
            "agents": problem.agents,
            "episodes": self.episodes,
            "eps_p": problem.eps_p,
            "label": label_of(algorithm.label),
            "environment_label": label_of(environment),
            **{f"environment.{name}": value for name, value in problem.environment_options.items()},
            **{f"algorithm.{name}": value for name, value in algorithm.parameters.items()},
        }

    def run(self) -> Run:
        """Make the run without warnings and without a progress bar; the result contains the warnings."""
        from fed_ucbvi.engine.run import run
        from fed_ucbvi.engine.simulation import Caution

        problem = self.problem
        federation = make_environment(str(problem.environment), **problem.environment_parameters)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Caution)
            made = run(
                self.algorithm.make(),
                federation,
                self.episodes,
                seed=self.seed,
                driver=self.driver,
                progress=False,
            )
        return replace(made, about=replace(made.about, algorithm=self.algorithm.name))

    def made(self, run: Run) -> bool:
        """Return True if ``run`` is the run that this job describes.

        Environments are compared by the parameters they were given, because the eps_p of a run may be computed.
        """
        about = run.about
        problem = self.problem
        recorded = {
            "algorithm": about.algorithm,
            "parameters": dict(about.parameters),
            "agents": about.agents,
            "episodes": about.episodes,
            "seed": about.seed,
            "driver": about.driver,
        }
        content = self._simulated
        if any(content[name] != value for name, value in recorded.items()):
            return False
        environment = {**about.environment, "name": current_name(str(about.environment.get("name", "custom")))}
        described = {"name": problem.environment, **problem.environment_parameters}
        random = about.environment.get(BERNOULLI_REWARDS)  # left out where it is False
        same_rewards = problem.environment_options.get(BERNOULLI_REWARDS, random) == random
        return same_rewards and all(environment.get(name, value) == value for name, value in described.items())
