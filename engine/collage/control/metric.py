"""`--metric`: a function of the user's own that says how good a model's outputs are."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeAlias

from collage.errors import MetricError
from collage_core.errors import UsageError
from collage_core.ir.io.special_files import why_no_file

Values: TypeAlias = Mapping[str, Any]
"""Arrays by name."""
Metric: TypeAlias = Callable[[Sequence[Values], Sequence[Values]], float]
"""Says how good outputs are; more is better.

It is called with the outputs of each labelled sample, by output name, and with all arrays of each sample: the model's
inputs and the labels.
"""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class UserMetric:
    """A metric, and how much less of it a plan may reach.

    Attributes:
        name: For reports.
        function: Says how good outputs are.
        max_drop: By how much it may be less for a plan than for the model in its own types, in the metric's unit.
        version: Hash of the file that it was read from; empty if it was given in Python, and may change unseen.
    """

    name: str
    function: Metric
    max_drop: float
    version: str = ""

    @classmethod
    def read(cls, given: str | Metric, max_drop: float) -> Self:
        """Read a metric.

        Args:
            given: `FILE.py:FUNCTION`, or the function.
            max_drop: See `max_drop`.

        Raises:
            UsageError: If there is no such file or function.
        """
        if callable(given):
            return cls(name=getattr(given, "__name__", "metric"), function=given, max_drop=max_drop)
        file, colon, name = given.rpartition(":")
        path = Path(file)
        if not colon or path.suffix != ".py" or not name.isidentifier():
            raise UsageError(f"--metric is FILE.py:FUNCTION, not {given!r}")
        if reason := why_no_file(path):
            raise UsageError(f"--metric: {path}: {reason}")
        return cls(name=name, function=_function(path, name), max_drop=max_drop, version=metric_version(given))

    def of(self, outputs: Sequence[Values], samples: Sequence[Values]) -> float:
        """Return the metric of the outputs of samples.

        Args:
            outputs: By output name, for each sample, at least one.
            samples: All arrays of each sample, by name.

        Raises:
            MetricError: If it fails, or is no finite number.
        """
        try:
            found = float(self.function(outputs, samples))
        except Exception as error:  # whatever the user's code raises
            given = f"outputs are {', '.join(outputs[0])}; arrays of a sample are {', '.join(samples[0])}"
            raise MetricError(self.name, f"it raised {type(error).__name__}: {error} ({given})") from error
        if not math.isfinite(found):
            raise MetricError(self.name, f"it returned {found}, which is no finite number")
        return found


def metric_version(given: str) -> str:
    """Return a hash of the file of a metric.

    Args:
        given: `FILE.py:FUNCTION`.

    Raises:
        OSError: If the file cannot be read.
    """
    return hashlib.sha256(Path(given.rpartition(":")[0]).read_bytes()).hexdigest()


def _function(path: Path, name: str) -> Metric:
    """Return a function of a file.

    Raises:
        UsageError: If it cannot be had.
    """
    spec = importlib.util.spec_from_file_location(f"collage_metric_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever the user's code raises
        raise UsageError(f"--metric: {path} cannot be imported: {type(error).__name__}: {error}") from error
    found = getattr(module, name, None)
    if not callable(found):
        functions = sorted(key for key, value in vars(module).items() if inspect.isfunction(value))
        raise UsageError(f"--metric: {path} has no function {name!r}, but {', '.join(functions) or 'none at all'}")
    try:
        inspect.signature(found).bind([], [])
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"--metric: {name} of {path} has to take two arguments, outputs and samples: {error}"
        ) from error
    checked: Metric = found
    return checked
