"""Inputs with a default value: initializers that are inputs, too, which a caller may give and need not."""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir

_FIRST_WITH_DEFAULTS = 4
"""IR version before which every initializer had to be an input, so that being one says nothing."""


def default_inputs(model: ir.Model) -> tuple[str, ...]:
    """Names of the inputs that have a default value; `prepare` makes constants of them."""
    if (model.ir_version or 0) < _FIRST_WITH_DEFAULTS:
        return ()
    return tuple(str(value.name) for value in model.graph.inputs if value.is_initializer())


def without_defaults(model: ir.Model, names: Collection[str]) -> ir.Model:
    """A model some of whose inputs have no default value any more; the same one if none of them had.

    Args:
        model: A model as given; it stays as it is.
        names: Inputs, and other names, which are ignored.
    """
    if not any(value.is_initializer() and value.name in names for value in model.graph.inputs):
        return model
    copy = model.clone()
    for value in copy.graph.inputs:
        if value.is_initializer() and value.name in names:
            copy.graph.initializers.pop(str(value.name))
            value.const_value = None
    return copy
