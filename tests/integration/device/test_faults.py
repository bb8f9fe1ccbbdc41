"""Whatever happens to a device, a plan for the CPU is made and checked without it, and the record says why."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from collage.commands.load import load
from collage.commands.optimize import optimize
from collage.devices.opening import Devices
from collage.devices.this_host import this_host
from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.outcomes import Failed, Outcome, Stage
from collage.measure.worker.trials import Trials
from collage.reference import discrepancy_of, evaluate
from collage.report.facts.record import Record
from collage_core.contract import Device
from collage_core.registry import Toolchain
from collage_testing.kit.contexts import MemoryBlobs
from tests.integration.device import failing
from tests.integration.device.models import one_layer
from tests.integration.device.place import seen_as
from tests.integration.device.test_optimize import options
from tests.integration.measure.conftest import add_ask


@dataclasses.dataclass(frozen=True)
class Told:
    """What is said of one fault.

    Attributes:
        stage: In the record's refusals.
        reason: Regular expression of the reason.
    """

    stage: str
    reason: str


K80 = Device(name="cuda:0", model="Tesla K80", compute_capability="3.7", driver="580.65.06", memory_bytes=12 << 30)
MUCH = (
    rf"DeviceMemoryError: device failing:\d+: {failing.TOO_MUCH} bytes were asked for, \d+ of \d+ are free\. Give the"
)
GONE = r"worker crash: .*DeviceLostError: device failing:\d+: it does not answer any more\..*\(attempt 2\)"

MEASURED: Mapping[str, Told] = {
    "absent-in-open": Told(
        "load", r"DeviceUnavailableError: device failing:\d+: it is in exclusive use elsewhere\. A plan"
    ),
    "capability-in-open": Told(
        "load", r"DeviceCapabilityError: device failing:\d+: it is of 3.5, .*Optimize the model ag"
    ),
    "driver-in-open": Told(
        "load", r"DriverTooOldError: device failing:\d+: the driver is of CUDA 11.*Update the driver"
    ),
    "memory-in-lower": Told("lower", MUCH),
    "memory-in-load": Told("load", MUCH),
    "memory-in-bind": Told(
        "bind", r"DeviceMemoryError: device failing:\d+: 512 bytes were asked for, 0 of 1024 are free"
    ),
    "memory-in-run": Told("run", MUCH),
    "lost-in-measure": Told("measure", GONE),
}
"""Faults that measuring a kernel shows."""

PLANNED: Mapping[str, str] = {
    "memory-in-plan": r"DeviceMemoryError: device failing:\d+: \d+ bytes were asked for, 0 of 1024 are free",
    "lost-in-plan": r"KernelRunError: .* failed while running: DeviceLostError: device failing:\d+: it does not answer",
}
"""Faults that only the finished plan shows, and how it fails then."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("faults")


@pytest.fixture(scope="module")
def record(folder: Path) -> Record:
    """Of a plan made while every device fails in its own way; saved as `layer.collage`."""
    with pytest.MonkeyPatch.context() as patch:
        seen_as(patch, K80)
        made = optimize(one_layer(), options(folder, "cublas,failing,near"))
    made.save(folder / "layer.collage")
    return made.record


@pytest.mark.guards(
    "the GPU is older than a toolchain's code, or its driver older than its library",
    "the toolchain is out, before its library is loaded unless only that says what it takes (TensorRT); "
    "`doctor` and the record name the GPU, what it has and what is needed",
    area="devices",
)
def test_a_gpu_too_old_for_a_toolchain_is_named(record: Record) -> None:
    [said] = [toolchain.unusable for toolchain in record.toolchains if toolchain.name == "cublas"]

    assert said == "it needs compute capability 7.0 or newer; cuda:0 is Tesla K80 of 3.7"


def target(fault: str) -> str:
    return f"failing(fault={fault})@{failing.device_of(fault)}"


def test_every_fault_there_is_is_looked_at() -> None:
    assert {*MEASURED, *PLANNED} == set(failing.OFFERED)
    assert {*failing.OFFERED, *LOST} == set(failing.FAULTS)


def test_a_plan_for_the_cpu_is_made_and_right(folder: Path, record: Record) -> None:
    assert {region.target for region in record.regions} == {"near"}
    assert record.max_error < 1e-6
    x = np.random.default_rng(3).normal(size=(8, 16)).astype(np.float32)

    [y] = load(folder / "layer.collage").run(None, {"x": x})

    [name] = [str(value.name) for value in one_layer().graph.outputs]
    assert discrepancy_of(y, evaluate(one_layer(), {"x": x}).values[name]).error < 1e-6


@pytest.mark.guards(
    "a device is found and cannot be opened: in use elsewhere, no code for it, a driver older than CuPy",
    "its candidates are out when they are loaded",
    area="devices",
    cases=("absent-in-open", "capability-in-open", "driver-in-open"),
)
@pytest.mark.guards(
    "a device has not the memory for lowering, for weights or code, for values, for a call",
    "the candidate is out, with what was asked for and what was free, and is tried once more by the next "
    "run, since others may have held the memory; the worker serves the next",
    area="devices",
    cases=("memory-in-lower", "memory-in-load", "memory-in-bind", "memory-in-run"),
)
@pytest.mark.guards(
    "a device is lost while a candidate is lowered, loaded, run or timed",
    "the worker ends, since nothing runs on the device in that process any more; the candidate is tried "
    "once more in a fresh one, then never again",
    area="devices",
    cases=("lost-in-measure",),
)
@pytest.mark.parametrize(("fault", "told"), MEASURED.items())
def test_the_record_says_at_which_step_what_kind_of_error_it_was(record: Record, fault: str, told: Told) -> None:
    said = [each for each in record.refusals if each.target == target(fault) and "matmul_0" in each.nodes]

    assert [each.stage for each in said] == [told.stage], said
    assert re.search(told.reason, said[0].reason), said


@pytest.mark.guards(
    "each kernel fits on the device and the whole plan does not; or the device is lost when the whole plan runs",
    "the plan is among the contenders, with its reason; another wins",
    area="devices",
)
@pytest.mark.parametrize(("fault", "reason"), PLANNED.items())
def test_a_plan_that_fails_as_a_whole_is_among_the_contenders_with_its_reason(
    record: Record, fault: str, reason: str
) -> None:
    [failed] = [each.failed for each in record.comparison.contenders if each.name == target(fault)]

    assert not [each for each in record.refusals if each.target == target(fault) and each.nodes]
    assert re.search(reason, failed)


# What a worker makes of a lost device, without the process


LOST: Mapping[str, Stage] = {
    "lost-in-lower": Stage.LOWER,
    "lost-in-load": Stage.LOAD,
    "lost-in-run": Stage.RUN,
    "lost-unsaid-in-run": Stage.RUN,
    "stuck-in-run": Stage.RUN,
    "lost-in-measure": Stage.MEASURE,
}
"""Where each ends the candidate."""


def measured(fault: str, folder: Path) -> tuple[Trials, Outcome]:
    devices, store = failing.FailingDevices(), BlobStore(folder / "blobs")
    plugin = failing.Failing(devices)
    trials = Trials(
        Toolchain("failing", plugin),
        store,
        folder,
        lambda target: MemoryBlobs(),
        lambda progress: None,
        host=this_host(),
        devices=Devices(devices.open),
    )
    [of] = [each for each in plugin.targets(failing.FAULTS) if each.option("fault") == fault]
    return trials, trials.measure(add_ask(store, of))


@pytest.mark.guards("a device is lost while a candidate is lowered, loaded, run or timed")
@pytest.mark.guards(
    "a library notices the loss of a device first, and reports it in its own words",
    "after each failure the worker asks the device whether it still answers; a lost one ends the worker",
    area="devices",
    cases=("lost-unsaid-in-run",),
)
@pytest.mark.guards(
    "a device fails on every synchronisation, with a code that does not name a loss",
    "it counts as lost: the worker ends, the candidate is tried once more in a fresh one",
    area="devices",
    cases=("stuck-in-run",),
)
@pytest.mark.parametrize(("fault", "stage"), LOST.items())
def test_a_lost_device_is_noticed_wherever_it_shows(fault: str, stage: Stage, tmp_path: Path) -> None:
    trials, outcome = measured(fault, tmp_path)

    assert isinstance(outcome, Failed)
    assert outcome.stage is stage
    assert "it does not answer any more" in trials.lost


@pytest.mark.parametrize("fault", failing.MEMORY)
def test_a_device_without_memory_is_not_taken_for_lost(fault: str, tmp_path: Path) -> None:
    trials, _ = measured(fault, tmp_path)

    assert trials.lost == ""
