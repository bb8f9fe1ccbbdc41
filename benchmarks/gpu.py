"""Compare plans with PyTorch and single toolchains on an NVIDIA GPU, on models of Collage's paper and newer ones.

Usage:
    python -m benchmarks.gpu [NAME...] --work DIR [--results FILE.json] [--batch 1,8] [--precision fp32,tf32,fp16,bf16]
        [--only A,B] [--toolchains cublas,triton] [--minutes M]

One model at one batch and precision is one race under `benchmarks/judge`, which imports nothing of Collage:
torch eager, `torch.compile(mode="max-autotune")`, ONNX Runtime's CUDA provider and TensorRT where they are
installed, each of `--toolchains` alone, the plan that `collage optimize` makes of all of them, and the
paper's ablation: native code generation, and one toolchain more in each step. The default of `--toolchains`
is all that are made for GPUs and that `collage doctor` finds usable on the device; the page gives the
reasons for the others. All contenders compute in the same precision, from the same weights, with CUDA
graphs where they support them; `contenders/torch_module.py` describes what is timed.

Existing results are not computed again, so an interrupted run resumes: weights, models, packages, tuning
records, Inductor's cache and races are all kept in DIR and FILE. With `--minutes` no new step is started
after that time; the same command resumes. `--list` shows the plan and runs nothing. `--device cpu`
rehearses everything without a GPU, and the page says so.

Exit status: 0; 1 if a plan did not run, is wrong or slower than the best single toolchain; 2 for misuse or
without a GPU; 3 if time ran out before everything was done.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import importlib.util
import json
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from rich.console import Console

from benchmarks.gpu_page import faults, markdown
from benchmarks.gpu_plan import (
    PRECISIONS,
    TOOLCHAINS,
    Case,
    Entrant,
    alone,
    cases,
    entrants,
    optimize_command,
    prepare_command,
    usable,
)
from benchmarks.gpu_steps import Clock, OutOfTimeError, gpu, made, targets_here, unusable_here
from benchmarks.judge import report as reports
from benchmarks.judge.inputs import read
from benchmarks.judge.rounds import Protocol, compete
from benchmarks.models.torch_zoo import ZOO
from benchmarks.page import environment, noting, written

ALL = ",".join(TOOLCHAINS)


def parser() -> argparse.ArgumentParser:
    """Create the command-line parser."""
    result = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    result.add_argument("names", nargs="*", metavar="NAME", help=f"models, of {', '.join(ZOO)}")
    result.add_argument("--work", type=Path, default=Path("gpu-out"), metavar="DIR", help="folder for files")
    result.add_argument("--results", type=Path, metavar="FILE.json", help="write races there and a page beside it")
    result.add_argument("--batch", default="1,8", metavar="N,N")
    result.add_argument("--precision", default="fp32", metavar="A,B", help=f"of {', '.join(PRECISIONS)}")
    result.add_argument("--only", metavar="A,B", help="contenders; --list shows them")
    result.add_argument(
        "--toolchains", metavar="A,B", help=f"what Collage mixes; each alone, too; default: of {ALL} those usable here"
    )
    result.add_argument("--device", default="cuda:0", help="cuda:N, numbered as nvidia-smi does; cpu to rehearse")
    result.add_argument("--preset", default="", help="as for `collage optimize`")
    result.add_argument("--budget", default="", help="as for `collage optimize`")
    result.add_argument("--rounds", type=int, default=40, help="rounds of a race")
    result.add_argument("--seconds", type=float, default=0.05, help="least duration of a burst")
    result.add_argument("--deadline", type=float, default=1800.0, help="longest time for one step, in seconds")
    result.add_argument("--minutes", type=float, help="begin nothing new after this long")
    result.add_argument("--seed", type=int, default=0, help="of weights and inputs")
    result.add_argument("--again", action="store_true", help="do races and refused steps anew")
    result.add_argument("--list", action="store_true", help="show what would run and stop")
    noting(result)
    return result


class Races:
    """Runs cases and stores their results.

    Args:
        options: The command line.
        device: Description of the device.
        clock: Remaining time.
        console: Receives progress messages.
    """

    def __init__(self, options: argparse.Namespace, device: str, clock: Clock, console: Console) -> None:
        self._options = options
        self._device = device
        self._clock = clock
        self._console = console
        self._only = alone(options.only) if options.only else None
        self._targets: list[str] | None = None
        self._unusable: dict[str, str] = {}
        self.done: dict[str, dict[str, Any]] = {}
        if options.results and options.results.is_file():
            content = json.loads(options.results.read_text(encoding="utf-8"))
            self.done = {race["key"]: race for race in content["races"]}

    def entrants(self, case: Case) -> list[Entrant]:
        """Return the contenders of a case."""
        options = self._options
        return entrants(case, options.work, self._only, options.toolchains, options.device)

    def choose(self) -> None:
        """Set `--toolchains`, if not given, to the GPU toolchains that are usable on the device.

        Raises:
            ValueError: If none is usable; gives the reasons.
        """
        options = self._options
        found = usable(self._targets_here(options.deadline), options.device)
        unusable = unusable_here(options.work)
        self._unusable = {name: unusable.get(name, "not installed") for name in TOOLCHAINS if name not in found}
        if not found:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in self._unusable.items())
            raise ValueError(f"no toolchain is usable on {options.device}: {reasons}")
        options.toolchains = ",".join(found)
        planned(options)  # whom `--only` names may be none of these

    def _targets_here(self, deadline_s: float) -> list[str]:
        if self._targets is None:
            self._targets = targets_here(self._options.work, deadline_s)
        return self._targets

    def run(self, plan: Iterable[Case]) -> None:
        """Run the races without results and write the results after each race.

        Raises:
            OutOfTimeError: If the time limit of `--minutes` is reached before all races are done.
        """
        for case in plan:
            known = self.done.get(case.key)
            of = self._device, self._options.toolchains
            if known is not None and (known["device"], known["toolchains"]) == of and not self._options.again:
                continue
            self._console.print(f"{case.key} ...")
            self.done[case.key] = self._race(case)
            self._write()
            for fault in faults(self.done[case.key]):
                self._console.print(f"  {fault}", markup=False)

    def _race(self, case: Case) -> dict[str, Any]:
        options, files = self._options, case.files(self._options.work)
        left = self._clock.left(options.deadline, f"the model {case.key}")
        reason = made(files.model, prepare_command(case, options.work, options.seed), left, options.again)
        unbuilt: dict[str, str] = {}
        ready: list[Entrant] = []
        for entrant in self.entrants(case):
            why = f"its model could not be written: {reason}" if reason else self._built(case, entrant)
            if why:
                unbuilt[entrant.contender.name] = why
            else:
                ready.append(entrant)
        summary: dict[str, Any] = {"model": {"name": case.key, "nodes": 0}, "contenders": [], "best_single": None}
        rounds: dict[str, list[float]] = {}
        protocol = Protocol(
            threads=len(os.sched_getaffinity(0)),
            rounds=options.rounds,
            process_rounds=None,  # some take minutes to start
            seconds=options.seconds,
            min_runs=2,
            warmup_s=options.seconds,
            settle_s=0.005,  # what spins on after a run is on the CPU, and nobody computes there
            deadline_s=self._clock.left(options.deadline, f"the race of {case.key}"),
        )
        if ready:
            summary, rounds = self._compete(case, ready, protocol)
        summary["contenders"] += [
            {"name": each.contender.name, "kind": each.contender.kind, "failed": unbuilt[each.contender.name]}
            for each in self.entrants(case)
            if each.contender.name in unbuilt
        ]
        reports.show(summary, self._console)
        return {
            "key": case.key,
            "name": case.name,
            "batch": case.batch,
            "precision": case.precision.name,
            **environment(),
            "device": self._device,
            "protocol": dataclasses.asdict(protocol),
            "toolchains": options.toolchains,
            "unusable": self._unusable,
            **summary,
            "rounds_us": rounds,
        }

    def _built(self, case: Case, entrant: Entrant) -> str:
        """Build a contender's package if it needs one; return why that failed, or an empty string."""
        package, options = entrant.package, self._options
        if package is None:
            return ""
        left = self._clock.left(options.deadline, f"{entrant.contender.name} of {case.key}")
        targets = self._targets_here(left)
        settings = {"preset": options.preset, "budget": options.budget, "seed": str(options.seed)}
        command = optimize_command(package, case, options.work, targets, settings, options.device)
        return made(package.path, command, left, options.again)

    def _compete(
        self, case: Case, ready: Sequence[Entrant], protocol: Protocol
    ) -> tuple[dict[str, Any], dict[str, list[float]]]:
        files = case.files(self._options.work)
        proto = onnx.load(files.model, load_external_data=False)
        inputs = read(files.inputs)
        with self._console.status(case.key) as status:
            outcomes = compete(
                files.model,
                inputs,
                [output.name for output in proto.graph.output],
                [entrant.contender for entrant in ready],
                protocol,
                tell=lambda line: status.update(f"{case.key}: {line}"),
                expected=read(files.expected),
            )
        for outcome in outcomes:
            if (outcome.failed or "").startswith("no answer") and protocol.deadline_s < self._options.deadline:
                raise OutOfTimeError(f"{outcome.contender.name} was ready for the race of {case.key}")
        model = {
            "name": case.key,
            "sha256": hashlib.sha256(files.model.read_bytes()).hexdigest(),
            "nodes": len(proto.graph.node),
            "parameters": ZOO[case.name].parameters,
            "inputs": {name: [str(array.dtype), *array.shape] for name, array in inputs.items()},
        }
        rounds = {o.contender.name: [float(np.median(each)) for each in o.rounds_us] for o in outcomes if o.rounds_us}
        return reports.summarise(model, outcomes), rounds

    def _write(self) -> None:
        if self._options.results:
            races = list(self.done.values())
            report = {"schema_version": 1, "races": races}
            written(self._options.results, report, markdown(races), self._options.note)


def planned(options: argparse.Namespace) -> list[Case]:
    """Return the cases that the options name.

    Raises:
        ValueError: If a model, batch, precision or contender is invalid.
    """
    unknown = [name for name in options.names if name not in ZOO]
    if unknown:
        raise ValueError(f"no model {', '.join(unknown)}; there are {', '.join(ZOO)}")
    precisions = options.precision.split(",")
    strange = [name for name in precisions if name not in PRECISIONS]
    if strange:
        raise ValueError(f"no precision {', '.join(strange)}; there are {', '.join(PRECISIONS)}")
    batches = [int(text) if text.isdigit() else 0 for text in options.batch.split(",")]
    if min(batches) < 1:
        raise ValueError(f"--batch is a list of numbers from 1 on, not {options.batch!r}")
    names = options.names or [name for name, each in ZOO.items() if not each.asked_for]
    plan = cases(names, batches, precisions)
    entrants(plan[0], options.work, alone(options.only) if options.only else None, options.toolchains or ALL)
    return plan


def listed(plan: Sequence[Case], races: Races) -> Iterable[str]:
    """Yield the plan as text: a line for each race and one for each contender's options."""
    for case in plan:
        yield f"{case.key}{' (done)' if case.key in races.done else ''}: {ZOO[case.name].about}"
        for entrant in races.entrants(case):
            shown: Mapping[str, str] = entrant.contender.options
            options = " ".join(f"{name}={value}" for name, value in shown.items())
            yield f"  {entrant.contender.name} ({entrant.contender.kind}): {entrant.contender.file.name} {options}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the races; the module's docstring defines the exit status."""
    options = parser().parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else 150)
    start = time.monotonic()
    try:
        plan = planned(options)
        chosen = bool(options.toolchains)
        options.toolchains = options.toolchains or ALL
        if options.list:
            for line in listed(plan, Races(options, "", Clock(), console)):
                print(line)
            return 0
        if importlib.util.find_spec("torch") is None:
            raise ValueError("PyTorch is not installed; it makes the models, and races")
        device = "no GPU: a rehearsal on the CPU" if options.device == "cpu" else gpu(options.device)
    except ValueError as error:
        print(f"gpu: {error}", file=sys.stderr)
        return 2
    options.work.mkdir(parents=True, exist_ok=True)
    # every library is to number devices as nvidia-smi does, and to compile only once
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str((options.work / "inductor").resolve()))
    end = None if options.minutes is None else start + 60 * options.minutes
    races = Races(options, device, Clock(end=end), console)
    if not chosen and options.device != "cpu":
        try:
            races.choose()
        except ValueError as error:
            print(f"gpu: {error}", file=sys.stderr)
            return 2
    try:
        races.run(plan)
    except OutOfTimeError as stopped:
        console.print(f"Time is up before {stopped}. The same command goes on from there.")
        return 3
    found = [races.done[case.key] for case in plan]
    return 1 if any(faults(race) for race in found) else 0


if __name__ == "__main__":
    sys.exit(main())
