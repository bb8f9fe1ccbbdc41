"""Tables of requirements and supported patterns for the README, made from the patterns and the host checks.

python -m collage_cutlass.table                      prints them
python -m collage_cutlass.table --write README.md    puts them into a page, between its marks
"""

from __future__ import annotations

from collections.abc import Iterator

from collage_cuda import OLDEST_DRIVERS
from collage_cuda.readme_tables import ReadmeTables, table_rows
from collage_cutlass.activations import ACTIVATIONS
from collage_cutlass.architectures import ARCHITECTURES
from collage_cutlass.menu import HOPPER_TILES, TILES
from collage_cutlass.numbers import LOWER, NUMBERS, Numbers
from collage_cutlass.patterns import FORMS, NEVER
from collage_cutlass.problem import Source
from collage_cutlass.toolkit import HEADERS, HEADERS_VERSION, OLDEST_NVCC

_COLUMNS = {Source.NONE: "bias, residual before", Source.AFTER: "bias; residual after", Source.SCALE: "scale, bias"}
_OPERATORS = {"conv": "Conv", "matmul": "MatMul, Gemm"}


def tables() -> str:
    """Return all tables, in Markdown."""
    parts = (_needs(), _architectures(), _forms(), _numbers(), _refusals())
    return "\n\n".join("\n".join(part) for part in parts)


def _needs() -> Iterator[str]:
    drivers = ", ".join(f"{oldest} for nvcc {major}" for major, oldest in OLDEST_DRIVERS.items())
    yield from table_rows(
        ("Needs", "", "To run a saved package"),
        [
            ("GPU", "one of the next table", "the same"),
            ("driver", f"{drivers}, or newer", "the same"),
            ("headers", f"`{HEADERS}` {HEADERS_VERSION}", "-"),
            ("nvcc", f"{'.'.join(map(str, OLDEST_NVCC))} or newer, and a C++ compiler for its host code", "-"),
        ],
    )


def _architectures() -> Iterator[str]:
    yield from table_rows(
        ("Compiled for", "Compute capability", "Products", "Convolutions"),
        [
            (f"`sm_{each.name}`", each.specifier, "CUTLASS 3.x, 2.x" if each.wgmma else "2.x", "2.x")
            for each in ARCHITECTURES
        ],
    )


def _forms() -> Iterator[str]:
    """Yield the table's lines: a row for each operator and activation."""
    rows = []
    for stem, operators in _OPERATORS.items():
        for activation in ACTIVATIONS:
            named = {
                form.source: name for name, form in FORMS.items() if (form.stem, form.activation) == (stem, activation)
            }
            cells = [f"`{named[source]}`" if source in named else "-" for source in _COLUMNS]
            rows.append((operators, activation or "none", *cells))
    yield from table_rows(("Operators", "Activation", *_COLUMNS.values()), rows)


def _numbers() -> Iterator[str]:
    yield from table_rows(
        ("Target", "Tensors", "Multiplied as", "Extents in multiples of", "Tiles of 2.x", "of 3.x"),
        [
            (
                _target(each),
                each.dtype.name,
                f"{_factors(each)}, by {'tensor cores' if each.by_tensor_cores else 'float32 units'}",
                str(each.access),
                str(len(TILES[name])),
                str(len(HOPPER_TILES.get(name, ()))),
            )
            for name, each in NUMBERS.items()
        ],
    )


def _target(numbers: Numbers) -> str:
    precision = next((name for name, each in LOWER.items() if each == numbers), "")
    return f"`cutlass(precision={precision})`" if precision else "`cutlass`"


def _factors(numbers: Numbers) -> str:
    return "TF32" if numbers == LOWER["tf32"] else (numbers.narrowed or numbers.dtype).name


def _refusals() -> Iterator[str]:
    yield from table_rows(
        ("Never", "Why"),
        [(name.removeprefix("cutlass.").replace("_", " "), reason) for name, (_, reason) in NEVER.items()],
    )


README = ReadmeTables("collage_cutlass.table", tables)


if __name__ == "__main__":
    README.main()
