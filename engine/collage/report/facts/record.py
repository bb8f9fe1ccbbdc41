"""The record of one optimisation, from which `explain`, `report` and `--json` are rendered.

A record is a value, stored as JSON on disk and inside packages. It holds the results, never the objects that computed
them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from collage.report.facts.device_facts import DeviceFacts, DeviceWorkFacts
from collage.report.facts.machine_facts import LimitFacts, MachineFacts
from collage.report.facts.precision_facts import MetricFacts, PrecisionFacts
from collage.report.facts.search_facts import SearchFacts
from collage_core.candidates.refusals import Refusal
from collage_core.ir.values.size_range import Shape

SCHEMA_VERSION = 2
NAN_AS_EXPECTED = "a NaN in each input reaches the outputs as in the reference"
"""What is said of a plan that keeps NaN."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """The model as given.

    Attributes:
        name: File name without directories, or the graph's name.
        sha256: Of the model file, in hexadecimal.
        nodes: Nodes of the prepared model.
        nodes_as_given: Nodes before preparing.
        input_shapes: Shape of each input that has a static one, by name.
    """

    name: str
    sha256: str
    nodes: int
    nodes_as_given: int
    input_shapes: Mapping[str, Shape] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """The machine everything was measured on."""

    system: str
    cpu: str
    physical_cores: int
    memory_bytes: int
    python: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ToolchainFacts:
    """One toolchain and its part in the plan.

    Attributes:
        name: Entry-point name.
        distribution: Distribution and version that provide the plugin.
        targets: Names of its usable targets.
        fingerprint: Library and version; empty if unusable.
        unusable: Why it offers no target, or why some expected targets are missing; empty otherwise.
        claimed_nodes: Nodes needing a kernel that its best-covering target accepts.
        chosen_nodes: Nodes the final plan gives it.
        plugin: Version of the plugin, to which results belong: more than `distribution` says if it is no release.
        not_asked: Why none of its usable targets took part; empty if one did, or there is none.
    """

    name: str
    distribution: str
    targets: tuple[str, ...] = ()
    fingerprint: str = ""
    unusable: str = ""
    claimed_nodes: int = 0
    chosen_nodes: int = 0
    plugin: str = ""
    not_asked: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LatencyFacts:
    """End-to-end latency of one contender in milliseconds.

    Attributes:
        p50, p90, p99, mean, min: Statistics over all runs.
        n: Timed runs.
        ci95: 95 % interval of the median.
    """

    p50: float
    p90: float
    p99: float
    mean: float
    min: float
    n: int
    ci95: tuple[float, float]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AsCalledFacts:
    """Runs of a contender as users call them: `session.run`, arrays in and arrays out.

    Attributes:
        latency_ms: Their latency.
        ratio: Their median over that of the single contender that is fastest so; None if there is none.
        ratio_ci95: 95 % interval of the ratio.
    """

    latency_ms: LatencyFacts
    ratio: float | None = None
    ratio_ci95: tuple[float, float] | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ContenderFacts:
    """One executable in an end-to-end comparison.

    Attributes:
        name: `"collage"`, a target's name, or a file name.
        kind: `"mixed"` or `"single"`.
        toolchains: Toolchains that run it.
        regions: Number of kernels.
        latency_ms: Latency of its bound call, or as users call it where sizes vary; None if it failed.
        failed: Why it has no latency; empty if it has one.
        ratio: Its median over the best single contender's; None if there is none.
        ratio_ci95: 95 % interval of the ratio.
        predicted_ms: Sum of its kernels' costs and penalties, and of the device copies; None if unknown. Kernels that
            were timed in place cost what they took there.
        alone_ms: The same before the race, by kernels that were measured alone; None if unknown.
        usual_ms: Median latency at the machine's usual speed, as costs of kernels are; None if unknown.
        as_called: The same for runs as users call them; None if they were not timed.
        exact: Whether all of it is computed in the model's own types.
        per_s: Runs per second of `Comparison.streams` sessions together, as users call them; None if not timed.
    """

    name: str
    kind: str
    toolchains: tuple[str, ...] = ()
    regions: int = 0
    latency_ms: LatencyFacts | None = None
    failed: str = ""
    ratio: float | None = None
    ratio_ci95: tuple[float, float] | None = None
    predicted_ms: float | None = None
    alone_ms: float | None = None
    usual_ms: float | None = None
    as_called: AsCalledFacts | None = None
    exact: bool = True
    per_s: float | None = None

    @property
    def prediction_error(self) -> float | None:
        """Measured over predicted latency, minus one, both at the machine's usual speed; None if either is unknown."""
        return _prediction_error(self.predicted_ms, self.usual_ms)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """An interleaved end-to-end comparison.

    Attributes:
        contenders: In the order given.
        best_single: Name of the fastest single-toolchain contender; None if all failed. One of a lower precision
            than the model's counts only if the contender it is compared with has one too.
        speedup_vs_best_single: Median latency of `best_single` over that of the first contender of kind mixed (or
            the first contender); None if unknown.
        speedup_ci95: 95 % interval of that ratio.
        best_single_as_called: Name of the single-toolchain contender fastest as users call it; None if unknown.
        streams: Sessions that ran side by side for throughput; 1 if it was not timed.
    """

    contenders: tuple[ContenderFacts, ...]
    best_single: str | None = None
    speedup_vs_best_single: float | None = None
    speedup_ci95: tuple[float, float] | None = None
    best_single_as_called: str | None = None
    streams: int = 1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AlternativeFacts:
    """Another target's alternative for a region.

    Attributes:
        target: Target name.
        cost_us: Cost of its best way to cover the region's nodes; None if it has none, or none was measured.
        reason: Why it lost or refused, in words.
        measured: False if it takes these nodes and nobody measured it on all of them.
        excluded_by: Targets of the plan's other kernels that it cannot share a plan with.
    """

    target: str
    cost_us: float | None
    reason: str
    excluded_by: tuple[str, ...] = ()
    measured: bool = True


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RegionFacts:
    """One kernel of the final plan.

    Attributes:
        id: Call site in the partitioned model.
        toolchain: Toolchain name.
        target: Target name.
        composite: Label of the pattern that proposed it, or empty.
        nodes: Names of its nodes in the prepared model, in execution order.
        operators: Operator type of each node.
        cost_us: Predicted cost: what it took between its neighbours in the race, or else alone, as deployed.
        alone_us: What it takes alone, to be compared with the alternatives; None if it was not measured so.
        cost_ci95_us: Interval in which another measurement would be, by how far measurements repeat on this machine;
            None if that is not known.
        measured_us: Median in place, from the per-kernel profile of the final plan; None if it has none: not profiled,
            or launched as part of a graph.
        error: Largest error at its boundary relative to the tensor's scale.
        alternatives: The other targets.
        limit: The least time that the machine allows it, by estimate; None if nothing is known of the machine.
        precision: What its lower precision does to the outputs; None if it has none, or that is not known.
    """

    id: str
    toolchain: str
    target: str
    composite: str
    nodes: tuple[str, ...]
    operators: tuple[str, ...]
    cost_us: float
    cost_ci95_us: tuple[float, float] | None = None
    measured_us: float | None = None
    error: float = 0.0
    alternatives: tuple[AlternativeFacts, ...] = ()
    limit: LimitFacts | None = None
    precision: PrecisionFacts | None = None
    alone_us: float | None = None

    @property
    def compared_us(self) -> float:
        """Its cost as those of alternatives are measured: alone, or else the predicted one."""
        return self.cost_us if self.alone_us is None else self.alone_us

    @property
    def time_us(self) -> float:
        """Median in place, or else the predicted cost."""
        return self.measured_us or self.cost_us

    @property
    def off_us(self) -> float:
        """By how much it takes longer in place than predicted; 0 if it was not measured there."""
        return self.measured_us - self.cost_us if self.measured_us is not None else 0.0

    @property
    def share_of_peak(self) -> float | None:
        """Share of the machine's peak it runs at, in place or else alone; above 1 too; None if not estimated."""
        return None if self.limit is None else self.limit.share_of(self.time_us)

    @property
    def prediction_error(self) -> float | None:
        """Time in place over the predicted cost, minus one; None if either is unknown."""
        return _prediction_error(self.cost_us, self.measured_us)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CopyFacts:
    """A value that the plan copies from one device to another.

    Attributes:
        value: Its name in the prepared model.
        source: Device that computed it, or on which the caller gave it.
        destination: Device it is copied to, once, however many kernels read it there.
        size_bytes: Size of the value.
        cost_us: Predicted cost.
    """

    value: str
    source: str
    destination: str
    size_bytes: int
    cost_us: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Complete result of one `optimize` run.

    Attributes:
        decision: Why the final plan was chosen, in a sentence.
        predicted_ms: Sum of the chosen kernels' costs and penalties, and of the device copies.
        measured_ms: End-to-end median of the chosen plan; None if it was not timed.
        max_error: Largest error of a model output relative to its scale, on inputs not used in the search.
        metric: What it reaches in the user's metric; None without one.
        unchecked: Reason for each node the reference could not compute itself, by node name.
        nan: What the plan makes of NaN in its inputs, in a few words; empty if that was not looked at.
        notes: Other information for the user.
        device_copies: The plan's copies between devices.
        devices: Copy and launch costs of the participating devices.
        device_work: Device work of each run of the plan.
        deterministic: Whether only kernels took part that give the same bits each time.
        ranges: How the ranges of the plan's 8-bit integers were chosen, as `OptimizeOptions.ranges` names it; empty if
            it has none, or they are those of a plan file that does not say.
        machine: What the machine does at best; None if the plan has no kernels.
        limit: The least time that the machine allows the model, by estimate, however it is cut into kernels; None if
            nothing is known of the machine.
    """

    schema_version: int = SCHEMA_VERSION
    collage_version: str
    created: str
    model: ModelFacts
    host: HostFacts
    threads: int
    seed: int
    preset: str
    max_error_allowed: float
    toolchains: tuple[ToolchainFacts, ...]
    search: SearchFacts
    comparison: Comparison
    decision: str
    predicted_ms: float
    measured_ms: float | None
    max_error: float
    metric: MetricFacts | None = None
    regions: tuple[RegionFacts, ...]
    refusals: tuple[Refusal, ...] = ()
    unchecked: Mapping[str, str] = dataclasses.field(default_factory=dict)
    nan: str = ""
    notes: tuple[str, ...] = ()
    device_copies: tuple[CopyFacts, ...] = ()
    devices: tuple[DeviceFacts, ...] = ()
    device_work: DeviceWorkFacts = dataclasses.field(default_factory=DeviceWorkFacts)
    deterministic: bool = False
    ranges: str = ""
    machine: MachineFacts | None = None
    limit: LimitFacts | None = None

    @property
    def headroom(self) -> float | None:
        """Share of the plan's predicted time that a better plan of the candidates could save at most.

        None if nothing is known. It is about recorded costs: plans were chosen among by their times end to end.
        """
        predicted_us = self.predicted_ms * 1000
        if predicted_us <= 0 or not self.search.bound_us:
            return None
        return max(0.0, 1 - self.search.bound_us / predicted_us)

    @property
    def share_of_peak(self) -> float | None:
        """Share of the machine's peak the plan runs at, end to end or else as predicted; None if not estimated."""
        return None if self.limit is None else self.limit.share_of(1000 * (self.measured_ms or self.predicted_ms))

    @property
    def prediction_error(self) -> float | None:
        """Measured over predicted time of the plan, minus one; see `ContenderFacts`."""
        return self.comparison.contenders[0].prediction_error if self.comparison.contenders else None


def _prediction_error(predicted: float | None, measured: float | None) -> float | None:
    return measured / predicted - 1 if predicted and measured else None
