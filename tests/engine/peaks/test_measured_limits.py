"""Peaks for a plan: measured where it has kernels on the CPU, and again where a kernel is faster than they allow."""

from __future__ import annotations

import dataclasses
import time
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import onnx_ir
import pytest

from collage.devices.this_host import this_host
from collage.peaks.limits import PlanLimits
from collage.peaks.machine_peaks import ARITHMETIC, MEMORY, MachinePeaks, ProductSpeed, document_name
from collage.peaks.measured_limits import measured_limits, working_targets
from collage.peaks.numpy_main import NumpyAnswer, NumpyRequest
from collage.setup.settings import SetupChoices
from collage.setup.toolchains import Toolchains
from collage.store.memory import MemoryStore
from collage_core.candidates.plan import Plan
from collage_core.contract import Target
from collage_core.fusion import Partitioning
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_testing import GraphBuilder, chain, single_matmul
from tests.engine.exploring import a_target, by_operator, kernel, pool_of

A = a_target("a")
SIDE = 64
"""Of matrices so large that a product takes longer than to move them."""


class Machine:
    """A database, and a process that measures every speed faster than the last time."""

    def __init__(self) -> None:
        self.requests: list[NumpyRequest] = []
        self.toolchains = cast(Toolchains, SimpleNamespace(database=MemoryStore(), host=this_host(), threads=2))

    def run(self, request: NumpyRequest) -> NumpyAnswer:
        self.requests.append(request)
        speed = 100.0 * len(self.requests)
        return NumpyAnswer(
            bytes_per_us=(speed,) * len(request.levels),
            products_us=tuple(2.0 * side**3 / speed for _, side in request.products),
        )

    def limits(self, plan: Plan, *times_us: float) -> PlanLimits | None:
        return measured_limits(plan, times_us, self.toolchains, SetupChoices(), (), self.run)


def plan_on(target: Target, graph: DataflowGraph | None = None) -> Plan:
    graph = graph or DataflowGraph(single_matmul(m=SIDE, n=SIDE, k=SIDE))
    partitioning = Partitioning(graph, (kernel(graph, target),))
    return Plan(name="p", single=True, partitioning=partitioning, costs_us=(1.0,), dispatch_us=0.0)


def test_what_is_not_measured_in_time_is_missing() -> None:
    """The plan is verified by then, and must not be lost to figures that only describe it."""
    machine = Machine()

    def slow(request: NumpyRequest) -> NumpyAnswer:
        time.sleep(30)
        return machine.run(request)

    found = measured_limits(plan_on(A), [1.0], machine.toolchains, SetupChoices(), (), slow, left_s=0.2)

    assert found is not None
    assert "budget" in found.machine.missing
    assert not machine.requests


LEAST_US = 2 * SIDE**3 / 100.0
"""Of that product at the first speed."""


def test_a_plan_slower_than_its_limit_is_measured_once() -> None:
    machine = Machine()

    limits = [machine.limits(plan_on(A), LEAST_US * 1.5) for _ in range(3)]

    assert len(machine.requests) == 1
    assert limits[0] == limits[1] == limits[2]
    assert limits[0] is not None
    assert limits[0].whole.least_us == pytest.approx(LEAST_US, abs=1e-3)


def test_a_kernel_faster_than_its_limit_has_peaks_measured_again_but_not_for_ever() -> None:
    machine = Machine()

    found = [machine.limits(plan_on(A), LEAST_US / 10) for _ in range(5)]

    assert len(machine.requests) == 3
    speeds = [100.0 * LEAST_US / each.whole.least_us for each in found if each is not None]
    assert speeds == pytest.approx([200.0, 300.0, 300.0, 300.0, 300.0], rel=1e-3)


def test_repetitions_are_counted_too_where_numpy_has_no_product() -> None:
    machine = Machine()
    g = GraphBuilder("half")
    x = g.input("x", SIDE, SIDE, dtype=onnx_ir.DataType.FLOAT16)
    plan = plan_on(A, DataflowGraph(g.model(g.op("MatMul", x, g.constant("w", np.zeros((SIDE, SIDE), np.float16))))))
    name, database = document_name(machine.toolchains.host, machine.toolchains.threads), machine.toolchains.database
    machine.limits(plan, 1.0)
    known = database.get_document(MachinePeaks, name)
    assert known is not None
    fast = ProductSpeed(arithmetic="float16", flops_per_us=100.0, by="b")
    database.put_document(name, dataclasses.replace(known, products=(fast,)))

    for _ in range(5):
        machine.limits(plan, 1.0)

    peaks = database.get_document(MachinePeaks, name)
    assert peaks is not None
    assert peaks.repeated == (ARITHMETIC, ARITHMETIC)


def test_what_bounds_a_kernel_later_is_measured_again_too() -> None:
    """Arithmetic that no measurement settles uses up its own repetitions only; here memory takes longer at last."""
    machine = Machine()
    plan = plan_on(A, DataflowGraph(single_matmul(m=16, n=16, k=16)))
    for _ in range(5):
        machine.limits(plan, 1.0)

    peaks = machine.toolchains.database.get_document(
        MachinePeaks, document_name(machine.toolchains.host, machine.toolchains.threads)
    )
    assert peaks is not None
    assert peaks.repeated == (ARITHMETIC, ARITHMETIC, MEMORY)


def test_a_plan_on_another_device_needs_no_peaks() -> None:
    machine = Machine()

    limits = machine.limits(plan_on(a_target("gpu", device="cuda:0")), 1.0)

    assert machine.requests == []
    assert limits is not None
    assert limits.whole.not_estimated == "the peaks of cuda:0 are not measured, only those of the CPU"


def test_a_plan_without_kernels_has_no_limits() -> None:
    graph = DataflowGraph(chain("Identity"))
    empty: Any = SimpleNamespace(kernels=(), graph=graph)

    assert Machine().limits(empty) is None


def test_only_targets_on_which_something_ran_are_asked_for_products() -> None:
    graph = DataflowGraph(chain("Relu", "Exp"))
    truth = by_operator({"a": {"Relu": 1.0, "Exp": 1.0}, "b": {}, "c": {"Relu": 1.0}})
    each = [kernel(graph, a_target(name), part) for name in ("c", "a", "b") for part in graph.names]

    assert [target.name for target in working_targets(pool_of(graph, truth, *each).pool)] == ["a", "c"]
