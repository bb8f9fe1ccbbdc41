"""Work of `benchmarks/gpu.py`: cases, the contenders of each, and the packages that Collage's contenders need."""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from benchmarks.judge.contender import CONTENDERS, Contender, Kind
from benchmarks.models.torch_zoo.files import Files

COLLAGE, MAX_AUTOTUNE, EAGER = "collage", "max-autotune", "torch-eager"

STEPS = (("triton",), ("cublas",), ("cudnn",), ("cutlass",), ("tensorrt", "tensorrt_rtx"))
"""The GPU toolchains in the order in which the paper's ablation adds them, native code generation first.

TensorRT stands for either edition, since a device is served by one of them.
"""
TOOLCHAINS = tuple(name for step in STEPS for name in step)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """Precision in which all contenders of a case compute.

    Attributes:
        name: Name on the command line.
        dtype: Type of the exported model and of PyTorch's module; inputs and outputs are always float32.
        tf32: Whether float32 products and convolutions may round to TF32.
    """

    name: str
    dtype: str = "float32"
    tf32: bool = False


PRECISIONS = {
    precision.name: precision
    for precision in (
        Precision(name="fp32"),
        Precision(name="tf32", tf32=True),
        Precision(name="fp16", dtype="float16"),
        Precision(name="bf16", dtype="bfloat16"),
    )
}
MAX_ERROR = 0.02
"""Error allowed to `collage optimize` in TF32, whose products are accurate to three digits.

Other precisions are those of the model itself and need no allowance.
"""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One model at one batch and precision: one race.

    Attributes:
        name: Name of the architecture.
        batch: Examples per run.
        precision: Precision of all contenders.
    """

    name: str
    batch: int
    precision: Precision

    @property
    def key(self) -> str:
        """Key of its results and files."""
        return f"{self.name}-b{self.batch}-{self.precision.name}"

    def files(self, work: Path) -> Files:
        """Return the paths of the case's model, weights, inputs and expected outputs."""
        return Files(folder=work, name=self.name, batch=self.batch, dtype=self.precision.dtype)


def cases(names: Iterable[str], batches: Sequence[int], precisions: Iterable[str]) -> list[Case]:
    """Return every model at every batch and precision, models varying fastest, so that early races are comparable.

    Raises:
        KeyError: If there is no such precision.
    """
    known = list(names)
    return [
        Case(name=name, batch=batch, precision=PRECISIONS[precision])
        for precision in precisions
        for batch in batches
        for name in known
    ]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A package that `collage optimize` makes for one contender.

    Attributes:
        path: The package; its report is beside it.
        toolchains: In the syntax of `--toolchains`.
    """

    path: Path
    toolchains: str

    @property
    def report(self) -> Path:
        """File of the report of `collage optimize`, in JSON."""
        return self.path.with_suffix(".json")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Entrant:
    """A contender of a case.

    Attributes:
        contender: The judge's contender.
        package: Package that must be made before it can start; None if it needs none.
    """

    contender: Contender
    package: Package | None = None


_TORCH: Mapping[str, tuple[Kind, Mapping[str, str]]] = {
    EAGER: ("outside", {}),
    "torch-eager-launched": ("default", {"graph": "false"}),
    "torch-eager-channels-last": ("outside", {"channels_last": "true"}),
    MAX_AUTOTUNE: ("outside", {"mode": "max-autotune"}),
    "max-autotune-frozen": ("outside", {"mode": "max-autotune", "freezing": "true"}),
}
_RUNTIMES = {"onnxruntime-cuda": "onnxruntime_cuda.py", "tensorrt-engine": "tensorrt_engine.py"}
STANDARD = (EAGER, MAX_AUTOTUNE, *_RUNTIMES, COLLAGE)
"""Contenders that run unless `--only` is given; each of `--toolchains` alone runs, too."""


def known(toolchains: str) -> tuple[str, ...]:
    """Return the names of all contenders, the single toolchains last."""
    rows = (step.contender for step in ablation(toolchains))
    return tuple(dict.fromkeys((*_TORCH, *_RUNTIMES, COLLAGE, *rows, *alone(toolchains))))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A row of the ablation.

    Attributes:
        added: The toolchains that the previous row lacks.
        toolchains: All toolchains that Collage mixes, in the syntax of `--toolchains`.
        contender: Name of the contender: one toolchain alone in the first row, `COLLAGE` in the last.
    """

    added: tuple[str, ...]
    toolchains: str
    contender: str


def ablation(toolchains: str) -> list[Step]:
    """Return the ablation steps: native code generation, then one more toolchain per step, as in the paper.

    Toolchains not in `STEPS` come last.

    Args:
        toolchains: Toolchains that Collage mixes.

    Returns:
        The steps; empty if there is only one, which compares nothing.

    Examples:
        >>> [step.contender for step in ablation("cublas,cudnn,triton")]
        ['triton', 'triton+cublas', 'collage']
    """
    left = list(alone(toolchains))
    groups = [tuple(each for each in left if toolchain_of(each) in step) for step in STEPS]
    groups.append(tuple(each for each in left if toolchain_of(each) not in TOOLCHAINS))
    found: list[Step] = []
    mixed: tuple[str, ...] = ()
    for group in filter(None, groups):
        mixed += group
        contender = COLLAGE if len(mixed) == len(left) else "+".join(mixed)
        found.append(Step(added=group, toolchains=",".join(mixed), contender=contender))
    return found if len(found) > 1 else []


def toolchain_of(target: str) -> str:
    """Return the toolchain of a target's name.

    Examples:
        >>> toolchain_of("triton(precision=tf32)@cuda:0")
        'triton'
    """
    return re.split(r"[(@]", target)[0]


def usable(targets: Iterable[str], device: str) -> list[str]:
    """Return the toolchains of `TOOLCHAINS` that have a target on a device.

    Args:
        targets: Names of targets, as `collage doctor` lists them.
        device: Device name, such as `cuda:0`.
    """
    there = {toolchain_of(target) for target in targets if target.endswith(f"@{device}")}
    return [name for name in TOOLCHAINS if name in there]


def alone(toolchains: str) -> tuple[str, ...]:
    """Split a list of toolchains at its commas, except inside parentheses.

    Examples:
        >>> alone("cublas,triton(precision=tf32,x=1)")
        ('cublas', 'triton(precision=tf32,x=1)')
    """
    return tuple(part.strip() for part in re.split(r",(?![^(]*\))", toolchains) if part.strip())


def entrants(
    case: Case, work: Path, only: Sequence[str] | None, toolchains: str, device: str = "cuda:0"
) -> list[Entrant]:
    """Return the contenders of a case, in the order in which they are set up.

    Args:
        case: Case to run.
        work: Directory of its files.
        only: Names out of `known`; None for `STANDARD`, the rows of the ablation and each toolchain alone.
        toolchains: Toolchains that Collage mixes; each also runs alone.
        device: Device of all contenders.

    Raises:
        ValueError: If a name is unknown.
    """
    rows = {step.contender: step.toolchains for step in ablation(toolchains)}
    names = (*STANDARD, *rows, *alone(toolchains)) if only is None else tuple(only)
    strangers = [name for name in names if name not in known(toolchains)]
    if strangers:
        raise ValueError(f"no contender {', '.join(strangers)}; there are {', '.join(known(toolchains))}")
    files = case.files(work)
    common = {"device": device, "tf32": str(case.precision.tf32).lower()}
    mixes = {**rows, COLLAGE: toolchains}
    return [_entrant(name, case, files, mixes, common) for name in dict.fromkeys(names)]


def _entrant(name: str, case: Case, files: Files, mixes: Mapping[str, str], common: Mapping[str, str]) -> Entrant:
    if name in _TORCH:
        kind, own = _TORCH[name]
        options = {"model": str(files.weights), "architecture": case.name, "dtype": case.precision.dtype}
        file = CONTENDERS / "torch_module.py"
        return Entrant(contender=Contender(name=name, file=file, kind=kind, options={**options, **common, **own}))
    if name in _RUNTIMES:
        return Entrant(contender=Contender(name=name, file=CONTENDERS / _RUNTIMES[name], kind="single", options=common))
    mixed = mixes.get(name, name)  # in the package's name, too: what was made of others is another package
    label = re.sub(r"[^\w.-]+", "_", "+".join(sorted(alone(mixed))))
    package = Package(path=files.folder / f"{case.key}.{label}.collage", toolchains=mixed)
    contender = Contender(
        name=name,
        file=CONTENDERS / "collage_package.py",
        kind="single" if mixed == name else "outside",
        options={"model": str(package.path), "device": common["device"]},
    )
    return Entrant(contender=contender, package=package)


def prepare_command(case: Case, work: Path, seed: int) -> list[str]:
    """Return the command that writes the files of a case."""
    command = [sys.executable, "-m", "benchmarks.models.torch_zoo", case.name, "--out", str(work)]
    return [*command, "--batch", str(case.batch), "--dtype", case.precision.dtype, "--seed", str(seed)]


def optimize_command(
    package: Package,
    case: Case,
    work: Path,
    targets: Sequence[str],
    settings: Mapping[str, str],
    device: str = "cuda:0",
) -> list[str]:
    """Return the command that makes a package, as a user would run it.

    Args:
        package: Package to make.
        case: Case of the package.
        work: Directory of its files and of the tuning database.
        targets: Names of all targets, as `collage doctor` lists them.
        settings: Options of `collage optimize` by name, without dashes; empty ones are left out.
        device: The only GPU that takes part.
    """
    files = case.files(work)
    command = [sys.executable, "-m", "collage.cli", "optimize", str(files.model), "-o", str(package.path)]
    command += ["--toolchains", package.toolchains, "--tuning-db", str(work / "tuning.sqlite")]
    command += ["--json", str(package.report), "--inputs", str(files.inputs)]
    for name, value in settings.items():
        command += [f"--{name}", value] if value else []
    if case.precision.tf32:
        command += ["--max-error", str(MAX_ERROR)]
    toolchains = set(map(toolchain_of, alone(package.toolchains)))
    for target in targets:
        coarse = case.precision.tf32 and _is_too_coarse(target)
        elsewhere = "@cuda:" in target and not target.endswith(f"@{device}")
        if toolchain_of(target) in toolchains and (coarse or elsewhere):
            command += ["--exclude", target]
    return command


def _is_too_coarse(target: str) -> bool:
    """Return whether a target's precision is below TF32, which an allowed error would admit."""
    precision = re.search(r"precision=(\w+)", target)
    return precision is not None and precision[1] not in ("fp32", "tf32")
