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
    import os
    from pathlib import Path
    from typing import Unpack

    from collage.commands.optimizing.optimized import Optimized
    from collage.commands.optimizing.several_shapes import OptimizedShapes
    from collage.keywords import BenchKeywords, Names, OptimizeKeywords
    from collage.options import OptimizeOptions
    from collage.report.facts.record import Record
    from collage.report.progress import Progress
    from collage.report.shown import Explanation, ShownBenchReport, ShownCompareReport, ShownInspectReport
    from collage.runtime.session import Session
    from collage_core.errors import CollageError
    from collage_core.ir.io.model_io import GivenModel
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
    "bench",
    "compare",
    "explain",
    "inspect",
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
    model: GivenModel,
    *,
    toolchains: Names = None,
    exclude: Sequence[str] = (),
    input_shapes: Mapping[str, Shape] | None = None,
    buckets: int,
    sample_feeds: Sequence[Mapping[str, Any]] = (),
    progress: Progress | bool | None = None,
    **options: Unpack[OptimizeKeywords],
) -> OptimizedShapes: ...


@overload
def optimize(
    model: GivenModel,
    *,
    toolchains: Names = None,
    exclude: Sequence[str] = (),
    input_shapes: Mapping[str, Shape] | None = None,
    sample_feeds: Sequence[Mapping[str, Any]] = (),
    progress: Progress | bool | None = None,
    **options: Unpack[OptimizeKeywords],
) -> Optimized: ...


@overload
def optimize(
    model: GivenModel,
    *,
    toolchains: Names = None,
    exclude: Sequence[str] = (),
    input_shapes: Sequence[Mapping[str, Shape]],
    progress: Progress | bool | None = None,
    **options: Unpack[OptimizeKeywords],
) -> OptimizedShapes: ...


def optimize(
    model: GivenModel,
    *,
    toolchains: Names = None,
    exclude: Sequence[str] = (),
    input_shapes: Mapping[str, Shape] | Sequence[Mapping[str, Shape]] | None = None,
    buckets: int = 1,
    sample_feeds: Sequence[Mapping[str, Any]] = (),
    progress: Progress | bool | None = None,
    **options: Unpack[OptimizeKeywords],
) -> Optimized | OptimizedShapes:
    """Find the fastest plan for a model by search and measurement, and verify its outputs.

    Args:
        model: Path of an ONNX model; or a model in memory: an `onnx.ModelProto`, one that is serialized as bytes, an
            `onnx_ir.Model`, or the `ONNXProgram` that `torch.onnx.export` returns.
        toolchains: Targets to use, such as `"openvino(precision=bf16)"`; all that are installed if None.
        exclude: Toolchains or targets to leave out.
        input_shapes: Shape to bind, by input name; or several such mappings, for a plan for each. An extent may be a
            `SizeRange`: the plan runs all sizes in it.
        buckets: For how many typical sizes of a range a plan is looked for; those that differ are kept.
        sample_feeds: Values of the inputs as they are in use, in place of `input_shapes`: ranges, and the sizes that
            are typical, follow from their shapes.
        progress: What receives progress updates, or whether they are shown on standard error; None shows them on a
            terminal and in a notebook.
        **options: Any other field of `OptimizeOptions`, such as `preset`, `threads`, `max_error`, or user decisions
            (docs/user/user-control.md): `pins`, `prefer`, `fusion_specs`, `load_plan`.

    Returns:
        The plan: `save` it as a package, get a `session` to run it now, or read its `record`. For several shapes the
        plans: they are saved as one package, and the session chooses one by the inputs.

    Raises:
        CollageError: If the model cannot be read, no toolchain runs part of it, or an option is invalid.
        TypeError: If there is no such option.
    """
    from collage.commands.optimize import optimize as optimize_model
    from collage.options import OptimizeOptions as Options
    from collage.report.progress import progress_wanted
    from collage_core.ir.io.model_io import model_given

    _check_names("optimize", options, Options)
    given = model_given(model)
    shown = progress_wanted(progress)
    common: dict[str, Any] = {"toolchains": _listed(toolchains), "exclude": tuple(exclude), **options}
    seen: list[int] | None = None
    if sample_feeds:
        from collage.commands.optimizing.buckets import shapes_of_samples

        if input_shapes is not None:
            from collage_core.errors import UsageError

            raise UsageError("give input_shapes or sample_feeds: both say which shapes inputs have")
        input_shapes, seen = shapes_of_samples(given, sample_feeds)
    if buckets != 1:
        input_shapes = input_shapes or {}
        input_shapes = [input_shapes] if isinstance(input_shapes, Mapping) else input_shapes
    if input_shapes is None or isinstance(input_shapes, Mapping):
        return optimize_model(given, Options(input_shapes=dict(input_shapes or {}), **common), progress=shown)
    from collage.commands.optimizing.possible_shapes import possible_shapes
    from collage.commands.optimizing.several_shapes import optimize_shapes

    possible = possible_shapes(given, input_shapes, shown.message, buckets=buckets, sizes=seen)
    return optimize_shapes(given, [Options(input_shapes=each, **common) for each in possible], progress=shown)


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


def inspect(
    model: GivenModel,
    *,
    toolchains: Names = None,
    exclude: Sequence[str] = (),
    input_shapes: Mapping[str, Shape] | None = None,
    budget_s: float = 20.0,
) -> ShownInspectReport:
    """Say which parts of a model each toolchain would take, and why it refuses others. Measures nothing.

    Args:
        model: As for `optimize`.
        toolchains: As for `optimize`.
        exclude: As for `optimize`.
        input_shapes: Shape to bind, by input name.
        budget_s: Seconds after which it gives up.

    Raises:
        CollageError: If the model cannot be used or no toolchain answers.
    """
    from collage.commands.inspect import inspect as inspect_model
    from collage.options import OptimizeOptions as Options
    from collage.report.shown import ShownInspectReport as Report
    from collage_core.ir.io.model_io import model_given

    options = Options(
        toolchains=_listed(toolchains),
        exclude=tuple(exclude),
        input_shapes=dict(input_shapes or {}),
        budget_s=budget_s,
    )
    return Report.of(inspect_model(model_given(model), options))


def bench(
    *files: str | os.PathLike[str],
    toolchains: Names = None,
    exclude: Sequence[str] = (),
    plans: Sequence[str | os.PathLike[str]] = (),
    progress: Progress | bool | None = None,
    **options: Unpack[BenchKeywords],
) -> ShownBenchReport:
    """Time packages and single toolchains, interleaved, each in a process of its own.

    Args:
        *files: Packages, and at most one model, which adds every single toolchain.
        toolchains: As for `optimize`.
        exclude: As for `optimize`.
        plans: Plan files of your own, each of which takes part.
        progress: As for `optimize`.
        **options: Any other field of `collage.options.BenchOptions`, such as `compare`, which adds every single
            toolchain on a package's model.

    Raises:
        CollageError: If a file cannot be used, or several models are given.
        TypeError: If there is no such option.
    """
    from pathlib import Path

    from collage.commands.bench import bench as time_files
    from collage.options import BenchOptions as Options
    from collage.report.progress import progress_wanted
    from collage.report.shown import ShownBenchReport as Report

    _check_names("bench", options, Options)
    wanted = Options(
        toolchains=_listed(toolchains), exclude=tuple(exclude), plans=tuple(Path(each) for each in plans), **options
    )
    return Report.of(time_files([Path(each) for each in files], wanted, progress=progress_wanted(progress)))


def compare(
    model: GivenModel,
    package: str | os.PathLike[str],
    *,
    rtol: float | None = None,
    atol: float = 1e-6,
    seed: int = 0,
    inputs: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    reference: str | None = None,
    input_shapes: Mapping[str, Shape] | None = None,
) -> ShownCompareReport:
    """Compare what a package computes with ONNX's reference, at its outputs and between its kernels.

    Args:
        model: The model that the package was made from, as for `optimize`.
        package: Path of the package.
        rtol: Largest error relative to a tensor's scale; for integers, the share of elements that may differ. A few
            times what the plan showed when it was made if None.
        atol: Largest absolute difference that passes at any scale.
        seed: Seed of the random inputs.
        inputs: Values of the inputs, or an NPZ file that holds them; random ones if None.
        reference: Toolchain that computes what ONNX's evaluator cannot; the first exact one if None.
        input_shapes: Which plan of a package that has several, and sizes of a plan for a range.

    Returns:
        The differences; `passed` says whether all are within the tolerance.

    Raises:
        CollageError: If a file cannot be used, or the package was not made from this model.
    """
    from collage.commands.compare import compare as compare_values
    from collage.report.shown import ShownCompareReport as Report
    from collage_core.ir.io.model_io import model_given

    return Report.of(
        compare_values(
            model_given(model),
            package,
            rtol=rtol,
            atol=atol,
            seed=seed,
            inputs=inputs,
            reference=reference,
            input_shapes=input_shapes,
        )
    )


def explain(
    plan: str | os.PathLike[str] | Optimized | OptimizedShapes | Record, *, everything: bool = False
) -> Explanation:
    """Say why each region of a plan went where it did.

    Args:
        plan: Path of a package, a result of `optimize`, or its record.
        everything: Whether to name every node of every region and refusal.

    Raises:
        CollageError: If the file is not a package.
    """
    import os

    from collage.report.facts.record import Record as Facts
    from collage.report.shown import Explanation as Explained

    if isinstance(plan, str | os.PathLike):
        from collage.report.documents.codec import record_from_document
        from collage.runtime.package import load_package

        records = [record_from_document(each.record, os.fspath(plan)) for each in load_package(plan).plans]
    elif isinstance(plan, Facts):
        records = [plan]
    else:
        records = list(plan.records)
    return Explained(records, everything)


def _listed(toolchains: Names) -> str | None:
    """Return toolchains as text with commas."""
    return toolchains if toolchains is None or isinstance(toolchains, str) else ",".join(toolchains)


def _check_names(function: str, given: Mapping[str, Any], options: type) -> None:
    """Check that all options exist.

    Raises:
        TypeError: If one does not, as Python does for a keyword.
    """
    import dataclasses

    from collage_core.errors import did_you_mean

    known = [field.name for field in dataclasses.fields(options)]
    for name in given:
        if name not in known:
            raise TypeError(f"{function}() has no option {name!r}{did_you_mean(name, known)}")


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
