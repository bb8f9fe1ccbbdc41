"""Draw what benchmarks measured.

Usage:
    python -m benchmarks.plots suite RESULTS.json OUT.svg           each plan's time, of the best single toolchain's
    python -m benchmarks.plots predictions RESULTS.json OUT.svg     what plans were predicted to take, and took
    python -m benchmarks.plots regret RESULTS.json OUT.svg          the best plan that is known, and what searches keep
    python -m benchmarks.plots groups RESULTS.json OUT.svg          Halide's kernels against plans of the libraries
    python -m benchmarks.plots search PACKAGE.collage OUT.svg       the best plan over the time of one search
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.suite_page import contender

_BLUE, _GREY, _ORANGE = "#0072b2", "#777777", "#e69f00"
"""Colours that colour-blind readers can distinguish: M. Okabe and K. Ito, "Color Universal Design" (2008)."""
_STYLE: Final[Any] = {"svg.fonttype": "none", "svg.hashsalt": "collage", "font.size": 9}
"""Text stays text, and equal results give equal files."""


def suite(report: Mapping[str, Any]) -> Any:
    """Return a figure of the suite's ratios with their intervals, the fastest plan on top.

    Args:
        report: Results of `benchmarks.suite`.
    """
    found = []
    for model in report["models"]:
        plan = contender(model["judged"][-1], "collage")
        if plan is not None:
            found.append((plan["ratio_vs_best_single"], model))
    found.sort(key=lambda each: -each[0]["ratio"])
    figure, axes = _figure(7.5, 1.2 + 0.24 * len(found))
    for place, (ratio, model) in enumerate(found):
        mixed = len(model["targets"]) > 1
        _interval(axes, place, ratio, _BLUE if mixed else _GREY)
        others = [each for each in model["judged"][-1] if "without" in each["name"]]
        if others and "latency_ms" in others[0]:
            _interval(axes, place - 0.28, others[0]["ratio_vs_best_single"], _ORANGE)
    axes.axvline(1.0, color="black", linewidth=0.8, linestyle="dashed")
    axes.set_yticks(range(len(found)), [model["name"] for _, model in found])
    axes.set_xlabel("time of the plan, of the best single toolchain's (95 % interval)")
    axes.set_xlim(0, None)
    _legend(axes, {"a mix": _BLUE, "one toolchain": _GREY, "without Halide": _ORANGE})
    return figure


def predictions(report: Mapping[str, Any]) -> Any:
    """Return a figure of predicted against measured times, both at the machine's usual speed.

    Args:
        report: Results of `benchmarks.predictions`.
    """
    plans = [plan for model in report["models"] for plan in model["plans"]]
    figure, axes = _figure(5.5, 5.5)
    for name, colour in (("alone_ms", _ORANGE), ("predicted_ms", _BLUE)):
        axes.scatter([plan[name] for plan in plans], [plan["usual_ms"] for plan in plans], s=12, color=colour)
    ends = [min(plan["usual_ms"] for plan in plans), max(plan["usual_ms"] for plan in plans)]
    axes.plot(ends, ends, color="black", linewidth=0.8, linestyle="dashed")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("predicted, ms")
    axes.set_ylabel("measured, ms")
    _legend(axes, {"kernels measured alone": _ORANGE, "after timing in place": _BLUE})
    return figure


def regret(report: Mapping[str, Any]) -> Any:
    """Return a figure of the best known plan of each model, and of what replayed searches keep.

    Args:
        report: Results of `benchmarks.regret replay`.
    """
    found = []
    for model in report["models"]:
        best = model["plans"][model["best"]]["us"] / model["single"]["us"]
        kept = {"ratio": best * (1 + model["regret"]), "ci95": (best, best * (1 + model["worst"]))}
        found.append((best, kept, model["name"]))
    found.sort(key=lambda each: -each[0])
    figure, axes = _figure(7.5, 1.2 + 0.2 * len(found))
    for place, (best, kept, _) in enumerate(found):
        _interval(axes, place, kept, _ORANGE)
        axes.plot([best], [place], marker="|", markersize=8, color=_BLUE)
    axes.axvline(1.0, color="black", linewidth=0.8, linestyle="dashed")
    axes.set_yticks(range(len(found)), [name for *_, name in found], fontsize=7)
    axes.set_xlabel("time of the plan, of the best single toolchain's")
    axes.set_xlim(0, None)
    kept_name = "kept by the search: median and worst of the replays"
    _legend(axes, {"best plan known": _BLUE, kept_name: _ORANGE}, {"best plan known": "|"})
    return figure


def groups(report: Mapping[str, Any]) -> Any:
    """Return a figure of what Halide's kernels take of the time of the libraries' best plans.

    Args:
        report: Results of `benchmarks.fused_groups race`.
    """
    if any("ratio" not in group for group in report["groups"]):
        raise SystemExit("these groups did not race: give the results of `benchmarks.fused_groups race`")
    found = sorted(report["groups"], key=lambda group: -float(group["ratio"]))
    figure, axes = _figure(7.5, 1.2 + 0.2 * len(found))
    for place, group in enumerate(found):
        _interval(axes, place, group, _BLUE if group["ratio"] <= 1 else _ORANGE)
    for ratio in (0.5, 1.0):
        axes.axvline(ratio, color="black", linewidth=0.8, linestyle="dashed")
    axes.set_yticks(range(len(found)), [f"{group['kind']} ({group['model']})" for group in found], fontsize=7)
    axes.set_xlabel("time of Halide's kernel, of the libraries' best plan (95 % interval)")
    axes.set_xlim(0, None)
    return figure


def search(record: Mapping[str, Any]) -> Any:
    """Return a figure of the best plan that was known over the time of a search.

    Args:
        record: Record of a plan, as its package keeps it.
    """
    history = record["search"]["history"]
    if not history:
        raise SystemExit("this plan was given, so there was no search")
    end = 1.05 * history[-1]["seconds"]
    figure, axes = _figure(7.0, 3.2)
    times = [*(each["seconds"] for each in history), end]
    best = [*(each["predicted_ms"] for each in history), history[-1]["predicted_ms"]]
    axes.step(times, best, where="post", color=_BLUE)
    for each in record["comparison"]["contenders"]:
        alone = each["alone_ms"] or each["predicted_ms"]
        if each["kind"] == "single" and alone and alone <= 2 * max(best):
            axes.axhline(alone, color=_GREY, linewidth=0.8, linestyle="dashed")
            axes.text(end, alone, each["name"], ha="right", va="bottom", fontsize=8)
    axes.set_xlabel("seconds")
    axes.set_ylabel("best plan known, ms predicted")
    axes.set_ylim(0, None)
    return figure


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw one plot."""
    import matplotlib as mpl

    mpl.use("svg")
    drawn: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
        "suite": suite,
        "predictions": predictions,
        "regret": regret,
        "groups": groups,
        "search": search,
    }
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.plots", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=drawn)
    parser.add_argument("source", type=Path)
    parser.add_argument("picture", type=Path)
    options = parser.parse_args(arguments)
    with mpl.rc_context(_STYLE):
        figure = drawn[options.kind](_read(options.source))
        figure.savefig(options.picture, metadata={"Date": None}, bbox_inches="tight")
    return 0


def _read(source: Path) -> Any:
    if source.suffix == ".json":
        return json.loads(source.read_text(encoding="utf-8"))
    from collage.runtime.package import load_package

    return load_package(source).plan.record


def _figure(width: float, height: float) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    axes = figure.subplots()
    axes.grid(axis="x", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure, axes


def _interval(axes: Any, place: float, ratio: Mapping[str, Any], colour: str) -> None:
    low, high = ratio["ci95"]
    axes.plot([low, high], [place, place], color=colour, linewidth=3, alpha=0.5, solid_capstyle="butt")
    axes.plot([ratio["ratio"]], [place], marker="o", markersize=4, color=colour)


def _legend(axes: Any, colours: Mapping[str, str], markers: Mapping[str, str] | None = None) -> None:
    from matplotlib.lines import Line2D

    forms = markers or {}
    handles = [
        Line2D([], [], color=colour, marker=forms.get(name, "o"), linestyle="", label=name)
        for name, colour in colours.items()
    ]
    axes.legend(handles=handles, loc="best", frameon=False, fontsize=8)


if __name__ == "__main__":
    sys.exit(main())
