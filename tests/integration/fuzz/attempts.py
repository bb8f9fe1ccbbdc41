"""What is done with a mutant, and how it may end.

Usage: python -m tests.integration.fuzz.attempts   (answers lines of `STAGE PATH`, see `collage_testing.kit.isolated`)
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import resource
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from collage.commands.compiler import AT_ONCE, Compiler
from collage.commands.inspect import inspect
from collage.commands.optimize import optimize
from collage.options import OptimizeOptions
from collage.prepare.steps import prepare
from collage.prepare.validity import blamed_on
from collage.report.progress import SilentProgress
from collage.setup.inputs.random_arrays import random_inputs
from collage.setup.queries import ask_targets, usable_rules
from collage.setup.settings import SetupChoices
from collage.setup.toolchains import Toolchains
from collage_core.candidates.proposals import propose
from collage_core.errors import CollageError
from collage_core.fusion import CandidateBounds
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.io.model_io import load_model
from collage_testing import MockToolchain, partition
from collage_testing.kit.isolated import serve

_FRAMES = 4
_MEMORY = 24 << 30  # of addresses: a model that wants more than a machine has must not get it


@dataclasses.dataclass(frozen=True, slots=True)
class Ending:
    """How an attempt ended.

    Attributes:
        kind: `"result"`, `"refused"` (a `CollageError`), or `"defect"`: any other exception.
        detail: The error.
    """

    kind: str
    detail: str = ""


def ended(attempt: Callable[[], object]) -> Ending:
    """Runs an attempt."""
    try:
        attempt()
    except CollageError as error:
        return Ending("refused", f"{type(error).__name__}: {error}")
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
        where = " < ".join(f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in reversed(frames))
        return Ending("defect", f"{type(error).__name__}: {error} [{where}]")
    return Ending("result")


def partitioned(path: Path) -> None:
    """Reads, prepares, indexes, partitions over mock toolchains and rewrites a model: no library, no process."""
    model = load_model(path)
    with blamed_on(model):
        partition(prepare(model), _MOCKS, bounds=_BOUNDS)


_MOCKS = (MockToolchain("one", costs_us=lambda view: 1.0), MockToolchain("two", costs_us=lambda view: 2.0))
_BOUNDS = CandidateBounds(segments=3, max_depth=3, max_candidates=200)


class Bench:
    """The installed toolchains, their workers started once for many mutants."""

    def __init__(self, toolchains: Toolchains) -> None:
        self._toolchains = toolchains
        quick = dataclasses.replace(AT_ONCE, deadline_s=20.0)
        self._compiler = Compiler(toolchains, preset=quick)

    def asked(self, path: Path) -> None:
        """What `inspect` does: every library says what it would take."""
        model = prepare(load_model(path))
        with blamed_on(model):
            graph = DataflowGraph(model)
            for rule in usable_rules(ask_targets(graph, self._toolchains, SilentProgress())):
                propose(rule, graph, _BOUNDS, cuts=None)

    def run(self, path: Path) -> None:
        """Candidates, measurements, search, kernels, and one run."""
        model = prepare(load_model(path))
        with blamed_on(model):
            inputs = random_inputs(DataflowGraph(model), 0)
        self._compiler.compile(model, inputs).session.run(None, inputs)


TINY: Mapping[str, Any] = {"preset": "quick", "warmup": 1, "iterations": 1, "duration_s": 0.001, "budget_s": 5.0}


def inspected(path: Path) -> None:
    """`collage inspect`."""
    inspect(path)


def optimized(path: Path) -> None:
    """`collage optimize`, with races that last a moment."""
    optimize(path, OptimizeOptions(tuning_db="memory:", **TINY)).session()


def main() -> None:
    """Answers until its input ends."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    with contextlib.ExitStack() as stack:

        @functools.cache
        def bench() -> Bench:
            return Bench(stack.enter_context(Toolchains(SetupChoices(tuning_db="memory:", threads=2))))

        stages: Mapping[str, Callable[[Path], object]] = {
            "partition": partitioned,
            "ask": lambda path: bench().asked(path),
            "run": lambda path: bench().run(path),
            "inspect": inspected,
            "optimize": optimized,
        }

        def answer(line: str) -> dict[str, str]:
            stage, _, path = line.partition(" ")
            return dataclasses.asdict(ended(lambda: stages[stage](Path(path))))

        serve(answer)


if __name__ == "__main__":
    main()
