"""Options for several plans of one package, which run in the same process."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from collage.options import OptimizeOptions


def beside_each_other(each: Sequence[OptimizeOptions]) -> list[OptimizeOptions]:
    """Return the options, marked where there are several; see `OptimizeOptions.beside_others`."""
    return list(each) if len(each) < 2 else [dataclasses.replace(one, beside_others=True) for one in each]
