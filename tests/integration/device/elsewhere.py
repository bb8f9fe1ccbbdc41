"""A package run where nothing but the package is known: `python -m tests.integration.device.elsewhere PACKAGE X Y`.

Reads inputs from an NPZ file, runs three times (to warm up, to capture, to replay), writes the outputs of the last run
to another, and says on standard output, in JSON, how kernels were launched and what was imported.
"""

from __future__ import annotations

import json
import sys

import numpy as np

import collage


def main(package: str, given: str, made: str) -> None:
    session = collage.load(package)
    with np.load(given) as arrays:
        feeds = dict(arrays)
    for _ in range(3):
        outputs = session.run(None, feeds)
    np.savez(made, **dict(zip([output.name for output in session.get_outputs()], outputs, strict=True)))
    facts = {
        "launches": [[launch.device, launch.mode, len(launch.steps), launch.reason] for launch in session.launches],
        "substitutes": len(session.report().substitutes),
        "modules": sorted(sys.modules),
    }
    print(json.dumps(facts))


if __name__ == "__main__":
    main(*sys.argv[1:])
