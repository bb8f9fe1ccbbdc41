"""What every error is, and what only a user can mend."""

from __future__ import annotations


class CollageError(Exception):
    """Base of every error Collage raises; its text is one complete message for a user."""


class UsageError(CollageError):
    """What the user asked for does not exist, makes no sense or does not fit the model; the command exits with 2."""
