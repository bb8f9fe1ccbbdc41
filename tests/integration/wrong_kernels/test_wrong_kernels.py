"""Which wrong kernels are caught before a package is saved, and by name."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, Final

import pytest
from click.testing import CliRunner

from collage.cli import main
from collage_core.ir.io.model_io import save_model
from tests.integration.wrong_kernels.cases import FAMILIES, Case, cases, model

pytestmark = pytest.mark.slow

LATE: Final = "a thread may write later than it is waited for"


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What came of all the cases.

    Attributes:
        reasons: Why each kernel was refused, by the node that it is named after.
        kept: Nodes whose wrong kernel is in the package.
    """

    reasons: Mapping[str, str]
    kept: frozenset[str]


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """Optimize the model of all cases."""
    folder = tmp_path_factory.mktemp("wrong")
    save_model(model(), folder / "wrong.onnx")
    report = folder / "report.json"
    result = CliRunner().invoke(
        main,
        [
            *("optimize", str(folder / "wrong.onnx"), "-o", str(folder / "out.collage"), "--json", str(report)),
            *("--toolchains", "honest,wrong", "--tuning-db", str(folder / "tuning.sqlite"), "--threads", "2"),
            *("--preset", "quick", "--search", "exact", "--warmup", "1", "--iterations", "3", "--duration", "0.001"),
        ],
    )
    assert result.exit_code == 0, result.stderr
    facts: Mapping[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    reasons = {
        node: fact["reason"] for fact in facts["refusals"] if fact["target"] == "wrong" for node in fact["nodes"]
    }
    kept = {node for region in facts["regions"] if region["toolchain"] == "wrong" for node in region["nodes"]}
    return Outcome(reasons, frozenset(kept))


def as_parameter(case: Case) -> Any:
    marks = [pytest.mark.xfail(reason=LATE)] if case.family == "late-write" else []
    return pytest.param(case, id=case.name, marks=marks)


@pytest.mark.parametrize("case", [as_parameter(case) for case in cases()])
def test_a_wrong_kernel_is_caught_by_name(case: Case, outcome: Outcome) -> None:
    assert case.name in outcome.reasons


def test_no_wrong_kernel_is_in_the_package(outcome: Outcome) -> None:
    assert outcome.kept == frozenset()


def test_there_are_enough_cases_of_every_family() -> None:
    assert len(cases()) >= 150
    assert {case.family for case in cases()} == set(FAMILIES)
    assert len({case.shape for case in cases()}) == len(cases())
