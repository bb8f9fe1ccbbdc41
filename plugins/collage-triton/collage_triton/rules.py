"""Every operator the compiler has a loop nest for."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from collage_triton.elementwise import ELEMENTWISE
from collage_triton.expand import Rule
from collage_triton.movement import MOVEMENT
from collage_triton.pooling import POOLING
from collage_triton.products import PRODUCTS
from collage_triton.reductions import REDUCTIONS

RULES: Mapping[str, Rule] = MappingProxyType({**ELEMENTWISE, **MOVEMENT, **REDUCTIONS, **POOLING, **PRODUCTS})
