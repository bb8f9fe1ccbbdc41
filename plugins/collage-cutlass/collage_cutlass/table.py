"""The table of what is taken, in Markdown, made of the patterns: `python -m collage_cutlass.table`."""

from __future__ import annotations

from collage_cutlass.activations import ACTIVATIONS
from collage_cutlass.architectures import ARCHITECTURES
from collage_cutlass.menu import TILES
from collage_cutlass.numbers import NUMBERS
from collage_cutlass.patterns import FORMS, NEVER
from collage_cutlass.problem import Source

_COLUMNS = {Source.NONE: "bias, residual before", Source.AFTER: "bias; residual after", Source.SCALE: "scale, bias"}
_OPERATORS = {"conv": "Conv", "matmul": "MatMul, Gemm"}


def table() -> str:
    """One row for each operator and activation, then types, devices, and what is refused."""
    rows = [f"| Operators | Activation | {' | '.join(_COLUMNS.values())} |", "|---|---|---|---|---|"]
    for stem, operators in _OPERATORS.items():
        for activation in ACTIVATIONS:
            named = {
                form.source: name for name, form in FORMS.items() if (form.stem, form.activation) == (stem, activation)
            }
            cells = [f"`{named[source]}`" if source in named else "-" for source in _COLUMNS]
            rows.append(f"| {operators} | {activation or 'none'} | {' | '.join(cells)} |")
    rows += ["", "| Numbers | In memory | Multiplied by | Extents in multiples of | Tiles |", "|---|---|---|---|---|"]
    for name, numbers in NUMBERS.items():
        cores = "tensor cores" if "TensorOp" in numbers.operator_class else "float32 units"
        rows.append(f"| {name} | {numbers.dtype.name} | {cores} | {numbers.access} | {len(TILES[name])} |")
    rows += ["", "| Compiled for | Compute capability |", "|---|---|"]
    rows += [f"| `sm_{each.name}` | {each.specifier} |" for each in ARCHITECTURES]
    rows += ["", "| Refused | Why |", "|---|---|"]
    rows += [f"| `{name}` | {reason} |" for name, (_, reason) in NEVER.items()]
    return "\n".join(rows)


if __name__ == "__main__":
    print(table())
