"""Profile a run, kernel by kernel."""

from __future__ import annotations

import dataclasses
import statistics
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StepProfile:
    """Times of one step.

    Attributes:
        name: Call-site id, or a description of the host's work.
        target: Name of the target that ran it; `"host"` for Collage itself.
        nodes: Names of the nodes it computes.
        starts_us: Start of each execution, in microseconds since the start of the profile.
        samples_us: Duration of each execution, in the same order.
    """

    name: str
    target: str
    nodes: tuple[str, ...]
    starts_us: tuple[float, ...]
    samples_us: tuple[float, ...]

    @property
    def median_us(self) -> float:
        """Median time of one run of the step."""
        return statistics.median(self.samples_us)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Times of several runs of an executable.

    Attributes:
        steps: In execution order.
    """

    steps: tuple[StepProfile, ...]

    def chrome_trace(self) -> dict[str, Any]:
        """Return the profile as JSON for `chrome://tracing` and Perfetto, one row per target.

        Format: "Trace Event Format", complete events (`"ph": "X"`, microseconds).
        """
        rows = {target: row for row, target in enumerate(dict.fromkeys(step.target for step in self.steps))}
        events: list[dict[str, Any]] = [
            {"ph": "M", "name": "thread_name", "pid": 0, "tid": row, "args": {"name": target}}
            for target, row in rows.items()
        ]
        for step in self.steps:
            for start, duration in zip(step.starts_us, step.samples_us, strict=True):
                events.append(
                    {
                        "ph": "X",
                        "name": step.name,
                        "cat": step.target,
                        "pid": 0,
                        "tid": rows[step.target],
                        "ts": start,
                        "dur": duration,
                        "args": {"nodes": list(step.nodes)},
                    }
                )
        return {"traceEvents": events, "displayTimeUnit": "ms"}
