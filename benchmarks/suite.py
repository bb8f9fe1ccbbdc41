"""Run the whole suite: optimize every model, check its outputs, and have the independent judge time the plan.

Usage:
    python -m benchmarks.suite [NAME...] --work DIR [--results FILE.json] [--runs N] [--generated] [--without TOOLCHAIN]

Every model is optimized into a tuning database of its own. Existing results are not computed again, so an interrupted
run resumes; `--again` starts over. Models that are in FILE.json but not in DIR stay as they are, so a run may go on in
another folder. Every step is a separate process, run with the commands a user would type. With `--without`, models
whose plan has a kernel of that toolchain are optimized without it, too, and both plans raced.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.all_models import shapes, writers
from benchmarks.judge.inputs import beside
from benchmarks.models import MODELS
from benchmarks.page import noting, written
from benchmarks.records import built_in
from benchmarks.suite_page import as_called, contender, markdown, table

_CONTENDER = "{name}=benchmarks/contenders/collage_package.py:model={package}"
_SINGLES = "onnxruntime,onnxruntime-nospin,openvino"
"""Tuned contenders only: with their defaults they are slower or equal, and the suite is long."""
_QUANTISE = "quantise"
"""Step that may fail: then nobody runs the whole model in 8-bit integers."""
_LIMIT = 1.03
"""Limit that the interval of a plan's ratio to the best single toolchain must stay below."""


class Model:
    """One model's files and steps.

    Args:
        name: Its name, in `benchmarks.all_models`.
        work: Folder for its files.
        max_error: Error that is allowed; None for plans in the model's own types.
    """

    def __init__(self, name: str, work: Path, max_error: float | None = None) -> None:
        self.name = name
        self.max_error = max_error
        self.model = work / f"{name}.onnx"
        self.package = work / f"{name}.collage"
        self.found = work / f"{name}.optimize.json"
        self.compared = work / f"{name}.compare.json"
        self.quantised = work / f"{name}.int8.onnx"

    @property
    def is_generated(self) -> bool:
        """Whether it is one of the generator's."""
        return self.name not in MODELS

    def judged(self, run: int) -> Path:
        """Report of one run of the judge."""
        return self.model.with_suffix(f".judged-{run}.json")

    def without(self, toolchain: str) -> tuple[Path, Path]:
        """Return the files of package and report of the plan without a toolchain."""
        stem = self.model.with_suffix(f".without-{toolchain}")
        return stem.with_name(f"{stem.name}.collage"), stem.with_name(f"{stem.name}.json")

    def search(self, toolchains: str, preset: str = "default") -> Iterator[tuple[str, Path, list[str]]]:
        """Yield the steps up to the plan: a name, the file that marks completion, and the command.

        Args:
            toolchains: As for `collage optimize`.
            preset: As for `collage optimize`.
        """
        folder = str(self.model.parent)
        yield "build", self.model, [sys.executable, "-m", "benchmarks.all_models", self.name, "--out", folder]
        yield "optimize", self.found, self._optimize(self.package, self.found, toolchains, preset)

    def steps(self, arguments: argparse.Namespace) -> Iterator[tuple[str, Path, list[str]]]:
        """Yield all steps of a model, as `search` does."""
        yield from self.search(arguments.toolchains, arguments.preset)
        plans = {"collage": self.package}
        if arguments.without in {target.partition("(")[0] for target in targets_of(self.package)}:
            package, report = self.without(arguments.without)
            others = ",".join(each for each in arguments.toolchains.split(",") if each != arguments.without)
            plans[f"without-{arguments.without}"] = package
            name = f"optimize without {arguments.without}"
            yield name, report, self._optimize(package, report, others, arguments.preset)
        compare = [sys.executable, "-m", "collage.cli", "compare", str(self.model), str(self.package)]
        compare += ["--json", str(self.compared), "--seed", "7"]
        if self.max_error is not None:
            compare += ["--rtol", str(self.max_error)]
        yield "compare", self.compared, compare
        if self.max_error is not None:
            command = [sys.executable, "-m", "benchmarks.judge.quantised", str(self.model), str(self.quantised)]
            yield _QUANTISE, self.quantised, command
        for run in range(1, arguments.runs + 1):
            judge = [sys.executable, "-m", "benchmarks.harness", str(self.model), "--rounds", str(arguments.rounds)]
            judge += ["--only", _SINGLES + (",openvino-bf16" if self.max_error is not None else "")]
            if self.quantised.exists():
                for name, file in (("openvino", "openvino_request.py"), ("onnxruntime", "onnxruntime_session.py")):
                    judge += ["--contender", f"{name}-int8=benchmarks/contenders/{file}:model={self.quantised}"]
            for name, package in plans.items():
                judge += ["--contender", _CONTENDER.format(name=name, package=package)]
            yield f"judge, run {run}", self.judged(run), [*judge, "--json", str(self.judged(run))]

    def _optimize(self, package: Path, report: Path, toolchains: str, preset: str) -> list[str]:
        command = [sys.executable, "-m", "collage.cli", "optimize", str(self.model), "-o", str(package)]
        command += ["--toolchains", toolchains, "--preset", preset, "--json", str(report)]
        command += ["--tuning-db", str(self._database(report)), *shapes(self.model)]
        if self.is_generated:  # some take indices, and a scatter to one place twice means nothing
            command += ["--inputs", str(beside(self.model))]
        if self.max_error is not None:
            command += ["--max-error", str(self.max_error)]
        return command

    @staticmethod
    def _database(report: Path) -> Path:
        return report.with_suffix(".sqlite")

    def result(self, without: str | None = None) -> dict[str, Any]:
        """Return all results of the model as JSON, with every existing run of the judge.

        Args:
            without: Toolchain that was left out of a second plan, where the first has kernels of it.
        """
        found = json.loads(self.found.read_text(encoding="utf-8"))
        compared = json.loads(self.compared.read_text(encoding="utf-8"))
        judged = sorted(self.model.parent.glob(self.judged(0).name.replace("-0.", "-*.")))
        reports = [json.loads(path.read_text(encoding="utf-8")) for path in judged]
        result = {
            "name": self.name,
            "generated": self.is_generated,
            "nodes": found["model"]["nodes"],
            "targets": targets_of(self.package),
            "plan": [
                {key: region[key] for key in ("id", "toolchain", "cost_us")}
                | {"nodes": len(region["nodes"])}
                | products_of(region)
                for region in found["regions"]
            ],
            "predicted_ms": found["predicted_ms"],
            "measured_ms": found["measured_ms"],
            "max_error": max(found["max_error"], compared["max_error"]),
            "numbers_pass": compared["passed"],
            "max_error_allowed": self.max_error,
            "seconds": found["search"]["seconds"],
            "measured_candidates": found["search"]["measured"],
            "built": built_in(self._database(self.found)),
            "judged": [report["models"][0]["contenders"] for report in reports],
            "environment": {key: reports[-1][key] for key in ("date", "host", "versions", "protocol", "threads")},
        }
        if without is not None:
            package, report = self.without(without)
            made = report.is_file()
            result["without"] = {"toolchain": without, "targets": targets_of(package) if made else None}
            if made:
                left = json.loads(report.read_text(encoding="utf-8"))
                result["without"] |= {"kernels": len(left["regions"]), "predicted_ms": left["predicted_ms"]}
        return result


def targets_of(package: Path) -> list[str]:
    """Return the targets that a package has kernels of, sorted."""
    with zipfile.ZipFile(package) as archive:
        return sorted(json.loads(archive.read("manifest.json"))["targets"])


def products_of(region: Mapping[str, Any]) -> dict[str, int]:
    """Return how many products of a region there are to decide in precision, and how many are 8-bit integers."""
    precision = region.get("precision")
    return {} if precision is None else {"products": precision["products"], "int8": len(precision["int8"])}


def run_step(name: str, done: Path, command: Sequence[str], console: Console, again: bool) -> bool:
    """Run a command unless its result exists; report the error if it fails."""
    if done.exists() and not again:
        return True
    console.print(f"  {name} ...")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")])}
    run = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if run.returncode != 0:
        console.print(f"  {name} failed ({run.returncode}): {run.stderr.strip()[-1500:]}", markup=False)
        return done.exists()  # `compare` reports numbers that are wrong and exits with 1
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the suite; return 1 if a model failed, has wrong outputs, or a plan that is slower than allowed.

    Models that were in the results before count, too.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.suite", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all models of the suite")
    parser.add_argument("--generated", action="store_true", help="run the models of the generator, too")
    parser.add_argument("--work", type=Path, default=Path("demo-out/suite"), metavar="DIR", help="folder for files")
    parser.add_argument(
        "--results", type=Path, metavar="FILE.json", help="write everything there and a table beside it"
    )
    parser.add_argument("--preset", default="default")
    parser.add_argument("--rounds", type=int, default=120, help="rounds of the judge")
    parser.add_argument("--runs", type=int, default=1, help="fresh runs of the judge, at least")
    parser.add_argument("--toolchains", default="onnxruntime,openvino", help="as for `collage optimize`")
    parser.add_argument("--without", metavar="TOOLCHAIN", help="race plans without one of the toolchains, too")
    parser.add_argument("--max-error", type=float, help="as for `collage optimize`")
    parser.add_argument("--again", action="store_true", help="do everything anew")
    noting(parser)
    options = parser.parse_args(arguments)
    known = writers()
    if unknown := sorted(set(options.names) - set(known)):
        print(f"suite: no model {', '.join(unknown)}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    options.work.mkdir(parents=True, exist_ok=True)
    console = Console(width=None if sys.stdout.isatty() else 150)
    found = {} if options.again else _models_in(options.results)
    failed = []

    def results() -> list[dict[str, Any]]:
        return [found[each] for each in known if each in found]

    for name in options.names or (known if options.generated else MODELS):
        model = Model(name, options.work, options.max_error)
        if name in found and not model.model.is_file():
            console.print(f"{name}: is in {options.results}")
            continue
        console.print(f"{name}")
        steps = model.steps(options)
        if all(run_step(*step, console=console, again=options.again) or step[0] == _QUANTISE for step in steps):
            found[name] = model.result(options.without)
        else:
            found.pop(name, None)
            failed.append(name)
        if options.results and found:
            report = {"schema_version": 1, "models": results(), "failed": failed}
            written(options.results, report, markdown(results()), options.note, afresh=options.again)
    console.print(table(results()))
    ok = all(_holds(result) for result in results())
    return 0 if ok and not failed else 1


def _models_in(results: Path | None) -> dict[str, dict[str, Any]]:
    """Return the results of an earlier run by model; none without its file."""
    if results is None or not results.is_file():
        return {}
    return {model["name"]: model for model in json.loads(results.read_text(encoding="utf-8"))["models"]}


def _holds(result: Mapping[str, Any]) -> bool:
    ways = [way for contenders in result["judged"] for way in (contenders, as_called(contenders))]
    plans = [contender(contenders, "collage") for contenders in ways]
    fast = all(plan is not None and plan["ratio_vs_best_single"]["ci95"][1] <= _LIMIT for plan in plans)
    return fast and bool(result["numbers_pass"])


if __name__ == "__main__":
    sys.exit(main())
