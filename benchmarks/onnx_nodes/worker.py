"""Run cases by name, as requested on standard input.

Usage: python -m benchmarks.onnx_nodes.worker BACKEND
"""

from __future__ import annotations

import dataclasses
import sys

from benchmarks.onnx_nodes.backends import backend
from benchmarks.onnx_nodes.cases import Cases
from collage_testing.kit.isolated import serve


def main() -> None:
    """Answer requests until the input ends."""
    with backend(sys.argv[1]) as (tested, toolchains):
        cases = Cases(tested, toolchains)
        serve(lambda name: dataclasses.asdict(cases.run(name)))


if __name__ == "__main__":
    main()
