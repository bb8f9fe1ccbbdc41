"""Compare the variants that Collage's measurements choose with the libraries' own first choices.

Usage:
    python -m benchmarks.gpu_variants --results FILE.json [--dtype float16] [--toolchains cublas,cudnn,cutlass,triton]
        [--variants N] [--rounds N] [--minutes M] [--only PART,PART]

Thirty products and convolutions of real models (`variant_shapes.py`). On each, every toolchain makes its
variants in its own order, the library's heuristic first; they are checked, timed and chosen from by the
code that does it in a search, and then the first and the chosen ones of all toolchains are timed again in
turns (`variant_race.py`). Two conditions must hold: the choice beats the library's first on at least half
of the list, where the toolchain is the one whose kernel Collage would use, and no choice is worse than its
library's first.

A layer that is in the results is not run again. With `--minutes` no new layer is started after that time;
the same command resumes. `--device cpu` rehearses with toolchains of the CPU, and the page says so.

Exit status: 0; 1 if a condition does not hold; 2 for misuse or where no toolchain is usable; 3 if time ran out.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.gpu_steps import Clock, OutOfTimeError, gpu
from benchmarks.gpu_variants_page import describe, markdown, shortcomings
from benchmarks.judge.report import write_json
from benchmarks.page import environment
from benchmarks.variant_race import TURN, Effort, Entry, raced
from benchmarks.variant_shapes import DTYPES, SHAPES, Shape, layer_of
from collage.devices.opening import Devices
from collage.devices.providers import Providers
from collage.devices.this_host import this_host
from collage.options import PRESETS
from collage_core.contract import Host, Protocol, Unsupported
from collage_core.errors import DeviceError
from collage_core.registry import Registry

VARIANTS = 16
"""Number of results cuBLASLt's heuristic is usually queried for; a search with `--preset extensive` tries fewer."""


def parser() -> argparse.ArgumentParser:
    """Create the command-line parser."""
    result = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu_variants",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    result.add_argument("--results", type=Path, required=True, metavar="FILE.json", help="and a page beside it")
    result.add_argument("--device", default="cuda:0", help="cuda:N; cpu to rehearse")
    result.add_argument("--dtype", default="float16", choices=list(DTYPES))
    result.add_argument("--toolchains", default="cublas,cudnn,cutlass,triton", metavar="A,B")
    result.add_argument("--variants", type=int, default=VARIANTS, help="variants of each toolchain that are tried")
    result.add_argument("--preset", default="extensive", choices=list(PRESETS), help="how each is timed to be chosen")
    result.add_argument("--rounds", type=int, default=40, help="rounds of each race")
    result.add_argument("--only", default="", metavar="PART,PART", help="layers whose names have one of these in them")
    result.add_argument("--minutes", type=float, help="begin nothing new after this long")
    return result


def usable(registry: Registry, host: Host, device: str, names: Sequence[str]) -> tuple[list[Entry], dict[str, str]]:
    """Return the plain target of each toolchain on a device, and why the others have none, by name.

    Args:
        registry: Installed toolchains.
        host: This machine.
        device: Device of the targets.
        names: Names of toolchains.
    """
    entries: list[Entry] = []
    reasons: dict[str, str] = {}
    for name in names:
        if name not in registry.toolchains:
            failed = [failure.reason for failure in registry.failures if failure.name == name]
            reasons[name] = failed[0] if failed else "not installed"
            continue
        offered = registry.toolchains[name].targets(host)
        if isinstance(offered, Unsupported):
            reasons[name] = offered.reason
            continue
        here = [target for target in offered if target.device == device and target.exact and not target.on_request]
        if here:
            entries.append(Entry(toolchain=registry.toolchains[name], target=here[0], host=host))
        else:
            reasons[name] = f"it has no target on {device}"
    return entries, reasons


def run(
    shapes: Sequence[Shape],
    entries: Sequence[Entry],
    devices: Devices,
    report: dict[str, Any],
    effort: Effort,
    clock: Clock,
    results: Path,
    console: Console,
) -> None:
    """Race the layers missing in a report, and write the report after each layer.

    Args:
        shapes: Layers to race.
        entries: Toolchains that take part, with their targets.
        devices: Opens the targets' devices.
        report: Report in its file format; its `layers` are extended.
        effort: Amount of work for each layer.
        clock: Tracks the remaining time.
        results: JSON file of the report; a Markdown page is written beside it.
        console: Receives progress messages.

    Raises:
        OutOfTimeError: If time is up before all is done.
    """
    done = {layer["key"] for layer in report["layers"]}
    for shape in shapes:
        if shape.key in done:
            continue
        clock.left(effort.deadline_s, shape.key)
        console.print(f"{shape.key} ...")
        rows = raced(layer_of(shape, report["dtype"]), report["dtype"], entries, devices, effort)
        layer = {"key": shape.key, "about": shape.about, "gflop": shape.gflop, "toolchains": rows}
        report["layers"].append(layer)
        write_json(results, report)
        results.with_suffix(".md").write_text(markdown(report), encoding="utf-8")
        for row in rows:
            console.print(f"  {describe(row)}", markup=False, highlight=False)


def begun(results: Path, fresh: Mapping[str, Any]) -> dict[str, Any]:
    """Read an existing report made with the same settings; otherwise return a report with no layers.

    Raises:
        ValueError: If it has another device, dtype, toolchains or settings, whose results cannot share a page.
    """
    if not results.is_file():
        return {**fresh, "layers": []}
    found: dict[str, Any] = json.loads(results.read_text(encoding="utf-8"))
    for field in ("device", "dtype", "toolchains", "settings"):
        if found[field] != json.loads(json.dumps(fresh[field])):
            raise ValueError(f"{results} has another {field}, {found[field]}: give another file")
    return {**fresh, "layers": found["layers"]}


def main(
    arguments: Sequence[str] | None = None,
    registry: Registry | None = None,
    devices: Devices | None = None,
    shapes: Sequence[Shape] = SHAPES,
    turn: Protocol = TURN,
) -> int:
    """Run the comparison; the module says what the exit status means.

    Args:
        arguments: The command line's; those of the process if None.
        registry: Toolchains; those installed if None.
        devices: What opens devices; the installed providers if None. Given, they are no real ones, and the page says
            so.
        shapes: The list.
        turn: How one contender is timed in one round.
    """
    options = parser().parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else 150)
    start = time.monotonic()
    parts = [part for part in options.only.split(",") if part]
    wanted = [shape for shape in shapes if not parts or any(part in shape.key for part in parts)]
    preset = PRESETS[options.preset]
    protocol = preset.protocol if devices is None else turn  # a fake device's kernels take longer than it says
    effort = Effort(
        variants=options.variants, effort=preset.effort, protocol=protocol, turn=turn, rounds=options.rounds
    )
    try:
        if not wanted:
            raise ValueError(f"--only {options.only} is part of no layer's name")
        if min(options.variants, options.rounds) < 1:
            raise ValueError("--variants and --rounds are 1 or more")
        if devices is not None:
            device = "no GPU: a rehearsal on a fake one"
        else:
            device = "no GPU: a rehearsal on the CPU" if options.device == "cpu" else gpu(options.device)
        names = options.toolchains.split(",")
        entries, reasons = usable(registry or Registry.discover(), this_host(), options.device, names)
        if not entries:
            listed = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
            raise ValueError(f"no toolchain is usable on {options.device}: {listed}")
        settings = {**dataclasses.asdict(effort), "preset": preset.name}
        fresh = {"schema_version": 1, **environment(), "device": device, "dtype": options.dtype}
        fresh |= {"toolchains": [entry.toolchain.name for entry in entries], "unusable": reasons, "settings": settings}
        report = begun(options.results, fresh)
    except ValueError as error:
        print(f"gpu_variants: {error}", file=sys.stderr)
        return 2
    clock = Clock(end=None if options.minutes is None else start + 60 * options.minutes)
    opened = devices or Devices(Providers.discover().open)
    try:
        run(wanted, entries, opened, report, effort, clock, options.results, console)
    except OutOfTimeError as stopped:
        console.print(f"Time is up before {stopped}. The same command goes on from there.")
        return 3
    except DeviceError as error:
        print(f"gpu_variants: {error}", file=sys.stderr)
        return 2
    kept = {**report, "layers": [layer for layer in report["layers"] if layer["key"] in {s.key for s in wanted}]}
    found = shortcomings(kept)
    for line in found:
        console.print(line, markup=False, highlight=False)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
