"""What the compiler raises on its way down and every entry to it turns into a refusal."""

from __future__ import annotations


class Refused(Exception):  # noqa: N818  a refusal, not a failure: the plugin answers `Unsupported` with its reason
    """There is no loop nest for it.

    Args:
        reason: Why, in words a user can act on.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
