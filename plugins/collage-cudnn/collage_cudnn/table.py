"""What the plugin takes, as the tables in its README: made of the patterns.

python -m collage_cudnn.table                      prints them
python -m collage_cudnn.table --write README.md    puts them into a page, between its marks
"""

from __future__ import annotations

from collage_cuda.readme_tables import ReadmeTables, table_rows
from collage_cudnn.activations import ACTIVATIONS
from collage_cudnn.patterns import FORMS, NEVER


def table() -> str:
    """Return the table in Markdown: a row per group with its activations, then one per refused group."""
    stems: dict[str, list[str]] = {}
    for name in FORMS:
        stem, activation = _split(name)
        stems.setdefault(stem, []).append(activation)
    groups = []
    for stem, activations in stems.items():
        form = next(form for name, form in FORMS.items() if _split(name)[0] == stem)
        then = ", ".join(filter(None, activations))
        groups.append((f"`{stem}`", form.operators, then, form.dtypes))
    refused = [(f"`{name}`", reason) for name, (_, reason) in NEVER.items()]
    taken = table_rows(("Composite", "Operators", "Then", "Types"), groups)
    return "\n".join([*taken, "", *table_rows(("Refused", "Why"), refused)])


def _split(name: str) -> tuple[str, str]:
    """Split a form's name into the name without its activation, and the activation."""
    endings = [activation for activation in ACTIVATIONS if name.endswith(f"_{activation}")]
    activation = max(endings, key=len, default="")
    return (name.removesuffix(f"_{activation}"), activation) if activation else (name, "")


README = ReadmeTables("collage_cudnn.table", table)


if __name__ == "__main__":
    README.main()
