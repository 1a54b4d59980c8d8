"""Federated regret minimisation in tabular Markov decision processes.

>>> from fed_ucbvi import FedUCBVI, run, synthetic
>>> run(FedUCBVI(nu=100), synthetic(agents=4, eps_p=0.1), episodes=100).rounds > 0
True

The public names are those that ``__init__.pyi`` imports. They are imported when first used, so that ``import
fed_ucbvi`` costs next to nothing.
"""

import ast as _ast
import importlib as _importlib
import pkgutil as _pkgutil


def _homes() -> dict[str, str]:
    """Public names, with the modules that hold them."""
    stub = _ast.parse(_pkgutil.get_data(__name__, "__init__.pyi") or b"")
    imports = [statement for statement in stub.body if isinstance(statement, _ast.ImportFrom)]
    return {alias.name: str(statement.module) for statement in imports for alias in statement.names}


_HOMES = _homes()
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module '{__name__}' has no attribute {name!r}")
    return getattr(_importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
