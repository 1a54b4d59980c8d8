"""The module that registers this package's environments with Gymnasium when it is imported."""

from fed_ucbvi.environments.gymnasium_environments import TabularEnv, register

__all__ = ["TabularEnv", "register"]
