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
_RUNTIMES = {"onnxruntime-cuda": "onnxruntime_cuda.py", "tensorrt": "tensorrt_engine.py"}
STANDARD = (EAGER, MAX_AUTOTUNE, *_RUNTIMES, COLLAGE)
"""Who runs unless `--only` says otherwise; each of `--toolchains` alone does, too."""


def known(toolchains: str) -> tuple[str, ...]:
    """Every contender there is, each toolchain alone last."""
    return (*_TORCH, *_RUNTIMES, COLLAGE, *alone(toolchains))


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
        only: Names, of `known`; None for `STANDARD` and each toolchain alone.
        toolchains: What Collage mixes, and each alone.
        device: What they run on.

    Raises:
        ValueError: If a name is unknown.
    """
    names = (*STANDARD, *alone(toolchains)) if only is None else tuple(only)
    strangers = [name for name in names if name not in known(toolchains)]
    if strangers:
        raise ValueError(f"no contender {', '.join(strangers)}; there are {', '.join(known(toolchains))}")
    files = case.files(work)
    common = {"device": device, "tf32": str(case.precision.tf32).lower()}
    return [_entrant(name, case, files, toolchains, common) for name in dict.fromkeys(names)]


def _entrant(name: str, case: Case, files: Files, toolchains: str, common: Mapping[str, str]) -> Entrant:
    if name in _TORCH:
        kind, own = _TORCH[name]
        options = {"model": str(files.weights), "architecture": case.name, "dtype": case.precision.dtype}
        file = CONTENDERS / "torch_module.py"
        return Entrant(contender=Contender(name=name, file=file, kind=kind, options={**options, **common, **own}))
    if name in _RUNTIMES:
        return Entrant(contender=Contender(name=name, file=CONTENDERS / _RUNTIMES[name], kind="single", options=common))
    mixed = name == COLLAGE
    label = "mix" if mixed else re.sub(r"[^\w.-]+", "_", name)
    package = Package(path=files.folder / f"{case.key}.{label}.collage", toolchains=toolchains if mixed else name)
    contender = Contender(
        name=name,
        file=CONTENDERS / "collage_package.py",
        kind="outside" if mixed else "single",
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
    command = [sys.executable, "-m", "collage_core.cli", "optimize", str(files.model), "-o", str(package.path)]
    command += ["--toolchains", package.toolchains, "--tuning-db", str(work / "tuning.sqlite")]
    command += ["--json", str(package.report), "--inputs", str(files.inputs)]
    for name, value in settings.items():
        command += [f"--{name}", value] if value else []
    if case.precision.tf32:
        command += ["--max-error", str(MAX_ERROR)]
    toolchains = {re.split(r"[(@]", each)[0] for each in alone(package.toolchains)}
    for target in targets:
        coarse = case.precision.tf32 and _is_too_coarse(target)
        elsewhere = "@cuda:" in target and not target.endswith(f"@{device}")
        if re.split(r"[(@]", target)[0] in toolchains and (coarse or elsewhere):
            command += ["--exclude", target]
    return command


def _is_too_coarse(target: str) -> bool:
    """Whether it computes in less than TF32, which an allowed error would let in."""
    precision = re.search(r"precision=(\w+)", target)
    return precision is not None and precision[1] not in ("fp32", "tf32")
