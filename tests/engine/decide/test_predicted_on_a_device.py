"""What a plan on a device is predicted to take, against what it takes: on a fake one, whose clocks tell the truth."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir
import pytest

from collage.devices.opening import Devices
from collage.devices.this_host import this_host
from collage.measure.clocks.device_times import time_device
from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.function_codec import FunctionEncoder
from collage.measure.wire.messages import AskMeasure
from collage.measure.wire.outcomes import BuildSettings, Measured, Tolerance
from collage.measure.wire.values import encode_value
from collage.measure.worker.trials import Trials
from collage.reference import evaluate
from collage.runtime import Executable, loader
from collage.runtime.session import Session
from collage.setup.copy_costs import HostCopies
from collage.setup.device_figures import DeviceFigures, warm_devices
from collage_core.candidates.costs import Costs
from collage_core.candidates.plan import Plan
from collage_core.candidates.pool import CandidatePool
from collage_core.contract import Protocol, Target
from collage_core.fusion import CandidateKernel, FusionSpec, OpCallByKindRule, Partitioning, SubGraph
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits
from collage_core.passes.apply import apply_partitioning
from collage_core.passes.call_sites import call_sites
from collage_core.registry import Registry, Toolchain
from collage_testing import GraphBuilder
from collage_testing.kit import ExecutingMock, FakeDevice, fake_providers

WIDTH = 32
WEIGHT_BYTES = 4 * WIDTH * WIDTH
LAYERS = 4
SMALL, LARGE = 2 * WEIGHT_BYTES, 2 * LAYERS * WEIGHT_BYTES
PROTOCOL = Protocol(warmup_runs=1, warmup_s=0, min_samples=3, max_samples=3, duration_s=0, min_sample_us=40)


class NoCosts:
    def key(self, sub_graph: SubGraph) -> str:
        return sub_graph.structural_hash

    def cost(self, candidate: CandidateKernel, *, confirmed: bool = True) -> float:
        raise AssertionError("the plan is given")

    def rejection(self, candidate: CandidateKernel) -> None:
        return None


def layers() -> onnx_ir.Model:
    """Products with a matrix, each of another's values."""
    g = GraphBuilder("layers")
    x = g.input("x", 1, WIDTH)
    for number in range(LAYERS):
        x = g.op("MatMul", x, g.weight(f"w{number}", WIDTH, WIDTH))
    return g.model(x)


class Deployment:
    """Every layer a kernel of one target on one fake device: measured as a worker measures, and run."""

    def __init__(self, folder: Path, device: FakeDevice, *, eager: bool = False, capturable: bool = True) -> None:
        self.device = device
        options = (("launch", "eager"),) if eager else ()
        self.target = Target(toolchain="far", device=device.name, fingerprint="1", options=options)
        mock = ExecutingMock("far", costs_us={}, targets=[self.target], capturable=capturable)
        self.toolchain = Toolchain("far", mock)
        self.graph = DataflowGraph(layers())
        spec = FusionSpec(name="by hand", rule=OpCallByKindRule(), targets=(self.target,))
        kernels = tuple(
            CandidateKernel(SubGraph(self.graph, 1 << index), spec) for index in iterate_bits(self.graph.needs_kernel)
        )
        self.partitioning = Partitioning(self.graph, kernels)
        self.partitioned = apply_partitioning(self.partitioning)
        self.sites = call_sites(self.partitioned)
        self.folder = folder

    def figures(self) -> DeviceFigures:
        return DeviceFigures.of(self.device.name, time_device(self.device.open(self.device.name), lambda: 0))

    def measured(self, figures: DeviceFigures) -> list[Measured]:
        """Each kernel, as a worker of a real optimisation measures it."""
        store = BlobStore(self.folder / "blobs")
        weights = sum(v.const_value.nbytes for v in self.graph.model.graph.initializers.values() if v.const_value)
        cold = self.device.name not in warm_devices([figures], weights)
        trials = Trials(
            self.toolchain,
            store,
            self.folder,
            lambda target: None,  # type: ignore[arg-type, return-value]
            lambda progress: None,
            host=this_host(),
            devices=Devices(self.device.open),
        )
        x = np.ones((1, WIDTH), np.float32)
        found = []
        for site in self.sites:
            function = site.kernel_function()
            values = evaluate(function.model, {function.inputs[0].name: x}).values
            ask = AskMeasure(
                target=self.target,
                function=FunctionEncoder(store).encode(function),
                inputs=(encode_value(x, store),),
                expected=(encode_value(values[function.outputs[0].name], store),),
                build=BuildSettings(threads=1),
                protocol=PROTOCOL,
                tolerance=Tolerance(),
                deadline_s=60.0,
                cold=cold,
            )
            outcome = trials.measure(ask)
            assert isinstance(outcome, Measured), outcome
            found.append(outcome)
        return found

    def predicted_us(self, figures: DeviceFigures, measured: list[Measured]) -> float:
        copies = HostCopies.of([figures], [self.device.name] if self.target.launch == "eager" else [])
        pool = CandidatePool(self.graph, Costs(NoCosts()), 0.0, copies)
        plan = Plan(
            name="p",
            single=True,
            partitioning=self.partitioning,
            costs_us=tuple(float(np.median(each.samples_us)) for each in measured),
            dispatch_us=0.0,
            copies=pool.copies(self.partitioning.kernels),
        )
        return plan.predicted_us

    def taken_us(self) -> float:
        """By the host's clock of the fake device, from one run's begin to its end, everything being settled."""
        artifacts = {
            site.name: next(iter(self.toolchain.lower(self.target, site.kernel_function(), None)))  # type: ignore[arg-type]
            for site in self.sites
        }
        session = Session(
            Executable.build(
                self.partitioned,
                artifacts,
                {site.name: self.target for site in self.sites},
                loader(Registry.of(self.toolchain)),
                threads=1,
                providers=fake_providers(self.device),
            )
        )
        session.run(None, {"x": np.ones((1, WIDTH), np.float32)})
        session.device_work()
        for _ in range(2):
            began_us = self.device.time.host_us
            session.run_bound()
        return self.device.time.host_us - began_us


@pytest.mark.parametrize(
    ("launch_us", "cache_bytes"),
    [(0.0, 0), (25.0, 0), (4.0, SMALL), (4.0, LARGE)],
    ids=["free launches", "launches longer than copies", "weights pushed out", "weights cached"],
)
def test_a_captured_plan_takes_what_is_predicted(tmp_path: Path, launch_us: float, cache_bytes: int) -> None:
    device = FakeDevice(launch_us=launch_us, cache_bytes=cache_bytes)
    deployment = Deployment(tmp_path, device)
    figures = deployment.figures()

    measured = deployment.measured(figures)

    assert {each.launch for each in measured} == {"graph"}
    # cold, weights are read from the device's memory, which takes longer
    kernel_us = 1.0 + (WEIGHT_BYTES / 1000.0 if cache_bytes == SMALL else 0.0)
    assert [float(np.median(each.samples_us)) for each in measured] == pytest.approx([kernel_us] * LAYERS)
    assert {each.weight_copies for each in measured} == {3 if cache_bytes == SMALL else 1}
    assert deployment.predicted_us(figures, measured) == pytest.approx(deployment.taken_us(), abs=0.6)


@pytest.mark.parametrize("how", ["its target asks for it", "it cannot be captured"])
@pytest.mark.parametrize("launch_us", [0.5, 20.0])
def test_a_plan_launched_one_by_one_takes_what_is_predicted(tmp_path: Path, launch_us: float, how: str) -> None:
    device = FakeDevice(launch_us=launch_us)
    deployment = Deployment(tmp_path, device, eager=how.startswith("its"), capturable=how.startswith("its"))
    figures = deployment.figures()

    measured = deployment.measured(figures)

    assert {each.launch for each in measured} == {"eager"}
    reason = "" if how.startswith("its") else "its artifact is not capturable"
    assert {each.launch_reason for each in measured} == {reason}
    # the host launches the first kernels while their input is copied, which is no part of a kernel's cost
    hidden_us = figures.to_device.copy_us(4 * WIDTH)
    taken_us = deployment.taken_us()
    # nor is it known before that kernels of a target that asks for graphs are not captured: a start too many is counted
    more_us = 0.0 if how.startswith("its") else figures.start_us
    assert taken_us - 0.6 <= deployment.predicted_us(figures, measured) <= taken_us + hidden_us + LAYERS + more_us
