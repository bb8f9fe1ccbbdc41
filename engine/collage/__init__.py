"""Collage combines inference toolchains: it measures which toolchain runs each part of an ONNX model fastest.

    import collage

    module = collage.optimize("model.onnx", toolchains=["onnxruntime", "openvino"])
    module.save("model.collage")
    session = collage.load("model.collage")
    [y] = session.run(None, {"x": x})

Importing this package imports nothing heavy: the names below load their dependencies on first use (PEP 562).
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

if TYPE_CHECKING:
    from pathlib import Path

    import onnx_ir

    from collage.commands.optimizing.optimized import Optimized
    from collage.commands.optimizing.several_shapes import OptimizedShapes
    from collage.options import OptimizeOptions
    from collage.report.facts.record import Record
    from collage.report.progress import Progress
    from collage.runtime.session import Session
    from collage_core.errors import CollageError
    from collage_core.ir.values.size_range import Shape, SizeRange

    __version__: str

__all__ = [
    "CollageError",
    "OptimizeOptions",
    "Optimized",
    "OptimizedShapes",
    "Record",
    "Session",
    "SizeRange",
    "__version__",
    "load",
    "optimize",
]

_LAZY: Mapping[str, str] = {
    "CollageError": "collage_core.errors",
    "OptimizeOptions": "collage.options",
    "Optimized": "collage.commands.optimizing.optimized",
    "OptimizedShapes": "collage.commands.optimizing.several_shapes",
    "Record": "collage.report.facts.record",
    "Session": "collage.runtime.session",
    "SizeRange": "collage_core.ir.values.size_range",
}
"""Module of each public name that is not defined here."""


@overload
def optimize(
    model: str | Path | onnx_ir.Model,
    *,
    toolchains: Sequence[str] | str | None = None,
    exclude: Sequence[str] = (),
    input_shapes: Mapping[str, Shape] | None = None,
    buckets: int,
    sample_feeds: Sequence[Mapping[str, Any]] = (),
    progress: Progress | None = None,
    **options: Any,
) -> OptimizedShapes: ...


@overload
def optimize(
    model: str | Path | onnx_ir.Model,
    *,
    toolchains: Sequence[str] | str | None = None,
    exclude: Sequence[str] = (),
    input_shapes: Mapping[str, Shape] | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Optimized: ...


@overload
def optimize(
    model: str | Path | onnx_ir.Model,
    *,
    toolchains: Sequence[str] | str | None = None,
    exclude: Sequence[str] = (),
    input_shapes: Sequence[Mapping[str, Shape]],
    progress: Progress | None = None,
    **options: Any,
) -> OptimizedShapes: ...


def optimize(
    model: str | Path | onnx_ir.Model,
    *,
    toolchains: Sequence[str] | str | None = None,
    exclude: Sequence[str] = (),
    input_shapes: Mapping[str, Shape] | Sequence[Mapping[str, Shape]] | None = None,
    buckets: int = 1,
    sample_feeds: Sequence[Mapping[str, Any]] = (),
    progress: Progress | None = None,
    **options: Any,
) -> Optimized | OptimizedShapes:
    """Find the fastest plan for a model by search and measurement, and verify its outputs.

    Args:
        model: Path of an ONNX model, or a model in memory.
        toolchains: Targets to use, such as `"openvino(precision=bf16)"`; all that are installed if None.
        exclude: Toolchains or targets to leave out.
        input_shapes: Shape to bind, by input name; or several such mappings, for a plan for each. An extent may be a
            `SizeRange`: the plan runs all sizes in it.
        buckets: For how many typical sizes of a range a plan is looked for; those that differ are kept.
        sample_feeds: Values of the inputs as they are in use, in place of `input_shapes`: ranges, and the sizes that
            are typical, follow from their shapes.
        progress: Receives progress updates; none are reported if None.
        **options: Any other field of `OptimizeOptions`, such as `preset`, `threads`, `max_error`, or user decisions
            (docs/user/user-control.md): `pins`, `prefer`, `fusion_specs`, `load_plan`.

    Returns:
        The plan: `save` it as a package, get a `session` to run it now, or read its `record`. For several shapes the
        plans: they are saved as one package, and the session chooses one by the inputs.

    Raises:
        CollageError: If the model cannot be read, no toolchain runs part of it, or an option is invalid.
    """
    from collage.commands.optimize import optimize as optimize_model
    from collage.options import OptimizeOptions as Options
    from collage.report.progress import SilentProgress

    wanted = toolchains if toolchains is None or isinstance(toolchains, str) else ",".join(toolchains)
    progress = progress or SilentProgress()
    options = {"toolchains": wanted, "exclude": tuple(exclude), **options}
    seen: list[int] | None = None
    if sample_feeds:
        from collage.commands.optimizing.buckets import shapes_of_samples

        if input_shapes is not None:
            from collage_core.errors import UsageError

            raise UsageError("give input_shapes or sample_feeds: both say which shapes inputs have")
        input_shapes, seen = shapes_of_samples(model, sample_feeds)
    if buckets != 1:
        input_shapes = input_shapes or {}
        input_shapes = [input_shapes] if isinstance(input_shapes, Mapping) else input_shapes
    if input_shapes is None or isinstance(input_shapes, Mapping):
        return optimize_model(model, Options(input_shapes=dict(input_shapes or {}), **options), progress=progress)
    from collage.commands.optimizing.possible_shapes import possible_shapes
    from collage.commands.optimizing.several_shapes import optimize_shapes

    possible = possible_shapes(model, input_shapes, progress.message, buckets=buckets, sizes=seen)
    return optimize_shapes(model, [Options(input_shapes=each, **options) for each in possible], progress=progress)


def load(
    path: str | Path,
    *,
    threads: int | None = None,
    verify: bool | str | Path | Mapping[str, Any] = False,
    strict: bool = False,
) -> Session:
    """Load a package for execution, as `onnxruntime.InferenceSession` loads a model.

    A package of several plans gives a session that chooses one by the shapes of the inputs.

    Args:
        path: A `.collage` file.
        threads: CPU threads; the number the package was optimized for, and verified with, if None.
        verify: Whether to run it a few times and compare its outputs with the reference's, on random inputs; or values
            of its inputs to do so with, by name or in an NPZ file.
        strict: Whether to refuse a package of which a kernel does not load here, because its toolchain is not installed
            for one. Otherwise another installed toolchain runs it, with a warning, and `Session.report` says which.

    Raises:
        CollageError: If the file is not a package, a kernel does not load and none in its place does, or it is verified
            and wrong.
    """
    from collage.commands.load import load as load_session

    return load_session(path, threads=threads, verify=verify, strict=strict)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("collage-engine")
        except PackageNotFoundError:
            return "0+source"  # a checkout on the path, never installed
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
