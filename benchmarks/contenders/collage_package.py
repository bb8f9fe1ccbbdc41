"""A Collage package: the one contender that imports Collage, and only when it is set up."""

from __future__ import annotations

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
    call: Callable[[], Any] = session.bind(inputs)
    names = [output.name for output in session.get_outputs()]

    class Bound:
        """The bound call, with the outputs as a user gets them."""

        __slots__ = ()
        __call__ = staticmethod(call)

        @staticmethod
        def outputs() -> dict[str, np.ndarray[Any, Any]]:
            return dict(zip(names, session.run(None, inputs), strict=True))

    return Bound()
