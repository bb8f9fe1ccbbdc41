"""The page of `benchmarks.suite`: a row for every plan that the judge timed, and what they are all together."""

from __future__ import annotations

import collections
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table

from benchmarks.judge.report import ratio_said, rounds_said
from benchmarks.page import head, lines_of, machine

_LOWER = {
    "openvino-bf16": "all by OpenVINO in bfloat16",
    "openvino-int8": "all products by OpenVINO in 8-bit integers",
    "onnxruntime-int8": "all products by ONNX Runtime in 8-bit integers",
}
"""Contenders of one toolchain and one lower precision, and what they are."""


def contender(contenders: Sequence[Mapping[str, Any]], name: str) -> Mapping[str, Any] | None:
    """Return a contender that ran from a judge's report; None if there is none of this name."""
    return next((c for c in contenders if c["name"] == name and "latency_ms" in c), None)


def verdict(result: Mapping[str, Any]) -> str:
    """Recommend what a user should do with this model on this machine."""
    targets, plan = result["targets"], result["plan"]
    eight, products = (sum(region.get(key, 0) for region in plan) for key in ("int8", "products"))
    integers = f", {eight} of {products} products in int8" if eight else ""
    return _told(targets, len(plan)) + integers


def _told(targets: Sequence[str], kernels: int) -> str:
    if len(targets) > 1:
        return f"mix {' and '.join(targets)}, {kernels} kernels"
    return f"use {targets[0]}" + (f", in {kernels} kernels" if kernels > 1 else "")


_CALLED = ("run ms", "best single run", "ms", "ratio", "95 %")


def headings(results: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the headings of `rows`: those of runs as users call them only where the judge timed such runs."""
    called = _CALLED if _timed_as_called(results) else ()
    return ("model", "verdict", "predicted ms", "plan ms", "best single", "ms", "ratio", "95 %", *called, "error")


def rows(results: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Yield the results as text under `headings`.

    There is one row per model and run of the judge, one for the plan without a toolchain where one was made, and one
    for each contender of lower precision that ran.
    """
    timed_as_called = _timed_as_called(results)

    def figures(contenders: Sequence[Mapping[str, Any]], name: str) -> tuple[str, ...]:
        called = _judged(as_called(contenders), name) if timed_as_called else ()
        return *_judged(contenders, name), *called

    for result in results:
        for contenders in result["judged"]:
            error = f"{result['max_error']:.1e}" + ("" if result["numbers_pass"] else " WRONG")
            if result.get("max_error_allowed") and (plan := contender(contenders, "collage")) is not None:
                error += f", {_error(plan):.1e} by the judge"
            yield (
                result["name"],
                verdict(result),
                f"{result['predicted_ms']:.2f}",
                *figures(contenders, "collage"),
                error,
            )
            if (left := result.get("without")) and left["targets"]:
                told = f"(without {left['toolchain']}: {_told(left['targets'], left['kernels'])})"
                shown = figures(contenders, f"without-{left['toolchain']}")
                yield result["name"], told, f"{left['predicted_ms']:.2f}", *shown, ""
            for name, what in _LOWER.items():
                if (ran := contender(contenders, name)) is not None and ran["max_error"] is not None:
                    yield result["name"], f"({what})", "", *figures(contenders, name), f"{ran['max_error']:.1e}"


def _timed_as_called(results: Sequence[Mapping[str, Any]]) -> bool:
    return any(as_called(contenders) for result in results for contenders in result["judged"])


def as_called(contenders: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the contenders with the figures of runs as users call them in place of those of bound runs."""
    return [{"name": c["name"], "kind": c["kind"], **c["as_called"]} for c in contenders if "as_called" in c]


def _judged(contenders: Sequence[Mapping[str, Any]], name: str) -> tuple[str, str, str, str, str]:
    singles = [c for c in contenders if c["kind"] == "single" and "latency_ms" in c]
    best = next((c for c in singles if c["ratio_vs_best_single"]["ratio"] == 1.0), None)
    against = ("none", "") if best is None else (best["name"], f"{best['latency_ms']['p50']:.2f}")
    ran = contender(contenders, name)
    if ran is None:
        return "failed", *against, "", ""
    low, high = ran["ratio_vs_best_single"]["ci95"]
    return (
        f"{ran['latency_ms']['p50']:.2f}",
        *against,
        f"{ran['ratio_vs_best_single']['ratio']:.3f}",
        f"{low:.3f} - {high:.3f}",
    )


def summary(results: Sequence[Mapping[str, Any]]) -> str:
    """Say in sentences what lower precision under a bound brings over all models.

    A ratio is that of bound calls. The best whole-model plan of one precision is the fastest contender but Collage that
    keeps to the bound, those in float32 included.
    """
    of_float32, of_best, own_errors, errors = [], [], [], []
    for result in results:
        for contenders in result["judged"]:
            plan = contender(contenders, "collage")
            if plan is None:
                continue
            ratio = plan["ratio_vs_best_single"]["ratio"]
            others = [
                each["ratio_vs_best_single"]["ratio"]
                for each in contenders
                if each["name"] != "collage" and "latency_ms" in each and _error(each) <= result["max_error_allowed"]
            ]
            of_float32.append(ratio)
            of_best.append(ratio / min(others))
            own_errors.append(result["max_error"])
            errors.append(_error(plan))
    bound = max(result["max_error_allowed"] for result in results)
    own, judged = ([error for error in each if error > bound] for each in (own_errors, errors))
    plans = [c for result in results for contenders in result["judged"] if (c := contender(contenders, "collage"))]
    upper = max(c["ratio_vs_best_single"]["ci95"][1] for c in plans)
    faster = [1 / statistics.geometric_mean(ratios) for ratios in (of_float32, of_best)]
    return (
        f"Over {len(of_float32)} models, plans are {faster[0]:.2f} times as fast as the best toolchain in float32, and "
        f"{faster[1]:.2f} times as fast as the best plan "
        f"for the whole model of one toolchain and one precision that keeps to {bound:g} (geometric means). {len(own)} "
        f"exceed that bound by `collage compare`, which compares before a final Softmax; {len(judged)} on the judge's "
        f"own inputs, compared as they are, the largest by {max(errors):.4f}. The largest upper end of an interval is "
        f"{upper:.3f}."
    )


def gains(results: Sequence[Mapping[str, Any]]) -> str:
    """Say in sentences how much faster plans in the models' own types are than the best single toolchain."""
    suite = [result for result in results if not result["generated"]]
    groups = {"suite": suite, "generator": [each for each in results if each["generated"]]}
    said = [_gain(each, f"the {name}'s {len(each)} models") for name, each in groups.items() if each]
    if len(said) > 1:
        said.append(_gain(results, f"all {len(results)}"))
    uppers = {result["name"]: _upper(result) for result in results}
    worst = max(uppers, key=lambda name: uppers[name])
    longest = max(results, key=lambda result: float(result["seconds"]["total"]))
    return (
        f"Geometric means of the ratios of bound calls: {'; '.join(said)}. The largest upper end of an interval is "
        f"{uppers[worst]:.3f}, of {worst}. The longest search took {longest['seconds']['total']:.0f} s, of "
        f"{longest['name']}.{_builds(results)}"
    )


def _builds(results: Sequence[Mapping[str, Any]]) -> str:
    """Say what building kernels took of the toolchain that plans were also made without; nothing if unknown."""
    said = ""
    for toolchain in sorted({result["without"]["toolchain"] for result in results if result.get("without")}):
        built = {result["name"]: result.get("built", {}).get(toolchain) for result in results}
        known = {name: each for name, each in built.items() if each is not None}
        if not known:
            continue
        most = max(known, key=lambda name: known[name]["seconds"])
        said += (
            f" Of {toolchain}, {sum(each['kernels'] for each in known.values())} kernels were built for {len(known)} "
            f"models: in {known[most]['seconds']:.1f} s at most for a model, {most}, and in "
            f"{max(each['longest'] for each in known.values()):.1f} s for a kernel with all its variants."
        )
    return said


def _gain(results: Sequence[Mapping[str, Any]], which: str) -> str:
    """Say how much faster plans are; one without a toolchain is the same plan where it has no kernel of that."""
    plans = [_ratio(result, "collage") for result in results]
    said = f"over {which} plans are {1 / statistics.geometric_mean(plans):.3f} times as fast as the best toolchain"
    toolchains = {result["without"]["toolchain"] for result in results if result.get("without")}
    for toolchain in sorted(toolchains):
        names = [f"without-{toolchain}" if result["without"]["targets"] else "collage" for result in results]
        ratios = [_ratio(result, name) for result, name in zip(results, names, strict=True)]
        said += f" ({1 / statistics.geometric_mean(ratios):.3f} without {toolchain})"
    return said


def _ratio(result: Mapping[str, Any], name: str) -> float:
    """Return the ratio of a contender to the best single toolchain, over all runs of the judge; 1 if it failed."""
    ran = [contender(contenders, name) for contenders in result["judged"]]
    return statistics.geometric_mean([1.0 if each is None else each["ratio_vs_best_single"]["ratio"] for each in ran])


def _upper(result: Mapping[str, Any]) -> float:
    """Return the largest upper end of the intervals of a plan, bound and as called; infinite if it failed."""
    ways = [way for contenders in result["judged"] for way in (contenders, as_called(contenders))]
    ran = [contender(way, "collage") for way in ways if way]
    return max(math.inf if each is None else float(each["ratio_vs_best_single"]["ci95"][1]) for each in ran)


def _error(judged: Mapping[str, Any]) -> float:
    """Return the error of a contender's outputs; infinite if it is not known."""
    return math.inf if judged["max_error"] is None else float(judged["max_error"])


def table(results: Sequence[Mapping[str, Any]]) -> Table:
    """Format the suite as a table."""
    shown = Table(title="plan against the best single toolchain, by the outside judge")
    for heading in headings(results):
        left = heading in ("model", "verdict", "best single", "best single run")
        shown.add_column(heading, justify="left" if left else "right")
    for row in rows(results):
        shown.add_row(*row)
    return shown


def _machines(results: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return how many models were run on each machine."""
    return dict(collections.Counter(machine(result["environment"]["host"]) for result in results))


def markdown(results: Sequence[Mapping[str, Any]]) -> str:
    """Format the suite as a page: the machine, the versions, the table."""
    environment = results[-1]["environment"]
    protocol = environment["protocol"]
    protocols = sorted((result["environment"]["protocol"] for result in results), key=lambda each: int(each["rounds"]))
    said = list(dict.fromkeys(map(rounds_said, protocols)))
    rounds = said[0] + (f" (of some models: {' or '.join(said[1:])})" if said[1:] else "")
    ratios = " Or: ".join(dict.fromkeys(map(ratio_said, protocols)))
    how = (
        f"Judged by `benchmarks/harness.py`, which imports nothing of Collage: {rounds}. In each round every "
        f"contender, in a process of its own, runs for {protocol['seconds']} s after {protocol['warmup_s']} s of "
        f"warm-up. {ratios} "
        "Errors are relative to the output's scale, on inputs the search did not see."
    )
    if _timed_as_called(results):
        how += (
            " `plan ms` to `95 %` are of calls bound beforehand; `run ms` and what follows are as users call them: "
            "`session.run` of Collage and of ONNX Runtime, OpenVINO's compiled model called with arrays."
        )
    if len(machines := _machines(results)) > 1:
        how += f" Machines: {'; '.join(f'{name}, {count} models' for name, count in machines.items())}."
    threads = f"{environment['threads']} threads per contender"
    lines = head("Plans against the best single toolchain", environment, how, threads)
    lines += lines_of(headings(results), rows(results))
    if any(result.get("max_error_allowed") for result in results):
        lines += ["", summary(results)]
    elif all("generated" in result for result in results):
        lines += ["", gains(results)]
    return "\n".join(lines) + "\n"
