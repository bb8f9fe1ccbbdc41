"""The exception that the compiler raises internally; every entry point converts it to a refusal."""

from __future__ import annotations


class Refused(Exception):  # noqa: N818  a refusal, not a failure: the plugin answers `Unsupported` with its reason
    """The compiler has no loop nest for the function.

    Args:
        reason: Explanation a user can act on.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
