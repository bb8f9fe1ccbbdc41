"""A Collage package: the one contender that imports Collage, and only when it is set up."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np


def setup(model_path: str, inputs: dict[str, np.ndarray[Any, Any]], threads: int) -> Callable[[], Any]:
    """Load a package and bind its inputs.

    Args:
        model_path: The `.collage` package, given to the harness as `:model=PATH`.
        inputs: Arrays by input name.
        threads: For how many threads the package was made is its own matter; this is not used.
    """
    import collage_core as collage  # Not installed where only the toolchains are judged.

    session = collage.load(model_path)
    run = session.bind(inputs)
    call = functools.partial(run.call)
    call.outputs = lambda: dict(run.outputs)  # type: ignore[attr-defined]
    call.kept = (session, run, inputs)  # type: ignore[attr-defined]  # They own the memory.
    return call
