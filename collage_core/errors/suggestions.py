"""Names a user may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question to append to a message about a name nobody knows; empty if no known one is like it.

    Examples:
        >>> did_you_mean("onnxruntim", ["openvino", "onnxruntime"])
        "; did you mean 'onnxruntime'?"
        >>> did_you_mean("tvm", ["openvino", "onnxruntime"])
        ''
    """
    lower = {each.lower(): each for each in known}
    close = difflib.get_close_matches(name.lower(), lower, n=1)
    return f"; did you mean {lower[close[0]]!r}?" if close else ""
