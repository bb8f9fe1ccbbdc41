"""Mutated models against the driver, for as long as one likes.

Usage: python -m tests.integration.fuzz [--seconds 3600] [--seed N] [--keep DIR] [--stages partition,ask,run,...]

Every mutant must end in a result or in a `CollageError`, within the time limit. What does not is kept in the folder,
and told with what was done to it. The same seed gives the same mutants.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from collage_testing import crossed, dense, diamond, mnist, operator_models, random_model
from collage_testing.kit.isolated import IsolatedProcess, Lost
from tests.fuzzing.mutated_models import Mutant, mutated

ROOT = Path(__file__).parents[3]
LIMIT_S: Mapping[str, float] = {"partition": 600.0, "ask": 600.0, "run": 1200.0, "inspect": 600.0, "optimize": 1200.0}
"""When an attempt hangs, by stage; most take less than a hundredth of it."""
STAGES = ("partition",) * 12 + ("ask",) * 4 + ("run",) * 6 + ("optimize",)
_PER_PROCESS = 500


def mutants(seed: int, node_tests: bool) -> Iterator[Mutant]:
    """Mutants without end.

    Args:
        seed: The same gives the same.
        node_tests: Whether ONNX's node tests are among the models.
    """
    rng = random.Random(seed)
    builders: list[Callable[[], Any]] = [mnist, crossed, diamond, lambda: dense(activation="Relu")]
    fixed = [build() for build in builders] + list(operator_models().values())
    if node_tests:
        from onnx.backend.test.loader import load_model_tests

        # those with large tensors would make every step slow and add nothing
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some cases overflow on purpose while they are made
            cases = [case.model for case in load_model_tests(kind="node")]
        fixed += [model for model in cases if model.ByteSize() < 20_000]
    while True:
        model = random_model(rng, rng.randrange(2, 9)) if rng.random() < 0.4 else rng.choice(fixed)
        yield mutated(model, rng)


class Hunt:
    """Attempts mutants, each stage in a process that serves many and is replaced when it is lost.

    Args:
        keep: Folder for mutants that end otherwise than they may.
        say: Is told of them.

    Attributes:
        counts: How many ended how, by stage.
        defects: What was found.
    """

    def __init__(self, keep: Path, say: Callable[[str], None] = print) -> None:
        self.counts: Counter[str] = Counter()
        self.defects: list[str] = []
        self._keep = keep
        self._say = say
        self._process: IsolatedProcess | None = None

    def run(self, seed: int, stages: Sequence[str], *, seconds: float, most: int, node_tests: bool) -> None:
        """Attempts mutants until the time or their number is over.

        Args:
            seed: For the mutants and their stages.
            stages: What to do with them; one repeated comes up more often.
            seconds: How long.
            most: How many.
            node_tests: As of `mutants`.
        """
        end = time.monotonic() + seconds
        rng = random.Random(seed)
        try:
            with tempfile.TemporaryDirectory(prefix="collage-fuzz-") as folder:
                path = Path(folder, "mutant.onnx")
                for number, mutant in enumerate(itertools.islice(mutants(seed, node_tests), most)):
                    if time.monotonic() > end:
                        break
                    stage = rng.choice(stages)
                    path.write_bytes(mutant.data)
                    kind, detail = self._attempt(stage, path)
                    self.counts[f"{stage}: {kind}"] += 1
                    if kind not in _ALLOWED:
                        self.defects.append(f"{seed}-{number} {stage} {kind}: {detail} {list(mutant.steps)}")
                        self._say(self.defects[-1])
                        self._keep.mkdir(parents=True, exist_ok=True)
                        Path(self._keep, f"{seed}-{number}-{stage}.onnx").write_bytes(mutant.data)
        finally:
            if self._process is not None:
                self._process.close()

    def _attempt(self, stage: str, path: Path) -> tuple[str, str]:
        answer = self._asked(stage, path)
        if not isinstance(answer, Lost):
            return answer["kind"], answer["detail"]
        if stage in _UNGUARDED:
            # the fast stages prepare models in their own process; commands have another try it first
            guarded = self._asked("inspect", path)
            if not isinstance(guarded, Lost) and guarded["kind"] == "refused":
                return TOLD, guarded["detail"]
        return answer.kind, answer.reason

    def _asked(self, stage: str, path: Path) -> Any:
        if self._process is None or not self._process.alive or self._process.asked >= _PER_PROCESS:
            if self._process is not None:
                self._process.close()
            self._process = IsolatedProcess("tests.integration.fuzz.attempts", [], folder=ROOT)
        return self._process.ask(f"{stage} {path}", LIMIT_S[stage])


TOLD = "refused, for it ends or hangs the process that prepares it"
_ALLOWED = ("result", "refused", TOLD)
_UNGUARDED = ("partition", "ask", "run")


def main() -> None:
    """The command; its exit status is 1 if there was a defect."""
    parser = argparse.ArgumentParser(prog="python -m tests.integration.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir(), "collage-mutants"))
    parser.add_argument("--stages", default=",".join(STAGES))
    options = parser.parse_args()
    hunt = Hunt(options.keep, lambda text: print(text, flush=True))
    hunt.run(options.seed, options.stages.split(","), seconds=options.seconds, most=sys.maxsize, node_tests=True)
    print(json.dumps(dict(sorted(hunt.counts.items())), indent=1))
    kept = f", kept in {options.keep}" if hunt.defects else ""
    print(f"{sum(hunt.counts.values())} mutants, {len(hunt.defects)} defects{kept}")
    sys.exit(bool(hunt.defects))


if __name__ == "__main__":
    main()
