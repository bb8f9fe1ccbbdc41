"""`--metric`: a function of the user's own that says how good a model's outputs are."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import inspect
import os
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
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
inputs and the labels. The arrays are read-only.
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
            given: `FILE.py:FUNCTION`, or the function. What the file imports may lie beside it.
            max_drop: See `max_drop`.

        Raises:
            UsageError: If there is no such file or function.
        """
        if callable(given):
            name = getattr(given, "__name__", "metric")
            return cls(name=name, function=_taking_two(given, name), max_drop=max_drop)
        path, name = _parsed(given)
        code = _code(path)
        function = _function(path, code, name)
        return cls(name=name, function=function, max_drop=max_drop, version=hashlib.sha256(code).hexdigest())

    def of(self, outputs: Sequence[Values], samples: Sequence[Values]) -> float:
        """Return the metric of the outputs of samples, which may be no finite number.

        Args:
            outputs: By output name, for each sample, at least one.
            samples: All arrays of each sample, by name.

        Raises:
            MetricError: If it fails.
        """
        try:
            with _apart():
                return float(self.function([dict(each) for each in outputs], [dict(each) for each in samples]))
        except (Exception, SystemExit) as error:  # whatever the user's code raises
            given = f"outputs are {', '.join(outputs[0])}; arrays of a sample are {', '.join(samples[0])}"
            raise MetricError(self.name, f"it raised {type(error).__name__}: {error} ({given})") from error


def metric_version(given: str) -> str:
    """Return a hash of the file of a metric; of files that this one reads or imports nothing counts.

    Args:
        given: `FILE.py:FUNCTION`.

    Raises:
        UsageError: If there is no such file.
    """
    return hashlib.sha256(_code(_parsed(given)[0])).hexdigest()


def metric_file(given: str) -> Path:
    """Return the path of the file in `FILE.py:FUNCTION`."""
    return Path(given.rpartition(":")[0])


def _parsed(given: str) -> tuple[Path, str]:
    """Return the file and the name of the function.

    Raises:
        UsageError: If the text has another form.
    """
    path, name = metric_file(given), given.rpartition(":")[2]
    if path.suffix != ".py" or not name.isidentifier():
        raise UsageError(f"--metric is FILE.py:FUNCTION, not {given!r}")
    return path, name


def _code(path: Path) -> bytes:
    """Return what a file holds.

    Raises:
        UsageError: If it cannot be read.
    """
    if reason := why_no_file(path):
        raise UsageError(f"--metric: {path}: {reason}")
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"--metric: {path} cannot be read: {error.strerror}") from error


def _function(path: Path, code: bytes, name: str) -> Metric:
    """Return a function of a file, whose code is not taken from a cache.

    Raises:
        UsageError: If it cannot be had.
    """
    module = types.ModuleType(f"collage_metric_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # as dataclasses of the file expect
    folder = str(path.resolve().parent)
    try:
        with _apart():
            sys.path.insert(0, folder)
            try:
                exec(compile(code, str(path), "exec"), vars(module))  # the user's own file
            finally:
                sys.path.remove(folder)
    except (Exception, SystemExit) as error:  # whatever the user's code raises
        raise UsageError(f"--metric: {path} cannot be imported: {type(error).__name__}: {error}") from error
    found = getattr(module, name, None)
    if not callable(found):
        functions = sorted(key for key, value in vars(module).items() if inspect.isfunction(value))
        raise UsageError(f"--metric: {path} has no function {name!r}, but {', '.join(functions) or 'none at all'}")
    return _taking_two(found, f"{name} of {path}")


def _taking_two(function: Metric, what: str) -> Metric:
    """Return a function as it is.

    Raises:
        UsageError: If it does not take outputs and samples.
    """
    try:
        inspect.signature(function).bind([], [])
    except (TypeError, ValueError) as error:
        raise UsageError(f"--metric: {what} has to take two arguments, outputs and samples: {error}") from error
    return function


@contextlib.contextmanager
def _apart() -> Iterator[None]:
    """Keep the working directory, and what is printed from standard output, which may hold JSON."""
    folder = os.getcwd()  # put back below
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.chdir(folder)
