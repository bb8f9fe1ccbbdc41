"""What `benchmarks/gpu.py` runs: cases, the contenders of each, and the packages that Collage's contenders need."""

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
"""The toolchains for GPUs, native code generation first, in the order in which the paper's ablation adds them; TensorRT
in either edition, since a device is served by one of them."""
TOOLCHAINS = tuple(name for step in STEPS for name in step)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """What all contenders of a case compute in.

    Attributes:
        name: As on the command line.
        dtype: Of the exported model and of PyTorch's module; inputs and outputs are float32 in all of them.
        tf32: Whether products and convolutions of float32 may round to TF32.
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
"""What `collage optimize` is allowed in TF32, whose products are right to three digits. Other precisions are those of
the model itself: nothing has to be allowed."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One model at one batch and precision: one race.

    Attributes:
        name: Of the architecture.
        batch: Examples of a run.
        precision: Of all contenders.
    """

    name: str
    batch: int
    precision: Precision

    @property
    def key(self) -> str:
        """What results and files of it are known by."""
        return f"{self.name}-b{self.batch}-{self.precision.name}"

    def files(self, work: Path) -> Files:
        """Its model, weights, inputs and expected outputs."""
        return Files(folder=work, name=self.name, batch=self.batch, dtype=self.precision.dtype)


def cases(names: Iterable[str], batches: Sequence[int], precisions: Iterable[str]) -> list[Case]:
    """Every model at every batch and precision, by model last: what is done first is comparable.

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
    """What `collage optimize` makes for one contender.

    Attributes:
        path: The package; its report is beside it.
        toolchains: As for `--toolchains`.
    """

    path: Path
    toolchains: str

    @property
    def report(self) -> Path:
        """What `collage optimize` says of it, as JSON."""
        return self.path.with_suffix(".json")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Entrant:
    """A contender of a case.

    Attributes:
        contender: For the judge.
        package: What has to be made before it can start; None if nothing.
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
"""Who runs unless `--only` says otherwise; each of `--toolchains` alone does, too."""


def known(toolchains: str) -> tuple[str, ...]:
    """Every contender there is, each toolchain alone last."""
    rows = (step.contender for step in ablation(toolchains))
    return tuple(dict.fromkeys((*_TORCH, *_RUNTIMES, COLLAGE, *rows, *alone(toolchains))))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A row of the ablation.

    Attributes:
        added: The toolchains that the row before has not.
        toolchains: All that Collage mixes in it, as for `--toolchains`.
        contender: Who runs it: one toolchain alone in the first, `COLLAGE` in the last.
    """

    added: tuple[str, ...]
    toolchains: str
    contender: str


def ablation(toolchains: str) -> list[Step]:
    """Native code generation, and one toolchain more in each step, as the paper adds them; others than `STEPS` last.

    Args:
        toolchains: What Collage mixes.

    Returns:
        Nothing if there is only one step, which compares nothing.

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
    """The toolchain of a target's name.

    Examples:
        >>> toolchain_of("triton(precision=tf32)@cuda:0")
        'triton'
    """
    return re.split(r"[(@]", target)[0]


def usable(targets: Iterable[str], device: str) -> list[str]:
    """The toolchains of `TOOLCHAINS` that have a target on a device.

    Args:
        targets: By name, as `collage doctor` lists them.
        device: Which.
    """
    there = {toolchain_of(target) for target in targets if target.endswith(f"@{device}")}
    return [name for name in TOOLCHAINS if name in there]


def alone(toolchains: str) -> tuple[str, ...]:
    """The toolchains of a list, commas inside parentheses excepted.

    Examples:
        >>> alone("cublas,triton(precision=tf32,x=1)")
        ('cublas', 'triton(precision=tf32,x=1)')
    """
    return tuple(part.strip() for part in re.split(r",(?![^(]*\))", toolchains) if part.strip())


def entrants(
    case: Case, work: Path, only: Sequence[str] | None, toolchains: str, device: str = "cuda:0"
) -> list[Entrant]:
    """Who runs in a case, in the order in which they are set up.

    Args:
        case: Which.
        work: Folder of its files.
        only: Names, of `known`; None for `STANDARD`, the rows of the ablation and each toolchain alone.
        toolchains: What Collage mixes, and each alone.
        device: What they run on.

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
    """Writes what a case needs."""
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
    """Makes a package, as a user would.

    Args:
        package: Which.
        case: Of which model.
        work: Folder of its files and of the tuning database.
        targets: Every target there is, by name, as `collage doctor` lists them.
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
    """Whether it computes in less than TF32, which an allowed error would let in."""
    precision = re.search(r"precision=(\w+)", target)
    return precision is not None and precision[1] not in ("fp32", "tf32")
