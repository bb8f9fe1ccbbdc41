"""On a device: numbers in every variant, kernels that were saved, graphs, and the whole contract.

The same tests run on a GPU, where one is (marker `gpu`), and on one emulated by Triton's interpreter; the long lists
there only in part.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collage.reference import evaluate
from collage_core.contract import PRECISIONS, Artifact, KernelFunction, Target, Unsupported
from collage_core.registry import Toolchain
from collage_cuda import TENSOR_CORES
from collage_testing.kit import BoundKernel, DeviceMachine
from collage_triton.nest import nest_of
from collage_triton.plugin import TritonPlugin
from tests.from_source import ROOT

from .cases import CASES, FLOATS, Build, D, function_for
from .checking import compare, feeds_of
from .emulation import emulated_machine
from .groups import GROUPS, LARGE
from .saving import save

EMULATED = ("Add", "ArgMax", "Cast", "Concat", "Conv", "Gather", "Gelu", "MatMul", "Not", "Softmax", "Split")
"""Operators tried on the emulated device by default: of each way to make a kernel some. The others are slow."""

TOLERANCES = {"pointwise": 4.0, "rows": 8.0, "product": 8.0}
"""How many times the usual error is allowed, by the form of the loop nest."""

SEVERAL = ("many_rows", "feed_forward", "convolution_block", "large_product")
"""Groups of which there is more than one arrangement worth trying."""


def on(where: str, *marks: pytest.MarkDecorator) -> list[pytest.MarkDecorator]:
    return [pytest.mark.gpu("cupy", "triton"), *marks] if where == "gpu" else list(marks)


EVERYWHERE = [pytest.param(where, marks=on(where), id=where) for where in ("emulated", "gpu")]


@pytest.fixture
def machine(request: pytest.FixtureRequest) -> DeviceMachine:
    if request.param == "emulated":
        return emulated_machine(request.getfixturevalue("interpreter"))
    machine = DeviceMachine.real(Toolchain("triton", TritonPlugin()))
    if isinstance(machine, Unsupported):
        pytest.skip(machine.reason)
    return machine


everywhere = pytest.mark.parametrize("machine", EVERYWHERE, indirect=True)


def operators() -> Iterator[Any]:
    for operator, (dtypes, builds) in CASES.items():
        for dtype in dtypes:
            for place, build in enumerate(builds):
                name = f"{operator}-{dtype.name.lower()}-{place}"
                yield pytest.param("gpu", operator, dtype, build, marks=on("gpu"), id=f"gpu-{name}")
                if dtype is dtypes[0] and not place:
                    marks = [] if operator in EMULATED else [pytest.mark.slow]
                    yield pytest.param("emulated", operator, dtype, build, marks=marks, id=f"emulated-{name}")


def groups() -> Iterator[Any]:
    for name in GROUPS:
        for dtype in FLOATS:
            yield pytest.param("gpu", name, dtype, marks=on("gpu"), id=f"gpu-{name}-{dtype.name.lower()}")
        marks = [pytest.mark.slow] if name in LARGE else []
        yield pytest.param("emulated", name, D.FLOAT, marks=marks, id=f"emulated-{name}")


def tried(
    machine: DeviceMachine, function: KernelFunction, target: Target, artifact: Artifact, *, aligned: bool = True
) -> BoundKernel:
    """A variant bound to places that hold random inputs."""
    return machine.bound(function, target, artifact, feeds_of(function), aligned=aligned)


def right(function: KernelFunction) -> list[Any]:
    with np.errstate(all="ignore"):
        values = evaluate(function.model, feeds_of(function)).values
    return [np.asarray(values[spec.name]) for spec in function.outputs]


def check(
    machine: DeviceMachine, function: KernelFunction, variants: Sequence[Artifact], *, aligned: bool = True
) -> None:
    """Every variant gives what the reference gives, and the same bits when it is called again."""
    expected, tolerance = right(function), TOLERANCES[nest_of(function).form]
    for artifact in variants:
        bound = tried(machine, function, machine.target(), artifact, aligned=aligned)
        found = bound.run()
        for spec, array, wanted in zip(function.outputs, found, expected, strict=True):
            compare(array, wanted, f"{spec.name} of {artifact.variant}", tolerance)
        assert [each.tobytes() for each in bound.run()] == [each.tobytes() for each in found], artifact.variant


@pytest.mark.parametrize(("machine", "operator", "dtype", "build"), list(operators()), indirect=["machine"])
def test_every_variant_of_an_operator_gives_what_the_reference_gives(
    machine: DeviceMachine, operator: str, dtype: D, build: Build, tmp_path: Path
) -> None:
    function = function_for(build, dtype, operator)

    check(machine, function, machine.variants(function, machine.target(), tmp_path))


@pytest.mark.parametrize(("machine", "name", "dtype"), list(groups()), indirect=["machine"])
def test_every_variant_of_a_group_gives_what_the_reference_gives(
    machine: DeviceMachine, name: str, dtype: D, tmp_path: Path
) -> None:
    function = function_for(GROUPS[name], dtype)
    variants = machine.variants(function, machine.target(), tmp_path)

    assert len({each.variant for each in variants}) == len(variants) > (name in SEVERAL)
    check(machine, function, variants)


@everywhere
@pytest.mark.parametrize("name", ["scores", "convolution_block"])
def test_places_that_start_at_any_element_are_read_right(machine: DeviceMachine, name: str, tmp_path: Path) -> None:
    function = function_for(GROUPS[name], D.FLOAT)

    check(machine, function, machine.variants(function, machine.target(), tmp_path)[:1], aligned=False)


@everywhere
def test_a_lower_precision_is_off_unless_it_is_asked_for(machine: DeviceMachine, tmp_path: Path) -> None:
    function = function_for(GROUPS["large_product" if machine.is_real else "feed_forward"], D.FLOAT)
    [expected] = right(function)
    scale = np.abs(expected).max()
    errors = {}
    for precision in ("", *TENSOR_CORES):
        target = machine.target(**({"precision": precision} if precision else {}))
        [first, *_] = machine.variants(function, target, tmp_path)
        [found] = tried(machine, function, target, first).run()
        errors[precision] = float(np.abs(found - expected).max() / scale)

    assert errors[""] < 5e-6
    assert max(errors["tf32"], errors["fp16"]) < 5e-3
    assert errors["bf16"] < 4e-2
    lower = tuple(TENSOR_CORES if machine.is_real else PRECISIONS)  # the interpreter multiplies what is tf32 exactly
    assert all(errors[precision] > 4 * errors[""] for precision in lower)


@everywhere
def test_a_saved_kernel_runs_in_a_process_that_cannot_import_triton(machine: DeviceMachine, tmp_path: Path) -> None:
    function = function_for(GROUPS["feed_forward"], D.FLOAT)
    target = machine.target()
    artifact = machine.variants(function, target, tmp_path)[-1]
    feeds = feeds_of(function)
    [here] = tried(machine, function, target, artifact).run()
    folder = tmp_path / "saved"
    folder.mkdir()
    save(function, artifact, folder)
    np.savez(folder / "inputs.npz", *(feeds[spec.name] for spec in function.inputs))

    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    where = "real" if machine.is_real else "emulated"
    command = [sys.executable, "-m", f"{__package__}.run_saved", str(folder), where]
    subprocess.run(command, cwd=ROOT, env=environment, check=True)

    [(_, there)] = np.load(folder / "found.npz").items()
    assert there.tobytes() == here.tobytes()


@everywhere
@pytest.mark.parametrize("name", ["feed_forward", "scores"])
def test_a_graph_of_it_gives_the_same_bits_each_time(machine: DeviceMachine, name: str, tmp_path: Path) -> None:
    function = function_for(GROUPS[name], D.FLOAT)
    target = machine.target()
    variants = machine.variants(function, target, tmp_path)
    for artifact in variants if machine.is_real else variants[:1]:
        assert artifact.deterministic
        tried(machine, function, target, artifact).check_replays(1000 if machine.is_real else 2)
