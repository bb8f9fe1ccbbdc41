"""Facts about model, machine and toolchains as the record keeps them."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import onnx_ir

from collage.report.facts.device_facts import DeviceFacts, speed
from collage.report.facts.record import HostFacts, ModelFacts, ToolchainFacts
from collage.setup.device_figures import DeviceFigures
from collage.setup.targets import ToolchainStatus
from collage_core.candidates.plan import Plan
from collage_core.candidates.proposals import Proposals
from collage_core.contract import Host
from collage_core.ir.io.model_io import external_tensors, load_model, model_to_bytes
from collage_core.ir.values.symbolic_sizes import input_shapes
from collage_core.registry import Registry


def host_facts(host: Host) -> HostFacts:
    """Return the facts of the machine for the record."""
    return HostFacts(
        system=host.system,
        cpu=host.cpu,
        physical_cores=host.physical_cores,
        memory_bytes=host.memory_bytes,
        python=platform.python_version(),
    )


def opened(model: str | os.PathLike[str] | onnx_ir.Model) -> tuple[onnx_ir.Model, str, str]:
    """Return a model with its name and the SHA-256 of its file, or of its serialised form if in memory.

    Raises:
        ModelError: If the file is missing or not a model.
    """
    if isinstance(model, onnx_ir.Model):
        return model, model.graph.name or "model", hashlib.sha256(model_to_bytes(model)).hexdigest()
    path = Path(model)
    return load_model(path), path.name, file_sha256(path)


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def external_files(model: onnx_ir.Model) -> list[Path]:
    """Return the external data files that hold weights of a model, sorted."""
    return sorted({Path(tensor.base_dir, tensor.location) for tensor in external_tensors(model)})


def model_facts(name: str, sha256: str, given: onnx_ir.Model, prepared: onnx_ir.Model) -> ModelFacts:
    """Return the facts of a model for the record."""
    return ModelFacts(
        name=name,
        sha256=sha256,
        nodes=sum(1 for _ in prepared.graph),
        nodes_as_given=sum(1 for _ in given.graph),
        input_shapes=input_shapes(prepared),
    )


def device_facts(figures: Iterable[DeviceFigures]) -> tuple[DeviceFacts, ...]:
    """Return what devices take for copies and launches, as the record keeps it."""
    return tuple(
        DeviceFacts(
            name=each.device,
            to_device=speed(each.to_device.latency_us, each.to_device.bytes_per_us),
            from_device=speed(each.from_device.latency_us, each.from_device.bytes_per_us),
            within=speed(each.within.latency_us, each.within.bytes_per_us),
            wait_us=round(each.wait_us, 3),
            start_us=round(each.start_us, 3),
            cache_bytes=each.cache_bytes,
            assumed=each.assumed,
        )
        for each in figures
    )


def toolchain_facts(
    registry: Registry, statuses: Sequence[ToolchainStatus], proposals: Mapping[str, Proposals], plan: Plan
) -> tuple[ToolchainFacts, ...]:
    """Return every toolchain, usable or not, and what became of it."""
    needs = plan.graph.needs_kernel
    facts = []
    for status in statuses:
        name = status.toolchain.name
        covered = [proposals[t.name].covered & needs for t in status.selected if t.name in proposals]
        chosen = 0
        for kernel in plan.kernels:
            if kernel.target.toolchain == name:
                chosen |= kernel.sub_graph.nodes & needs
        facts.append(
            ToolchainFacts(
                name=name,
                distribution=status.toolchain.distribution,
                targets=tuple(target.name for target in status.targets),
                fingerprint=status.targets[0].fingerprint if status.targets else "",
                unusable=status.unusable,
                claimed_nodes=max((mask.bit_count() for mask in (*covered, chosen)), default=0),
                chosen_nodes=chosen.bit_count(),
                plugin=status.plugin,
                not_asked="" if status.selected else "; ".join(f"{target} {why}" for target, why in status.skipped),
            )
        )
    facts += [
        ToolchainFacts(name=failure.name, distribution=failure.distribution, unusable=failure.reason)
        for failure in registry.failures
    ]
    return tuple(facts)
