"""Commands over a small model, run with the toolchains that misbehave."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx_ir
from click.testing import CliRunner, Result

from collage.cli import main
from collage_core.ir.io.model_io import save_model
from collage_testing import GraphBuilder
from tests.integration.faults.told import Told


def model() -> onnx_ir.Model:
    """Mul, Add and Relu, then MatMul and Softmax."""
    g = GraphBuilder("small")
    x = g.input("x", 8, 16)
    value = g.op("Relu", g.op("Add", g.op("Mul", x, g.weight("scale", 16)), x))
    return g.model(g.op("Softmax", g.op("MatMul", value, g.weight("w", 16, 16))))


def collage(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@dataclasses.dataclass(frozen=True)
class Optimized:
    """A run of `optimize`.

    Attributes:
        package: What it wrote.
        facts: Its JSON.
        noted: What the plugins noted meanwhile, line by line: what, fault, process.
    """

    package: Path
    facts: Mapping[str, Any]
    noted: list[list[str]]

    def refusals(self, name: str) -> list[Told]:
        """Everything that is said of a target or toolchain."""
        return [
            *(Told(r["stage"], r["reason"]) for r in self.facts["refusals"] if r["target"] == name),
            *(
                Told("toolchain", t["unusable"])
                for t in self.facts["toolchains"]
                if t["name"] == name and t["unusable"]
            ),
        ]


def chosen(facts: Mapping[str, Any]) -> list[tuple[str, list[str], float]]:
    """Target, nodes and predicted cost of each region."""
    return [(region["target"], region["nodes"], region["cost_us"]) for region in facts["regions"]]


def optimized(folder: Path, log: Path, name: str, toolchains: tuple[str, ...]) -> Optimized:
    before = len(log.read_text(encoding="utf-8").splitlines()) if log.exists() else 0
    save_model(model(), folder / "small.onnx")
    package, facts = folder / f"{name}.collage", folder / f"{name}.json"
    result = collage(
        *("optimize", folder / "small.onnx", "-o", package, "--json", facts, "--toolchains", ",".join(toolchains)),
        *("--tuning-db", folder / "tuning.sqlite", "--preset", "quick", "--threads", 1),
        *("--warmup", 1, "--iterations", 3, "--duration", 0.001),
    )
    assert result.exit_code == 0, result.stderr
    lines = log.read_text(encoding="utf-8").splitlines()[before:]
    return Optimized(package, json.loads(facts.read_text(encoding="utf-8")), [line.split() for line in lines])
