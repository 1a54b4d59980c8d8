"""One run of a sweep: a complete :class:`~fed_ucbvi.run_spec.RunSpec` that can be made and recognised."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.environments import current_name, make_environment
from fed_ucbvi.problem.federation import BERNOULLI_REWARDS
from fed_ucbvi.results.about import label_of
from fed_ucbvi.run_spec import SIMULATED, RunSpec

if TYPE_CHECKING:
    from fed_ucbvi.results.run import Run


@dataclass(frozen=True, kw_only=True, eq=False)
class Job(RunSpec):
    """One run of a sweep; two ways of writing the same run are equal once they are complete, whatever their labels.

    >>> job = Job(environment="synthetic", environment_options={"states": 3}, agents=4, episodes=1000, seed=7)
    >>> job.complete() == replace(job, parameters={"stationary": False}, eps_p=0).complete()
    True
    >>> job.complete().run().episodes_played
    1000
    """

    def __eq__(self, other: object) -> bool:
        return self.id == other.id if isinstance(other, Job) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def settings(self) -> dict[str, Any]:
        """Everything but seeds and driver, as :func:`~fed_ucbvi.results.run_table.settings_of` has it of the run."""
        return {
            **{name: getattr(self, name) for name in ("algorithm", "environment", "agents", "episodes", "eps_p")},
            **{"label": label_of(self.label), "environment_label": label_of(str(self.environment))},
            **{f"environment.{name}": value for name, value in self.environment_options.items()},
            **{f"algorithm.{name}": value for name, value in self.parameters.items()},
        }

    def content(self) -> dict[str, Any]:
        """What the result depends on, and the label, ready for JSON; ``Job(**content)`` gives the job back."""
        return {name: getattr(self, name) for name in (*SIMULATED, "label")}

    def run(self) -> Run:
        """Make the run without warnings and without a progress bar; the result contains the warnings."""
        from fed_ucbvi.engine.run import run
        from fed_ucbvi.engine.simulation import Caution

        federation = make_environment(str(self.environment), **self.of_environment)
        how: dict[str, Any] = {"seed": self.seed, "driver": self.driver, "progress": False}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Caution)
            made = run(self.make_algorithm(), federation, self.episodes, **how)
        return replace(made, about=replace(made.about, algorithm=self.algorithm))

    def check_possible(self) -> None:
        try:
            self.make_algorithm().check_agents(self.agents or 0)
        except InputError as error:
            raise InputError(f"{error} In a sweep, give it a grid of its own with agents = [1].") from error
        super().check_possible()

    def made(self, run: Run) -> bool:
        """Whether ``run`` is the run this job describes.

        Environments are compared by the parameters they were given, because the eps_p of a run may be computed.
        """
        about = run.about
        environment = {**about.environment, "name": current_name(str(about.environment.get("name", "custom")))}
        described = {"name": self.environment, **self.of_environment}
        random = about.environment.get(BERNOULLI_REWARDS)  # left out where nobody asked for it
        return (
            (about.algorithm, about.driver) == (self.algorithm, self.driver)
            and (about.agents, about.episodes, about.seed) == (self.agents, self.episodes, self.seed)
            and dict(about.parameters) == self.parameters
            and all(environment.get(name, value) == value for name, value in described.items())
            and self.environment_options.get(BERNOULLI_REWARDS, random) == random
        )
