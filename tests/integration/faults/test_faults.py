"""Whatever a toolchain does, `optimize` succeeds without it, and everybody who asks is told why."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import re
import sqlite3
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir
import psutil
import pytest
from click.testing import CliRunner, Result

from collage.cli import main
from collage.commands.load import load
from collage.reference import discrepancy_of, evaluate
from collage_core.ir.io.model_io import save_model
from collage_testing import GraphBuilder
from tests.integration.faults import misbehaving
from tests.integration.faults.conftest import UNLOADABLE
from tests.valid_json import valid

TOOLCHAINS = ("reference", *misbehaving.TOOLCHAINS)
INSPECTED = ("reference", "misbehaving", "offers-nothing", "crashes-in-targets")
"""Those `inspect` is asked about; each is a process."""
ADD = "add_0"


@dataclasses.dataclass(frozen=True)
class Told:
    """What is said of one fault.

    Attributes:
        stage: In `refusals` of the JSON.
        reason: Regular expression of the reason.
    """

    stage: str
    reason: str


INTERRUPTED = r"did not finish within [\d.]+ s and was interrupted in hang \(misbehaving.py, line \d+\)"

DRIVER: Mapping[str, Told] = {
    "raises-in-register_patterns": Told("register_patterns", "RuntimeError: register_patterns is broken"),
    "wrong-type-in-register_patterns": Told("register_patterns", "answered with int, not NoneType"),
    "hangs-in-register_patterns": Told("register_patterns", INTERRUPTED),
    "raises-in-register_predicates": Told("register_predicates", "RuntimeError: register_predicates is broken"),
    "exits-in-register_predicates": Told("register_predicates", "SystemExit: register_predicates has had enough"),
    "wrong-type-in-register_predicates": Told("register_predicates", "answered with int, not NoneType"),
    "hangs-in-register_predicates": Told("register_predicates", INTERRUPTED),
    "raises-in-fusion_spec": Told("fusion_spec", "RuntimeError: fusion_spec is broken"),
    "wrong-type-in-fusion_spec": Told("fusion_spec", "answered with int, not FusionRule or NoneType"),
    "hangs-in-fusion_spec": Told("fusion_spec", INTERRUPTED),
}
"""Faults of hooks that run in the driver, which `doctor` sees, too."""

CANDIDATES: Mapping[str, Told] = {
    "raises-in-rule": Told("fusion_spec", "RuntimeError: rule is broken"),
    "wrong-type-in-rule": Told("fusion_spec", "its rule answered with int, not RuleOutcome"),
    "hangs-in-rule": Told("fusion_spec", INTERRUPTED),
    "raises-in-predicate": Told("predicate", "its predicate of 'Add' failed: RuntimeError: predicate is broken"),
    "wrong-type-in-predicate": Told("predicate", "its predicate of 'Add' answered with int, not Supported"),
    "hangs-in-predicate": Told("finding candidates", INTERRUPTED),
    "raises-in-check": Told("predicate", "add: its check of pattern 'add' failed: RuntimeError: check is broken"),
    "wrong-type-in-check": Told("predicate", "add: its check of pattern 'add' answered with int"),
    "raises-in-attrs_getter": Told("predicate", "its attrs_getter of pattern 'add' failed: RuntimeError"),
    "wrong-type-in-attrs_getter": Told("predicate", "its attrs_getter of pattern 'add' answered with int"),
    "refuses-in-predicate": Told("predicate", "predicate wants none of it"),
    "raises-in-query": Told("query", "RuntimeError: query is broken"),
    "wrong-type-in-query": Told("query", "answered with int, not Mapping or NoneType"),
    "refuses-in-query": Told("query", "query wants none of it"),
    "crashes-in-query": Told("query", "worker crash: killed by SIGSEGV.*misbehaving.py"),
    "hangs-in-query": Told("query", "worker deadline: it did not answer in time and was killed"),
}
"""What comes to light when a target is asked about a model, so that `inspect` says it, too."""

MEASURED: Mapping[str, Told] = {
    "raises-in-lower": Told("lower", "collage_lower: RuntimeError: lower is broken"),
    "exits-in-lower": Told("lower", "collage_lower: SystemExit: lower has had enough"),
    "wrong-type-in-lower": Told("lower", "collage_lower: answered with int, not Iterable or Unsupported"),
    "wrong-artifact-in-lower": Told("lower", r"collage_lower: of an artifact, files\['kernel'\] is str, not bytes"),
    "nothing-in-lower": Told("lower", "it yielded no variant"),
    "refuses-in-lower": Told("lower", "lower wants none of it"),
    "raises-in-load": Told("load", "collage_load: RuntimeError: load is broken"),
    "wrong-type-in-load": Told("load", "collage_load: int has no bind method"),
    "refuses-in-load": Told("lower", "it cannot load what it built: load wants none of it"),
    "raises-in-bind": Told("bind", "RuntimeError: bind is broken"),
    "wrong-type-in-bind": Told("bind", "bind answered with int, which cannot be called"),
    "raises-in-run": Told("run", "RuntimeError: run is broken"),
    "wrong-element": Told("check", r"wrong numbers: output '\w+': 1 of 128 elements differ by more"),
    "nan": Told("check", r"wrong numbers: output '\w+': "),
    "shape-off-by-one": Told("run", r"value '\w+' has shape \(8, 16\), got \(8, 17\)"),
    "skips-an-element": Told("check", r"wrong numbers: output '\w+': "),
    "writes-its-input": Told("check", r"it writes its input '\w+'"),
    "replaces-its-output": Told("check", r"it replaced the memory of '\w+', which is its caller's"),
    "accumulates": Told("check", "wrong numbers when run again"),
    "raises-in-measure": Told("measure", "collage_measure: RuntimeError: measure is broken"),
    "wrong-type-in-measure": Told("measure", "collage_measure: answered with int, not Measurement or NoneType"),
    "nan-in-measure": Told("measure", "collage_measure: ValueError: samples are finite"),
    "hangs-in-lower": Told("lower", "worker deadline: it did not answer in time and was killed"),
    "hangs-in-load": Told("load", "worker deadline: it did not answer in time and was killed"),
    "hangs-in-measure": Told("measure", "worker deadline: it did not answer in time and was killed"),
    "crashes-in-run": Told("run", r"worker crash: killed by SIGSEGV.*\(attempt 2\)"),
    "forks-and-exits": Told("run", r"worker crash: exited with status 0.*\(attempt 2\)"),
    "leaks": Told("run", r"worker memory: it grew to \d+ MiB, more than the 600 MiB it may, and was killed.*attempt 2"),
}
"""What only building and running shows."""

UNUSABLE: Mapping[str, str] = {
    "offers-nothing": "it offers no target on this machine",
    "refuses-in-targets": "targets wants none of this machine",
    "wrong-type-in-targets": "collage_targets: answered with int, not Sequence or Unsupported",
    "raises-in-targets": "RuntimeError: targets is broken",
    "hangs-in-targets": "worker deadline: it did not answer in time and was killed",
    "crashes-in-targets": "worker crash: killed by SIGSEGV.*misbehaving.py",
    "raises-at-import": "RuntimeError: import is broken",
    "exits-at-import": "SystemExit: import has had enough",
    "hangs-at-import": r"did not finish within [\d.]+ s and was interrupted in <module> \(hangs_at_import.py, line 2\)",
    "is-no-plugin": "int implements no hook",
}
"""Toolchains without a target."""


def model() -> onnx_ir.Model:
    """Mul, Add and Relu, then MatMul and Softmax."""
    g = GraphBuilder("small")
    x = g.input("x", 8, 16)
    value = g.op("Relu", g.op("Add", g.op("Mul", x, g.weight("scale", 16)), x))
    return g.model(g.op("Softmax", g.op("MatMul", value, g.weight("w", 16, 16))))


def collage(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def one_line(text: str) -> str:
    return " ".join(text.split())


def target(fault: str) -> str:
    return f"misbehaving(fault={fault})"


def entries(text: str, name: str) -> list[str]:
    """What is said of a target or toolchain: from each place that names it to the next that names one."""
    named = [*map(target, misbehaving.FAULTS), *UNUSABLE, "well", "reference"]
    either = "|".join(re.escape(each) for each in named)
    places = [match.start() for match in re.finditer(rf"(?<![\w.,(/-])(?:{either})(?=\s)", text)]
    said = [text[start:end] for start, end in itertools.pairwise([*places, len(text)])]
    return [each for each in said if each.startswith(f"{name} ")]


def says(text: str, name: str, pattern: str) -> bool:
    """Whether what is said of a target or toolchain holds a pattern."""
    return any(re.search(pattern, entry) for entry in entries(text, name))


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


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("faults")


@pytest.fixture(scope="module")
def first(folder: Path, log: Path) -> Optimized:
    return optimized(folder, log, "first", TOOLCHAINS)


@pytest.fixture(scope="module")
def again(folder: Path, log: Path, first: Optimized) -> Optimized:
    """A second run over the database of the first."""
    return optimized(folder, log, "again", ("reference", "well", "misbehaving"))


def test_a_run_in_which_something_failed_is_made_again(folder: Path, first: Optimized, again: Optimized) -> None:
    with contextlib.closing(sqlite3.connect(folder / "tuning.sqlite")) as database:
        kinds = {kind for (kind,) in database.execute("SELECT kind FROM document")}

    assert "race" in kinds
    assert "optimization" not in kinds


@pytest.fixture(scope="module")
def explanation(first: Optimized) -> str:
    result = collage("explain", first.package, "-v")
    assert result.exit_code == 0, result.stderr
    return one_line(result.stdout)


@dataclasses.dataclass(frozen=True)
class Report:
    """What a command said, as text and as JSON."""

    text: str
    facts: Mapping[str, Any]


@pytest.fixture(scope="module")
def inspection(folder: Path, first: Optimized) -> Report:
    facts = folder / "inspect.json"
    result = collage(
        *("inspect", folder / "small.onnx", "-v", "--json", facts, "--toolchains", ",".join(INSPECTED)),
    )
    assert result.exit_code == 0, result.stderr
    return Report(one_line(result.stdout), json.loads(facts.read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def diagnosis(folder: Path) -> Report:
    facts = folder / "doctor.json"
    result = collage("doctor", "--json", facts)
    assert result.exit_code == 0, result.stderr
    return Report(one_line(result.stdout), valid("doctor", facts.read_text(encoding="utf-8")))


def test_every_fault_there_is_is_looked_at() -> None:
    assert {*DRIVER, *CANDIDATES, *MEASURED} == set(misbehaving.FAULTS)
    assert set(UNUSABLE) == {*misbehaving.TOOLCHAINS, *UNLOADABLE} - {"well", "misbehaving"}


def test_what_is_said_of_one_is_not_what_is_said_of_the_next() -> None:
    text = f"{target('nan')} refused it (check): {target('leaks')} refused it (run): wrong numbers well 3 of 4"

    assert entries(text, target("nan")) == [f"{target('nan')} refused it (check): "]
    assert says(text, target("leaks"), "wrong numbers")
    assert not says(text, target("nan"), "wrong numbers")
    assert not says(text, target("leaks"), "3 of 4")


# The plan


def test_the_plan_uses_what_is_well_and_is_right(first: Optimized) -> None:
    assert {region["toolchain"] for region in first.facts["regions"]} <= {"well", "reference"}
    assert first.facts["max_error"] < 1e-6
    x = np.random.default_rng(7).normal(size=(8, 16)).astype(np.float32)
    session = load(first.package)

    [y] = session.run(None, {"x": x})

    [name] = [output.name for output in session.get_outputs()]
    assert discrepancy_of(y, evaluate(model(), {"x": x}).values[name]).error < 1e-6


# What is said


@pytest.mark.guards(
    "a driver-side hook (`register_patterns`, `register_predicates`, `fusion_spec`) raises, exits, "
    "answers wrongly, hangs"
)
@pytest.mark.guards(
    "a predicate or a plugin's own rule hangs; its rule raises, answers wrongly, or proposes what can be no kernel",
    "the target is out; what it proposed before stays",
    area="toolchains",
    cases=("hangs-in-predicate", "hangs-in-rule", "raises-in-rule"),
)
@pytest.mark.guards(
    "everything is refused (by predicate, query, lower, load), or lower yields nothing",
    "the candidates are out, with the plugin's words",
    area="toolchains",
    cases=("refuses-in-*", "nothing-in-lower"),
)
@pytest.mark.guards(
    "`lower`, `load`, `bind`, a call or `measure` raises, exits or answers with another type",
    "the candidate is out; the worker is used again",
    area="toolchains",
    cases=("*-in-lower*",),
)
@pytest.mark.guards(
    "one wrong element, NaN, a shape off by one, an element never written, an input written, an output "
    "added to, the caller's memory replaced or aliased",
    "the candidate is out",
    area="toolchains",
    cases=(
        "wrong-element",
        "nan",
        "shape-off-by-one",
        "skips-an-element",
        "writes-its-input",
        "accumulates",
        "replaces-its-output",
    ),
)
@pytest.mark.guards(
    "`lower`, `load` or `measure` hangs",
    "killed at the deadline, tried once, recorded",
    area="toolchains",
    cases=("hangs-in-lower", "hangs-in-load", "hangs-in-measure"),
)
@pytest.mark.guards(
    "a worker's memory grows without bound",
    "the worker is ended at 80 % of what was free; the candidate is out with the reason",
    area="toolchains",
    cases=("leaks",),
)
@pytest.mark.parametrize(("fault", "told"), [*DRIVER.items(), *CANDIDATES.items(), *MEASURED.items()])
def test_the_json_of_optimize_says_what_happened(first: Optimized, fault: str, told: Told) -> None:
    said = [each for each in first.refusals(target(fault)) if not each.reason.startswith("no predicate takes")]

    assert {each.stage for each in said} == {told.stage}
    assert all(re.search(told.reason, each.reason) for each in said), said


@pytest.mark.guards("a plugin's module raises, calls `sys.exit`, hangs, or is no plugin")
@pytest.mark.guards("`collage_targets` offers nothing, refuses, raises, answers with another type, hangs, crashes")
@pytest.mark.parametrize(("toolchain", "reason"), UNUSABLE.items())
def test_the_json_of_optimize_says_why_a_toolchain_took_no_part(first: Optimized, toolchain: str, reason: str) -> None:
    [said] = first.refusals(toolchain)

    assert said.stage == "toolchain"
    assert re.search(reason, said.reason), said


@pytest.mark.guards(
    "a driver-side hook (`register_patterns`, `register_predicates`, `fusion_spec`) raises, exits, "
    "answers wrongly, hangs"
)
@pytest.mark.parametrize(("fault", "told"), [*DRIVER.items(), *CANDIDATES.items(), *MEASURED.items()])
def test_explain_says_what_happened(explanation: str, fault: str, told: Told) -> None:
    assert says(explanation, target(fault), rf"refused [^:]*\({told.stage}\)[^:]*: .*?({told.reason})")


@pytest.mark.guards("a plugin's module raises, calls `sys.exit`, hangs, or is no plugin")
@pytest.mark.guards("`collage_targets` offers nothing, refuses, raises, answers with another type, hangs, crashes")
@pytest.mark.parametrize(("toolchain", "reason"), UNUSABLE.items())
def test_explain_says_why_a_toolchain_took_no_part(explanation: str, toolchain: str, reason: str) -> None:
    assert says(explanation, toolchain, f"is unusable: .*?{reason}")


@pytest.mark.guards(
    "a driver-side hook (`register_patterns`, `register_predicates`, `fusion_spec`) raises, exits, "
    "answers wrongly, hangs"
)
@pytest.mark.guards(
    "a predicate, `check` or `attrs_getter` raises or answers wrongly",
    "the node or match is refused with that reason",
    area="toolchains",
    cases=("raises-in-predicate-*",),
)
@pytest.mark.guards("`collage_query` raises, answers wrongly, hangs, crashes", cases=("*-in-query",))
@pytest.mark.parametrize(("fault", "told"), [*DRIVER.items(), *CANDIDATES.items()])
def test_inspect_says_what_happened(inspection: Report, fault: str, told: Told) -> None:
    [facts] = [each for each in inspection.facts["targets"] if each["target"] == target(fault)]
    whole = [] if not facts["unusable"] else [facts["unusable"]]
    said = whole + [r["reason"] for r in facts["refusals"] if ADD in r["nodes"]]

    assert facts["claimed_nodes"] == 0
    assert any(re.search(told.reason, reason) for reason in said), said
    assert says(inspection.text, target(fault), told.reason)


@pytest.mark.parametrize("fault", ["raises-in-register_patterns", "raises-in-register_predicates", "raises-in-rule"])
def test_asked_for_more_it_names_the_lines_of_the_plugin(inspection: Report, fault: str) -> None:
    [facts] = [each for each in inspection.facts["targets"] if each["target"] == target(fault)]
    said = [facts["unusable"], *(refusal["reason"] for refusal in facts["refusals"])]

    assert any(re.search(r" is broken \[.*misbehaving\.py:\d+ in \w+\]", reason) for reason in said), said


@pytest.mark.guards("a plugin's module raises, calls `sys.exit`, hangs, or is no plugin")
@pytest.mark.guards("`collage_targets` offers nothing, refuses, raises, answers with another type, hangs, crashes")
@pytest.mark.parametrize(
    ("toolchain", "reason"), [(name, why) for name, why in UNUSABLE.items() if name in (*INSPECTED, *UNLOADABLE)]
)
def test_inspect_says_why_a_toolchain_takes_nothing(inspection: Report, toolchain: str, reason: str) -> None:
    said = {each["target"]: each["unusable"] for each in inspection.facts["targets"]}
    said |= {each["name"]: each["reason"] for each in inspection.facts["failures"]}

    assert re.search(reason, said[toolchain])
    assert says(inspection.text, toolchain, reason)


@pytest.mark.guards(
    "a plugin's module raises, calls `sys.exit`, hangs, or is no plugin",
    "the toolchain is out; reason in `doctor`, `inspect`, `explain`, `--json`",
    area="toolchains",
    cases=("raises-at-import-*",),
)
@pytest.mark.guards(
    "`collage_targets` offers nothing, refuses, raises, answers with another type, hangs, crashes",
    "the toolchain is out; reason in `doctor`, `inspect`, `explain`, `--json`",
    area="toolchains",
    cases=(
        "offers-nothing",
        "refuses-in-targets",
        "raises-in-targets",
        "wrong-type-in-targets",
        "hangs-in-targets",
        "crashes-in-targets",
    ),
)
@pytest.mark.parametrize(("toolchain", "reason"), UNUSABLE.items())
def test_doctor_says_why_a_toolchain_is_unusable(diagnosis: Report, toolchain: str, reason: str) -> None:
    said = {each["name"]: each["unusable"] for each in diagnosis.facts["toolchains"]}
    said |= {each["name"]: each["reason"] for each in diagnosis.facts["failures"]}

    assert re.search(reason, said[toolchain])
    assert says(diagnosis.text, toolchain, reason)


@pytest.mark.guards(
    "a driver-side hook (`register_patterns`, `register_predicates`, `fusion_spec`) raises, exits, "
    "answers wrongly, hangs",
    "the target is out; hangs are interrupted and say where",
    area="toolchains",
)
@pytest.mark.parametrize(("fault", "told"), DRIVER.items())
def test_doctor_says_why_a_target_is_unusable(diagnosis: Report, fault: str, told: Told) -> None:
    [facts] = [each for each in diagnosis.facts["toolchains"] if each["name"] == "misbehaving"]
    expected = rf"failed in collage_{told.stage}: .*?{told.reason}"

    assert target(fault) not in facts["targets"]
    assert says(facts["unusable"], target(fault), expected)
    assert says(diagnosis.text, target(fault), expected)


def test_doctor_counts_what_works(diagnosis: Report) -> None:
    found = {each["name"]: each["targets"] for each in diagnosis.facts["toolchains"]}

    assert found["well"] == ["well"]
    assert found["reference"] == ["reference"]
    assert len(found["misbehaving"]) == len(misbehaving.FAULTS) - len(DRIVER)


# What it costs


@pytest.mark.guards("`lower`, `load`, `bind`, a call or `measure` raises, exits or answers with another type")
def test_a_worker_is_used_again_until_it_dies(first: Optimized) -> None:
    lowered = [(fault, process) for what, fault, process in first.noted if what == "lowering"]
    deadly = {*misbehaving.HANGING_FAULTS, *misbehaving.DEADLY_FAULTS}

    assert {fault for fault, _ in lowered} >= {*misbehaving.MILD_FAULTS, *deadly}
    for (fault, process), (_, following) in itertools.pairwise(lowered):
        assert (process != following) == (fault in deadly), fault


@pytest.mark.guards(
    "a kernel dies by SIGSEGV, `_exit`, or forks and exits with an orphan in a session of its own",
    "tried twice, in fresh workers, across runs too; then recorded and never again; orphans are ended",
    area="toolchains",
)
@pytest.mark.parametrize("fault", misbehaving.DEADLY_FAULTS)
def test_what_kills_its_worker_is_tried_twice_and_never_again(first: Optimized, again: Optimized, fault: str) -> None:
    processes = [process for what, name, process in first.noted if (what, name) == ("lowering", fault)]

    assert len(processes) == 2
    assert len(set(processes)) == 2
    assert all(name != fault for _, name, _ in again.noted)


@pytest.mark.guards("`lower`, `load`, `bind`, a call or `measure` raises, exits or answers with another type")
@pytest.mark.parametrize("fault", [*misbehaving.MILD_FAULTS, *misbehaving.HANGING_FAULTS])
def test_what_fails_otherwise_is_tried_once(first: Optimized, again: Optimized, fault: str) -> None:
    assert [name for what, name, _ in first.noted if what == "lowering"].count(fault) == 1
    assert all(name != fault for _, name, _ in again.noted)


@pytest.mark.guards(
    "`collage_query` raises, answers wrongly, hangs, crashes",
    "the target is out; a crash is asked twice, a hang once, then remembered in the database",
    area="toolchains",
)
def test_a_query_that_kills_its_worker_is_asked_twice_and_one_that_hangs_once(
    first: Optimized, again: Optimized
) -> None:
    asked = [name for what, name, _ in first.noted if what == "misdeed"]

    assert (asked.count("crashes-in-query"), asked.count("hangs-in-query")) == (2, 1)
    assert {"crashes-in-query", "hangs-in-query"}.isdisjoint(name for _, name, _ in again.noted)


@pytest.mark.guards(
    "a second run over a database full of failures", "measures nothing, says the same", area="toolchains"
)
def test_a_second_run_over_the_database_measures_nothing_and_says_the_same(first: Optimized, again: Optimized) -> None:
    assert again.facts["search"]["measured"] == 0
    assert chosen(again.facts) == chosen(first.facts)
    for fault in (*CANDIDATES, *MEASURED):
        assert again.refusals(target(fault)) == first.refusals(target(fault))


@pytest.mark.guards("a kernel dies by SIGSEGV, `_exit`, or forks and exits with an orphan in a session of its own")
def test_what_a_worker_left_running_is_ended(first: Optimized) -> None:
    left = [int(process) for what, fault, process in first.noted if (what, fault) == ("misdeed", "forks-and-exits")]

    assert len(left) == 2
    while any(psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE for pid in left):
        time.sleep(0.05)  # it was killed, and ends when the system comes to it
