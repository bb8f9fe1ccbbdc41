"""Tables of supported patterns and requirements for the README, made from the pattern table and the host checks.

python -m collage_cublas.table                      prints them
python -m collage_cublas.table --write README.md    puts them into a page, between its marks
"""

from __future__ import annotations

from collections.abc import Iterator

from collage_cublas.library import Epilogue
from collage_cublas.loading import OLDEST_VERSION, spelt
from collage_cublas.patterns import FORMS, NEVER, Form
from collage_cublas.plugin import OLDEST_CAPABILITY
from collage_cublas.reading import DTYPES
from collage_cuda import OLDEST_DRIVERS
from collage_cuda.readme_tables import ReadmeTables, table_rows

_BEFORE = ((False, False), (True, False), (False, True), (True, True))
"""Values of `transposed` and `scaled`, one pair per column."""


def tables() -> str:
    """Return all tables, in Markdown."""
    return "\n".join([*_needs(), "", *_forms(), "", *_refusals()])


def _needs() -> Iterator[str]:
    drivers = ", ".join(f"{oldest} for CUDA {major}" for major, oldest in OLDEST_DRIVERS.items())
    yield from table_rows(
        ("Needs", ""),
        [
            ("cuBLASLt", f"{spelt(OLDEST_VERSION)} or newer, of CUDA {' or '.join(map(str, OLDEST_DRIVERS))}"),
            ("driver", f"{drivers}, or newer"),
            ("compute capability", f"{'.'.join(map(str, OLDEST_CAPABILITY))} or newer"),
            ("types", f"{', '.join(DTYPES)}; sums are float32"),
        ],
    )


def _forms() -> Iterator[str]:
    """Yield the table's lines: rows for operators after the product, columns for those before it or between."""
    forms = set(FORMS.values())
    rows = []
    for activation in (Epilogue.DEFAULT, Epilogue.RELU, Epilogue.GELU):
        for bias, residual in ((False, False), (True, False), (False, True), (True, True)):
            plain = Form(bias=bias, residual=residual, activation=activation)
            takes = [
                Form(bias=bias, residual=residual, activation=activation, transposed=transposed, scaled=scaled) in forms
                for transposed, scaled in _BEFORE
            ]
            viewed = Form(bias=bias, residual=residual, activation=activation, viewed=True) in forms
            rows.append((_after(plain), *(_mark(each) for each in (*takes, viewed)), f"`{_names(activation, bias)}`"))
    yield from table_rows(
        (
            "Added, then applied",
            "plain",
            "Transposes before",
            "a number as factor",
            "both",
            "a view after the product",
            "`CUBLASLT_EPILOGUE_`",
        ),
        rows,
    )


def _after(form: Form) -> str:
    parts = [name for name, there in (("bias", form.bias), ("residual", form.residual)) if there]
    activation = {Epilogue.RELU: "Relu", Epilogue.GELU: "Gelu (tanh)"}.get(form.activation, "")
    return ", ".join(filter(None, [" + ".join(parts), activation])) or "nothing"


def _names(activation: Epilogue, bias: bool) -> str:
    if activation == Epilogue.DEFAULT:
        return "BIAS" if bias else "DEFAULT"
    return f"{activation.name}_BIAS" if bias else str(activation.name)


def _refusals() -> Iterator[str]:
    yield from table_rows(
        ("Never", "Why"),
        [(name.removeprefix("cublas.").replace("_", " "), reason) for name, (_, reason) in NEVER.items()],
    )


def _mark(there: bool) -> str:
    return "yes" if there else "-"


README = ReadmeTables("collage_cublas.table", tables)


if __name__ == "__main__":
    README.main()
