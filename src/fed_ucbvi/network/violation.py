"""What is raised where a node breaks the rules."""


class ViolationError(Exception):
    """Something a node sent cannot be true; ``node`` is its name, where several nodes' messages were checked."""

    def __init__(self, what: str, *, node: str = "") -> None:
        super().__init__(what)
        self.node = node
