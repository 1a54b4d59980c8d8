"""The algorithm of a run: its name, its parameters and its label."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from fed_ucbvi.core import defaults
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.parameters import Help, check_value, declared
from fed_ucbvi.specifications.fields import Options, check_fields

if TYPE_CHECKING:
    from fed_ucbvi.algorithms.base import Algorithm

ALGORITHM_HELP = "A name of 'fed-ucbvi algorithms', or Python: module:attribute."


@dataclass(frozen=True, kw_only=True)
class AlgorithmSpec:
    """The algorithm of a run, by name and parameters.

    >>> AlgorithmSpec(name="fed-ucbvi", parameters={"nu": 100}).complete().parameters["nu"]
    100.0
    """

    name: Annotated[str, Help(ALGORITHM_HELP)] = defaults.ALGORITHM
    parameters: Annotated[
        Options,
        Help("A parameter of the algorithm, as stationary=true; may be repeated. See 'fed-ucbvi algorithms NAME'."),
    ] = field(default_factory=dict)
    label: Annotated[str, Help("The algorithm's name in tables and figures.")] = ""

    def __post_init__(self) -> None:
        check_fields(self)

    def make(self) -> Algorithm[Any, Any]:
        """Make the algorithm, with numbers in the types of its fields."""
        from fed_ucbvi.algorithms import class_of, make_algorithm

        kind: Any = class_of(self.name)
        hints = declared(kind)
        typed = {
            name: check_value(name, value, hints[name]) if hints.get(name) else value
            for name, value in self.parameters.items()
        }
        return make_algorithm(self.name, typed)

    def complete(self) -> AlgorithmSpec:
        """This algorithm by its recorded name and with all parameters, so that equal algorithms are equal."""
        from fed_ucbvi.algorithms import parameters_of

        algorithm = self.make()
        return AlgorithmSpec(
            name=recorded_name(self.name),
            parameters=parameters_of(algorithm),
            label=self.label or self.name,
        )


def recorded_name(name: str) -> str:
    """The recorded name of an algorithm that has several names, or ``name`` if that would not find its class.

    >>> recorded_name("fed_ucbvi:FedUCBVI")
    'fed-ucbvi'
    """
    from fed_ucbvi.algorithms import algorithm_name, class_of

    kind = class_of(name)
    recorded = algorithm_name(kind)
    try:
        return recorded if class_of(recorded) is kind else name
    except InputError:
        return name
