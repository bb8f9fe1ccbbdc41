"""Keys of the metadata of model-local functions that say how a function is to be run."""

from __future__ import annotations

PRIMITIVE_METADATA = "collage.primitive"
"""Marks a function that is one kernel."""
COMPILER_METADATA = "collage.compiler"
"""The toolchain of a function that is one kernel; empty if it is not decided."""
COMPOSITE_METADATA = "collage.composite"
"""Label of the pattern that matched the whole of a function; the pattern's attributes have keys that begin so."""
