"""Count what it takes to find a model's sensitivity to rounding, and compare what is found with one product at a time.

Usage:
    python -m benchmarks.sensitivity [NAME...] --work DIR [--results FILE.json]

First the sensitivity of a BERT of 12 layers is found as `optimize --max-error` finds it, with default options and an
empty database, and then again with the database that this left. A forward pass is a run of the whole model: the
reference's, those of the calibration samples, and each run of the model with rounded operands. A compilation is a model
that a toolchain is given.

Then the same is done for smaller models, with as many groups in proportion as a BERT of 12 or of 24 layers gets, and
compared with one product at a time: a model of its own for each product, with QuantizeLinear and DequantizeLinear, or
with Cast to bfloat16 and back, around the operands of this one, run by ONNX Runtime on the same inputs. Errors are
those of the outputs relative to their scale, as everywhere; of an output that is a Softmax what it is taken of counts
as well. Models whose result is in DIR are not compared again.

Columns are Spearman's rank correlations with one product at a time. `int8` and `bf16` compare the errors of products,
where products share the error of a group, or of what is rounded together. `bf16, regions` compares what is rounded
together with one such region at a time: a model with all products of the region rounded, and no others. `bf16, sums`
compares it with the root of the sum of squares of its products, one at a time. `order` compares the order in which
products are put into 8-bit integers: by squared error, less that of bfloat16, for each operation. `other sample`
compares the errors in int8 with those of one product at a time on another sample, and `itself` one product at a time on
both.

Exits with 1 if it takes more than 120 forward passes or 20 compilations, if the second time takes any, or if for a
model `int8`, `bf16, regions` or `order` are below 0.9 with the groups of 12 layers.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import itertools
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from unittest import mock

import numpy as np
import onnx_ir
from numpy.typing import ArrayLike
from rich.console import Console

from benchmarks.judge.report import write_json
from benchmarks.models import MODELS
from benchmarks.models.__main__ import write_model
from benchmarks.models.entry import Entry
from benchmarks.models.stacked import ENTRY
from benchmarks.page import environment, head, lines_of, noting, written
from collage.build.verifying.output_check import bounded_values
from collage.measure.driver.client import Worker
from collage.measure.models.model_process import ModelProcess
from collage.options import OptimizeOptions
from collage.precision.sensitivity import groups as grouping
from collage.precision.sensitivity.finding import find_sensitivities
from collage.precision.sensitivity.groups import products_of
from collage.precision.sensitivity.samples import Samples
from collage.precision.sensitivity.sensitivities import Sensitivities
from collage.reference.discrepancy import relative_error
from collage.report.progress import SilentProgress
from collage.setup.environment import Environment
from collage.setup.settings import SetupChoices
from collage.setup.workload import Workload
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.flops import node_flops
from collage_core.ir.operators.quantising import Range, quantisable, quantise_products

NAMES: Final = ("bert_base_6", "mobilenet_v2", "resnet50")
MOST_PASSES, MOST_COMPILATIONS, LEAST = 120, 20, 0.9
"""What the acceptance allows, and the least correlation."""
RANKED: Final = ("int8", "bf16", "bf16, regions", "bf16, sums", "order", "other sample", "itself")
_HELD: Final = ("int8", "bf16, regions", "order")
"""Correlations that have to be at least that with the groups of 12 layers."""
LAYERS: Final[Mapping[int, int]] = {12: 73, 24: 145}
"""Products of a BERT, by its layers."""
_TOOLCHAINS, _RUNNER, _BOUND = "onnxruntime,openvino", "openvino", 0.02
_SAMPLES: Final = 2
"""Samples on which models of one product each are run; the first is what the search runs on."""


@dataclasses.dataclass
class Counts:
    """What ran.

    Attributes:
        reference: Runs of the reference.
        passes: Runs of the model by toolchains, rounded or not.
        compilations: Models that toolchains were given.
    """

    reference: int = 0
    passes: int = 0
    compilations: int = 0

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        """Count while the context is open."""
        series, evaluate = Worker.series, ModelProcess.evaluate

        def counted_series(worker: Worker, ask: Any) -> Any:
            self.compilations += 1
            self.passes += 1 + len(ask.further)
            return series(worker, ask)

        def counted_evaluate(process: ModelProcess, *given: Any, **options: Any) -> Any:
            self.reference += 1
            return evaluate(process, *given, **options)

        with (
            mock.patch.object(Worker, "series", counted_series),
            mock.patch.object(ModelProcess, "evaluate", counted_evaluate),
        ):
            yield


@contextlib.contextmanager
def opened(path: Path, entry: Entry, database: Path) -> Iterator[Environment[Workload]]:
    """Open a model as `optimize --max-error` does."""
    shapes = {name: array.shape for name, array in entry.make_inputs().items()}
    options = OptimizeOptions(max_error=_BOUND, tuning_db=str(database), toolchains=_TOOLCHAINS, input_shapes=shapes)
    workload = functools.partial(Workload, path, input_shapes=shapes, seed=options.seed)
    with Environment.open(workload, SetupChoices.of(options)) as made:
        yield made


def found(made: Environment[Workload], samples: Samples) -> Sensitivities:
    """Find the sensitivities as `within_bound` does."""
    targets = made.toolchains.targets()
    runner = next(each for each in targets if each.name == _RUNNER)
    low = [each for each in targets if each.is_chosen_by_region]
    return find_sensitivities(made, samples, runner, low, SilentProgress())


def samples_of(made: Environment[Workload]) -> Samples:
    """Return the calibration samples, which the runner runs."""
    return Samples(made, next(each for each in made.toolchains.targets() if each.name == _RUNNER))


def counted(path: Path, entry: Entry, database: Path) -> dict[str, Any]:
    """Find the sensitivities of a model and return what that took."""
    counts = Counts()
    with opened(path, entry, database) as made, counts.counting():
        result = found(made, samples_of(made))
    groups = len(result.groups)
    return {"products": sum(len(group.products) for group in result.groups), "groups": groups, **vars(counts)}


class Singles:
    """Models of which one product is rounded, run by ONNX Runtime.

    Args:
        graph: The prepared model's graph.
        samples: Inputs.
        folder: Receives the models; the weights are written once.
    """

    def __init__(self, graph: DataflowGraph, samples: Sequence[Mapping[str, Any]], folder: Path) -> None:
        self._samples = samples
        self._path = folder / "single.onnx"
        base = folder / "exact.onnx"
        model = graph.model.clone()
        values = {str(value.name): value for node in model.graph for value in node.outputs}
        names = dict.fromkeys(itertools.chain.from_iterable(bounded_values(graph).values()))
        compared = [values[name] for name in names if name in values]
        model.graph.outputs.clear()
        model.graph.outputs.extend(compared)
        onnx_ir.save(model, base, external_data="weights.bin")
        self._model = onnx_ir.load(base)
        place = {node: number for number, node in enumerate(graph.model.graph)}
        self._place = {index: place[graph.nodes[index]] for index, _ in products_of(graph)}
        self._expected = {each: self._run(self._model, exact=each) for each in (False, True)}

    def int8(self, index: int, span: Range) -> list[float]:
        """Return the error on each sample with a product in 8-bit integers."""
        model = self._model.clone()
        node = list(model.graph)[self._place[index]]
        product = quantisable(node)
        assert product is not None
        quantise_products(model.graph, [(node, span, product)], constants_are_nodes=False)
        return self._errors(model, exact=False)

    def bf16(self, *indices: int) -> list[float]:
        """Return the error on each sample with the operands of some products rounded to bfloat16."""
        model = self._model.clone()
        nodes = list(model.graph)
        for index in indices:
            node = nodes[self._place[index]]
            for place, value in enumerate(node.inputs[:2]):
                for to in (onnx_ir.DataType.BFLOAT16, onnx_ir.DataType.FLOAT):
                    name = f"single.{index}.{place}.{to.name}"
                    cast = onnx_ir.Value(name=name, type=onnx_ir.TensorType(to))
                    model.graph.insert_before(
                        node, onnx_ir.node("Cast", [value], {"to": int(to)}, outputs=[cast], name=f"{name}.node")
                    )
                    value = cast
                node.replace_input_with(place, value)
        return self._errors(model, exact=True)

    def _errors(self, model: onnx_ir.Model, *, exact: bool) -> list[float]:
        pairs = zip(self._run(model, exact=exact), self._expected[exact], strict=True)
        return [max(map(relative_error, made, wanted)) for made, wanted in pairs]

    def _run(self, model: onnx_ir.Model, *, exact: bool) -> list[list[Any]]:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        if exact:  # nothing is left out that looks useless, such as a Cast there and back
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.add_session_config_entry("session.disable_prepacking", "1")  # each is run twice only
        onnx_ir.save(model, self._path)
        session = onnxruntime.InferenceSession(self._path, options, providers=["CPUExecutionProvider"])
        return [session.run(None, dict(sample)) for sample in self._samples]


def spearman(first: ArrayLike, second: ArrayLike) -> float:
    """Return the rank correlation of two sequences.

    Examples:
        >>> round(spearman([1.0, 2.0, 3.0, 4.0], [10.0, 20.0, 40.0, 30.0]), 6)
        0.8
    """
    ranks = []
    for values in (first, second):
        _, inverse, count = np.unique(values, return_inverse=True, return_counts=True)
        ranks.append((np.cumsum(count) - (count - 1) / 2)[inverse])
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def correlations(
    single: Mapping[str, Any], result: Mapping[str, Any], regions_alone: Sequence[float]
) -> dict[str, float]:
    """Return the correlations of grouped errors with those of one product at a time.

    Args:
        single: Errors of one product at a time: `int8` and `bf16` by product and sample, and `flops`.
        result: Errors by product, `int8` and `bf16`, and `regions`: numbers of products that were rounded together.
        regions_alone: Error with the products of each of these regions rounded to bfloat16, one region at a time.
    """
    eight, sixteen, flops = (np.asarray(single[name]) for name in ("int8", "bf16", "flops"))
    mine = {name: np.asarray(result[name]) for name in ("int8", "bf16")}
    regions = [
        [float(np.sqrt(np.square(errors[members]).sum())) for members in result["regions"]]
        for errors in (mine["bf16"], sixteen[:, 0])
    ]
    prices = [
        (np.square(high) - np.square(low)) / flops
        for high, low in ((mine["int8"], mine["bf16"]), (eight[:, 0], sixteen[:, 0]))
    ]
    return {
        "int8": spearman(mine["int8"], eight[:, 0]),
        "bf16": spearman(mine["bf16"], sixteen[:, 0]),
        "bf16, regions": spearman(regions[0], regions_alone),
        "bf16, sums": spearman(*regions),
        "order": spearman(*prices),
        "other sample": spearman(mine["int8"], eight[:, 1]),
        "itself": spearman(eight[:, 0], eight[:, 1]),
    }


def by_product(result: Sensitivities) -> dict[str, Any]:
    """Return the errors of each product, and the numbers of the products that are rounded together."""
    sizes = [len(group.products) for group in result.groups]
    starts = np.cumsum([0, *sizes])
    together = grouping.rounded_together(result.groups)
    inside = [[n for n in range(len(sizes)) if mask >> n & 1] for mask in together]
    return {
        "groups": len(sizes),
        "int8": [error / size**0.5 for error, size in zip(result.int8, sizes, strict=True) for _ in range(size)],
        "bf16": [error / size**0.5 for error, size in zip(result.bf16, sizes, strict=True) for _ in range(size)],
        "regions": [[int(p) for n in numbers for p in range(starts[n], starts[n + 1])] for numbers in inside],
    }


def compared(path: Path, entry: Entry, work: Path) -> dict[str, Any]:
    """Compare what is found of a model with one product at a time."""
    with opened(path, entry, work / "tuning.sqlite") as made:
        samples = samples_of(made)
        ranges = samples.ranges()
        grouped = {}
        for layers, products in LAYERS.items():
            most = {
                name: max(1, round(len(ranges) * min(1.0, getattr(grouping, name) / products)))
                for name in ("MOST_GROUPS", "MOST_ROUNDED")
            }
            with mock.patch.multiple(grouping, **most):
                grouped[layers] = by_product(found(made, samples))
        singles = Singles(made.graph, made.workload.calibration[:_SAMPLES], work)
        single = {
            "int8": [singles.int8(index, span) for index, span in sorted(ranges.items())],
            "bf16": [singles.bf16(index) for index in sorted(ranges)],
            "flops": [max(1.0, node_flops(made.graph, index) or 0.0) for index in sorted(ranges)],
        }
        order = sorted(ranges)
        alone = {
            layers: [singles.bf16(*(order[number] for number in members))[0] for members in result["regions"]]
            for layers, result in grouped.items()
        }
    rows = [
        {
            "layers": layers,
            "groups": result["groups"],
            "regions": len(result["regions"]),
            "correlations": correlations(single, result, alone[layers]),
        }
        for layers, result in grouped.items()
    ]
    return {"model": entry.name, "products": len(ranges), "rows": rows, "single": single, "grouped": grouped}


def markdown(report: Mapping[str, Any]) -> str:
    """Format the results as a page."""
    paragraphs = (__doc__ or "").split("\n\n")[2:-1]
    how = "\n\n".join(" ".join(each.split()) for each in paragraphs)
    lines = head("Sensitivity to rounding", report["environment"], how, "a process for each toolchain")
    rows = [
        (which, *(str(each[name]) for name in ("products", "groups", "reference", "passes", "compilations")))
        for which, each in (("empty database", report["first"]), ("same database", report["again"]))
    ]
    headings = (ENTRY.name, "products", "groups", "runs of the reference", "runs of a toolchain", "compilations")
    lines += [*lines_of(headings, rows), ""]
    compared_rows = [
        (
            each["model"],
            str(each["products"]),
            str(row["layers"]),
            str(row["groups"]),
            str(row["regions"]),
            *(f"{row['correlations'][name]:.3f}" for name in RANKED),
        )
        for each in report["models"]
        for row in each["rows"]
    ]
    columns = ("model", "products", "as for layers", "groups in int8", "regions in bf16", *RANKED)
    return "\n".join([*lines, *lines_of(columns, compared_rows)]) + "\n"


def exceeded(report: Mapping[str, Any]) -> list[str]:
    """Return what is not as it has to be, as sentences."""
    first, again = report["first"], report["again"]
    wrong = []
    if first["reference"] + first["passes"] > MOST_PASSES or first["compilations"] > MOST_COMPILATIONS:
        wrong.append("it takes too many runs or compilations")
    if again["reference"] + again["passes"] + again["compilations"]:
        wrong.append("the second time something is run")
    for each in report["models"]:
        for name in _HELD:
            value = each["rows"][0]["correlations"][name]
            wrong += [f"{each['model']}: {name} has {value:.3f}"] if value < LEAST else []
    return wrong


def main(arguments: Sequence[str] | None = None) -> int:
    """Count and compare; return 1 if something is not as it has to be."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sensitivity", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: {', '.join(NAMES)}")
    parser.add_argument("--work", type=Path, default=Path("demo-out/sensitivity"), metavar="DIR", help="for files")
    parser.add_argument("--results", type=Path, metavar="FILE.json", help="write everything there and a page beside it")
    noting(parser)
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.names if name not in MODELS]:
        parser.error(f"there is no model {', '.join(unknown)}; there are {', '.join(MODELS)}")
    options.work.mkdir(parents=True, exist_ok=True)
    console = Console()
    models = []
    for name in options.names or NAMES:
        console.print(f"{name} ...")
        kept = options.work / f"{name}.json"
        if not kept.exists():
            write_json(kept, compared(_written(options.work, MODELS[name]), MODELS[name], options.work))
        models.append(json.loads(kept.read_text(encoding="utf-8")))
    path, database = _written(options.work, ENTRY), options.work / "counted.sqlite"
    database.unlink(missing_ok=True)
    console.print(f"{ENTRY.name} ...")
    counts = {which: counted(path, ENTRY, database) for which in ("first", "again")}
    report = {"schema_version": 1, "environment": environment(), **counts, "models": models}
    page = markdown(report)
    if options.results:
        written(options.results, report, page, options.note, afresh=True)
    console.print(page, markup=False)
    for wrong in (problems := exceeded(report)):
        console.print(wrong, markup=False)
    return 1 if problems else 0


def _written(work: Path, entry: Entry) -> Path:
    path = work / f"{entry.name}.onnx"
    if not path.exists():
        write_model(path, entry.build(), entry.make_inputs())
    return path


if __name__ == "__main__":
    sys.exit(main())
