"""Extract the tuning tasks of a model of marked kernels, and apply the tuning database's records to it."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable, Mapping, Sequence

import onnx_ir
from onnx_ir.passes import InPlacePass, PassResult

from collage.store import (
    MachineSpeed,
    RecordKey,
    TuningRecord,
    TuningStore,
    applicable,
    block_times_us,
    timing_beside,
)
from collage_core.contract.device import HOST
from collage_core.contract.function import KernelFunction
from collage_core.contract.host import Host
from collage_core.contract.target import Target
from collage_core.fusion.kernel import kernel_function
from collage_core.fusion.marked import marked_call
from collage_core.fusion.spec import measured_as
from collage_core.fusion.sub_graph import SubGraph
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.metadata_keys import COMPILER_METADATA
from collage_core.passes.marking import TARGET_METADATA

COST_METADATA = "collage.cost_us"
VARIANT_METADATA = "collage.variant"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TuningTask:
    """One kernel function of a model, to be measured once however often it is called.

    Attributes:
        structural_hash: Hash under which its measurements are kept.
        function: The function to lower, with the weights of its first call.
        toolchain: Toolchain the model assigns it to; empty if none.
        calls: Names of the nodes that call it, in execution order.
    """

    structural_hash: str
    function: KernelFunction = dataclasses.field(repr=False)
    toolchain: str
    calls: tuple[str, ...]

    @property
    def weight(self) -> int:
        """Number of executions in one run of the model."""
        return len(self.calls)


def extract_tasks(model: onnx_ir.Model) -> tuple[TuningTask, ...]:
    """Return the distinct kernels of a model with marked kernels, in order of their first call."""
    graph = DataflowGraph(model)
    found: dict[tuple[str, str], TuningTask] = {}
    for index, toolchain in sorted(graph.compilers.items()):
        call = marked_call(graph, index)
        key = (call.structural_hash, toolchain)
        known = found.get(key)
        if known is None:
            name = f"task_{call.structural_hash[:16]}"
            known = TuningTask(
                structural_hash=call.structural_hash,
                function=kernel_function(call, name),
                toolchain=toolchain,
                calls=(),
            )
        found[key] = dataclasses.replace(known, calls=(*known.calls, graph.names[index]))
    return tuple(found.values())


class ExtractTasks(InPlacePass):
    """`extract_tasks` as a pass for pipelines; the model is unchanged.

    Attributes:
        tasks: Tasks of the last model.
    """

    def __init__(self) -> None:
        super().__init__()
        self.tasks: tuple[TuningTask, ...] = ()

    def call(self, model: onnx_ir.Model) -> PassResult:
        """Record the tasks of a model."""
        self.tasks = extract_tasks(model)
        return PassResult(model, modified=False)


class ApplyHistory(InPlacePass):
    """Assigns unowned marked kernels to the fastest target in the tuning database; measures nothing.

    A record counts if it was taken on this machine, with the same number of threads and the library's present
    version. Among the records of one kernel and target, confirming ones decide, otherwise the last, as in a search.
    A target whose last attempt failed, was refused or was too inexact is excluded. Ties go to the target given
    first. The function then names its owner, the cost (`collage.cost_us`) and the variant (`collage.variant`).
    Kernels without records stay unchanged.

    Args:
        database: The recorded measurements.
        targets: Targets that may get kernels.
        host: The machine the kernels are to run on.
        threads: CPU threads of each kernel.
        tolerance: Largest error of a kernel that may be chosen, relative to its tensor's scale.
        launch: How kernels are launched.
        plugins: Version of each toolchain's plugin; failures of other versions do not count then. None to take every
            record for one of the present version.
    """

    def __init__(
        self,
        database: TuningStore,
        targets: Sequence[Target],
        host: Host,
        *,
        threads: int,
        tolerance: float = 1e-3,
        launch: str = "eager",
        plugins: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self._database = database
        self._targets = tuple(targets)
        self._host = host
        self._threads = threads
        self._tolerance = tolerance
        self._launch = launch
        self._plugins = plugins

    def call(self, model: onnx_ir.Model) -> PassResult:
        """Rewrite the metadata of a model's marked functions."""
        modified = False
        graph = DataflowGraph(model)
        decided: set[onnx_ir.OperatorIdentifier] = set()
        for index, toolchain in sorted(graph.compilers.items()):
            identifier = graph.nodes[index].op_identifier()
            if toolchain or identifier in decided:
                continue
            decided.add(identifier)
            best = self._best(marked_call(graph, index))
            if best is not None:
                model.functions[identifier].metadata_props.update(best)
                modified = True
        return PassResult(model, modified=modified)

    def _best(self, marked: SubGraph) -> Mapping[str, str] | None:
        """Return the metadata of the fastest target."""
        found: list[tuple[float, int, Mapping[str, str]]] = []
        for number, target in enumerate(self._targets):
            key = RecordKey(
                structural_hash=marked.structural_hash,
                target=measured_as(target, marked).name,
                fingerprint=target.fingerprint,
                host=self._host.fingerprint_for(target.device),
                threads=self._threads,
                launch=self._launch,
                timing=timing_beside(marked.bytes_beside if target.device == HOST else 0),
            )
            records: Sequence[TuningRecord] = self._database.records(key, any_plugin=True)
            if self._plugins is not None:
                records = applicable(records, self._plugins.get(target.toolchain, ""), self._is_failure)
            if not records or self._is_failure(records[-1]):
                continue
            cost_us = statistics.median(self._medians_us(records))
            facts = {
                COMPILER_METADATA: target.toolchain,
                TARGET_METADATA: target.name,
                COST_METADATA: f"{cost_us:.3f}",
                VARIANT_METADATA: records[-1].variant,
            }
            found.append((cost_us, number, facts))
        return min(found, key=lambda each: each[:2])[2] if found else None

    def _is_failure(self, record: TuningRecord) -> bool:
        return record.outcome != "measured" or (record.error or 0.0) > self._tolerance

    def _medians_us(self, records: Iterable[TuningRecord]) -> list[float]:
        """Return the median of each block of the fresh samples if there are any, otherwise of the last record's."""
        speed = self._database.get_document(MachineSpeed, MachineSpeed.name(self._host.fingerprint, self._threads))
        usual_us = None if speed is None else speed.calibration_us
        measured = [record for record in records if record.outcome == "measured"]
        fresh = [record for record in measured if record.purpose == "confirm"]
        return [
            median
            for record in fresh or measured[-1:]
            for median in block_times_us(record.samples_us, record.blocks, usual_us)
        ]
