"""Test kit for Collage, for plugins, and for code built on them; needs no device and no test framework.

    from collage_testing import MockToolchain, OutPriced, partition, single_matmul

    fast = MockToolchain("fast", costs_us={"MatMul": 10.0})
    slow = MockToolchain("slow", costs_us={"MatMul": 25.0})
    result = partition(single_matmul(m=16, n=16, k=16), [fast, slow])
    assert [kernel.toolchain for kernel in result.kernels] == ["fast"]
    assert result.why_not("slow") == [OutPriced(region=0, cost_us=25.0, chosen_us=10.0)]

This package needs only collage-core. `collage_testing.kit` needs the engine: mocks that execute, fake devices and the
conformance kit. `collage_testing.strategies` provides strategies for hypothesis, which it imports.

Helpers that inspect candidates and plans are imported on first use: worker processes also load toolchains made
with this package, and do not need a search.
"""

from typing import TYPE_CHECKING

from collage_core.late_names import late_names
from collage_testing.common_operators import operator_models
from collage_testing.graphs import GraphBuilder
from collage_testing.mock import CandidateView, MockToolchain, per_operator
from collage_testing.models import chain, crossed, dense, diamond, mnist, single_matmul
from collage_testing.random_models import random_model
from collage_testing.reasons import NoFit, OutPriced, Refused, Unbuildable, Unusable, WhyNot

if TYPE_CHECKING:
    from collage_testing.partitioning import partition
    from collage_testing.result import ChosenKernel, PartitionResult

__all__ = [
    "CandidateView",
    "ChosenKernel",
    "GraphBuilder",
    "MockToolchain",
    "NoFit",
    "OutPriced",
    "PartitionResult",
    "Refused",
    "Unbuildable",
    "Unusable",
    "WhyNot",
    "chain",
    "crossed",
    "dense",
    "diamond",
    "mnist",
    "operator_models",
    "partition",
    "per_operator",
    "random_model",
    "single_matmul",
]

__getattr__ = late_names(__name__, {"ChosenKernel": "result", "PartitionResult": "result", "partition": "partitioning"})
