"""Kernels of the CPU, one function at a time: lowered, loaded, run, and held against ONNX's reference.

What `device_kernels` is for kernels of devices, for a plugin under test whose hooks are called directly:

    kernels = HostKernels(plugin, Target(toolchain="sampler", fingerprint="test"), tmp_path)
    kernels.check(written("g (float[4] x) => (float[4] y) { y = Relu(x) }"), {"x": x})
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from collage.devices.this_host import this_host
from collage_core.contract import (
    Artifact,
    Buffer,
    BuildContext,
    KernelFunction,
    RunContext,
    Target,
    Unsupported,
    ValueKind,
    content_hash,
)
from collage_testing.kit.contexts import build_context
from collage_testing.kit.elsewhere import python, run_elsewhere
from collage_testing.kit.written import WrittenFunction

_WORKSPACE_BYTES = 1 << 30
_VARIANTS = 99
"""More than any kernel has."""


class HostKernels:
    """A plugin, one of its targets, and what tests ask of them.

    Args:
        plugin: Its hooks are called as methods.
        target: Of the CPU.
        scratch: A directory for the toolchain.
        threads: Threads that kernels are built for and run with.
    """

    def __init__(self, plugin: Any, target: Target, scratch: Path, *, threads: int = 1) -> None:
        self.plugin = plugin
        self.target = target
        self._scratch = scratch
        self._threads = threads

    def build(self, **fields: Any) -> BuildContext:
        """Say how a kernel is to be built; with what is to be otherwise than quickly and in memory enough."""
        usual = {"effort": 0, "workspace_limit_bytes": _WORKSPACE_BYTES, "threads": self._threads}
        return build_context(self._scratch, **(usual | fields))

    def run_context(self, what: WrittenFunction, threads: int | None = None) -> RunContext:
        """Say where a kernel runs: here, with the function's weights."""
        constants = {content_hash(array): array for array in what.arrays.values()}
        return RunContext(threads=threads or self._threads, host=this_host(), constants=constants)

    def answer(self, function: KernelFunction) -> Any:
        """Lower a function, and return what the plugin says, be it a refusal."""
        return self.plugin.collage_lower(self.target, function, self.build())

    def lowered(self, what: WrittenFunction, *, effort: int = 0, variants: int = 1) -> list[Artifact]:
        """Lower a function, and return the first variants, their metadata sent through JSON.

        Raises:
            AssertionError: If the plugin refuses.
        """
        build = self.build(effort=effort, max_variants=variants)
        answer = self.plugin.collage_lower(self.target, what.function, build)
        assert not isinstance(answer, Unsupported), answer.reason
        return [dataclasses.replace(each, metadata=json.loads(json.dumps(each.metadata))) for each in answer]

    def run(
        self,
        what: WrittenFunction,
        artifact: Artifact,
        feeds: Mapping[str, Any],
        *,
        target: Target | None = None,
        threads: int | None = None,
    ) -> list[Any]:
        """Load an artifact, bind it once, call it twice; returns its outputs.

        Raises:
            AssertionError: If it does not load, or writes its inputs.
        """
        kernel = self.plugin.collage_load(target or self.target, artifact, self.run_context(what, threads))
        assert not isinstance(kernel, Unsupported), kernel.reason
        inputs = [Buffer(spec) for spec in what.function.inputs]
        outputs = [Buffer(spec) for spec in what.function.outputs]
        for buffer in inputs:
            buffer.put(feeds[buffer.spec.name])
        call = kernel.bind(inputs, outputs, None)
        del kernel  # a bound call keeps alive all it needs
        call()
        for buffer in outputs:
            if buffer.spec.kind is ValueKind.PLANNED and buffer.array.size:
                buffer.array.reshape(-1).view(np.uint8).fill(1)
        call()
        for buffer in inputs:
            held, given = (np.asarray(each) for each in (buffer.value, feeds[buffer.spec.name]))
            same = np.array_equal(held, given) or held.tobytes() == given.tobytes()  # NaN is not equal to itself
            assert same, f"it wrote its input {buffer.spec.name!r}"
        return [buffer.value for buffer in outputs]

    def check(self, what: WrittenFunction, *feeds: Mapping[str, Any], tolerance: float = 1e-4, effort: int = 2) -> None:
        """Run every variant of a function on all feeds, and compare with the reference.

        Raises:
            AssertionError: If an output is of another shape or beyond the tolerance.
        """
        expected = [what.expected(each) for each in feeds]
        for artifact in self.lowered(what, effort=effort, variants=_VARIANTS):
            for each, right in zip(feeds, expected, strict=True):
                found = self.run(what, artifact, each)
                for spec, one, other in zip(what.function.outputs, found, right, strict=True):
                    _compare(one, np.asarray(other), spec.name, tolerance)

    def check_elsewhere(self, what: WrittenFunction, artifact: Artifact, feeds: Mapping[str, Any], plugin: str) -> None:
        """Run an artifact in a process that has only its bytes and constants, and compare with a run here.

        Args:
            what: What it was made from; its values are of static shape, and of NumPy's own types.
            artifact: The artifact.
            feeds: Its inputs.
            plugin: The plugin there, as `module:attribute`.

        Raises:
            AssertionError: If an output has other bits.
        """
        here = self.run(what, artifact, feeds)
        there = run_elsewhere(
            artifact,
            what.function.inputs,
            what.function.outputs,
            feeds,
            {content_hash(array): array for array in what.arrays.values()},
            plugin=plugin,
            target=self.target,
            folder=self._scratch,
        )
        for spec, value in zip(what.function.outputs, here, strict=True):
            np.testing.assert_array_equal(there[spec.name], value)


def check_library_is_optional(module: str, plugin: str, package: str) -> None:
    """Check that a plugin imports without its library, and asks for it by name.

    Args:
        module: The library.
        plugin: The plugin, as `module:attribute`.
        package: What to install.

    Raises:
        AssertionError: If it imports the library, or does not say what to install.
    """
    where, _, attribute = plugin.partition(":")
    python("-c", f"import sys, {where}\nassert {module!r} not in sys.modules\n")
    python(
        "-c",
        f"import sys; sys.modules[{module!r}] = None\n"
        "from collage.devices.this_host import this_host\n"
        "from collage_core.contract import Unsupported\n"
        f"from {where} import {attribute} as plugin\n"
        "answer = plugin.collage_targets(this_host())\n"
        f"assert isinstance(answer, Unsupported) and 'pip install {package}' in answer.reason, answer\n",
    )


def _compare(found: Any, right: np.ndarray[Any, Any], name: str, tolerance: float) -> None:
    assert np.asarray(found).shape == right.shape, name
    if right.dtype in (np.float16, ml_dtypes.bfloat16):
        # a library may cut off what does not fit, where the processor does not round: one unit in the last place
        tolerance = max(tolerance, float(ml_dtypes.finfo(right.dtype).eps))
    if right.dtype.kind in "fV":
        np.testing.assert_allclose(
            np.asarray(found, np.float64), right.astype(np.float64), atol=tolerance, rtol=tolerance
        )
    else:
        np.testing.assert_array_equal(found, right)
