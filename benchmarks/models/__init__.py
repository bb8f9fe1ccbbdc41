"""The model suite: real architectures with seeded random weights, written as ONNX files.

To add a model, write a module with a tuple `ENTRIES` of `Entry` (see `mnist` for the shortest) and name it here.
"""

from __future__ import annotations

from benchmarks.models import (
    detector,
    efficientnet,
    light,
    mnist,
    pytorch,
    segmenter,
    super_resolution,
    video,
)
from benchmarks.models.entry import Entry

FAMILIES = (light, mnist, pytorch, video, segmenter, super_resolution, efficientnet, detector)
MODELS: dict[str, Entry] = {entry.name: entry for family in FAMILIES for entry in family.ENTRIES}
