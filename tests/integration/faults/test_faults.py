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
import psutil
import pytest

from collage.commands.load import load
from collage.reference import discrepancy_of, evaluate
from tests.integration.faults import misbehaving
from tests.integration.faults.conftest import UNLOADABLE
from tests.integration.faults.running import Optimized, chosen, collage, model, optimized
from tests.integration.faults.told import (
    CANDIDATES,
    DRIVER,
    MEASURED,
    RUN_AGAIN,
    UNUSABLE,
    Told,
    entries,
    one_line,
    says,
    target,
)
from tests.valid_json import valid

TOOLCHAINS = ("reference", *misbehaving.TOOLCHAINS)
INSPECTED = ("reference", "misbehaving", "offers-nothing", "crashes-in-targets")
"""Those `inspect` is asked about; each is a process."""
ADD = "add_0"


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
    assert {*DRIVER, *CANDIDATES, *MEASURED, *RUN_AGAIN} == set(misbehaving.FAULTS)
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
