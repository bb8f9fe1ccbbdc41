"""Check that a plugin keeps the contract, by calling it as core does, in this process.

A plugin's own tests call it once:

    def test_the_plugin_keeps_the_contract() -> None:
        conformance = check_plugin(load_toolchain("sampler"), operator_models())

        assert "Add of two inputs" in conformance.ran
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Mapping
from pathlib import Path

import onnx_ir

from collage.devices.opening import Devices
from collage.devices.providers import Providers
from collage.devices.this_host import this_host
from collage_core.contract import Host, OpenDevice, Target, Unsupported
from collage_core.errors import CollageError
from collage_core.registry import Toolchain
from collage_testing.kit.claims import check_model
from collage_testing.kit.clauses import FINGERPRINT, TARGETS
from collage_testing.kit.kernel_check import KernelCheck
from collage_testing.kit.misspelt import misspelt_operators
from collage_testing.kit.origins import version_lacking


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Conformance:
    """Result of a conformance check.

    Attributes:
        problems: Violations of the contract, a sentence each.
        ran: Number of correct kernels by name of the model, over all targets.
        refused: First reason by name of each model of which no kernel ran.
    """

    problems: tuple[str, ...]
    ran: Mapping[str, int]
    refused: Mapping[str, str]


def check_plugin(
    toolchain: Toolchain,
    models: Mapping[str, onnx_ir.Model],
    *,
    host: Host | None = None,
    threads: int = 1,
    tolerance: float = 1e-3,
    inexact_tolerance: float = 5e-2,
    max_variants: int = 8,
    open_device: OpenDevice | None = None,
    runs: bool = True,
) -> Conformance:
    """Run everything that a plugin claims of some models, and compare it with the reference.

    Of each target: its table is registered twice, and both must take the same; every candidate is lowered, every
    variant sent through JSON and bytes and loaded from there, bound three times, run four times or five, and
    compared. A kernel must write all of its outputs, nothing but its outputs and workspace, give the same bits
    again if it says so, do with arrays that start at any element, and leave the function it was made from alone. Of
    several variants one is asked for again by its name. A refusal must have a reason. A kernel of a device must
    only enqueue, its calls must be capturable if it says so, and places less aligned than core's own may be refused
    when it is bound, but not be misread. Loading starts no process, and a fingerprint has the version of a library
    that the plugin's distribution asks for. Of the first target, if it is of the CPU, one kernel is called often,
    which may keep no memory and no more threads busy than it was given, and run in a process that has only its
    bytes; and one model is tried on one thread more, one with its weights in a file. A toolchain that profiles its
    kernels names nodes that are there, each once, with times that are finite.

    Args:
        toolchain: The plugin behind its façade.
        models: Small models, by a name for messages; `operator_models` has one per common operator.
        host: The machine to ask targets for; this one if None.
        threads: CPU threads kernels may use.
        tolerance: Largest error, relative to a tensor's scale, of targets that compute in the model's own dtypes.
        inexact_tolerance: The same for the others.
        max_variants: Variants of a candidate that are tried.
        open_device: Opens the devices of targets: `FakeDevice("cuda:0").open` for one that is not there. The
            installed providers if None.
        runs: Whether this machine can run what it builds; where it cannot, no device is opened, `collage_load` may
            refuse with a reason, and what was built counts as run.

    Returns:
        What ran, and what was refused.

    Raises:
        AssertionError: If something breaks the contract; names all of it.
    """
    problems: list[str] = []
    ran: dict[str, int] = {}
    refused: dict[str, str] = {}
    host = host or this_host()
    targets = _targets(toolchain, host, problems)
    for target in targets:
        problems.extend(misspelt_operators(toolchain, target))
    devices = Devices(open_device or Providers.discover().open)
    with tempfile.TemporaryDirectory(prefix="collage-check-") as folder:
        for target in targets:
            limit = tolerance if target.exact else inexact_tolerance
            try:
                device = devices[target.device] if runs and target.device != "cpu" else None
            except CollageError as error:
                problems.append(f"{target.name}: {error}")
                continue

            settings = limit, max_variants, host, device, runs
            thorough = target.device == "cpu" and runs and target is targets[0]
            check = KernelCheck(toolchain, target, Path(folder), threads, *settings, thorough=thorough)
            found = {name: _checked(check, name, model, problems) for name, model in models.items()}
            for name, (count, reason) in found.items():
                ran[name] = ran.get(name, 0) + count
                if not count:
                    refused.setdefault(name, reason)
            whole = [name for name, (count, _) in found.items() if count and thorough]
            for name in whole[:1]:
                check = KernelCheck(toolchain, target, Path(folder), threads + 1, *settings)
                _checked(check, f"{name} on {threads + 1} threads", models[name], problems)
            for name in [name for name in whole if models[name].graph.initializers][:1]:
                check = KernelCheck(toolchain, target, Path(folder), threads, *settings, weights_outside=True)
                _checked(check, f"{name} with weights in a file", models[name], problems)
    if problems:
        raise AssertionError(f"{toolchain.name} does not keep the plugin contract:\n  " + "\n  ".join(problems))
    right = {name: count for name, count in ran.items() if count}
    return Conformance(problems=(), ran=right, refused={n: r for n, r in refused.items() if n not in right})


def _checked(check: KernelCheck, name: str, model: onnx_ir.Model, problems: list[str]) -> tuple[int, str]:
    """Check one model; see `check_model`."""
    where = f"{check.target.name}, {name}"
    try:
        return check_model(check, model, where, problems)
    except CollageError as error:
        problems.append(f"{where}: {error}")
        return 0, str(error)


def _targets(toolchain: Toolchain, host: Host, problems: list[str]) -> tuple[Target, ...]:
    try:
        first, second = toolchain.targets(host), toolchain.targets(host)
    except CollageError as error:
        problems.append(str(error))
        return ()
    if first != second:
        problem = "collage_targets answers differently when asked again; measurements would never be found again"
        problems.append(TARGETS.broken(problem))
    if isinstance(first, Unsupported):
        problems.append(f"it offers no target here, so nothing can be checked: {first.reason}")
        return ()
    names = [target.name for target in first]
    if len(set(names)) < len(names):
        problems.append(TARGETS.broken(f"two targets have the same name: {', '.join(names)}"))
    for target in first:
        if not target.fingerprint:
            problems.append(FINGERPRINT.broken(f"target {target.name} has no fingerprint"))
        elif lacking := version_lacking(toolchain, target):
            problems.append(FINGERPRINT.broken(lacking))
    return first
