"""Numbers and nested lists of callers, which have no dtype of their own."""

from __future__ import annotations

from typing import Any

import numpy as np


def may_become(wanted: np.dtype[Any], found: np.dtype[Any]) -> bool:
    """Return whether numbers may be converted to a dtype; which of them do not fit, the conversion itself says.

    As NumPy's casting of the same kind, and whole numbers also to unsigned ones: NumPy takes a list of them for int64.

    Args:
        wanted: The dtype to convert to.
        found: The dtype that NumPy gives them.

    Examples:
        >>> uint8, int64, float64 = map(np.dtype, ("uint8", "int64", "float64"))
        >>> may_become(uint8, int64), may_become(uint8, float64), may_become(float64, int64)
        (True, False, True)
    """
    return np.can_cast(found, wanted, "same_kind") or (found.kind == "i" and wanted.kind == "u")
