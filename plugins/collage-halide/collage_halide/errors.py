"""The reason a group has no kernel here."""

from __future__ import annotations


class Refused(Exception):  # noqa: N818 -- a refusal, not a failure
    """Raised where a group cannot be one kernel of this toolchain.

    Args:
        reason: Why not, as users read it.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
