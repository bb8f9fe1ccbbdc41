"""The demo: optimize a re-weighted ResNet-50 and a segmenter, save both, run them, compare with every toolchain.

Usage:
    python -m benchmarks.demo [--out DIR]

Each step is the command a user would type; it is printed before it runs.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.models.__main__ import main as write_models

NAMES = ("resnet50", "segmenter")
LIBRARIES = "onnxruntime,openvino"
"""Toolchains that run whole models."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; return the exit status of the first failing step."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.demo", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("demo-out"), metavar="DIR")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    console = Console()
    began = time.monotonic()
    console.print(f"writing {' and '.join(NAMES)} with seeded random weights to {options.out}")
    write_models([*NAMES, "--out", str(options.out)])
    database = options.out / "tuning.sqlite"
    for name in NAMES:
        model, package = options.out / f"{name}.onnx", options.out / f"{name}.collage"
        for step in (
            ["optimize", str(model), "-o", str(package), "--tuning-db", str(database), "--preset", "quick"],
            ["run", str(package)],
            ["compare", str(model), str(package)],
            ["bench", str(package), "--compare", "--toolchains", LIBRARIES, "--rounds", "12"],
        ):
            console.print(f"\n[bold]$ collage {shlex.join(step)}[/bold]", soft_wrap=True)
            status = subprocess.run([sys.executable, "-m", "collage.cli", *step], check=False).returncode
            if status != 0:
                return status
    console.print(f"\ndone in {time.monotonic() - began:.0f} s; `collage explain {package}` says why each kernel won")
    return 0


if __name__ == "__main__":
    sys.exit(main())
