"""The table of what is taken, in Markdown, made of the patterns: `python -m collage_cudnn.table`."""

from __future__ import annotations

from collage_cudnn.activations import ACTIVATIONS
from collage_cudnn.patterns import FORMS, NEVER


def table() -> str:
    """One row for each group with all activations that may end it, then one for each that is refused."""
    rows = ["| Composite | Operators | Then | Types |", "|---|---|---|---|"]
    stems: dict[str, list[str]] = {}
    for name in FORMS:
        stem, activation = _split(name)
        stems.setdefault(stem, []).append(activation)
    for stem, activations in stems.items():
        form = next(form for name, form in FORMS.items() if _split(name)[0] == stem)
        then = ", ".join(filter(None, activations))
        rows.append(f"| `{stem}` | {form.operators} | {then} | {form.dtypes} |")
    rows += ["", "| Refused | Why |", "|---|---|"]
    rows += [f"| `{name}` | {reason} |" for name, (_, reason) in NEVER.items()]
    return "\n".join(rows)


def _split(name: str) -> tuple[str, str]:
    """A form's name without its activation, and that."""
    endings = [activation for activation in ACTIVATIONS if name.endswith(f"_{activation}")]
    activation = max(endings, key=len, default="")
    return (name.removesuffix(f"_{activation}"), activation) if activation else (name, "")


if __name__ == "__main__":
    print(table())
