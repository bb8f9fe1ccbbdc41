"""The least time that a machine's peaks allow a plan's kernels and its model: a roofline estimate.

S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance model for multicore architectures",
2009. The time is the larger of operations over peak and bytes over bandwidth, where bytes are priced at the nearest
level of memory that holds them all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import onnx_ir

from collage.peaks.machine_peaks import ARITHMETIC, MEMORY, MachinePeaks
from collage.peaks.products import DTYPES, precision_of
from collage.report.facts.machine_facts import BandwidthFacts, LimitFacts, MachineFacts, PeakFacts
from collage_core.candidates.plan import Plan
from collage_core.contract.device import HOST
from collage_core.ir.graph.masks import mask_of
from collage_core.ir.graph.region_work import RegionWork, region_work

_ARITHMETIC = {**{dtype: name for name, dtype in DTYPES.items()}, onnx_ir.DataType.INT8: "int8"}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PlanWork:
    """Work of a plan.

    Attributes:
        kernels: Work of each kernel, in execution order.
        devices: Device of each.
        whole: Work of the model: the operations of the kernels, and the bytes of the model's inputs, weights and
            outputs.
    """

    kernels: tuple[RegionWork, ...]
    devices: tuple[str, ...]
    whole: RegionWork

    @classmethod
    def of(cls, plan: Plan) -> PlanWork:
        """Count the work of a plan."""
        kernels = tuple(
            region_work(
                plan.graph,
                kernel.sub_graph.nodes,
                rounded_to=precision_of(kernel.target),
                int8=mask_of(product.node for product in kernel.sub_graph.int8 if product.span is not None),
                int8_weights=mask_of(product.node for product in kernel.sub_graph.int8),
            )
            for kernel in plan.kernels
        )
        flops: dict[onnx_ir.DataType, float] = {}
        for work in kernels:
            for dtype, count in work.flops.items():
                flops[dtype] = flops.get(dtype, 0.0) + count
        int8 = mask_of(product.node for kernel in plan.kernels for product in kernel.sub_graph.int8)
        whole = region_work(plan.graph, plan.graph.all_mask, int8=int8)
        return cls(
            kernels=kernels,
            devices=tuple(kernel.target.device for kernel in plan.kernels),
            whole=dataclasses.replace(whole, flops=flops),
        )

    @property
    def arithmetics(self) -> frozenset[str]:
        """Arithmetics of the kernels on the CPU."""
        on_host = [work for work, device in zip(self.kernels, self.devices, strict=True) if device == HOST]
        return frozenset(_ARITHMETIC[dtype] for work in on_host for dtype in work.flops)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PlanLimits:
    """What the machine allows a plan.

    Attributes:
        machine: The peaks it is judged by.
        kernels: The limit of each kernel, in execution order.
        whole: The limit of the model, however it is cut into kernels.
    """

    machine: MachineFacts
    kernels: tuple[LimitFacts, ...]
    whole: LimitFacts


def limits_of(work: PlanWork, peaks: MachinePeaks, threads: int, missing: str = "") -> PlanLimits:
    """Estimate the least times of a plan.

    Args:
        work: Work of the plan.
        peaks: Peaks of the machine.
        threads: Threads of the plan.
        missing: Why some peaks are missing; empty if none is.
    """
    elsewhere = sorted(set(work.devices) - {HOST})
    kernels = tuple(
        _limit(each, peaks) if device == HOST else _elsewhere(device)
        for each, device in zip(work.kernels, work.devices, strict=True)
    )
    return PlanLimits(
        machine=MachineFacts(
            threads=threads,
            peaks=tuple(
                PeakFacts(arithmetic=each.arithmetic, gflop_per_s=round(each.flops_per_us / 1000, 3), by=each.by)
                for each in peaks.products
                if each.arithmetic in work.arithmetics
            ),
            bandwidths=tuple(
                BandwidthFacts(
                    level=each.name, holds_bytes=each.holds_bytes, gb_per_s=round(each.bytes_per_us / 1000, 3)
                )
                for each in peaks.levels
            ),
            missing=missing,
        ),
        kernels=kernels,
        whole=_elsewhere(" and ".join(elsewhere)) if elsewhere else _limit(work.whole, peaks),
    )


def _elsewhere(device: str) -> LimitFacts:
    return LimitFacts(not_estimated=f"the peaks of {device} are not measured, only those of the CPU")


def _limit(work: RegionWork, peaks: MachinePeaks) -> LimitFacts:
    flops = {_ARITHMETIC[dtype]: count for dtype, count in work.flops.items()}
    known = LimitFacts(
        gflop={name: round(count / 1e9, 9) for name, count in flops.items()},
        size_bytes=work.nbytes,
        uncounted=tuple(dict.fromkeys(work.uncounted)),
    )
    level = peaks.level_of(work.nbytes)
    if level is None:
        return dataclasses.replace(known, not_estimated="the speed of memory is not known")
    speeds = {name: peak.flops_per_us for name in flops if (peak := peaks.product(name)) is not None}
    if lacking := sorted(flops.keys() - speeds):
        return dataclasses.replace(known, not_estimated=f"no product in {' or '.join(lacking)} was measured")
    arithmetic_us = _sum_of(flops, speeds)
    memory_us = work.nbytes / level.bytes_per_us
    return dataclasses.replace(
        known,
        level=level.name,
        least_us=float(f"{max(arithmetic_us, memory_us):.6g}"),
        bound_by=ARITHMETIC if arithmetic_us >= memory_us else MEMORY,
    )


def _sum_of(flops: Mapping[str, float], speeds: Mapping[str, float]) -> float:
    """Return the time of all operations: one set of units computes every arithmetic."""
    return sum(count / speeds[name] for name, count in flops.items())
