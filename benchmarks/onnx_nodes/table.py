"""Results as a document and as a page."""

from __future__ import annotations

import datetime
import importlib.metadata
import platform
import textwrap
from collections import Counter
from collections.abc import Mapping
from typing import Any

from benchmarks.onnx_nodes.cases import Outcome

_LIBRARIES = ("onnx", "onnx-ir", "onnxruntime", "openvino", "numpy")
_TITLES = {"collage": "Collage", "onnxruntime": "ONNX Runtime", "reference": "ONNX's evaluator"}

_WHAT = """
The {cases:,} node tests of `onnx.backend.test` were run by ONNX's own runner with its tolerances through
`collage.onnx_backend`: each model is prepared, the installed toolchains propose candidates, which are built and
checked in their workers, and the plan is loaded and run. `reference` gets only what no other toolchain computes
correctly. ONNX Runtime and ONNX's evaluator, each alone, were run by the same runner.
"""
_NOTES = """
An output with an element further off than ONNX's tolerance sends its kernels to another toolchain, as an output that
is wrong by the scale of its tensors does. Random operators go to `reference`, because their outputs cannot be compared.
Bernoulli's expected outputs are random draws. ImageDecoder's implementation in ONNX needs Pillow, which was not
installed. ONNX's runner refuses `test_loop16_seq_none` whatever is computed: it takes the length of a scalar.
"""
_HOW = """
Run on {date} with {versions}; {machine}. Made by `python -m benchmarks.onnx_nodes`; all outcomes are in
`benchmarks/results/onnx-node-tests.json`.
"""


def document(operators: Mapping[str, str], found: Mapping[str, Mapping[str, Outcome]]) -> dict[str, Any]:
    """Build the JSON document of all results.

    Args:
        operators: The operator of each case, by its name.
        found: Outcomes by case, by backend.

    Raises:
        ValueError: If a backend did not run every case.
    """
    for backend, cases in found.items():
        if missing := [name for name in operators if name not in cases]:
            raise ValueError(f"{backend} did not run {len(missing)} cases, {missing[0]} the first; run it to the end")
    return {
        "schema_version": 1,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "versions": {name: importlib.metadata.version(name) for name in _LIBRARIES},
        "machine": platform.machine(),
        "cases": len(operators),
        "backends": {
            backend: {
                "passed": sum(cases[name].status == "pass" for name in operators),
                "statuses": dict(Counter(cases[name].status for name in operators)),
                "seconds": round(sum(cases[name].seconds for name in operators), 1),
                "toolchains": dict(Counter("+".join(cases[n].toolchains) for n in operators if cases[n].toolchains)),
                "failures": {
                    name: {"status": cases[name].status, "reason": cases[name].reason}
                    for name in operators
                    if cases[name].status != "pass"
                },
            }
            for backend, cases in found.items()
        },
        "operators": {
            operator: {
                "cases": sum(each == operator for each in operators.values()),
                **{
                    backend: sum(cases[name].status == "pass" for name, each in operators.items() if each == operator)
                    for backend, cases in found.items()
                },
            }
            for operator in sorted(set(operators.values()), key=lambda name: ("::" in name, name))
        },
    }


def page(found: Mapping[str, Any]) -> str:
    """Format the document as a Markdown page."""
    backends = found["backends"]
    mine = backends["collage"]
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    lines = [
        "# ONNX's own node tests",
        "",
        *_paragraph(_WHAT.format(cases=found["cases"])),
        "",
        *_paragraph(_HOW.format(date=found["date"], versions=versions, machine=found["machine"])),
        "",
        "| | passed | wrong outputs | errors | crashes | timeouts | seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, each in backends.items():
        counts = [each["statuses"].get(status, 0) for status in ("wrong", "error", "crash", "timeout")]
        lines.append(f"| {_TITLES[name]} | {each['passed']} | {' | '.join(map(str, counts))} | {each['seconds']:.0f} |")
    shares = sorted(mine["toolchains"].items(), key=lambda item: (-item[1], item[0]))
    lines += ["", "Who ran the kernels through Collage:", "", "| toolchains | cases |", "|---|---|"]
    lines += [f"| {name.replace('+', ' + ')} | {count} |" for name, count in shares]
    nobody = found["cases"] - sum(mine["toolchains"].values())
    if nobody:
        lines.append(f"| none: no kernel was needed, or none was found | {nobody} |")
    lines += ["", "## What fails through Collage", ""]
    lines += [*_paragraph(_NOTES), ""]
    if mine["failures"]:
        lines += ["| case | | reason |", "|---|---|---|"]
        lines += [
            f"| `{name}` | {each['status']} | {_cell(each['reason'])} |" for name, each in mine["failures"].items()
        ]
    else:
        lines.append("Nothing.")
    lines += [
        "",
        "## By operator",
        "",
        "Operators all of whose cases pass everywhere: " + ", ".join(_everywhere(found)) + ".",
        "",
        "| operator | cases | " + " | ".join(_TITLES[name] for name in backends) + " |",
        "|---|---|" + "---|" * len(backends),
    ]
    lines += [
        f"| {operator} | {counts['cases']} | {' | '.join(str(counts[name]) for name in backends)} |"
        for operator, counts in found["operators"].items()
        if any(counts[name] != counts["cases"] for name in backends)
    ]
    return "\n".join([*lines, ""])


def _paragraph(text: str) -> list[str]:
    return textwrap.wrap(" ".join(text.split()), 120, break_on_hyphens=False)


def _everywhere(found: Mapping[str, Any]) -> list[str]:
    return [
        f"{operator} ({counts['cases']})"
        for operator, counts in found["operators"].items()
        if all(counts[name] == counts["cases"] for name in found["backends"])
    ]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
