"""The roofline of a plan, against figures computed by hand."""

from __future__ import annotations

import pytest

from collage.peaks.limits import PlanWork, limits_of
from collage.peaks.machine_peaks import MEMORY, LevelSpeed, MachinePeaks, ProductSpeed
from collage_core.candidates.plan import Plan
from collage_core.contract import Target
from collage_core.fusion import Partitioning
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_testing import GraphBuilder
from tests.engine.exploring import a_target, kernel

PEAKS = MachinePeaks(
    levels=(
        LevelSpeed(name="L1", holds_bytes=4096, bytes_per_us=100.0),
        LevelSpeed(name=MEMORY, holds_bytes=0, bytes_per_us=10.0),
    ),
    products=(
        ProductSpeed(arithmetic="bfloat16", flops_per_us=8000.0, by="b(precision=bf16)"),
        ProductSpeed(arithmetic="float32", flops_per_us=1000.0, by="numpy"),
    ),
)
A, GPU = a_target("a"), a_target("gpu", device="cuda:0")
ROUNDED = a_target("b", options=(("precision", "bf16"),), exact=False)


def graph() -> DataflowGraph:
    """A product of 2 * 4 * 64 * 64 operations, and 256 additions on 1 KiB."""
    g = GraphBuilder()
    product = g.op("MatMul", g.input("x", 4, 64), g.weight("w", 64, 64))
    return DataflowGraph(g.model(g.op("Add", product, g.weight("b", 64))))


def plan(*parts: tuple[Target, tuple[str, ...]]) -> Plan:
    index = graph()
    kernels = tuple(kernel(index, target, *names) for target, names in parts)
    partitioning = Partitioning(index, kernels)
    return Plan(name="p", single=False, partitioning=partitioning, costs_us=(1.0,) * len(kernels), dispatch_us=0.0)


FLOPS, ADDED = 2 * 4 * 64 * 64, 4 * 64
READ, WEIGHT, BIAS = 4 * 4 * 64, 4 * 64 * 64, 4 * 64
"""Bytes of the product's input (and of each of the results), of its weight, and of the bias."""


def test_the_larger_of_arithmetic_and_memory_bounds_a_kernel() -> None:
    work = PlanWork.of(plan((A, ("matmul_0",)), (A, ("add_0",))))

    first, second = limits_of(work, PEAKS, 2).kernels

    assert work.arithmetics == {"float32"}
    # the weight is larger than L1
    assert (first.level, first.bound_by) == (MEMORY, "memory")
    assert first.least_us == pytest.approx((READ + WEIGHT + READ) / 10, abs=1e-3)
    assert first.gflop == {"float32": pytest.approx(FLOPS / 1e9)}
    assert (second.level, second.bound_by) == ("L1", "memory")
    assert second.least_us == pytest.approx((READ + BIAS + READ) / 100, abs=1e-3)


def test_the_model_moves_less_than_its_kernels_and_computes_the_same() -> None:
    limits = limits_of(PlanWork.of(plan((A, ("matmul_0",)), (A, ("add_0",)))), PEAKS, 2)

    assert limits.whole.size_bytes == READ + WEIGHT + BIAS + READ
    assert limits.whole.size_bytes < sum(each.size_bytes for each in limits.kernels)
    assert limits.whole.gflop == {"float32": pytest.approx((FLOPS + ADDED) / 1e9)}


def test_arithmetic_bounds_where_memory_is_fast() -> None:
    fast = MachinePeaks(levels=(LevelSpeed(name=MEMORY, holds_bytes=0, bytes_per_us=1e6),), products=PEAKS.products)

    whole = limits_of(PlanWork.of(plan((A, ("matmul_0", "add_0")))), fast, 2).whole

    assert whole.bound_by == "arithmetic"
    assert whole.least_us == pytest.approx((FLOPS + ADDED) / 1000, abs=1e-3)


def test_a_target_of_lower_precision_is_held_against_that_peak() -> None:
    fast = MachinePeaks(levels=(LevelSpeed(name=MEMORY, holds_bytes=0, bytes_per_us=1e6),), products=PEAKS.products)
    work = PlanWork.of(plan((ROUNDED, ("matmul_0",)), (A, ("add_0",))))

    first, _ = limits_of(work, fast, 2).kernels

    assert work.arithmetics == {"bfloat16", "float32"}
    assert first.least_us == pytest.approx(FLOPS / 8000, abs=1e-3)
    whole = limits_of(work, fast, 2).whole
    assert whole.least_us == pytest.approx(FLOPS / 8000 + ADDED / 1000, abs=1e-3)


def test_kernels_on_other_devices_are_not_estimated_and_so_is_a_plan_with_them() -> None:
    work = PlanWork.of(plan((GPU, ("matmul_0",)), (A, ("add_0",))))

    limits = limits_of(work, PEAKS, 2)

    assert limits.kernels[0].not_estimated == "the peaks of cuda:0 are not measured, only those of the CPU"
    assert limits.kernels[1].least_us > 0
    assert limits.whole.not_estimated == limits.kernels[0].not_estimated
    assert limits.whole.least_us == 0


def test_without_a_peak_the_arithmetic_that_lacks_one_is_named() -> None:
    work = PlanWork.of(plan((A, ("matmul_0", "add_0"))))

    no_product = limits_of(work, MachinePeaks(levels=PEAKS.levels), 2, "NumPy crashed")
    nothing = limits_of(work, MachinePeaks(), 2)

    assert no_product.whole.not_estimated == "no product in float32 was measured"
    assert no_product.machine.missing == "NumPy crashed"
    assert nothing.whole.not_estimated == "the speed of memory is not known"
    assert nothing.whole.gflop == no_product.whole.gflop != {}


def test_the_peaks_that_were_used_are_facts() -> None:
    machine = limits_of(PlanWork.of(plan((A, ("matmul_0", "add_0")))), PEAKS, 2).machine

    assert [(each.arithmetic, each.gflop_per_s, each.by) for each in machine.peaks] == [("float32", 1.0, "numpy")]
    assert [(each.level, each.gb_per_s) for each in machine.bandwidths] == [("L1", 0.1), (MEMORY, 0.01)]
    assert machine.threads == 2
