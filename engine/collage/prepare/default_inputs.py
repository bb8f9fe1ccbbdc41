"""Find inputs with a default value: initializers that are also inputs, which a caller may override."""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir

_FIRST_WITH_DEFAULTS = 4
"""First IR version in which an initializer need not be an input; before, being an input carries no meaning."""


def default_inputs(model: ir.Model) -> tuple[str, ...]:
    """Return the names of the inputs that have a default value; `prepare` turns them into constants."""
    if (model.ir_version or 0) < _FIRST_WITH_DEFAULTS:
        return ()
    return tuple(str(value.name) for value in model.graph.inputs if value.is_initializer())


def without_defaults(model: ir.Model, names: Collection[str]) -> ir.Model:
    """Return the model with the default values of some inputs removed.

    If none of the inputs had a default value, the same model is returned.

    Args:
        model: The model as given; it is not modified.
        names: Names of inputs; other names are ignored.
    """
    if not any(value.is_initializer() and value.name in names for value in model.graph.inputs):
        return model
    copy = model.clone()
    for value in copy.graph.inputs:
        if value.is_initializer() and value.name in names:
            copy.graph.initializers.pop(str(value.name))
            value.const_value = None
    return copy
