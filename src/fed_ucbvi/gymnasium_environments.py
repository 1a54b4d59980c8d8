"""The door by which Gymnasium finds this package's environments: importing it registers them."""

from fed_ucbvi.environments.gymnasium_environments import TabularEnv, register

__all__ = ["TabularEnv", "register"]
