"""Report of the harness: a table, and JSON with the fields of `collage bench --json`."""

from __future__ import annotations

import dataclasses
import datetime
import importlib.metadata
import json
import math
import os
import platform
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.judge.rounds import Outcome, Protocol, fastest_of
from benchmarks.judge.statistics import Interval, latency

SCHEMA_VERSION = 1
_VERSIONS_OF = (
    *("numpy", "onnx", "onnxruntime", "openvino", "halide"),
    *("onnxruntime-gpu", "torch", "triton", "cupy-cuda13x", "cupy-cuda12x", "nvidia-cublas", "nvidia-cudnn-cu13"),
    *("tensorrt", "tensorrt-rtx-cu13-libs"),
)
_VECTOR_EXTENSIONS = {
    "avx2": "AVX2",
    "avx_vnni": "AVX-VNNI",
    "avx512f": "AVX-512",
    "avx512_vnni": "VNNI",
    "amx_tile": "AMX",
}
"""Names of extensions by Linux's flags."""


def best_single(outcomes: Sequence[Outcome], *, as_called: bool = False) -> Outcome | None:
    """Return the fastest tuned single toolchain, if one ran.

    Args:
        outcomes: As `compete` returned them.
        as_called: Whether its runs as users call them count, not its bound runs.
    """
    return fastest_of((each for each in outcomes if each.contender.kind == "single"), as_called=as_called)


def summarise(model: dict[str, Any], outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Build the part of the report on one model.

    Args:
        model: Its name, sha256 and number of nodes.
        outcomes: As `compete` returned them.

    Returns:
        JSON values. Latencies are in milliseconds. `ratio_vs_best_single` is below 1 for a contender that is faster
        than the best tuned single toolchain. `as_called` has both for runs as users call them, against the toolchain
        that is best so.
    """
    base, called = best_single(outcomes), best_single(outcomes, as_called=True)
    rows: list[dict[str, Any]] = []
    for outcome in outcomes:
        row: dict[str, Any] = {"name": outcome.contender.name, "kind": outcome.contender.kind}
        if outcome.failed is not None:
            rows.append({**row, "failed": outcome.failed})
            continue
        row["latency_ms"] = _latency_ms(outcome.rounds_us, outcome.process_rounds)
        # JSON has no infinity: outputs that do not even compare have no error.
        error = outcome.max_error
        row["max_error"] = error if error is not None and math.isfinite(error) else None
        row["comparable"] = error is not None and math.isfinite(error)
        if outcome.note:
            row["note"] = outcome.note
        if base is not None:
            ratio = outcome.ratio_to(base)
            row["ratio_vs_best_single"] = _interval(ratio)
        if called is not None and outcome.called_us:
            ratio = outcome.ratio_to(called, as_called=True)
            row["as_called"] = {
                "latency_ms": _latency_ms(outcome.called_us, outcome.process_rounds),
                "ratio_vs_best_single": _interval(ratio),
            }
        rows.append(row)
    return {
        "model": model,
        "contenders": rows,
        "best_single": base.contender.name if base else None,
        "best_single_as_called": called.contender.name if called else None,
    }


def document(models: Sequence[dict[str, Any]], protocol: Protocol) -> dict[str, Any]:
    """Build the whole report: results, machine, versions, date and protocol."""
    return {
        "schema_version": SCHEMA_VERSION,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "host": host(),
        "versions": versions(),
        "protocol": dataclasses.asdict(protocol),
        "threads": protocol.threads,
        "rounds": protocol.rounds,
        "models": list(models),
    }


def rounds_said(protocol: Mapping[str, Any]) -> str:
    """Say how many rounds there were.

    Args:
        protocol: Of a document, or with `rounds` alone. Documents before `patience` was one of its fields took as many
            rounds as were asked for; those before `process_rounds` started each contender once, and nobody left.

    Examples:
        >>> rounds_said({"rounds": 60})
        '60 rounds'
        >>> rounds_said({"rounds": 60, "patience": 3, "half_width": 0.03})
        '60 rounds, or up to 180 until the ratio of the fastest contender to each other one is known to 3% to each side'
        >>> rounds_said({"rounds": 60, "process_rounds": 6})
        '60 rounds, 6 to a process; slower toolchains leave'
        >>> rounds_said({"rounds": 60, "patience": 3, "half_width": 0.02, "process_rounds": 6})
        '60 rounds, 6 to a process, or up to 180 until ratios are known to 2% to each side; slower toolchains leave'
    """
    rounds, patience, process_rounds = protocol["rounds"], protocol.get("patience", 1), _process_rounds(protocol)
    said = f"{rounds} rounds" if process_rounds is None else f"{rounds} rounds, {process_rounds} to a process"
    if patience > 1:
        known = f"known to {protocol['half_width']:.0%} to each side"
        ratios = "the ratio of the fastest contender to each other one is" if process_rounds is None else "ratios are"
        said += f", or up to {patience * rounds} until {ratios} {known}"
    return said if process_rounds is None else f"{said}; slower toolchains leave"


def ratio_said(protocol: Mapping[str, Any]) -> str:
    """Say how a ratio and its interval come about.

    Args:
        protocol: As for `rounds_said`.

    Examples:
        >>> ratio_said({"rounds": 60})
        "The ratio is the median over rounds of both medians' quotient, its interval a bootstrap over rounds."
    """
    if _process_rounds(protocol) is None:
        return "The ratio is the median over rounds of both medians' quotient, its interval a bootstrap over rounds."
    return (
        "The ratio is the geometric mean over processes of the median over rounds of both medians' quotient, its "
        "interval Student's over processes."
    )


def _process_rounds(protocol: Mapping[str, Any]) -> int | None:
    """Return how many rounds each process took; None if there was one of each contender."""
    found: int | None = protocol.get("process_rounds")
    return None if found is None or found >= protocol.get("patience", 1) * protocol["rounds"] else found


def host() -> dict[str, Any]:
    """Describe the machine: architecture, system, CPU model, its vector extensions and number of usable cores."""
    return {
        "machine": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "cpu": cpu_model(),
        "vectors": vector_extensions(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
    }


def cpu_model() -> str:
    """Return the CPU's name as the system reports it."""
    return _cpu_field("model name") or platform.processor() or "unknown"


def vector_extensions() -> list[str]:
    """Return the extensions that libraries choose their kernels by; one CPU name may stand for several sets of them."""
    flags = _cpu_field("flags").split()
    return [name for flag, name in _VECTOR_EXTENSIONS.items() if flag in flags]


def _cpu_field(name: str) -> str:
    """Return what Linux says of the first processor; empty if there is nothing."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == name:
                return value.strip()
    return ""


def versions() -> dict[str, str]:
    """Return the versions of Python and of the relevant libraries that are installed."""
    found = {"python": platform.python_version()}
    for name in _VERSIONS_OF:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a file as a whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".tmp")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            json.dump(content, stream, indent=2, allow_nan=False)
            stream.write("\n")
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def show(summary: dict[str, Any], console: Console) -> None:
    """Print the table of one model."""
    best = summary["best_single"]
    title = f"{summary['model']['name']} ({summary['model']['nodes']} nodes)"
    table = Table(title=title, title_justify="left")
    called = ("as called ms", "ratio", "95 %")
    for heading in ("contender", "median ms", "95 %", "p90 ms", "runs", "ratio", "95 %", *called, "max error"):
        table.add_column(heading, justify="left" if heading == "contender" else "right")
    for row in summary["contenders"]:
        if "failed" in row:
            table.add_row(row["name"], "failed", end_section=False)
            continue
        times = row["latency_ms"]
        as_called = row.get("as_called")
        table.add_row(
            row["name"] + (" (best single)" if row["name"] == best else ""),
            f"{times['p50']:.3f}",
            f"{times['ci95'][0]:.3f} - {times['ci95'][1]:.3f}",
            f"{times['p90']:.3f}",
            str(times["n"]),
            *_ratio_cells(row),
            f"{as_called['latency_ms']['p50']:.3f}" if as_called else "",
            *_ratio_cells(as_called or {}),
            f"{row['max_error']:.1e}" if row["comparable"] else "differs in shape or is not finite",
        )
    console.print(table)
    for row in summary["contenders"]:
        if "failed" in row:
            console.print(f"{row['name']} failed: {row['failed']}", markup=False, highlight=False)


def _latency_ms(rounds_us: Sequence[Sequence[float]], process_rounds: int | None) -> dict[str, Any]:
    times = latency(rounds_us, process_rounds)
    return {
        "p50": times.p50_us.value / 1e3,
        "p90": times.p90_us / 1e3,
        "p99": times.p99_us / 1e3,
        "mean": times.mean_us / 1e3,
        "min": times.min_us / 1e3,
        "n": times.n,
        "ci95": [times.p50_us.low / 1e3, times.p50_us.high / 1e3],
    }


def _ratio_cells(figures: dict[str, Any]) -> tuple[str, str]:
    ratio = figures.get("ratio_vs_best_single")
    if ratio is None:
        return "", ""
    return f"{ratio['ratio']:.3f}", f"{ratio['ci95'][0]:.3f} - {ratio['ci95'][1]:.3f}"


def _interval(interval: Interval) -> dict[str, Any]:
    return {"ratio": interval.value, "ci95": [interval.low, interval.high]}
