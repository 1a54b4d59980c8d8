"""What is raised where a node breaks the rules."""


class ViolationError(Exception):
    """Something a node sent cannot be true."""
