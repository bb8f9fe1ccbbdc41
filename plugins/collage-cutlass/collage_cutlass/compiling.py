"""Check that the whole menu compiles: `python -m collage_cutlass.compiling --folder FOLDER`.

A kernel is a template with a type, layouts, a tile and an epilogue. Each template is compiled with each
type, layout and tile. Epilogues rotate, so that each template is compiled with each of them, too, but not
each with each tile, since an epilogue does not depend on the tile.
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
"""Time limit of one kernel, in seconds."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Result of compiling one kernel.

    Attributes:
        kernel: The kernel.
        architecture: Architecture it was compiled for.
        seconds: Compile time; 0 if the library existed already.
        size_bytes: Size of the library.
        problem: Why there is no library; empty if there is one.
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
    """Yield kernels that cover every type, layout and tile of a device, and every epilogue, for each template."""
    for kind, tile_type in TEMPLATES:
        epilogues = itertools.cycle(_epilogues())
        for layout, numbers in itertools.product((False, True) if kind == "gemm" else (False,), NUMBERS.values()):
            for tile in tiles_of(tile_type, numbers, architecture, by_columns=layout):
                activation, source = next(epilogues)
                yield Kernel(
                    kind=kind, numbers=numbers, activation=activation, source=source, tile=tile, b_by_columns=layout
                )


def _epilogues() -> list[tuple[str, Source]]:
    """Return each functor with each use of the source tensor, the operand besides the bias.

    Without an activation, adding after it equals adding before it, so that case is left out.
    """
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
    """Compile kernels in parallel, except those whose libraries exist.

    Args:
        compiler: Compiles libraries.
        kernels: Kernels to compile, with their architectures.
        folder: Folder of libraries, each under a name derived from everything that determines its bytes.
        jobs: Number of parallel compilations.
        clock: Returns the time in seconds.

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
    """Compile the menu of each architecture; report each kernel's outcome and the number of kernels."""
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
