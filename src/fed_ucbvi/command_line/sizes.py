"""A problem that is given by its environment or by its sizes alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fed_ucbvi.command_line.options import option
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.specifications.problem import ProblemSpec

if TYPE_CHECKING:
    from fed_ucbvi.problem.federation import Federation

SIZES = "The problem, by its sizes"
STATES = option(None, "S", "Or just sizes: states.", panel=SIZES)
ACTIONS = option(None, "A", "Actions.", panel=SIZES)


def federation_of(problem: ProblemSpec) -> Federation | None:
    """The federation that --env names; None where the problem is given by its sizes."""
    if problem.environment is not None:
        return problem.make_federation()
    if problem.environment_options:
        raise InputError("--env-option needs --env.")
    return None
