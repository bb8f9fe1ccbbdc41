"""Every error Collage raises on purpose.

An error says what failed, on what, why, and what to do; its facts are attributes too. A *refusal* is not an
error: it is the value `collage_core.contract.Unsupported`.
"""

from __future__ import annotations


class CollageError(Exception):
    """Base of every error Collage raises; its text is one complete message for a user."""


class ModelError(CollageError):
    """A model cannot be read or prepared."""


class PluginError(CollageError):
    """A plugin broke the contract: wrong type returned, exception raised, or entry point that cannot load.

    Attributes:
        toolchain: Name of the entry point.
        hook: Name of the hook that failed, or `"import"`.
        reason: What happened.
    """

    def __init__(self, toolchain: str, hook: str, reason: str) -> None:
        self.toolchain = toolchain
        self.hook = hook
        self.reason = reason
        super().__init__(f"toolchain {toolchain!r} failed in {hook}: {reason}")


class LoweringError(CollageError):
    """A toolchain accepted a kernel function and then failed to build it."""


class KernelError(CollageError):
    """A loaded kernel failed to bind or to run."""
