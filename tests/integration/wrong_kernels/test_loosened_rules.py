"""Loosening any rule of the judge fails a test: each is loosened in a copy of the engine, whose tests are then run."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

import collage
from tests.from_source import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.plugins]

TESTS: Final = (
    "tests/engine/reference/test_choices.py",
    "tests/engine/reference/test_conditioning.py",
    "tests/engine/reference/test_discrepancy.py",
    "tests/engine/reference/test_exact_values.py",
    "tests/engine/reference/test_judge_rounded.py",
    "tests/engine/reference/test_rounded.py",
    "tests/engine/reference/test_vacuous.py",
    "tests/engine/measure/test_check_outputs.py",
    "tests/engine/measure/test_verify.py",
    "tests/integration/measure/test_worker.py",
)
"""Tests of the default run that are about the judge."""


@dataclasses.dataclass(frozen=True)
class Loosened:
    """A rule and what is less strict.

    Attributes:
        name: What is accepted then.
        module: Path in the engine.
        rule: Text of the rule, which stands there once.
        instead: What replaces it.
    """

    name: str
    module: str
    rule: str
    instead: str


_CONDITIONING: Final = "reference/conditioning.py"
_JUDGE: Final = "reference/judge.py"
_DISCREPANCY: Final = "reference/discrepancy.py"
_CHOICES: Final = "reference/choices.py"
_PERTURBED: Final = "reference/perturbed.py"
_ROUNDED: Final = "reference/rounded.py"
_VERDICTS: Final = "measure/worker/verdicts.py"
_CHECK: Final = "measure/worker/check_outputs.py"

RULES: Final = (
    Loosened("more noise than rounding makes", _CONDITIONING, "_MARGIN: Final = 16.0", "_MARGIN: Final = 256.0"),
    Loosened("more noise in 16 bits", _CONDITIONING, "_NARROW_MARGIN: Final = 4.0", "_NARROW_MARGIN: Final = 64.0"),
    Loosened("noise of sums in products", _CONDITIONING, "_OF_FACTORS: Final = 64.0", "_OF_FACTORS: Final = 0.0"),
    Loosened("noise of much larger elements", _CONDITIONING, "_NEARBY: Final = 6", "_NEARBY: Final = 40"),
    Loosened("noise of elements far above few", _CONDITIONING, "_FEWEST: Final = 32", "_FEWEST: Final = 100_000"),
    Loosened("errors relative to masks", _CONDITIONING, "_SENTINEL: Final = 10", "_SENTINEL: Final = 2000"),
    Loosened("errors relative to the largest element", _CONDITIONING, "_USUAL: Final = 0.999", "_USUAL: Final = 1.0"),
    Loosened("many units of each element", _CONDITIONING, "magnitudes * self.unit", "magnitudes * self.unit * 64"),
    Loosened("other zeros where nothing rounds", _CONDITIONING, "        zero_noise = 0.0\n", "        pass\n"),
    Loosened("any value behind an open choice", _JUDGE, "_CHANCES: Final = 4.0", "_CHANCES: Final = 1e9"),
    Loosened("other shapes and types", _JUDGE, "if found.structural:", "if found.structural and not name:"),
    Loosened("other integers", _JUDGE, 'return _differ(found) if found.mismatched else ""', 'return ""'),
    Loosened("choices that are wrong", _JUDGE, 'rounding explains" if wrong else ""', 'rounding" if wrong < 0 else ""'),
    Loosened("steps that are wrong", _JUDGE, 'wrong choices" if wrong else ""', 'wrong choices" if wrong < 0 else ""'),
    Loosened("any share of integers", _JUDGE, "found.mismatched_fraction > self._share(", "1 < self._share("),
    Loosened("numbers where NaN is right", _JUDGE, "        if found.reason:\n", "        if not found:\n"),
    Loosened(
        "elements that rounding does not explain",
        _JUDGE,
        "        if self._correct and found.beyond:\n            return _beyond(found)\n",
        "",
    ),
    Loosened("larger errors than allowed", _JUDGE, "<= self._relative:", "<= 100 * self._relative:"),
    Loosened("choices of NaN and infinity", _DISCREPANCY, "lost += int(", "lost += 0 * int("),
    Loosened("a few units beyond", _DISCREPANCY, "np.count_nonzero(ratios > 1)", "np.count_nonzero(ratios > 16)"),
    Loosened("other masks", _DISCREPANCY, "float((difference[masks] / np.abs(e[masks])).max(initial=0.0))", "0.0"),
    Loosened("other types", _DISCREPANCY, "actual.dtype != expected.dtype and", "expected is None and"),
    Loosened("the second best", _CHOICES, "np.abs(one - other) <= allowed", "np.abs(one - other) <= 100 * allowed"),
    Loosened(
        "indices out of range", _CHOICES, "fits: np.ndarray[Any, Any] = possible & (", "fits: Any = ~possible | ("
    ),
    Loosened("comparisons", _CHOICES, "np.abs(sides[0] - sides[1]) <= allowed", "np.abs(sides[0]) >= 0"),
    Loosened("positions taken twice", _CHOICES, "np.diff(ordered, axis=_axis(choice.node, made.ndim)) == 0", "0"),
    Loosened("integers below", _CHOICES, "(found >= low.astype(np.float64)) & ", ""),
    Loosened("integers above", _CHOICES, " & (found <= high.astype(np.float64))", ""),
    Loosened("the noise of longer sums", _PERTURBED, "_LANES: Final = 8", "_LANES: Final = 1e-3"),
    Loosened("coordinates", _PERTURBED, "_COORDINATE_SHARE: Final = 0.25", "_COORDINATE_SHARE: Final = 250.0"),
    Loosened("more quanta", _ROUNDED, "_PER_ROUNDING = 0.1", "_PER_ROUNDING = 1.0"),
    Loosened("quanta without bound", _ROUNDED, "_MOST = 3.0", "_MOST = 300.0"),
    Loosened("more elements a quantum off", _ROUNDED, "_ELEMENTS = 2.0", "_ELEMENTS = 200.0"),
    Loosened("more labels", _ROUNDED, "_MOST_LABELS = 0.3", "_MOST_LABELS = 1.0"),
    Loosened("outputs of zeros", "reference/vacuous.py", 'return "zero"', 'return ""'),
    Loosened("outputs of NaN", "reference/vacuous.py", 'else "NaN or infinite"', 'else ""'),
    Loosened("elements not written", _VERDICTS, "fill = 0 if", "return\n    fill = 0 if"),
    Loosened("outputs in memory of inputs", _VERDICTS, "if _share(output.value, other.value):", "if other is None:"),
    Loosened("memory replaced", _VERDICTS, "and buffer.value is not place:", "and place is None:"),
    Loosened(
        "second runs", _CHECK, 'return max(first, self._judged(bound, " when run again")), False', "return first, 0"
    ),
    Loosened("inputs written", _CHECK, "not same_bits(buffer.array, np.asarray(value)):", "not value.size:"),
    Loosened("writes beside memory", _CHECK, "            if where:\n", "            if not buffer:\n"),
    Loosened("later calls", "measure/worker/trial.py", "_CALLS = 128", "_CALLS = 1"),
    Loosened("other memory", _CHECK, "_LARGE_BYTES = 256 << 20", "_LARGE_BYTES = 0"),
    Loosened("inputs read when bound", _CHECK, "else np.roll(array, 1, axis)", "else value"),
    Loosened(
        "the first values again",
        _CHECK,
        "return max(error, self._judged(bound, ",
        "return error if bound else max(error, self._judged(bound, ",
    ),
)


def judged_by_tests(folder: Path, rule: Loosened | None) -> subprocess.CompletedProcess[str]:
    """Run the judge's tests over a copy of the engine in which a rule is loosened."""
    package = folder / "collage"
    shutil.copytree(Path(collage.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    if rule is not None:
        module = package / rule.module
        text = module.read_text(encoding="utf-8")
        assert text.count(rule.rule) == 1, rule
        module.write_text(text.replace(rule.rule, rule.instead), encoding="utf-8")
        compile(module.read_text(encoding="utf-8"), str(module), "exec")
    paths = [str(folder), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *TESTS]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def test_the_rules_as_they_are_pass(tmp_path: Path) -> None:
    done = judged_by_tests(tmp_path, None)

    assert done.returncode == pytest.ExitCode.OK, done.stdout


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name.replace(" ", "-"))
def test_loosening_a_rule_fails_a_test(rule: Loosened, tmp_path: Path) -> None:
    done = judged_by_tests(tmp_path, rule)

    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout
