"""Page with the results of `benchmarks/gpu_variants.py`, and whether they are what Collage promises."""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.page import head, lines_of
from benchmarks.variant_race import WORSE, verdict

COUNTED = ("better", "same", "no different", "worse")


def describe(row: Mapping[str, Any]) -> str:
    """Format the result of one toolchain on one layer as a line."""
    if "failed" in row:
        return f"{row['toolchain']}: {row['failed']}"
    median, word = row["median_us"], verdict(row)
    if word == "same":
        return f"{row['toolchain']}: {row['first']}, {median['first']:.2f} us, the first of {row['tried']}"
    return (
        f"{row['toolchain']}: {row['chosen']}, {median['chosen']:.2f} us, of {row['tried']}; {row['first']}, the "
        f"first, {median['first']:.2f} us; ratio {row['ratio']:.3f} ({_range(row)}), {word}"
    )


def fastest(layer: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the row with the fastest chosen kernel, the one that Collage would use for the layer alone."""
    ran = [row for row in layer["toolchains"] if "failed" not in row]
    return min(ran, key=lambda row: (row["median_us"]["chosen"], row["toolchain"]), default=None)


def beaten(layers: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the layers on which the choice of the fastest toolchain beats the first choice of its library."""
    return [layer["key"] for layer in layers if (row := fastest(layer)) is not None and verdict(row) == "better"]


def shortcomings(report: Mapping[str, Any]) -> list[str]:
    """Return the unmet criteria as sentences.

    The result is empty if the choice beats the first on at least half of the layers and is never worse.
    """
    layers = report["layers"]
    found = []
    if 2 * len(beaten(layers)) < len(layers):
        found.append(f"The choice beats the library's first on {len(beaten(layers))} of {len(layers)} layers only.")
    worse = ((layer, row) for layer in layers for row in layer["toolchains"] if verdict(row) == "worse")
    return [*found, *(f"{layer['key']}: the choice is worse. {describe(row)}" for layer, row in worse)]


def markdown(report: Mapping[str, Any]) -> str:
    """Format the report as a Markdown page."""
    settings, layers, names = report["settings"], report["layers"], report["toolchains"]
    how = (
        f"Layers of real models in {report['dtype']}, each alone, its weights in the device's cache. A toolchain makes "
        f"up to {settings['variants']} variants, its library's first choice first, and the code of a search checks "
        "and times them and keeps the fastest. First and chosen ones of all toolchains are then timed again in one "
        f"process, in turns within each of {settings['rounds']} rounds, as a plan launches them: microseconds are "
        "medians over rounds, a ratio is that of chosen to first by round, its interval (95 %) a bootstrap over "
        f"rounds. Better: the interval ends below 1. Worse: it begins above {WORSE}."
    )
    lines = head("Chosen variants against the library's first choice", report, how, str(report["device"]))
    count = len(beaten(layers))
    worse = sum(verdict(row) == "worse" for layer in layers for row in layer["toolchains"])
    lines += [
        f"On {count} of {len(layers)} layers the choice of the fastest toolchain beats the first choice of its library;"
        f" {f'{worse} choices are worse' if worse else 'no choice is worse'} than their library's first.",
        "",
        *lines_of(("toolchain", "layers taken", *COUNTED), _counts(layers, names)),
        "",
        "Chosen, first (ratio of both, its interval):",
        "",
        *lines_of(("layer", "", "GFLOP", *names), _rows(layers, names)),
    ]
    for title, items in (
        ("What does not hold:", shortcomings(report)),
        ("What was not taken:", _refused(layers)),
        ("Not here:", [f"{name}: {reason}" for name, reason in report["unusable"].items()]),
    ):
        listed = [f"- {item}" for item in items]
        lines += ["", title, "", *listed] if listed else []
    return "\n".join(lines) + "\n"


def _counts(layers: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for name in names:
        rows = [row for layer in layers for row in layer["toolchains"] if row["toolchain"] == name]
        words = collections.Counter(filter(None, map(verdict, rows)))
        yield name, f"{words.total()} of {len(rows)}", *(str(words[word]) for word in COUNTED)


def _rows(layers: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for layer in layers:
        rows = {row["toolchain"]: row for row in layer["toolchains"]}
        best = fastest(layer)
        cells = (_cell(rows[name], rows[name] is best) for name in names)
        yield layer["key"], layer["about"], f"{layer['gflop']:.2f}", *cells


def _cell(row: Mapping[str, Any], is_fastest: bool) -> str:
    if "failed" in row:
        return "-"
    chosen, first = (f"{row['median_us'][name]:.2f}" for name in ("chosen", "first"))
    chosen = f"**{chosen}**" if is_fastest else chosen
    return (
        f"{chosen}, the first" if verdict(row) == "same" else f"{chosen}, {first} ({row['ratio']:.2f}, {_range(row)})"
    )


def _range(row: Mapping[str, Any]) -> str:
    low, high = row["ci95"]
    return f"{low:.2f} - {high:.2f}"


def _refused(layers: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    said: dict[tuple[str, str], list[str]] = {}
    for layer in layers:
        for row in layer["toolchains"]:
            if "failed" in row:
                said.setdefault((row["toolchain"], row["failed"]), []).append(layer["key"])
    for (name, reason), where in said.items():
        yield f"{name}: {reason} ({'; '.join(where)})"
