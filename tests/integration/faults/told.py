"""What is said of each fault, and of each toolchain without a target."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Mapping, Sequence

from tests.integration.faults import misbehaving


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

RUN_AGAIN: Sequence[str] = ("accumulates",)
"""What only a second run shows, which kernels that are chosen make: see `tests/integration/measure/test_worker.py`."""

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
