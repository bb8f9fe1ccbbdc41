"""For tests of Collage, of plugins, and of what is built on them; needs no device and no test framework.

    from collage_core.testing import MockToolchain, OutPriced, partition, single_matmul

    fast = MockToolchain("fast", costs_us={"MatMul": 10.0})
    slow = MockToolchain("slow", costs_us={"MatMul": 25.0})
    result = partition(single_matmul(m=16, n=16, k=16), [fast, slow])
    assert [kernel.toolchain for kernel in result.kernels] == ["fast"]
    assert result.why_not("slow") == [OutPriced(region=0, cost_us=25.0, chosen_us=10.0)]

`collage_core.testing.strategies` has strategies for hypothesis, which it imports. How single kernels are tried on a
device, a fake one or a real one, is said in `collage_core.testing.device_kernels`.

What looks at kernels, candidates and plans is imported when it is first used: a toolchain made of what is here is
loaded by worker processes, too, and these have no use for a search.
"""

from typing import TYPE_CHECKING

from collage_core.late_names import late_names
from collage_core.testing.fake_device import FakeDevice
from collage_core.testing.fake_hardware import FakeArray
from collage_core.testing.fake_stream import FakeStream, stream_of
from collage_core.testing.graphs import GraphBuilder
from collage_core.testing.mock import CandidateView, MockToolchain, per_operator
from collage_core.testing.models import chain, crossed, dense, diamond, mnist, single_matmul
from collage_core.testing.operator_models import operator_models
from collage_core.testing.random_models import random_model
from collage_core.testing.reasons import NoFit, OutPriced, Refused, Unbuildable, Unusable, WhyNot

if TYPE_CHECKING:
    from collage_core.testing.bound_kernel import BoundKernel
    from collage_core.testing.conformance import Conformance, check_plugin
    from collage_core.testing.contexts import build_context
    from collage_core.testing.device_kernels import DeviceMachine
    from collage_core.testing.partitioning import partition
    from collage_core.testing.result import ChosenKernel, PartitionResult

__all__ = [
    "BoundKernel",
    "CandidateView",
    "ChosenKernel",
    "Conformance",
    "DeviceMachine",
    "FakeArray",
    "FakeDevice",
    "FakeStream",
    "GraphBuilder",
    "MockToolchain",
    "NoFit",
    "OutPriced",
    "PartitionResult",
    "Refused",
    "Unbuildable",
    "Unusable",
    "WhyNot",
    "build_context",
    "chain",
    "check_plugin",
    "crossed",
    "dense",
    "diamond",
    "mnist",
    "operator_models",
    "partition",
    "per_operator",
    "random_model",
    "single_matmul",
    "stream_of",
]

__getattr__ = late_names(
    __name__,
    {
        "BoundKernel": "bound_kernel",
        "ChosenKernel": "result",
        "Conformance": "conformance",
        "DeviceMachine": "device_kernels",
        "PartitionResult": "result",
        "build_context": "contexts",
        "check_plugin": "conformance",
        "partition": "partitioning",
    },
)
