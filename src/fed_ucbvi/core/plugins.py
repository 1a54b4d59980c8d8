"""Objects of other packages: named as ``module:attribute``, or registered by installed packages as entry points."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from operator import attrgetter
from typing import Any

from fed_ucbvi.core.errors import InputError, printable, unknown_name

MAIN = ("__main__", "__mp_main__")
"""Names of the module of a script, in its own process and in those it starts."""


def is_attribute(name: str) -> bool:
    """Return True if ``name`` has the form ``module:attribute``.

    >>> is_attribute("shops:five"), is_attribute("gridworld")
    (True, False)
    """
    return ":" in name


def load_attribute(name: str) -> Any:
    """Load the object ``module:attribute``; modules in the current folder are found, as with ``python -m``.

    >>> load_attribute("math:pi")
    3.141592653589793
    """
    module_name, _, attribute = name.partition(":")
    parts = [*module_name.split("."), *attribute.split(".")]
    if not all(part.isidentifier() for part in parts):
        raise InputError(f"'{name}' is not of the form module:attribute.")
    if module_name in MAIN and not hasattr(sys.modules["__main__"], attribute.partition(".")[0]):
        raise InputError(
            f"{name} was defined in a script, which no other program can find; put it into a module of its own and "
            f"name it as module:{attribute}."
        )
    if "" not in sys.path:
        sys.path.insert(0, "")
    importlib.invalidate_caches()
    try:
        return attrgetter(attribute)(importlib.import_module(module_name))
    except ModuleNotFoundError as error:
        raise InputError(
            f"cannot load {name}: {error}. Install it, or start the program in the folder that holds "
            f"{module_name.partition('.')[0]}.py."
        ) from error
    except AttributeError as error:
        raise InputError(f"cannot load {name}: {error}.") from error
    except Exception as error:
        raise InputError(f"cannot load {name}: {type(error).__name__}: {error}.") from error


def loaded_attribute(name: str) -> Any:
    """The object ``module:attribute`` if the module has been imported already, otherwise None.

    For names that are read in files: code is not run because a file names it.

    >>> loaded_attribute("sys:maxsize") == sys.maxsize, loaded_attribute("nobody:Knows")
    (True, None)
    """
    module, _, attribute = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in attribute.split("."):
        found = getattr(found, part, None)
    return found


def check_code(kind: str, name: str, flag: str = "--code") -> None:
    """Raise if ``name``, which was read in a file or came over the network, is code (``module:attribute``).

    Data never make code run: the person at the keyboard may name the code, as with ``flag``.

    >>> check_code("algorithm", "fed-ucbvi")
    >>> check_code("algorithm", "nobody:Knows")
    Traceback (most recent call last):
    fed_ucbvi.core.errors.InputError: the algorithm is nobody:Knows, code that is not run because a file names it; if
    you trust it, name it yourself (--code nobody:Knows).
    """
    if is_attribute(name):
        raise InputError(
            f"the {kind} is {printable(name)}, code that is not run because a file names it; if you trust it, name "
            f"it yourself ({flag} {printable(name)})."
        )


def name_of_class(kind: type[Any]) -> str:
    """The name by which :func:`load_attribute` finds a class again.

    >>> from fractions import Fraction
    >>> name_of_class(Fraction)
    'fractions:Fraction'
    """
    module = MAIN[0] if kind.__module__ in MAIN else kind.__module__
    return f"{module}:{kind.__qualname__}"


@cache
def registered(group: str) -> dict[str, EntryPoint]:
    """Entry points of installed packages in a group, by name; no module is imported.

    A name that two packages register cannot be used; :class:`Registry` names both.
    """
    found: dict[str, EntryPoint] = {}
    for entry in entry_points(group=group):
        other = found.setdefault(entry.name, entry)
        if other.value != entry.value:
            found[entry.name] = EntryPoint(entry.name, f"{other.value}, {entry.value}", group)
    return found


class Registry(Mapping[str, Any]):
    """Objects by name: those of this package first, then those that other packages register.

    Reading a registered name imports its package, or raises an :class:`InputError`. Iterating imports nothing.
    """

    def __init__(self, own: Mapping[str, Any], group: str) -> None:
        self._own = own
        self._group = group

    def __getitem__(self, name: str) -> Any:
        if name in self._own:
            return self._own[name]
        entry = registered(self._group)[name]
        if "," in entry.value:
            raise InputError(f"'{name}' is registered by two packages ({entry.value}); uninstall one of them.")
        try:
            return entry.load()
        except Exception as error:
            raise InputError(
                f"'{name}' is registered as {entry.value}, which cannot be loaded: {type(error).__name__}: {error}."
            ) from error

    def find(self, kind: str, name: str) -> Any:
        """The object with a name; ``module:attribute`` is loaded."""
        if is_attribute(name):
            return load_attribute(name)
        if name not in self:
            raise unknown_name(kind, name, self)
        return self[name]

    def at_hand(self, name: str) -> Any:
        """The object with a recorded name, or None; ``module:attribute`` is not imported for it."""
        try:
            return loaded_attribute(name) if is_attribute(name) else self.get(name)
        except InputError:  # registered by a package that cannot be loaded
            return None

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in registered(self._group)

    def __iter__(self) -> Iterator[str]:
        yield from self._own
        yield from (name for name in registered(self._group) if name not in self._own)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def find_registered(group: str, name: str, what: str) -> Any:
    """Load what an installed package registers in a group under a name; ``what`` describes it in the error.

    >>> find_registered("fed_ucbvi.none", "mine", "table of mine")
    Traceback (most recent call last):
    fed_ucbvi.core.errors.InputError: no installed package has the table of mine (entry point mine of fed_ucbvi.none).
    """
    registry = Registry({}, group)
    if name not in registry:
        raise InputError(f"no installed package has the {what} (entry point {name} of {group}).")
    return registry[name]
