"""Compiles the whole menu, to see that it does: `python -m collage_cutlass.compiling --folder FOLDER`.

A kernel is a template with a type, layouts, a tile and an epilogue. Each template is compiled with each type, layout
and tile. Epilogues take turns, so that each template is compiled with each of them, too; not each with each tile, of
which an epilogue knows nothing.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from collage_cutlass.activations import FUNCTORS
from collage_cutlass.architectures import ARCHITECTURES, Architecture
from collage_cutlass.menu import tiles_of
from collage_cutlass.numbers import NUMBERS
from collage_cutlass.problem import Source
from collage_cutlass.source import TEMPLATES, Kernel
from collage_cutlass.toolkit import CompileError, Compiler, MissingToolError, find_compiler, library_key

LIMIT_S = 1800.0
"""Seconds one kernel may take."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of one kernel.

    Attributes:
        kernel: It.
        architecture: What it was compiled for.
        seconds: How long it took; 0 if it was there already.
        size_bytes: Of the library.
        problem: Why there is none; empty if there is.
    """

    kernel: Kernel
    architecture: Architecture
    seconds: float = 0.0
    size_bytes: int = 0
    problem: str = ""

    def __str__(self) -> str:
        of = self.kernel
        layout = ", b by columns" if of.b_by_columns else ""
        what = f"sm_{self.architecture.name} {of.kind}{layout} {of.numbers.name} {of.tile.name}"
        came = self.problem or f"{self.seconds:.0f} s, {self.size_bytes} bytes"
        return f"{what} {of.activation} {of.source.value}: {came}"


def menu(architecture: Architecture) -> Iterator[Kernel]:
    """Kernels by which each template has met every type, layout and tile that a device has, and every epilogue."""
    for kind, tile_type in TEMPLATES:
        epilogues = itertools.cycle(_epilogues())
        for layout, numbers in itertools.product((False, True) if kind == "gemm" else (False,), NUMBERS.values()):
            for tile in tiles_of(tile_type, numbers, architecture, by_columns=layout):
                activation, source = next(epilogues)
                yield Kernel(
                    kind=kind, numbers=numbers, activation=activation, source=source, tile=tile, b_by_columns=layout
                )


def _epilogues() -> list[tuple[str, Source]]:
    """Each functor with each use of the tensor beside the bias; what follows no activation precedes none, too."""
    both = itertools.product(FUNCTORS, Source)
    return [(functor, source) for functor, source in both if (functor, source) != ("Identity", Source.AFTER)]


def compile_all(
    compiler: Compiler,
    kernels: Iterable[tuple[Architecture, Kernel]],
    folder: Path,
    *,
    jobs: int = 1,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Outcome]:
    """Compiles kernels side by side, but for those whose libraries are there.

    Args:
        compiler: Makes libraries.
        kernels: What to compile, and for what.
        folder: Of libraries, each under a name that says all that has a say in its bytes.
        jobs: How many at a time.
        clock: In seconds.

    Returns:
        Outcomes in the order of the kernels.
    """

    def compiled(architecture: Architecture, kernel: Kernel) -> Outcome:
        path = folder / f"{library_key(compiler, kernel.text, architecture.flags).rpartition('/')[2]}.so"
        outcome = Outcome(kernel=kernel, architecture=architecture)
        start = clock()
        try:
            if not path.exists():
                path.write_bytes(compiler.compiled(kernel.text, architecture.flags, LIMIT_S))
                outcome = dataclasses.replace(outcome, seconds=clock() - start)
        except CompileError as error:
            return dataclasses.replace(outcome, seconds=clock() - start, problem=str(error))
        return dataclasses.replace(outcome, size_bytes=path.stat().st_size)

    with ThreadPoolExecutor(max_workers=jobs) as pool:
        yield from pool.map(lambda each: compiled(*each), kernels)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compiles the menu of each architecture, says what came of each kernel, and how many there are."""
    parser = argparse.ArgumentParser(prog="collage_cutlass.compiling", description=main.__doc__)
    names = [each.name for each in ARCHITECTURES]
    parser.add_argument("--architecture", choices=names, action="append", help="of these only; all if not given")
    parser.add_argument("--folder", type=Path, required=True, help="keeps libraries; what is there is not made again")
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="each Nth only, to see some of all sorts")
    given = parser.parse_args(arguments)
    try:
        compiler = find_compiler()
    except MissingToolError as missing:
        print(missing, file=sys.stderr)
        return 1
    given.folder.mkdir(parents=True, exist_ok=True)
    wanted = [each for each in ARCHITECTURES if each.name in (given.architecture or names)]
    kernels = [(architecture, kernel) for architecture in wanted for kernel in menu(architecture)]
    outcomes = []
    for outcome in compile_all(compiler, kernels[:: given.every], given.folder, jobs=given.jobs):
        print(outcome, flush=True)
        outcomes.append(outcome)
    made = [each for each in outcomes if not each.problem]
    print(
        f"{len(made)} of {len(outcomes)} kernels ({len(kernels)} in the menu) compiled by {compiler.identity}; "
        f"{sum(each.seconds for each in outcomes):.0f} s of one core, {sum(each.size_bytes for each in made)} bytes"
    )
    return 0 if len(made) == len(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
